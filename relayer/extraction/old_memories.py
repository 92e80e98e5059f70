"""Old memories as consolidation reads them: what a model is shown of them, and what it may say.

It does not own what is made of them (`summary.py`, `procedure.py`); texts come redacted.

- What a model says is believed only if every number in it stands in what it was shown.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from relayer.extraction.injection_filter import gives_a_password, orders_the_reader
from relayer.prompts import fence, number_lines

SHOWN_CHARS_MAX: Final = 1_000  # of one memory
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class OldMemory:
    """An old memory of something that happened: its text, and when that was."""

    text: str = field(repr=False)
    moment: datetime
    importance: str = "standard"

    @property
    def day(self) -> str:
        """Return the date in UTC, ISO 8601."""
        return self.moment.astimezone(UTC).date().isoformat()


def format_memories(episodes: Sequence[OldMemory]) -> str:
    """Return old memories as a prompt has them: numbered, dated, fenced."""
    return fence(
        "episodes", number_lines([f"({e.day}) {e.text[:SHOWN_CHARS_MAX]}" for e in episodes])
    )


def is_believed(text: str, episodes: Iterable[OldMemory], chars_max: int) -> bool:
    """Return whether a model may have taken `text` from these memories, and it may be stored."""
    if not 0 < len(text) <= chars_max or orders_the_reader(text) or gives_a_password(text):
        return False
    known = {n for e in episodes for n in _numbers(f"{e.day} {e.text[:SHOWN_CHARS_MAX]}")}
    return _numbers(text) <= known


def _numbers(text: str) -> set[int]:
    # No identifier of a sane length is longer, and Python refuses to read much longer ones.
    return {int(digits[:64]) for digits in _NUMBER.findall(text)}


def clean(text: str) -> str:
    """Return `text` without control characters, lines kept."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    kept = "\n".join(line for line in lines if line)
    return "".join(c for c in kept if c == "\n" or unicodedata.category(c) != "Cc").strip()
