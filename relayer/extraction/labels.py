"""Conversations as text: numbered parts, and lines that begin with who speaks.

It does not own transcripts in formats of programs (`transcripts.py`), nor the roles (`message.py`).

- In a numbered part only the first line says who speaks: what a tool returned may look like more.
- Labels of one text look alike: where the first line has a time, a line without one is no label.
- A field such as `Host: ares` or `User: deploy` in a list of fields is no label.
- Time is linear in the text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from relayer.extraction.message import ROLES, Message, Role, is_name, role_named, role_of
from relayer.extraction.moments import STAMP, moment_named, moment_of

_NUMBER: Final = re.compile(r"(?:\A|\n[ \t]*\n)[ \t]*(\d{1,5})\. ")
_ROLE_WORDS: Final = "|".join(
    re.escape(role).replace("_", "[ _]") for role in sorted(ROLES, key=len, reverse=True)
)
_WORD: Final = rf"(?:{_ROLE_WORDS}|[^\W\d_][\w.'’-]{{0,30}}(?: [^\W\d_][\w.'’-]{{0,30}})?)"
_TIME_AFTER: Final = r"(?:,? ?[\[(](?P<time>[^\[\]()\n]{4,40})[\])])?"
_LABEL: Final = re.compile(
    rf"[ \t]*(?:\*\*|__|\[|<)?(?P<word>{_WORD})(?:\*\*|__|\]|>)?"
    rf"(?: \((?P<role>user|assistant)\))?{_TIME_AFTER}[ \u00a0]?(?::(?:\*\*|__)?[ \t]+|：)",
    re.IGNORECASE,
)
# A line of nothing but a role, such as `### User`, `**Assistant**` or `You said:`.
_LABEL_ALONE: Final = re.compile(
    rf"[ \t]*(?P<mark>#{{1,6}}[ \t]+(?:\*\*|__)?|\*\*|__|\[)?(?P<word>{_ROLE_WORDS})(?:\*\*|__|\])?"
    rf"{_TIME_AFTER}(?P<colon>[:：])?(?:\*\*|__)?[ \t]*\Z",
    re.IGNORECASE,
)
# After a time, names may be of more words, in small letters, or a telephone's number.
_LABEL_STAMPED: Final = re.compile(
    rf"(?:\*\*|<)?(?:~ ?)?(?P<word>{_ROLE_WORDS}|[^\W\d_][^\n:<>\[\]{{}}|*]{{0,39}}?"
    r"|\+\d[\d ()-]{6,20}?)(?: \((?P<role>user|assistant)\))?"
    r"(?:(?:\*\*)?(?::(?:\*\*)?[ \t]+|：)|>:?[ \t]+)",
    re.IGNORECASE,
)
ROLE_LINE: Final = re.compile(
    rf"^[ \t]*(?:\d{{1,5}}\. )?(?:\*\*)?(?:{_ROLE_WORDS})(?:\*\*)?:", re.IGNORECASE | re.MULTILINE
)
# A name and a time on a line of their own, as chats show them that are copied.
_LABEL_AND_TIME: Final = re.compile(
    r"[ \t]*(?:\*\*)?(?P<word>[^\W\d_][^\n:<>\[\]{}|*,—–]{0,39}?)(?:\*\*)?"
    r"(?:[ \t]+|[ \t]*[,—–-][ \t]*)"
    r"(?P<time>(?:(?:today|yesterday) at )?[\[(]?\w*\.?,? ?\d[^\n]{2,40})\Z",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(
    r"[ \t]*(?:\*\*)?[^\W_][\w .'’/&()+-]{0,40}(?:\*\*)?(?::(?:\*\*)?[ \t]+|：)\S"
)
_TODAY: Final = re.compile(r"(?:today|yesterday) at ", re.IGNORECASE)
_LABEL_CHARS_MAX: Final = 100  # of a line that is nothing else
_NAME_WORDS_MAX: Final = 4
_PLAIN_ROLES: Final = frozenset(["user", "human", "assistant", "ai"])  # words for nothing else
# Roles that are fields of a machine, an account or a model as well; so is any word for a user.
_FIELDS_TOO: Final = frozenset("system sistema système система agent bot developer model".split())


@dataclass(frozen=True)
class _Label:
    """The label that a line begins with; its own text begins at `end`."""

    word: str
    role: Role | None
    end: int
    said_at: datetime | None = None
    is_explicit: bool = False  # a name with its role: Maya (assistant)
    is_marked: bool = False  # by nothing but bold letters, brackets or a heading


def parse_labels(text: str) -> list[Message]:
    """Return the messages of `text`.

    Read are the numbered format (`1. <message>`, blank line, `2. <message>`), lines that begin
    with a role or a name and a colon, and plain text, which is one message of unknown role. A part
    without a label goes on in the role of the part before it.
    """
    found: list[Message] = []
    now = Message("unknown", "", "")
    parts = split_numbered(text)
    for part in parts or [text]:
        now = replace(now, speaker="", said_at=None)
        lines = part.split("\n")
        labels = _first_label(lines) if parts else _labels(lines)
        for label, piece in _pieces(lines, labels):
            if label:
                known = role_of(label.word)
                role = label.role or known or "user"
                now = Message(role, "" if known else label.word, "", label.said_at)
            elif piece and now.role != "unknown" and found:
                now = replace(now, speaker=found[-1].speaker)
            if piece:
                found.append(replace(now, text=piece))
    return found


def split_numbered(text: str) -> list[str]:
    """Return the parts of the numbered format, none in another; numbers must count up from 1."""
    starts: list[tuple[int, int]] = []
    for match in _NUMBER.finditer(text):
        if int(match[1]) == len(starts) + 1:
            starts.append(match.span())
    if not starts or text[: starts[0][0]].strip():
        return []
    ends = [begin for begin, _ in starts[1:]] + [len(text)]
    return [text[begin:end] for (_, begin), end in zip(starts, ends, strict=True)]


def _pieces(
    lines: Sequence[str], labels: Mapping[int, _Label]
) -> Iterator[tuple[_Label | None, str]]:
    """Yield (label, text) for each run of lines under one label; the first may have none."""
    label, run = None, list[str]()
    for number, line in enumerate(lines):
        if number in labels:
            yield label, "\n".join(run).strip()
            label, run = labels[number], [line[labels[number].end :]]
        else:
            run.append(line)
    yield label, "\n".join(run).strip()


def _first_label(lines: Sequence[str]) -> dict[int, _Label]:
    """Return the label of a numbered part, if its first line has one."""
    label = _inline(lines[0])
    if label is None or not (_is_role(label) or is_name(label.word)):
        label = _parse_stamped(lines[0])
        if label is None or not _is_role(label):
            return {}
    return {0: label}


def _labels(lines: Sequence[str]) -> dict[int, _Label]:
    """Return the labels of a text by line."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    inline = {n: label for n, line in enumerate(lines) if (label := _inline(line))}
    stamped = _find_stamped_labels(lines)
    if first in stamped or (first not in inline and any(map(_is_role, stamped.values()))):
        return stamped
    if first in (timed := _find_timed_labels(lines)):
        return timed
    alone = _alone_labels(lines, begins_with_colon=min(inline, default=len(lines)))
    has_names = first in inline and (_is_role(inline[first]) or is_name(inline[first].word))
    labels = {
        n: label
        for n, label in inline.items()
        if _is_role(label) or (has_names and is_name(label.word))
    }
    fields = _fields(lines, labels | alone)
    return {n: label for n, label in (labels | alone).items() if n not in fields}


def _is_role(label: _Label) -> bool:
    return label.is_explicit or role_named(label.word) is not None


def _inline(line: str) -> _Label | None:
    match = _LABEL.match(line)
    if match is None or not _is_time(match["time"]):
        return None
    role = ROLES[match["role"].casefold()] if match["role"] else None
    said_at = moment_named(match["time"])
    return _Label(match["word"], role, match.end(), said_at, is_explicit=role is not None)


def _is_time(text: str | None) -> bool:
    return text is None or STAMP.fullmatch(text) is not None


def _parse_stamped(line: str) -> _Label | None:
    stamp = STAMP.match(line)
    match = _LABEL_STAMPED.match(line, stamp.end()) if stamp else None
    if stamp is None or match is None or len(match["word"].split()) > _NAME_WORDS_MAX:
        return None
    role = ROLES[match["role"].casefold()] if match["role"] else None
    moment = moment_of(stamp)
    return _Label(match["word"].strip(), role, match.end(), moment, is_explicit=role is not None)


def _find_stamped_labels(lines: Sequence[str]) -> dict[int, _Label]:
    """Return the labels behind times. Names count where a role stands among them, or one again:
    what stands once may be what a date is about."""
    found = {n: label for n, line in enumerate(lines) if (label := _parse_stamped(line))}
    count = Counter(label.word for label in found.values())
    are_speakers = any(_is_role(label) or count[label.word] > 1 for label in found.values())
    return {
        n: label
        for n, label in found.items()
        if _is_role(label)
        or (are_speakers and (is_name(label.word) or count[label.word] > 1 or label.word[0] == "+"))
    }


def _find_timed_labels(lines: Sequence[str]) -> dict[int, _Label]:
    """Return the labels that are a name and a time each; two of them at least make a chat."""
    found = dict[int, _Label]()
    for number, line in enumerate(lines):
        match = _LABEL_AND_TIME.match(line) if len(line) < _LABEL_CHARS_MAX else None
        if match and len(match["word"].split()) <= _NAME_WORDS_MAX:
            time = _TODAY.sub("", match["time"])
            if STAMP.fullmatch(time):
                found[number] = _Label(match["word"], None, len(line), moment_named(time))
    return found if len(found) > 1 else {}


def _alone_labels(lines: Sequence[str], *, begins_with_colon: int) -> dict[int, _Label]:
    """Return the labels that are lines of their own.

    Where other labels come first, only words that head no list count. Without a colon they count
    where both sides speak.
    """
    found = dict[int, _Label]()
    for number, line in enumerate(lines):
        match = _LABEL_ALONE.match(line) if len(line) < _LABEL_CHARS_MAX else None
        if match and (match["colon"] or match["mark"]) and _is_time(match["time"]):
            said_at = moment_named(match["time"])
            is_marked = not match["colon"]
            found[number] = _Label(match["word"], None, len(line), said_at, is_marked=is_marked)
    roles = {role_named(label.word) for label in found.values()}
    is_first = min(found, default=begins_with_colon) < begins_with_colon and bool(
        roles & {"user", "assistant"}
    )
    return {
        n: label
        for n, label in found.items()
        if (is_first or label.word.casefold() in _PLAIN_ROLES)
        and (not label.is_marked or {"user", "assistant"} <= roles)
    }


def _fields(lines: Sequence[str], labels: Mapping[int, _Label]) -> set[int]:
    """Return the lines that look like labels, but are fields of a list.

    That is a list below a heading, with a field among them that is no role, to where an assistant
    speaks; or one where most fields are no names.
    """
    found = set[int]()
    number = 0
    while number < len(lines):
        run = _run_of_fields(lines, labels, number)
        if not run:
            number += 1
            continue
        number = run[-1] + 1
        roles = [n for n in run if n in labels and _is_role(labels[n])]
        names = [n for n in run if n in labels and n not in roles]
        others = len(run) - len(roles) - len(names)
        if _is_headed(lines, labels, run[0]) and len(roles) < len(run):
            found.update(run)
        elif 2 * others > len(run):
            found.update(names)
    return found


def _run_of_fields(lines: Sequence[str], labels: Mapping[int, _Label], number: int) -> list[int]:
    """Return the lines from `number` on that are fields; a line with whom a text begins is none."""
    end, is_headed = number, _is_headed(lines, labels, number)
    while end < len(lines) and _FIELD.match(lines[end]):
        label = labels.get(end)
        if label and (end == 0 or (_is_role(label) and not (is_headed and _may_be_field(label)))):
            break
        end += 1
    return list(range(number, end))


def _may_be_field(label: _Label) -> bool:
    return role_named(label.word) == "user" or label.word.casefold() in _FIELDS_TOO


def _is_headed(lines: Sequence[str], labels: Mapping[int, _Label], number: int) -> bool:
    """Tell whether the line before ends in a colon, and is more than a label."""
    if number == 0 or not (before := lines[number - 1].rstrip()).endswith((":", "：")):
        return False
    label = labels.get(number - 1)
    return label is None or bool(before[label.end :])
