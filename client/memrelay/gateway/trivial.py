"""Finds texts that say nothing: greetings, thanks, assent, bare commands, and signs alone.

It does not own which texts are worth keeping (`filters.py`).

- Only what is certainly trivial counts as such: whoever judges sentences can drop the rest.
- The lists are closed. A word that is on none of them says something.
- A text is measured in columns, as a terminal shows it: a Chinese character is as wide as two
  letters, and says as much.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Final

from memrelay.gateway.fillers import PHRASES

_COLUMNS_MIN = 2  # of letters and digits: a single letter or digit answers a menu
_FILLER_CHARS_MAX = 1000  # whoever says more says something
# Scripts that part no words by blanks: each character is a token of its own.
_JOINED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_TOKEN: Final = re.compile(
    rf"[{_JOINED}][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u3099\u309a]*|[^\s{_JOINED}]+"
)
_ACCENTS: Final = re.compile(r"[\u0300-\u036f\u0640\u064b-\u065f\u0670]")
_STRETCHED: Final = re.compile(r"(.)\1{2,}")
_LAUGHTER: Final = re.compile(
    r"(?:[hjx][aeio]|[aeio]h|[хж][аеио]|kk|rs|wk|haw){2,}[hjxх]?|w{3,}|m{2,}|h+m+|k{3,}"
)
# Alone on its line, it is for the agent's program: `/new`, `/status`.
_COMMAND: Final = re.compile(r"/[a-z][\w:.-]{0,40}(?:@\w{1,40})?", re.IGNORECASE)


def is_trivial(text: str) -> bool:
    """Return whether a text says nothing that could be remembered, or looked up, in any script."""
    return is_filler(text) or is_command(text) or _width(text) < _COLUMNS_MIN


def is_filler(text: str) -> bool:
    """Return whether a text is nothing but greetings, thanks, assent or signs, in 17 languages."""
    if len(text) > _FILLER_CHARS_MAX:
        return False
    tokens = list(_tokens(text))
    reached = 0  # phrases, one after the other, can end there
    ends = {0}
    for end in range(1, len(tokens) + 1):
        begins = (begin for begin in range(max(0, end - _LONGEST), end) if begin in ends)
        if any(tuple(tokens[begin:end]) in _FILLERS for begin in begins) or (
            reached == end - 1 and _LAUGHTER.fullmatch(tokens[reached])
        ):
            ends.add(end)
            reached = end
        elif end - reached > _LONGEST:
            return False
    return reached == len(tokens)


def is_command(text: str) -> bool:
    """Return whether a text is nothing but commands that begin with a slash, one a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return bool(lines) and all(_COMMAND.fullmatch(line) for line in lines)


def is_question(text: str) -> bool:
    """Return whether a text asks, and says nothing besides that could be remembered."""
    sentences = [sentence for sentence in _SENTENCE.findall(text) if not is_filler(sentence)]
    return bool(sentences) and all(_ASKS.search(sentence) for sentence in sentences)


_SENTENCE: Final = re.compile(r"[^.!?。！？؟;\u037e…\n]+[.!?。！？؟;\u037e…]*")
_ASKS: Final = re.compile(r"[?？؟\u037e][^\w]*\Z")


def _tokens(text: str) -> Iterator[str]:
    """Yield the words of a text, or its characters where words are not parted, in plain letters."""
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold())).replace("ı", "i")
    plain = unicodedata.normalize("NFC", bare)
    words = "".join(char if _is_letter(char) else " " for char in plain)
    for token in _TOKEN.finditer(words):
        yield _STRETCHED.sub(r"\1", token[0])


def _is_letter(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char) in {"Mn", "Mc"}


def _width(text: str) -> int:
    """Return how many columns the letters and digits of a text take, up to the least that count."""
    letters = (
        2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text if char.isalnum()
    )
    return sum(islice(letters, _COLUMNS_MIN))


_FILLERS: Final = frozenset(
    tuple(_tokens(phrase)) for phrases in PHRASES.values() for phrase in phrases.split(",")
)
_LONGEST: Final = max(map(len, _FILLERS))
