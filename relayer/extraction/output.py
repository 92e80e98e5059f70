"""Lines that a program wrote: logs, shells, stack traces, diffs, JSON.

It does not own what else in a message is not its author's (`material.py`).

- A line that only begins like one, such as a date or an amount, is output only beside others.
- A table in Markdown is no output: people write them.
"""

import re
from collections.abc import Sequence
from typing import Final

GAP: Final = "\n"  # two empty lines, over which a heading leads to nothing
_LEVEL: Final = "DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL"
_CLOCK: Final = r"\d\d:\d\d:\d\d"
_MOMENT: Final = rf"\[?\d{{4}}-\d\d-\d\d[T ]{_CLOCK}"
_SHELL: Final = (
    # An amount of dollars is no command.
    r"\$ (?!\d|(?:is|are|was|and|or|per|means?|stands|should|must|amounts?|prices?|signs?)\b)"
    r"|#!|>>> |[\w.-]{1,40}@[\w.-]{1,60}:\S*[$#] "
)
_LOG: Final = (
    # A level with what programs put beside it, or a time with more than people write.
    rf"\[(?:{_LEVEL})\b|(?:{_LEVEL})(?: {{2,}}|\t| ?[\[(|/]| - |:[\w.]+:| [A-Z](?![A-Z]))"
    r"|(?:FAILED|PASSED) \S*(?:::|/|\.py\b)"
    rf"|{_MOMENT}(?:[.,]\d{{1,9}}|Z(?=\W))"
    rf"|{_MOMENT}\S{{0,12}} (?:\S{{1,40}} )?\W?(?:\w{{1,20}}\.)?(?:{_LEVEL})\b"
    rf"|{_MOMENT}\S{{0,12}} (?:\[[^\]\n]{{1,60}}\]|[a-z][\w-]{{0,40}}\[\d+\]:)"
    rf"|\[?{_CLOCK}(?:[.,]\d{{1,6}})?\]? \W?(?:{_LEVEL})\b"
    rf"|[A-Z][a-z]{{2}} [ \d]\d {_CLOCK} [\w.-]{{1,60}} [\w./-]{{1,60}}(?:\[\d+\])?:"
    r"|\[ *\d+\.\d{3,9}\] |[\d.]{7,15} - \S{1,40} \[\d\d/"
    r"|npm (?:WARN|ERR!|notice)|error\[E\d+\]"
)
_TRACES_AND_DIFFS: Final = (
    r"Traceback \(|File \"[^\"\n]{1,300}\", line \d|at [\w.$<>/]{1,200} ?\([^()\n]{0,200}:\d"
    r"|at (?:async )?(?:file://|node:|/)\S{1,300}:\d|Caused by: |Exception in thread \""
    r"|=+ .{0,80}\d+ (?:passed|failed).{0,80} =+\s*\Z"
    r"|\d+ (?:passed|failed)(?:,? .{0,60})? in [\d.]+"
    r"|@@ -\d|diff --git |index [0-9a-f]{7,40}\.\."
)
_DATA: Final = (
    # JSON, and a table that is drawn.
    r"\{\s*(?:[\"'}]|\Z)|\[\s*(?:[\"{}\[\]]|\Z)|[\]}]{1,3}[\],;)]{0,3}\s*\Z"
    r"|[^{}\n]{0,80}\{\s*\"[^\"\n]{1,64}\"\s*:"
    r"|\"[^\"\n]{1,64}\"\s*:\s*(?:[\"\[{\d]|-\d|true\b|false\b|null\b)"
    r"|\+[-=]{2,}[-=+]*\+\s*\Z|\|"
)
_OUTPUT: Final = re.compile(rf"\s*(?:{_SHELL}|{_LOG}|{_TRACES_AND_DIFFS}|{_DATA})")
# What begins like output and is some beside other output: with a level, also beside its like.
_LEVEL_LINE: Final = re.compile(rf"\s*(?:{_LEVEL}|FAILED|PASSED)\b")
_MAYBE: Final = re.compile(
    rf"\s*(?:\d{{4}}-\d\d-\d\d[T ]{_CLOCK}|\d+ (?:passed|failed)\b|--- \S|\+\+\+ \S"
    r"|\"[^\"\n]*\",?\s*\Z)"
)
_TRACE: Final = re.compile(r"\s*Traceback \(most recent call last")
_HUNK: Final = re.compile(r"\s*(?:@@ -\d|diff --git )")
_DELIMITER: Final = re.compile(r"\s*\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?)?\s*\Z")
_SYMBOLS: Final = re.compile(r"[{}\[\]<>=;|\\$#&^~`]")
_NO_SYMBOLS: Final = re.compile(r"`[^`\n]{1,80}`|https?://\S{1,2000}")
_SYMBOLS_CHARS_MIN: Final = 20
_SYMBOLS_SHARE: Final = 8  # one of so many characters, and a line is no language of people


def without_output(lines: Sequence[str]) -> list[str]:
    """Return the lines with a gap in place of each that a program wrote."""
    tables = {n for begin, end in tables_of(lines) for n in range(begin, end)}
    is_output = [n not in tables and _is_output(line) for n, line in enumerate(lines)]
    _mark_blocks(lines, is_output)
    _mark_neighbours(lines, is_output)
    return [GAP if out else line for line, out in zip(lines, is_output, strict=True)]


def tables_of(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return (begin, end) of each table in Markdown: its head, a line of dashes, its rows."""
    found, end = list[tuple[int, int]](), 0
    for number, line in enumerate(lines):
        if number > end and "|" in lines[number - 1] and _DELIMITER.match(line):
            begin, end = number - 1, number + 1
            while end < len(lines) and "|" in lines[end]:
                end += 1
            found.append((begin, end))
    return found


def _is_output(line: str) -> bool:
    if _OUTPUT.match(line):
        return True
    prose = _NO_SYMBOLS.sub("", line)
    is_long = len(line) > _SYMBOLS_CHARS_MIN
    return is_long and len(_SYMBOLS.findall(prose)) * _SYMBOLS_SHARE > len(line)


def _mark_blocks(lines: Sequence[str], is_output: list[bool]) -> None:
    """Mark what belongs to a stack trace or a diff, whatever it says."""
    block = ""
    for number, line in enumerate(lines):
        if _TRACE.match(line):
            block = "trace"
        elif _HUNK.match(line):
            block = "hunk"
        elif block == "trace":
            is_output[number] = True
            block = block if line[:1].isspace() else ""  # the error itself comes last
        elif block == "hunk":
            is_in_hunk = line.lstrip("\u00a0")[:1] in ("+", "-", " ") and bool(line.strip())
            is_output[number] |= is_in_hunk
            block = block if is_in_hunk or is_output[number] else ""


def _mark_neighbours(lines: Sequence[str], is_output: list[bool]) -> None:
    """Mark lines that begin like output next to some, forth and back."""
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    for ordered in (numbers, numbers[::-1]):
        before: int | None = None
        for number in ordered:
            line = lines[number]
            is_level = bool(_LEVEL_LINE.match(line))
            if before is not None and (is_level or _MAYBE.match(line)):
                beside = is_output[before] or (is_level and bool(_LEVEL_LINE.match(lines[before])))
                is_output[number] |= beside
            before = number
