"""The envelope of a message from a chat: who sent it, where and when, and what was said before it.

It does not own what else a gateway writes into a message (`scaffolding.py`).

- Only a gateway's own stamp is cut off: it names a zone, a sender or a channel. A date that the
  user wrote stays.
- In a group, a message belongs to whom the gateway says, and what others said before to them.
- Nothing here looks further than a bounded stretch from where it begins.
"""

import re
from dataclasses import dataclass
from typing import Final

_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?"
_ZONE = r"(?: ?(?:Z|[A-Z]{2,5})(?:[+-]\d{1,2}(?::?\d\d)?)?| ?[+-]\d\d:?\d\d)"
_CHANNEL = (
    r"(?:Channel|WebChat|WhatsApp|Telegram|Signal|Slack|Discord|Google ?Chat|iMessage|BlueBubbles"
    r"|SMS|(?:MS|Microsoft )?Teams|Matrix|Mattermost|IRC|LINE|Zalo(?: Personal)?|Feishu|Lark|QQ"
    r"|WeChat|WeCom|DingTalk|Nostr|Twitch|Nextcloud(?: Talk)?|Synology(?: Chat)?|Rocket\.?Chat"
    r"|XMPP|Viber|Messenger|Instagram|KakaoTalk|Threema|Tlon|Zulip|Webex|E-?mail|Voice|Web|API)"
)
_FROM = r"[^\[\]\n]{0,100}"
_SINCE = r"\+(?:\d{1,4}[smhdwy]\w{0,2}|just now)"  # the message before it
_SENDER = rf"(?:{_SINCE}|\+\d{{7,15}}|\bid:\S{{1,64}}|@[\w.-]{{1,64}})"
_STAMP: Final = re.compile(
    rf"[^\S\n]{{0,4}}\[(?:{_WEEKDAY} {_TIME}{_ZONE}"
    rf"|(?P<channel>{_CHANNEL}\b{_FROM}) (?:{_WEEKDAY} )?{_TIME}{_ZONE}?"
    rf"|(?P<other>[A-Z][\w.-]{{1,20}}\b{_FROM}{_SENDER}{_FROM}) (?:{_WEEKDAY} )?{_TIME}{_ZONE}"
    rf"|(?P<undated>{_CHANNEL} {_FROM}{_SENDER}{_FROM})"
    r")\][^\S\n]{0,4}\n?"
)
# A weekday without a zone may be the user's, but not right behind what a gateway wrote.
_WEEKDAY_STAMP: Final = re.compile(rf"[^\S\n]{{0,4}}\[{_WEEKDAY} {_TIME}{_ZONE}?\][^\S\n]{{0,4}}")
_STAMPED_LINE: Final = re.compile(rf"^ {{0,4}}\[{_WEEKDAY} {_TIME}{_ZONE}\]", re.MULTILINE)
_GROUP: Final = re.compile(
    r"\b(?:g\d+|group|channel|room|thread|topic|space)\b|@g\.us|#\w|id:-\d", re.I
)
_LABEL: Final = re.compile(
    r"(?P<name>[^\s:\[\](){}<>][^\n:\[\](){}<>]{0,60}?)(?: \([^()\n]{1,64}\))?: "
)
_OWN_LABEL: Final = re.compile(r"\((?:self|sender)\): ")

_HISTORY: Final = re.compile(
    r"^\[(?:(?:Chat|Recent|Thread|Group|Channel|Conversation|Observed|Earlier|Previous)\b"
    r"[^\[\]\n]{0,60} - (?:for context|context only[^\[\]\n]{0,60})"
    r"|Recent (?:channel|chat|group) messages|Context around the replied-to message)\][^\S\n]*\n",
    re.MULTILINE,
)
_CURRENT: Final = re.compile(
    r"^\[(?:Current (?:addressed )?message(?: - [^\[\]\n]{1,120})?|New message)\][^\S\n]*(?:\n|\Z)",
    re.MULTILINE,
)
_QUEUED: Final = re.compile(
    r"^(?:---[^\S\n]*\n)?Queued #\d{1,4}(?: \(from (?P<name>[^()\n]{1,80})\))?[^\S\n]*\n",
    re.MULTILINE,
)
_QUEUE: Final = re.compile(r"^\[Queued messages [^\[\]\n]{1,80}\][^\S\n]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EnvelopeContent:
    """The content of an envelope; `speaker` is the name of its sender in a group, else empty."""

    text: str
    speaker: str = ""


def strip_envelope(text: str, *, follows: bool = False, group: bool = False) -> EnvelopeContent:
    """Return a message without its stamp and the name before its words.

    It `follows` something else that the gateway wrote; it is known to be of a `group`.
    """
    stamp = _STAMP.match(text)
    if stamp is None:
        weekday = _WEEKDAY_STAMP.match(text) if follows else None
        rest, sender = text[weekday.end() :] if weekday else text, ""
    else:
        rest = text[stamp.end() :]
        sender = stamp["channel"] or stamp["other"] or stamp["undated"] or ""
        if not sender and _STAMPED_LINE.search(rest):
            return EnvelopeContent(text)  # a list of dates of the user's own
    if own := _OWN_LABEL.match(rest):
        return EnvelopeContent(rest[own.end() :])
    label = _LABEL.match(rest) if sender or group else None
    if label is None:
        return EnvelopeContent(rest)
    name = label["name"].strip()
    if group or _GROUP.search(sender):
        return EnvelopeContent(rest[label.end() :], name)
    return EnvelopeContent(rest[label.end() :] if name in sender else rest)


def without_history(text: str) -> EnvelopeContent:
    """Return a message without what others said before it, if the gateway put that there."""
    history = _HISTORY.search(text)
    marks = list(_CURRENT.finditer(text, history.end() if history else 0))
    current = (marks[-1] if history else marks[0]) if marks else None
    if history is None:
        return EnvelopeContent(text[: current.start()] + text[current.end() :] if current else text)
    before = text[: history.start()]
    if current is not None:
        said = strip_envelope(text[current.end() :], follows=True, group=True)
        return EnvelopeContent(before + said.text, said.speaker)
    paragraphs = text[history.end() :].split("\n\n")[1:]
    while len(paragraphs) > 1 and _STAMP.match(paragraphs[0]):
        paragraphs.pop(0)
    return EnvelopeContent(before + "\n\n".join(paragraphs))


def split_queue(text: str) -> list[EnvelopeContent]:
    """Return the messages that were handed over together, or the one that a text is."""
    heads = list(_QUEUED.finditer(text)) if _QUEUE.search(text) else []
    if not heads:
        return [EnvelopeContent(text)]
    names = {head["name"] for head in heads}
    ends = [head.start() for head in heads[1:]] + [len(text)]
    parts = [
        EnvelopeContent(
            text[head.end() : end].strip(), (head["name"] or "") if len(names) > 1 else ""
        )
        for head, end in zip(heads, ends, strict=True)
    ]
    before = _QUEUE.sub("", text[: heads[0].start()]).strip()
    return [EnvelopeContent(before), *parts] if before else parts
