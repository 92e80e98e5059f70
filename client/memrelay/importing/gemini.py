"""Gemini's conversations in Google Takeout, which has them in three forms.

It does not own reading JSON (`json_stream.py`) or what becomes of a conversation
(`conversations.py`).

- My Activity as JSON: a list, newest first, of records with `title` ("Prompted …"), `time`, and the
  answer as HTML in `safeHtmlItem`. Other products' records have the same form.
- My Activity as HTML, which is Takeout's default: a cell for each record, with the title, the time
  as people of that language write it, and the answer, parted by line breaks.
- Conversation history: a file for each, with `conversation_turns`.

My Activity names no conversation: one ends after half an hour without a word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from html import unescape
from typing import Any, Final

from memrelay.importing.conversations import Conversation, Role, Utterance
from memrelay.importing.drafts import moment
from memrelay.importing.times import parse_written_time

_SILENCE: Final = timedelta(minutes=30)
_LINES: Final = frozenset("br p div li tr h1 h2 h3 h4 h5 h6 pre".split())
_NAMES: Final = re.compile(r"\b(?:gemini|bard)\b", re.IGNORECASE)
# What stands before the user's words, and what begins a record that has none. In another language,
# a record counts if it was answered, and its title as it stands.
_ASKED: Final = re.compile(
    r"(?:Prompted(?: with:)?|Asked(?: Gemini:| Bard:)?|Utterance|Branched|Answered|Preguntó:"
    r"|Perguntou:|Fez uma pergunta:|Eingegebener Prompt:|Gestellte Frage:|Requête\s?:|Prompt\s?:)"
    r"\s"
)
_DID: Final = re.compile(
    r"(?:Created|Used|Added|Gave|Selected|Shared|Deleted|Viewed|Visited|Searched|Edited|Pinned|Renamed"
    r"|Exported|Updated|Cleared|Listened|Watched)\s"
)
_ATTACHED: Final = re.compile(r"\s*(?:Attached \d+ files?\.?|\d+ attachments?\.?)\s*\Z")
_TOKEN: Final = re.compile(
    r"<(?P<tag>/?[A-Za-z][A-Za-z0-9]*+)(?P<attributes>[^<>]*+)>|<[^<>]*+>|(?P<words>[^<]++|<)"
)


class Activity:
    """Records of My Activity, put back into conversations when all of them were seen."""

    def __init__(self) -> None:
        self._turns: list[tuple[datetime | None, str, str]] = []

    def add(self, value: Any, zone: tzinfo) -> None:
        """Take one record as JSON; what nobody asked Gemini is passed over."""
        if not isinstance(value, Mapping) or not isinstance(value.get("title"), str):
            return
        products = value.get("products")
        labels = [value.get("header"), *(products if isinstance(products, list) else [])]
        told = [label for label in labels if isinstance(label, str)]
        if told and not any(map(_NAMES.search, told)):
            return
        items = value.get("safeHtmlItem")
        html = [
            item["html"]
            for item in (items if isinstance(items, list) else [])
            if isinstance(item, Mapping) and isinstance(item.get("html"), str)
        ]
        answer = "\n".join(filter(None, map(text_of, html)))
        self.turn(moment(value.get("time"), zone), value["title"], answer)

    def turn(self, time: datetime | None, title: str, answer: str) -> None:
        """Take what was asked, with its verb, and what was answered."""
        title = title.replace("\N{NO-BREAK SPACE}", " ").strip()
        asked = _ASKED.match(title)
        if _DID.match(title) or not (asked or answer):
            return
        prompt = _ATTACHED.sub("", title[asked.end() :] if asked else title).strip()
        if prompt:
            self._turns.append((time, prompt, answer))

    def conversations(self) -> Iterator[Conversation]:
        """Yield the conversations, oldest first; those without a time come last."""
        timed = sorted(
            (turn for turn in reversed(self._turns) if turn[0] is not None),
            key=lambda turn: turn[:1],
        )
        untimed = [turn for turn in self._turns if turn[0] is None]
        group: list[tuple[datetime | None, str, str]] = []
        for turn in (*timed, *untimed):
            if group and not _goes_on(group[-1][0], turn[0]):
                yield _conversation(group)
                group = []
            group.append(turn)
        if group:
            yield _conversation(group)


def _goes_on(before: datetime | None, time: datetime | None) -> bool:
    if before is None or time is None:
        return before is time
    return time - before <= _SILENCE


def _conversation(turns: Iterable[tuple[datetime | None, str, str]]) -> Conversation:
    said: list[Utterance] = []
    for time, prompt, answer in turns:
        said.append(Utterance("user", prompt, time))
        if answer:
            said.append(Utterance("assistant", answer, time))
    begun = said[0].time
    place = begun.isoformat() if begun else "1"
    return Conversation(place, place, tuple(said))


def activity_page(html: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversations of My Activity as HTML."""
    activity = Activity()
    for header, lines in _records(html):
        if header and not _NAMES.search(header):
            continue
        for number, line in enumerate(lines[1:], 1):
            time = parse_written_time(line, zone)
            if time is not None:
                activity.turn(time, "\n".join(lines[:number]), "\n".join(lines[number + 1 :]))
                break
    yield from activity.conversations()


def _records(html: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the header of each record, which names the product, and the lines of its first cell."""
    header, text, depth, is_header = "", list[str](), 0, False
    for tag, attributes, words in _tokens(html):
        if not depth:
            is_header = "header-cell" in attributes
            is_cell = "content-cell" in attributes and "text-right" not in attributes
            if tag == "div" and (is_header or is_cell):
                depth = 1
            continue
        depth += (tag == "div") - (tag == "/div")
        text.append(_line_end(tag) or words)
        if depth:
            continue
        lines = [line.strip() for line in "".join(text).split("\n") if line.strip()]
        if is_header:
            header = " ".join(lines)
        elif lines:
            yield header, lines
        text = []


def text_of(html: str) -> str:
    """Return the words of some HTML, in lines."""
    text = "".join(_line_end(tag) or words for tag, _, words in _tokens(html))
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def _line_end(tag: str) -> str:
    return "\n" if tag.removeprefix("/") in _LINES else ""


def _tokens(html: str) -> Iterator[tuple[str, str, str]]:
    """Yield the tags of some HTML, with their attributes, and the words between them."""
    for token in _TOKEN.finditer(html):
        tag, attributes, words = token.group("tag", "attributes", "words")
        yield (tag or "").lower(), attributes or "", unescape(words or "")


def history(value: Any, place: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversation of a file of Takeout's conversation history."""
    turns = value.get("conversation_turns") if isinstance(value, Mapping) else None
    if not isinstance(turns, list):
        return
    begun = moment(value.get("creation_time"), zone)
    said = [_utterance(turn, zone) for turn in turns if isinstance(turn, Mapping)]
    kept = [Utterance(one.role, one.text, one.time or begun) for one in said if one is not None]
    if kept:
        yield Conversation(place, str(value.get("creation_time") or place), tuple(kept))


def _utterance(turn: Mapping[str, Any], zone: tzinfo) -> Utterance | None:
    user, system = turn.get("user_turn"), turn.get("system_turn")
    role: Role = "user" if isinstance(user, Mapping) else "assistant"
    told = user if isinstance(user, Mapping) else system
    if not isinstance(told, Mapping) or told.get("turn_deleted_time"):
        return None
    blocks = told.get("text")
    texts = [told.get("prompt")] if role == "user" else []
    for block in blocks if isinstance(blocks, list) else ():
        texts.append(block.get("data") if isinstance(block, Mapping) else None)
    text = "\n".join(text for text in texts if isinstance(text, str))
    return (
        Utterance(role, text, moment(told.get("turn_last_modified"), zone))
        if text.strip()
        else None
    )
