"""Tells which of the notes that a model was shown its answer rests on.

- The prompt asks for a note's number behind each statement: [2], or [1, 3]. A number that no note
  has cites nothing.
- A small model may cite nothing. Its answer rests on the notes that bear out its names and numbers
  (`support`) and share a word with it that the question does not have.
- An answer that rests on nothing is no answer, and so is one that begins with `NOT_IN_MEMORY`.

Time is linear in the answer and in the notes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from relayer.extraction.support import Evidence
from relayer.words.tokens import words

NOT_IN_MEMORY: Final = "NOT IN MEMORY"  # as the prompt spells it
_NUMBERS: Final = r"\d{1,3}(?:\s{0,2}[,;–-]\s{0,2}\d{1,3}){0,20}"
_CITATION: Final = re.compile(
    rf"[\[【［]\s{{0,2}}(?:notes?\s{{1,2}})?({_NUMBERS})\s{{0,2}}[\]】］](?!\()", re.IGNORECASE
)
_PART: Final = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_RANGE_MAX: Final = 100
_REFUSAL: Final = re.compile(r"[\W_]*not[\s_]+in[\s_]+memory\b", re.IGNORECASE)


def find_citations(answer: str, question: str, notes: Sequence[str]) -> tuple[int, ...]:
    """Return the places in `notes` that an answer rests on, the first named first.

    Returns:
        None of them where it is no answer to the question.
    """
    if _REFUSAL.match(answer):
        return ()
    cited = [n - 1 for n in _cited_numbers(answer) if 1 <= n <= len(notes)]
    return tuple(dict.fromkeys(cited)) or _bearing(answer, question, notes)


def _cited_numbers(answer: str) -> Iterator[int]:
    for citation in _CITATION.finditer(answer):
        for part in _PART.finditer(citation[1]):
            first, last = int(part[1]), int(part[2] or part[1])
            yield from range(first, min(last, first + _RANGE_MAX) + 1)


def _bearing(answer: str, question: str, notes: Sequence[str]) -> tuple[int, ...]:
    """Return the places of the notes that bear out an answer without citations."""
    own = set(words(answer)) - set(words(question))
    return tuple(
        place
        for place, note in enumerate(notes)
        if own.intersection(words(note)) and Evidence([note], None, set()).supports(answer)
    )
