"""Secrets in text, recognised by the shape of the value and replaced by typed marks.

Not here: what secrets look like (`secret_kinds.py`), nor what to do with a text that held some. It
does not understand words: "my password is swordfish" passes. This is a net for what gets pasted by
accident, not a promise.

- A mark holds the name of a kind and no part of the secret; redacting twice changes nothing more.
- What looks like a mark in a text hides nothing: secrets are looked for inside it, too.
- The time is linear in the text, whatever it holds. A long one is looked through piece by piece: a
  shape that needs more than 64 KiB without a blank is not known there.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from typing import Final

from relayer.chunks import AT_ONCE, substitute
from relayer.secret_kinds import SHAPES, SHORT_SHAPES, UNBROKEN_MIN

_PRIVATE_KEY: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=]{16}")
# A line of a key that was cut off: base64 or a header, after an end of line (perhaps escaped), an
# indent, a quote or a table's bar.
_ARMOUR_LINE: Final = re.compile(
    r"(?:\\[nr]|[\s>|\"'`,+]){1,16}"
    r"(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{0,80}|[A-Za-z0-9+/=]{16,})"
)


# How far behind its beginning a secret with its label may have its last blank.
_BLANKS_WITHIN: Final = 2_048
_BLANK: Final = re.compile(r"\s", re.ASCII)
_SPLIT_MAX: Final = 4_096  # characters: a longer text has a long word, and splitting it takes time
_UNBROKEN_MAX: Final = 65_536  # characters without a blank, by which a secret is known


def redact(text: str) -> tuple[str, dict[str, int]]:
    """Return `text` with a mark like `[redacted:aws-key]` for each secret, and counts by type."""
    found: Counter[str] = Counter()
    text = _without_private_keys(text, found)
    looked_for = SHAPES if _has_long_word(text) else SHORT_SHAPES
    shapes = ((shape, _mark_with(accepts, found)) for shape, accepts in looked_for)
    return substitute(shapes, text, _window), dict(found)


def _has_long_word(text: str) -> bool:
    """Return true if a text has a word as long as most secrets are, or is long itself."""
    return len(text) > _SPLIT_MAX or len(max(text.split(), key=len, default="")) >= UNBROKEN_MIN


def _window(text: str, at: int) -> tuple[int, int]:
    """Return the place before which a secret has to begin, and the end of the text to look at.

    Only what has no blanks is longer than `_BLANKS_WITHIN`; so it ends at a blank further away.
    """
    near = at + AT_ONCE + _BLANKS_WITHIN
    blank = _BLANK.search(text, near, near + _UNBROKEN_MAX)
    if blank is None:
        return at + AT_ONCE, near + _UNBROKEN_MAX
    return blank.start() - _BLANKS_WITHIN, blank.end()


def _mark_with(
    accepts: Callable[[str], bool], found: Counter[str]
) -> Callable[[re.Match[str]], str]:
    """Return a function that marks the group of a match that is named for a kind."""

    def mark(match: re.Match[str]) -> str:
        group = match.lastgroup
        assert group is not None
        if not accepts(match[group]):
            return match[0]
        before = match[0][: match.start(group) - match.start()]
        after = match[0][match.end(group) - match.start() :]
        return f"{before}{_mark(group.replace('_', '-'), found)}{after}"

    return mark


def _mark(kind: str, found: Counter[str]) -> str:
    found[kind] += 1
    return f"[redacted:{kind}]"


def _without_private_keys(text: str, found: Counter[str]) -> str:
    """Return `text` without PEM blocks; a block that was cut off ends with its last base64 line."""
    kept: list[str] = []
    position = 0
    lines = list(_PRIVATE_KEY.finditer(text))
    for line, following in zip_longest(lines, lines[1:]):
        if line[1] == "BEGIN" and (stop := _key_end(text, line, following)) is not None:
            kept += [text[position : line.start()], _mark("private-key", found)]
            position = stop
    return "".join([*kept, text[position:]])


def _key_end(text: str, begin: re.Match[str], following: re.Match[str] | None) -> int | None:
    """Return the end of a key's text; None for a sentence that only speaks of the line `begin`."""
    if following is not None and following[1] == "END":
        key = _BASE64.search(text, begin.end(), following.start())
        return following.end() if key else None
    end = begin.end()
    while line := _ARMOUR_LINE.match(text, end):
        end = line.end()
    return end if end > begin.end() else None
