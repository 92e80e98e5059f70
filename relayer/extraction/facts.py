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

KINDS: Final = ("fact", "preference", "decision", "event", "procedural")
IMPORTANCES: Final = ("vital", "standard", "trivial")
CONFIDENCES: Final = ("high", "medium", "low")

FACTS_MAX: Final = 20
FACT_CHARS_MAX: Final = 1000  # longer is a copy of the conversation, not a fact taken from it
_FACT_WIDTH_MIN: Final = 11  # ten characters and fewer say nothing by themselves


@dataclass(frozen=True)
class Turn:
    """What facts are taken from: text, its time if known, and memories that are known already."""

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
        """Return the facts of `turn` in its order, none of them in `turn.related`."""
        ...


def distinct(facts: Iterable[Fact], related: Sequence[str]) -> list[Fact]:
    """Return the facts that are of use, each once, and none that is known already."""
    seen = {normalised(text) for text in related}
    kept = []
    for fact in facts:
        key = normalised(fact.text)
        if key not in seen and _is_usable(fact.text, key):
            seen.add(key)
            kept.append(fact)
    return kept


def normalised(text: str) -> str:
    """Return `text` for comparing: letters and digits alone, folded, one blank between words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def _is_usable(text: str, key: str) -> bool:
    sane = width(key) >= _FACT_WIDTH_MIN and len(text) <= FACT_CHARS_MAX
    return sane and not orders_the_reader(text) and not gives_a_password(text)
