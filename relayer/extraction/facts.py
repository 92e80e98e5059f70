"""A turn of conversation, a fact taken from it, and which facts are of use at all.

It does not own how facts are found (`model.py`, `rules.py`) nor storing them: a fact's fingerprint
tells there whether it is new.

- A text that orders its reader to break rules, or that gives a password away, is never a fact.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from relayer.extraction.language import width
from relayer.extraction.refused import gives_a_password, orders_the_reader
from relayer.forms import normalize

KINDS: Final = ("fact", "preference", "decision", "event", "procedural")
IMPORTANCES: Final = ("vital", "standard", "trivial")
CONFIDENCES: Final = ("high", "medium", "low")

FACTS_MAX: Final = 20
KNOWN_CHARS_MAX: Final = 500  # of each known memory; a long one shows by then what it is about
FACT_CHARS_MAX: Final = 1000  # longer is a copy of the conversation, not a fact taken from it
_FACT_WIDTH_MIN: Final = 11  # ten characters and fewer say nothing by themselves


@dataclass(frozen=True)
class Turn:
    """What facts are taken from: text, its time if known, and how memories that are known begin."""

    text: str
    occurred_at: datetime | None = None
    related: Sequence[str] = ()


@dataclass(frozen=True)
class Fact:
    """One thing to remember; `kind`, `importance` and `confidence` come from the closed lists.

    Attributes:
        contradicts: which of the turn's related memories does not hold if this does.
    """

    text: str
    kind: str = "fact"
    importance: str = "standard"
    confidence: str = "medium"
    event_time_ms: int | None = None
    contradicts: int | None = None


class Extractor(Protocol):
    """Something that finds facts in a turn: `LlmExtractor` or `SentenceExtractor`."""

    async def extract(self, turn: Turn) -> list[Fact]:
        """Return the facts of `turn` in its order, also those that are known already."""
        ...


def distinct(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that are of use, each once; of another time it is another one."""
    kept: dict[tuple[object, ...], Fact] = {}
    for fact in facts:
        said = content(fact.text)
        key = (fact.event_time_ms, fact.text if said is None else said)
        if key not in kept and _is_usable(fact.text, normalised(fact.text)):
            kept[key] = fact
    return list(kept.values())


# With the signs that tell A+ from A-, C from C#, -5 from 5 and 1/2 from 1.2; a hyphen between
# letters is a blank. A symbol by itself is a word, for it may be the point: a check mark or a
# cross, = or ≠; ! is one only before what it denies. Blanks between digits and / : - tell nothing.
_SYMBOL: Final = "\0"
_SIGNS: Final = frozenset("≤≥€£")
_DASHES: Final = str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2044", "-------/")
_POWERS: Final = str.maketrans({char: f"^{n}" for n, char in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})
_WHOLE_AND_PART: Final = re.compile(r"(?<=\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=\d)\s*([-/:])\s*(?=\d)")
_WORD: Final = re.compile(
    r"(?:(?<!\w)[-+<>≤≥$€£]{1,3}(?=\d))?\w+(?:(?<=\d)(?:[-./:,*]|\^-?)(?=\d)\w+)*"
    r"(?:[+#%€$£]{1,3}|-(?![\w-]))?|(?<!\w)!(?=\w)|!(?==)|[=<>~+&|\0]"
)


def normalised(text: str) -> str:
    """Return `text` for comparing: words, numbers, their signs and symbols, folded, one blank
    between."""
    text = _WHOLE_AND_PART.sub(" ", text).translate(_POWERS)
    plain = normalize("NFKC", text).casefold().translate(_DASHES)
    plain = _BETWEEN_DIGITS.sub(r"\1", plain)
    seen = plain if plain.isascii() else "".join(map(_as_seen, plain))
    return " ".join(plain[match.start() : match.end()] for match in _WORD.finditer(seen))


def _as_seen(char: str) -> str:
    """Return what the pattern is to take a character for: it knows no marks, which are vowels in
    some scripts, for parts of a word, and no symbols but its own."""
    kind = unicodedata.category(char)[0]
    if kind == "M":
        return "x"
    return _SYMBOL if kind == "S" and not char.isascii() and char not in _SIGNS else char


FILLERS: Final = frozenset(
    "an the very really just also simply actually indeed please der die das den dem ein eine"
    " einen einem einer sehr auch wirklich eben einfach".split()
)
_PLURAL_CHARS_MIN: Final = 4
_CONTENT_CHARS_MAX: Final = 2 * FACT_CHARS_MAX  # one character may come to eighteen


def say_the_same(one: str, other: str) -> bool:
    """Return whether two facts say the same: word for word, but for fillers and a plural's s.

    Anything else may be the point of it: a number, a denial, a tense, who did what to whom.
    """
    said = content(one)
    return said is not None and said == content(other)


def content(text: str) -> tuple[str, ...] | None:
    """Return what two texts that say the same have in common; None for one too long for a fact."""
    if len(text) > FACT_CHARS_MAX or len(plain := normalised(text)) > _CONTENT_CHARS_MAX:
        return None
    words = [word for word in plain.split() if word not in FILLERS]
    return tuple(word[:-1] if _is_plural(word) else word for word in words)


def _is_plural(word: str) -> bool:
    """Whether a word may be a plural; 2.5ms is none of 2.5m."""
    long = len(word) >= _PLURAL_CHARS_MIN and word.endswith("s")
    return long and not any(char.isdigit() for char in word)


def _is_usable(text: str, key: str) -> bool:
    sane = width(key) >= _FACT_WIDTH_MIN and len(text) <= FACT_CHARS_MAX
    return sane and not orders_the_reader(text) and not gives_a_password(text)
