"""Lists in a message, and what their items say together with what heads them.

It does not own running text (`prose.py`), nor how lists and text follow each other
(`sentences.py`).

- A list is bullets, numbers, fields (`Host: ares`), dated lines or the rows of a table.
- A short list is one statement with its heading. Of a longer one, of one of sentences or of several
  dates, each item is one, with the heading before it: any of them is understandable alone.
- A heading is repeated a bounded number of times.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from relayer.extraction.dates import FULL_DATE
from relayer.extraction.message import is_name, role_named
from relayer.extraction.moments import STAMP
from relayer.extraction.output import tables_of
from relayer.extraction.prose import begins_quotation, leads_on, says, split

Kind = Literal["blank", "title", "bullet", "number", "field", "stamp", "row", "plain"]

_INDENT_OF_PARTS: Final = "\u00a0 "  # which later lines of a message in a numbered part may have
_TITLE: Final = re.compile(r"#{1,6}\s+")
_BULLET: Final = re.compile(r"[-*•–+◦▪‣·→]\s+(?:\[ \]\s+)?")
_NUMBER: Final = re.compile(r"(?:\d{1,3}[.)]|[a-z]\))\s+")
_RULE: Final = re.compile(r"\s*(?:[-*_=~—•·]\s*){2,}\Z")
_FIELD: Final = re.compile(
    r"(?:\*\*)?(?P<key>[^\W_](?:[^\n:：*.!?]|[.](?!\s)){0,40})(?:\*\*)?[:：](?:\*\*)?\s+(?P<value>\S)"
)
_KEY_WORDS_MAX: Final = 4
_SENTENCE_END: Final = re.compile(r"[.!?。！？…؟।॥།။។][\"'”’»)\]*_]*\Z")
_PRESENTS: Final = re.compile(
    r"(?:(?:ok|okay|so|well|hi|hey|hello|and|also|please)[,.!:–-]* )*"
    r"(?:here(?:'s|’s| is| are| come)|these are|below (?:is|are)|hier (?:ist|sind|kommen)"
    r"|das sind) ",
    re.IGNORECASE,
)
_DATED_BEHIND: Final = re.compile(r"(?P<heading>.{2,200}?[:：])\s+(?=[\[(\d])")
_STATEMENT_CHARS_MAX: Final = 300  # of a list that is one statement
HEADING_CHARS_MAX: Final = 200
_COLUMN_CHARS_MAX: Final = 40
_NAMED_ROWS_MAX: Final = 100  # of a table: its columns are named again in each
_DEPTH_MAX: Final = 5
_SPOKEN_MAX: Final = 50  # sentences of one line that get its name or time


@dataclass(frozen=True)
class Line:
    """A line without its bullet or number, and what kind it is; a table's row with its columns."""

    kind: Kind
    text: str = ""
    indent: int = 0
    number: str = ""

    @property
    def is_item(self) -> bool:
        """Tell whether it is a list's by its looks: a field is only beside others."""
        return self.has_mark or self.kind == "stamp"

    @property
    def has_mark(self) -> bool:
        """Tell whether nothing but an item looks like it."""
        return self.kind in ("bullet", "number", "row")


@dataclass(frozen=True)
class Statement:
    """A sentence, or an item of a list behind its heading: that is its `lead`, with the colon."""

    text: str
    lead: str = ""


@dataclass
class Item:
    """An item of a list, with those below it."""

    line: Line
    parts: list[str]
    children: list["Item"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return its words, of all its lines."""
        return " ".join(self.parts)

    @property
    def is_dated(self) -> bool:
        """Tell whether it says when."""
        return self.line.kind == "stamp" or FULL_DATE.search(self.text) is not None


def lines_of(text: str) -> list[Line]:
    """Return the lines of a text, the rows of tables with their columns' names."""
    raw = text.split("\n")
    ends = dict(tables_of(raw))
    found, number = list[Line](), 0
    while number < len(raw):
        if (end := ends.get(number)) is not None:
            found += _rows(raw[number:end])
            number = end
        else:
            found.append(_line(raw[number].removeprefix(_INDENT_OF_PARTS)))
            number += 1
    return _with_dates_apart(found)


def _line(raw: str) -> Line:
    text = raw.strip()
    if not text or _RULE.fullmatch(text):
        return Line("blank")
    indent = len(raw.expandtabs(4)) - len(raw.expandtabs(4).lstrip())
    if title := _TITLE.match(text):
        return Line("title", text[title.end() :].rstrip("# "), indent)
    if bullet := _BULLET.match(text):
        return Line("bullet", text[bullet.end() :], indent)
    if number := _NUMBER.match(text):
        return Line("number", text[number.end() :], indent, number.group().strip())
    return Line(_kind(text), text, indent)


def is_item(raw: str) -> bool:
    """Tell whether a line is a bullet or a numbered item."""
    return _line(raw.removeprefix(_INDENT_OF_PARTS)).has_mark


def _kind(text: str) -> Kind:
    stamp = STAMP.match(text)
    if stamp and stamp.end() < len(text) and (stamp["open"] or text[0].isdigit()):
        return "stamp"
    pair = _FIELD.match(text)
    return "field" if pair and len(pair["key"].split()) <= _KEY_WORDS_MAX else "plain"


def _rows(raw: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each row of a table: `Host: ares; Port: 22`."""
    columns = [cell if len(cell) <= _COLUMN_CHARS_MAX else "" for cell in _cells(raw[0])]
    for number, line in enumerate(raw[2:]):
        names = columns if number < _NAMED_ROWS_MAX else [""] * len(columns)
        pairs = zip(names, _cells(line), strict=False)
        cells = [f"{column}: {cell}" if column else cell for column, cell in pairs if cell]
        if cells:
            yield Line("row", "; ".join(cells))


def _cells(raw: str) -> list[str]:
    return [cell.strip() for cell in raw.strip().strip("|").split("|")]


def _with_dates_apart(lines: Sequence[Line]) -> list[Line]:
    """Return the lines, the first of a dated list parted from the heading in one line with it."""
    found = list[Line]()
    for line, following in zip(lines, [*lines[1:], Line("blank")], strict=True):
        is_above = following.kind == "stamp" and line.kind in ("plain", "field")
        heading = _DATED_BEHIND.match(line.text) if is_above else None
        if heading and _kind(line.text[heading.end() :]) == "stamp":
            found.append(Line("plain", heading["heading"], line.indent))
            found.append(Line("stamp", line.text[heading.end() :], line.indent))
        else:
            found.append(line)
    return found


def list_at(lines: Sequence[Line], begin: int) -> tuple[list[Item], int]:
    """Return the items of the list that begins with line `begin`, and the line behind it."""
    first = lines[begin]
    items, path, number = list[Item](), list[Item](), begin
    while number < len(lines):
        line = lines[number]
        if line.kind == "blank":
            if number + 1 == len(lines) or not _continues(first, lines[number + 1]):
                break
        elif _continues(first, line) or _heads_more(lines, number):
            item = Item(line, [line.text])
            path = [above for above in path if above.line.indent < line.indent][:_DEPTH_MAX]
            (path[-1].children if path else items).append(item)
            path.append(item)
        elif line.kind in ("plain", "field") and _is_wrapped(path[-1].line, line):
            path[-1].parts.append(line.text)
        else:
            break
        number += 1
    return items, number


def _continues(first: Line, line: Line) -> bool:
    """Tell whether `line` is an item of the list that begins with `first`, or below one."""
    if line.kind in ("blank", "plain", "title"):
        return False
    bullets = ("bullet", "number")
    alike = line.kind == first.kind or (line.kind in bullets and first.kind in bullets)
    return alike or line.indent > first.indent


def _heads_more(lines: Sequence[Line], number: int) -> bool:
    """Tell whether a line ends in a colon and items stand further right below it."""
    line, *below = lines[number : number + 2]
    return leads_on(line.text) and bool(below) and below[0].indent > line.indent


def _is_wrapped(item: Line, line: Line) -> bool:
    return line.indent > item.indent or line.text[0].islower()


def is_sentence(text: str) -> bool:
    """Tell whether `text` ends as a sentence does."""
    return _SENTENCE_END.search(text) is not None


def list_statements(heading: str, items: Sequence[Item], *, headed_max: int) -> list[Statement]:
    """Return what the items of a list say, each with the heading before it if there is one.

    No more than `headed_max` of them get it.
    """
    lead = _lead(heading)
    if (whole := _in_one(lead, items)) is not None:
        return [Statement(whole, lead)]
    found = list[Statement]()
    for item in items:
        found += _to_statements(
            lead if len(found) < headed_max else "", item, headed_max - len(found)
        )
    return found


def _lead(heading: str) -> str:
    """Return a heading as it stands before items, without words that only present them."""
    shown = _PRESENTS.match(heading)
    text = heading[shown.end() :] if shown else heading
    if shown:
        text = text[:1].upper() + text[1:]
    if not text or len(text) > HEADING_CHARS_MAX:
        return ""
    return text if leads_on(text) else f"{text}:"


def _in_one(lead: str, items: Sequence[Item]) -> str | None:
    """Return a short list as one statement; None for another, and for one without a heading that
    is of no fields, or of what several people said."""
    if not lead and (
        any(item.line.kind != "field" for item in items)
        or all(_is_speaker(_key(item.text)) for item in items)
    ):
        return None
    are_steps = all(item.line.kind == "number" for item in items)
    if (
        any(item.children or item.line.kind == "row" for item in items)
        or sum(item.is_dated for item in items) > 1
        or (not are_steps and any(is_sentence(item.text) for item in items))
        or sum(len(item.text) + 2 for item in items) + len(lead) > _STATEMENT_CHARS_MAX
    ):
        return None
    if are_steps:
        said = " ".join(f"{item.line.number} {item.text}" for item in items)
    else:
        said = "; ".join(item.text.rstrip(";,") for item in items)
    return f"{lead} {said}".strip()


def _to_statements(lead: str, item: Item, headed_max: int) -> list[Statement]:
    if item.children:
        above = f"{lead} {item.text}".strip()
        above = above if len(above) < HEADING_CHARS_MAX else item.text
        return list_statements(above, item.children, headed_max=headed_max)
    if lead:
        return [Statement(f"{lead} {item.text}", lead)]
    return [Statement(sentence) for sentence in split_spoken(item.text)]


def _key(text: str) -> str:
    pair = _FIELD.match(text)
    return pair["key"] if pair else ""


def _is_speaker(key: str) -> bool:
    return is_name(key) or role_named(key) is not None or says(key)


def split_spoken(text: str) -> list[str]:
    """Return the sentences of a line; the time and the name that it begins with stand before each.

    Where marks show what was said, the rest is not of that name. Of a line of very many sentences,
    the last ones are left out: nobody says so much.
    """
    stamp = STAMP.match(text)
    begin = stamp.end() if stamp else 0
    pair = _FIELD.match(text, begin)
    if pair and (stamp or _is_speaker(pair["key"])):
        begin = pair.start("value")
    said = split(text)
    if not begin or begins_quotation(text, begin):
        return said
    before = text[:begin].strip()
    return [*said[:1], *(f"{before} {sentence}" for sentence in said[1:_SPOKEN_MAX])]
