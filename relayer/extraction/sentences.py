"""Sentences of what somebody said, each understandable without the lines around it.

It does not own what in a message is its author's (`material.py`), where a sentence ends
(`prose.py`), what lists say (`lists.py`), nor whether a sentence is worth keeping (`judge.py`).

- A line that leads to others is no sentence: it stands before what it leads to, or goes.
- A quotation stays with what was said before it.
- Time is linear in the text.
"""

from collections.abc import Sequence
from typing import Final

from relayer.extraction.lists import (
    HEADING_CHARS_MAX,
    Item,
    Line,
    Statement,
    is_sentence,
    lines_of,
    list_at,
    list_statements,
    split_spoken,
)
from relayer.extraction.prose import is_quotation, leads_on, with_whole_quotations

_HEADED_MAX: Final = 100  # statements of a text that get their heading: it is said again for each
_PLAIN_ITEM_CHARS_MAX: Final = 120
_FULL_LINE_CHARS_MIN: Final = 60  # a line that is broken may go on with a capital letter
_ENDS: Final = tuple(".!?…:。！？：؟।॥།။។")
_JOINED_CHARS_MAX: Final = 1000


def sentences(text: str) -> list[str]:
    """Return the sentences of `text` in order, without bullets; line breaks inside are blanks.

    Abbreviations, ordinals, times, versions and file names keep their full stops. Items of a list
    have its heading before them.
    """
    return [statement.text for statement in statements(text)]


def statements(text: str) -> list[Statement]:
    """Return the sentences of `text`, those of a list with what leads to them."""
    found = list[Statement]()
    for statement in _Reader(lines_of(with_whole_quotations(text))).read():
        before = found[-1].text if found else ""
        if is_quotation(statement.text) and 0 < len(before) < _JOINED_CHARS_MAX:
            found[-1] = Statement(f"{before} {statement.text}", found[-1].lead)
        else:
            found.append(statement)
    return found


class _Reader:
    """Goes through the lines of a message once."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._found = list[Statement]()
        self._headed = 0
        # The running paragraph, and what is known of it.
        self._parts = list[str]()
        self._length = 0
        self._is_title = False
        self._blanks = 0  # lines since its last one

    def read(self) -> list[Statement]:
        """Return the statements."""
        number = 0
        while number < len(self._lines):
            items, end = self._list(number)
            if items:
                self._add_list(items)
            else:
                self._add(self._lines[number])
                end = number + 1
            number = end
        self._end_paragraph()
        return self._found

    def _list(self, number: int) -> tuple[list[Item], int]:
        """Return the items of the list that begins with a line, none if none does, and the line
        behind it."""
        line = self._lines[number]
        if line.is_item and not (line.kind == "stamp" and self._is_broken_before(line)):
            return list_at(self._lines, number)
        is_led = self._leads_on
        follows = number + 1 < len(self._lines) and self._lines[number + 1].kind == "field"
        if line.kind == "field" and (is_led or follows):
            return list_at(self._lines, number)
        if line.kind == "plain" and is_led:
            return self._plain_list(number)
        return [], number

    def _plain_list(self, number: int) -> tuple[list[Item], int]:
        """Return lines without bullets below a heading: two or more, and none a sentence."""
        items = list[Item]()
        while number < len(self._lines) and self._lines[number].kind in ("plain", "field"):
            line = self._lines[number]
            if len(line.text) > _PLAIN_ITEM_CHARS_MAX or is_sentence(line.text):
                return [], number
            if items and _is_broken(items[-1].text, line):
                items[-1].parts.append(line.text)
            else:
                items.append(Item(line, [line.text]))
            number += 1
        return (items, number) if len(items) > 1 else ([], number)

    def _add(self, line: Line) -> None:
        if line.kind == "blank":
            self._blanks += 1
            if self._blanks > 1 or not (self._leads_on or self._is_title):
                self._end_paragraph()
            return
        if not self._leads_on and not self._is_broken_before(line):
            self._end_paragraph()
            self._is_title = line.kind == "title"
        self._parts.append(line.text)
        self._length += len(line.text) + 1
        self._blanks = 0

    @property
    def _leads_on(self) -> bool:
        return bool(self._parts) and leads_on(self._parts[-1])

    def _is_broken_before(self, line: Line) -> bool:
        """Tell whether `line` goes on with the paragraph."""
        if not self._parts or self._blanks or self._is_title or line.kind == "title":
            return False
        is_full = self._length >= _FULL_LINE_CHARS_MIN
        return not self._parts[-1].endswith(_ENDS) and (line.text[0].islower() or is_full)

    def _add_list(self, items: Sequence[Item]) -> None:
        heading = ""
        said = self._take_paragraph()
        if said and self._heads(said[-1], items[0].line):
            heading = said.pop()
        if len(heading) > HEADING_CHARS_MAX:
            said.append(heading)
            heading = ""
        listed = list_statements(heading, items, headed_max=_HEADED_MAX - self._headed)
        self._headed += sum(bool(statement.lead) for statement in listed)
        self._found += [*map(Statement, said), *listed]
        self._is_title, self._blanks = False, 0

    def _heads(self, sentence: str, first: Line) -> bool:
        """Tell whether the last sentence before a list heads it."""
        if leads_on(sentence) or self._is_title:
            return True
        return self._blanks == 0 and first.has_mark and not is_sentence(sentence)

    def _end_paragraph(self) -> None:
        said = self._take_paragraph()
        if said and leads_on(said[-1]):
            said.pop()
        self._found += map(Statement, said)
        self._is_title, self._blanks = False, 0

    def _take_paragraph(self) -> list[str]:
        text = " ".join(self._parts)
        self._parts, self._length = [], 0
        return split_spoken(text) if text else []


def _is_broken(before: str, line: Line) -> bool:
    return len(before) >= _FULL_LINE_CHARS_MIN and line.text[0].islower()
