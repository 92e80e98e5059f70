"""The outline of a Markdown text: its bullets, paragraphs and rows of tables, under headings.

It does not own what they become (`markdown.py`).

- A bullet keeps what is nested under it, a paragraph its code block; nothing is cut.
- A row of a table becomes a text of its own, each cell behind its column's name.
- HTML comments are left out. Some say something of what follows them: see `Block`.
- Every line is looked at a bounded number of times.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Final

# Of what is looked at again with each block that follows: a tag, a source and metadata have less.
_TITLE_CHARS_MAX, NOTE_CHARS_MAX = 512, 8192

_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+(.*))?$")
_BULLET = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])(\s+)(?=\S)")
_RULE = re.compile(r" {0,3}([-*_=])(\s*\1){2,}\s*$")
_FENCE = re.compile(r"\s*(?:[-*+]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_ANCHOR = re.compile(r"(?:^|(?<=\s))(\w+):")
_CELLS_EDGE = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r":?-+:?")
_DIRECTIVE: Final = ("observed", "status")
_REPORT = re.compile(r"openclaw:dreaming:[a-z][a-z0-9-]{0,40}:(start|end)")
_VALUE_COLUMNS: Final = frozenset("value valor valeur valore wert значение 值 값 値".split())


@dataclass(frozen=True, slots=True)
class Block:
    """A bullet, paragraph or row: its line, its text, the headings over it, and its comments.

    `anchor` is what memsearch's comment over it says of its session, `note` what OpenClaw's says of
    it alone: `observed`, `status`; `report` marks what OpenClaw's dreaming wrote beside the notes.
    """

    line: int
    text: str
    headings: tuple[str, ...]
    anchor: Mapping[str, str]
    note: Mapping[str, str]


def blocks(lines: Sequence[str], first: int = 1) -> Iterator[Block]:
    """Yield the bullets, paragraphs and rows of Markdown lines, which are numbered from `first`."""
    outline = _Outline()
    for number, line in enumerate(lines, first):
        yield from outline.feed(number, line)
    yield from outline.end()


class _Outline:
    """The place of a reader in Markdown: its headings, and its bullet, table or code."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._lead: str | None = None  # a line with a colon, of which the bullets below speak
        self._anchor: dict[str, str] = {}
        self._note: dict[str, str] = {}  # of the block that begins next
        self._begun: tuple[int, dict[str, str], dict[str, str]] = (0, {}, {})
        self._lines: list[str] = []
        self._indent: int | None = None  # of the bullet that the lines belong to
        self._columns: list[str] | None = None  # of the table that the lines belong to
        self._fence = ""
        self._comment = False
        self._report = False
        self._blank = False

    def feed(self, number: int, line: str) -> Iterator[Block]:
        """Take one more line; yield the block that it ends, if it ends one."""
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
            return
        line, trailing = self._without_comments(line)
        line = line.expandtabs(4)
        if not line.strip():
            self._blank, self._columns = True, None
            return
        if self._columns is not None and "|" in line:
            yield from self._row(number, line)
            return
        self._columns = None
        heading = _HEADING.match(line)
        if self._lines and not self._blank and self._opens_table(line):
            yield from self._table()
            return
        if heading or _RULE.match(line):
            yield from self.end()
            self._lead = None
            if heading:
                title = re.sub(r"\s#+$", "", (heading[2] or "").rstrip())
                self._open(len(heading[1]), title.strip(" *_`:"))
        elif self._lines and self._continues(line):
            self._lines += ["", line] if self._blank else [line]
        else:
            yield from self._begin(number, line)
        self._begun[2].update(trailing)
        self._blank = False
        fence = None if heading else _FENCE.match(line)
        self._fence = fence[1] if fence else ""

    def end(self) -> Iterator[Block]:
        """Yield the block that is under way, if one is."""
        text = "\n".join(self._lines).strip()
        self._lines, self._indent, self._blank = [], None, False
        if any(char.isalnum() for char in text):
            yield self._block(text, *self._begun)

    def _block(
        self, text: str, line: int, anchor: Mapping[str, str], note: Mapping[str, str]
    ) -> Block:
        titles = [title for _, title in self._headings if title]
        lead = [self._lead] if self._lead else []
        return Block(line, text, (*titles, *lead), anchor, note)

    def _begin(self, number: int, line: str) -> Iterator[Block]:
        bullet = _BULLET.match(line)
        # What has a bar may be the head of a table.
        is_led = (bullet is not None or "|" in line) and self._take_lead()
        yield from self.end()
        if not (bullet or is_led):
            self._lead = None
        self._begun = number, self._anchor, self._take_note()
        self._indent = len(bullet[1]) if bullet else None
        self._lines = [line[bullet.end() :] if bullet else line]

    def _take_note(self) -> dict[str, str]:
        note, self._note = self._note, {}
        return note | ({"report": "yes"} if self._report else {})

    def _take_lead(self) -> bool:
        """Let a line that ends in a colon lead the list or table below it; return whether."""
        leads = len(self._lines) == 1 and len(self._lines[0]) <= _TITLE_CHARS_MAX
        leads = leads and self._indent is None and self._lines[0].rstrip(" *_").endswith(":")
        if leads:
            self._lead = self._lines.pop().strip(" *_:")
        return leads

    def _continues(self, line: str) -> bool:
        indent = len(line) - len(line.lstrip())
        if self._indent is not None and indent > self._indent:
            return True
        is_code = _FENCE.match(line) and self._lines[-1].rstrip().endswith(":")
        return bool(is_code) or not (self._blank or _BULLET.match(line))

    def _opens_table(self, line: str) -> bool:
        """Return whether a line parts a table's head, the line before it, from its rows."""
        if "|" not in line or set(line) - set("|:-> "):
            return False
        head = _cells(self._lines[-1])
        parts = _cells(line)
        return len(head) == len(parts) and all(map(_DELIMITER.fullmatch, parts))

    def _table(self) -> Iterator[Block]:
        """Begin a table: its head was the last line of what is under way."""
        self._columns = _cells(self._lines.pop())
        if self._indent is not None and self._lines:
            return  # inside a bullet, whose lines the rows become
        self._take_lead()
        begun = self._begun
        yield from self.end()
        self._begun = begun

    def _row(self, number: int, line: str) -> Iterator[Block]:
        text = _row_text(self._columns or [], _cells(line))
        if self._lines:
            self._lines.append(" " * (len(line) - len(line.lstrip())) + text)
        elif any(char.isalnum() for char in text):
            _, anchor, note = self._begun
            yield self._block(text, number, anchor, note)

    def _open(self, level: int, title: str) -> None:
        self._headings = [entry for entry in self._headings if entry[0] < level]
        self._headings.append((level, title[:_TITLE_CHARS_MAX]))
        self._anchor, self._note = {}, {}

    def _without_comments(self, line: str) -> tuple[str, dict[str, str]]:
        """Return a line without its comments, and what those behind its words say of it."""
        # One step for each mark, none of which looks at the rest of the line again.
        kept: list[str] = []
        behind: dict[str, str] = {}
        says, is_code, at, last_end = False, False, 0, line.rfind("-->")
        while at < len(line):
            mark = "-->" if self._comment else "<!--"
            found = line.find(mark, at)
            end = len(line) if found < 0 else found
            part, at = line[at:end], end + len(mark)
            if self._comment:
                self._comment = found < 0
                self._read_comment(part, behind if says else self._note)
                continue
            kept.append(part)
            says = says or bool(part.strip())
            is_code ^= part.count("`") % 2 == 1
            # One that ends on a later line begins a line; anything else is no comment.
            self._comment = found >= 0 and not is_code and (last_end >= at or not says)
            if found >= 0 and not self._comment:
                kept.append(mark)
                says = True
        return "".join(kept), behind

    def _read_comment(self, comment: str, note: dict[str, str]) -> None:
        # Whatever follows is dated and noted by it, each time anew.
        comment = comment.strip()
        if len(comment) > NOTE_CHARS_MAX:
            return
        if comment.startswith("session:"):
            _, *parts = _ANCHOR.split(comment)  # a path may have spaces in it
            self._anchor = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
            # A path is one of another time or machine; the name finds the file anywhere.
            for name in self._anchor.keys() - {"session", "turn"}:
                self._anchor[name] = PureWindowsPath(self._anchor[name]).name
        elif report := _REPORT.match(comment):
            self._report = report[1] == "start"
        else:
            pairs = (part.partition(":") for part in re.split(r"[|;,]", comment))
            values = {name.strip().lower(): value.strip() for name, _, value in pairs}
            note.update({name: values[name] for name in _DIRECTIVE if values.get(name)})


def _cells(line: str) -> list[str]:
    """Return the cells of a table's line, without the blanks and bars around them."""
    line = line.lstrip("> ").rstrip()  # which may be quoted
    cells = [cell.strip().replace("\\|", "|") for cell in _CELLS_EDGE.split(line)]
    begin = 1 if len(cells) > 1 and not cells[0] else 0
    end = len(cells) - 1 if len(cells) > begin + 1 and not cells[-1] else len(cells)
    return cells[begin:end]


def _row_text(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Return a row as text: "Name: Ines; Role: lead", or as it stands in a list of values."""
    if len(columns) == 2 and columns[1].strip(" *_").lower() in _VALUE_COLUMNS:
        return ": ".join(filter(None, cells))
    names = [*columns, *[""] * (len(cells) - len(columns))]
    pairs = zip(names, cells, strict=False)
    return "; ".join(
        f"{name.strip(' *_')}: {cell}" if name.strip(" *_") else cell
        for name, cell in pairs
        if cell
    )
