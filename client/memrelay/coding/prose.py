"""Takes out of a message what is no memory: code, diffs, output of programs.

It does not own what is worth keeping of the rest (`gateway/filters.py`).

- What people decided, prefer and agreed on is said in sentences. Those stay, also between two
  blocks of code.
- A doubtful line stays: the relayer judges each sentence once more.
- Time is linear in the text.
"""

import re
from typing import Final

_FENCE: Final = re.compile(r"[ \t]{0,8}(`{3,}|~{3,})")
_HUNK: Final = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
# How lines begin that no person writes as a sentence.
_OUTPUT: Final = re.compile(
    r"[ \t]{0,40}(?:"
    r"diff --git |index [0-9a-f]{6,40}\.\.|--- a/|\+\+\+ b/"
    r"|Traceback \(most recent call last\)|File \"[^\"\n]{1,400}\", line \d"
    r"|at [\w$.<>]{1,200} ?\([^()\n]{0,400}\)\s*\Z"
    r"|\$ [a-z./]|>>> \S|[\w.-]{1,60}@[\w.-]{1,60}:[^\s$#]{1,200}[$#] "
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,12} \[?(?i:debug|info|warn|error|trace)"
    r"|(?:npm|yarn|pnpm) (?:ERR!|WARN)|(?:PASS|FAIL|PASSED|FAILED|ERROR) \S{1,200}[./:]"
    r"|(?:error|warning)(?:\[\w{1,20}\]|: \w{1,20}:)"
    r"|[\w./-]{1,200}\.\w{1,8}:\d{1,6}(?::\d{1,6})?[: ]"
    r"|\d{1,6}[|\u2192\t]"
    r")"
)
# What code begins with: words that sentences do not begin with, and those that they may.
_WORD: Final = re.compile(r"#?[A-Za-z_]{1,20}")
_KEYWORDS: Final = frozenset(
    "#define #include async await const def elif enum fn func impl namespace struct".split()
)
_ENGLISH: Final = frozenset(
    "class else except export for from function if import interface let package private protected "
    "public return static switch try type using var void while with".split()
)
_SIGNS: Final = frozenset("={};")
_ASSIGNMENT: Final = re.compile(
    r"[\w.$\[\]\"'-]{1,80}(?:: ?[\w.\[\]]{1,80})?[ \t]{0,8}[-+*/|&:]?=\s"
)
_CALL: Final = re.compile(r"@?[\w.$]{1,80}\(")
_CALL_WITHIN: Final = re.compile(r"\w\(")
_MEMBER: Final = re.compile(r"\"[^\"\n]{1,80}\"[ \t]{0,8}:")
_LINE_CHARS_MAX: Final = 2000  # a longer one is a paragraph or a blob
_RUN_MIN: Final = 2  # a single line that looks like code may be a sentence's


def without_code(text: str) -> str:
    """Return a text without fenced code, diffs, traces, output of programs and runs of code."""
    kept, run = list[str](), list[str]()
    fence, hunk = "", (0, 0)
    for line in text.replace("\r\n", "\n").split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip(" \t`~"):
                fence = ""
        elif hunk > (0, 0):
            hunk = _count_down(hunk, line)
        elif mark:
            fence = mark[1]
        elif header := _HUNK.match(line):
            hunk = (int(header[1] or 1), int(header[2] or 1))
        elif not _OUTPUT.match(line):
            if _is_code(line):
                run.append(line)
                continue
            if line.strip() or len(run) < _RUN_MIN:
                _end_run(kept, run)
            kept.append(line)
            continue
        _end_run(kept, run)
    _end_run(kept, run)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _count_down(hunk: tuple[int, int], line: str) -> tuple[int, int]:
    """Return how many old and new lines of a hunk are left after this one of it."""
    old, new = hunk
    sign = line[:1]
    return max(0, old - (sign not in {"+", "\\"})), max(0, new - (sign not in {"-", "\\"}))


def _end_run(kept: list[str], run: list[str]) -> None:
    """Keep the lines that look like code if they are too few to be code."""
    if len(run) < _RUN_MIN:
        kept += run
    run.clear()


def _is_code(line: str) -> bool:
    bare = line.strip()
    if not bare or len(bare) > _LINE_CHARS_MAX:
        return False
    last = bare[-1]
    if last in "{};" or not bare.strip("()[]{},;") or bare.startswith(("//", "/*", "*/")):
        return True
    if (bare[0], last) == ("<", ">") or _ASSIGNMENT.match(bare) or _MEMBER.match(bare):
        return True
    if last == ")" and _CALL.match(bare):
        return True
    word = _WORD.match(bare)
    if word is None or last in ".!?":
        return False
    return word[0] in _KEYWORDS or (
        word[0] in _ENGLISH
        and (not _SIGNS.isdisjoint(bare) or _CALL_WITHIN.search(bare) is not None)
    )
