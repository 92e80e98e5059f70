"""The line of Hermes' `config.yaml` that chooses the memory provider.

It does not own the file (`home.py`). One line is set, and all others stay, with comments and
order; a text that is not plain enough for that is refused rather than misread.
"""

import re
from collections.abc import Iterator

from memrelay.errors import ConfigError


class NotEditable(ConfigError):
    """A configuration that has to be edited by hand."""


class Choice:
    """The line of a YAML text that chooses the memory provider.

    Raises:
        NotEditable: the text around it is not plain enough to be sure.
    """

    _TOP = re.compile(r"""---|- .*|(?P<name>\w[\w.-]*|"[^"]*"|'[^']*'):( .*)?""")
    _HEAD = re.compile(r"memory:( +#.*)?")
    _KEY = re.compile(r"""["']?provider["']?\s*:.*""")
    _LINE = re.compile(
        r"""provider:( +(?P<value>[\w.-]+|"[\w.-]*"|'[\w.-]*'))?(?P<comment>( +#.*)?)"""
    )

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._end = "\r" if "\r\n" in text else ""
        self._head: int | None = None  # where `memory:` stands
        self._line: int | None = None  # where its `provider:` stands
        self._indent = "  "
        self._comment = ""
        self.value: str | None = None
        self._find_head()
        if self._head is not None:
            self._find_line(self._head)

    def replace_value(self, value: str) -> str:
        """Return the text with another choice."""
        lines = list(self._lines)
        entry = f"{self._indent}provider: {value}{self._comment}{self._end}"
        if self._line is not None:
            lines[self._line] = entry
        elif self._head is not None:
            lines.insert(self._head + 1, entry)
        else:
            last = [] if lines[-1] else [lines.pop()]
            lines += [f"memory:{self._end}", entry, *(last or [""])]
        return "\n".join(lines)

    def _find_head(self) -> None:
        begun = False
        for number, line in self._contents(0):
            if line[0] in " \t":
                if not begun:  # then all of it is, and our own lines would be at another depth
                    raise NotEditable(f"line {number + 1} is indented.")
                continue
            begun = line != "---"
            top = self._TOP.fullmatch(line)
            if top is None or (line == "---" and self._head is not None):
                raise NotEditable(f"line {number + 1} is not plain YAML.")
            if (top["name"] or "").strip("\"'") == "memory":
                if self._head is not None or not self._HEAD.fullmatch(line):
                    raise NotEditable(f"line {number + 1}: memory is not written in plain lines.")
                self._head = number

    def _find_line(self, head: int) -> None:
        members = list(self._members(head))
        for place, (number, depth, line) in enumerate(members):
            if place == 0:
                self._indent = " " * depth
            if depth < len(self._indent) or (place == 0 and line[0] in "-{[\t"):
                raise NotEditable(f"line {number + 1}: memory is not written in plain lines.")
            if depth == len(self._indent) and self._KEY.fullmatch(line):
                match = self._LINE.fullmatch(line)
                longer = place + 1 < len(members) and members[place + 1][1] > depth
                if match is None or longer or self._line is not None:
                    raise NotEditable(f"line {number + 1}: provider is not one plain word.")
                self._line, self._comment = number, match["comment"]
                self.value = (match["value"] or "").strip("\"'") or None

    def _members(self, head: int) -> Iterator[tuple[int, int, str]]:
        """Yield the lines of `memory`: number, depth, and what is written."""
        for number, line in self._contents(head + 1):
            if line[0] not in " \t-":
                return
            written = line.lstrip(" ")
            yield number, len(line) - len(written), written

    def _contents(self, start: int) -> Iterator[tuple[int, str]]:
        """Yield the lines that are neither empty nor a comment, with their numbers."""
        for number in range(start, len(self._lines)):
            line = self._lines[number].rstrip()
            if line.strip() and not line.lstrip().startswith("#"):
                yield number, line
