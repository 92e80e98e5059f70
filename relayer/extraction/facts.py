"""An excerpt of a conversation, a fact taken from it, and which facts are of use at all.

It does not own how facts are found (`model.py`, `rules.py`) nor storing them: a fact's fingerprint
tells there whether it is new.

- A text that orders its reader to break rules, or that gives a password away, is never a fact.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from relayer.extraction.injection_filter import gives_a_password, orders_the_reader
from relayer.extraction.language import has_words
from relayer.normalization import normalize

KINDS: Final = ("fact", "preference", "decision", "event", "procedural")
IMPORTANCES: Final = ("vital", "standard", "trivial")
CONFIDENCES: Final = ("high", "medium", "low")

MODEL: Final = "model"
RULES: Final = "rules"

FACTS_MAX: Final = 20
KNOWN_CHARS_MAX: Final = 500  # of each known memory; a long one shows by then what it is about
FACT_CHARS_MAX: Final = 1000  # longer is a copy of the conversation, not a fact taken from it
_FACT_WORDS_MIN: Final = 2  # a word alone says nothing of anything, "I'm vegan." all there is


@dataclass(frozen=True)
class Excerpt:
    """The source of facts: a text, its time if known, and the beginnings of known memories."""

    text: str
    occurred_at: datetime | None = None
    related: Sequence[str] = ()


@dataclass(frozen=True)
class Fact:
    """One thing to remember; `kind`, `importance` and `confidence` come from the closed lists.

    Attributes:
        contradicts: which of the excerpt's related memories does not hold if this does.
        is_unsupported: it has a name, a number or a date that the excerpt does not have.
    """

    text: str
    kind: str = "fact"
    importance: str = "standard"
    confidence: str = "medium"
    event_time_ms: int | None = None
    contradicts: int | None = None
    is_unsupported: bool = False


class Extractor(Protocol):
    """Something that finds facts in an excerpt: `LlmExtractor` or `SentenceExtractor`."""

    @property
    def name(self) -> str:
        """Return its name in answers: `MODEL` or `RULES`."""
        ...

    async def extract(self, excerpt: Excerpt) -> list[Fact]:
        """Return the facts of `excerpt` in its order, also those that are known already."""
        ...


def distinct(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that are of use, each once; of another time it is another one."""
    kept: dict[tuple[object, ...], Fact] = {}
    for fact in facts:
        said = content(fact.text)
        key = (fact.event_time_ms, fact.text if said is None else said)
        if key not in kept and _is_usable(fact.text):
            kept[key] = fact
    return list(kept.values())


# What stands around a word and is not of it; none of it begins a name, as . begins .env.
_QUOTES: Final = "\"'`«»‹›“”„‘‚"
_ENDS: Final = ".,;:!?…।॥。、，．！？；：؟،؛"
_BOLD: Final = re.compile(r"(?<!\w)\*\*(?=\S)([^*]+)(?<=\S)\*\*(?!\w)")
_ALIKE: Final = str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2044’", "-------/'")


def normalise(text: str) -> str:
    """Return `text` for comparing: words without the marks around them, one blank between.

    Only what is nothing but a word is folded: `-R` is not `-r`, `db-1.x` not `db.1-x`, 5 M not 5 m.
    """
    plain = _BOLD.sub(r"\1", normalize("NFC", text)).translate(_ALIKE)
    return " ".join(map(_word, plain.split()))


def _word(token: str) -> str:
    word = token.lstrip(_QUOTES).rstrip(_QUOTES + _ENDS) or token
    if not word.replace("'", "").isalpha() or (len(word) == 1 and word != "I"):
        return word
    is_plain = word.isupper() or word[1:] == word[1:].lower()  # not of two cases, as IDs may be
    return word.lower() if is_plain else word


# None that is another word in the other language ("die", "den", "an"), nor an article that tells
# who does it to whom ("dem"), nor a word that is the point at times ("einfach" of a ticket).
FILLERS: Final = frozenset(
    "the very really just also simply actually indeed please"
    " der das ein eine sehr auch wirklich".split()
)


def say_the_same(one: str, other: str) -> bool:
    """Return whether two facts say the same: word for word, but for fillers.

    Anything else may be the point of it: a number, a denial, a tense, a name, a sign in a path.
    """
    said = content(one)
    return said is not None and said == content(other)


def content(text: str) -> tuple[str, ...] | None:
    """Return what two texts that say the same have in common; None for one too long for a fact."""
    if len(text) > FACT_CHARS_MAX:
        return None
    return tuple(word for word in normalise(text).split() if word not in FILLERS)


def _is_usable(text: str) -> bool:
    if len(text) > FACT_CHARS_MAX or not has_words(normalise(text), words_min=_FACT_WORDS_MIN):
        return False
    return not orders_the_reader(text) and not gives_a_password(text)
