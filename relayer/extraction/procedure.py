"""Procedures, which are done again and again, out of episodes: by a language model, or by rules.

It does not own storing: whatever is found is only proposed, and waits for approval there.

- At least three episodes must show it; the rules want the same steps in the same order on three
  days.
- A model that is away is waited for; what it finds is believed only with episodes that it names.
- Time is linear in the texts; the rules work in another thread.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.errors import Unavailable, UpstreamOverloaded
from relayer.extraction.facts import FACT_CHARS_MAX, normalise
from relayer.extraction.injection_filter import gives_a_password, orders_the_reader
from relayer.extraction.items import Item, read_items, read_place
from relayer.extraction.old_memories import OldMemory, clean, format_memories, is_believed
from relayer.llm import LanguageModel
from relayer.prompts import system_prompt

EPISODES_MIN: Final = 3
STEPS_MIN: Final = 3
STEP_CHARS_MAX: Final = 160
FOUND_MAX: Final = 5
SHOWN_MAX: Final = 60  # episodes
SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["procedures"],
    "properties": {
        "procedures": {
            "type": "array",
            "maxItems": FOUND_MAX,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "episodes"],
                "properties": {
                    "text": {"type": "string", "maxLength": FACT_CHARS_MAX},
                    "episodes": {
                        "type": "array",
                        "maxItems": SHOWN_MAX,
                        "items": {"type": "integer"},
                    },
                },
            },
        }
    },
}


@dataclass(frozen=True)
class Procedure:
    """The steps of a procedure, and the places of the episodes that show it."""

    text: str = field(repr=False)
    episodes: tuple[int, ...]


class ProcedureFinder:
    """Finds what is done in the same way again and again."""

    def __init__(self, *, model: LanguageModel | None) -> None:
        self._model = model

    @property
    def is_paid(self) -> bool:
        """Return true if a language model is asked, which costs money."""
        return self._model is not None

    async def find(self, episodes: Sequence[OldMemory]) -> list[Procedure]:
        """Return what recurs in these episodes, at most `FOUND_MAX`, none sharing an episode.

        Raises:
            Unavailable: `llm.unavailable`, the model is away.
            UpstreamOverloaded: it fails at these episodes alone, or comes to no end with them.
        """
        if self._model is None:
            return await asyncio.to_thread(procedures_by_rules, episodes)
        if len(episodes) < EPISODES_MIN:
            return []
        asked = episodes[:SHOWN_MAX]
        try:
            items = await self._model.ask_structured(
                system=system_prompt("procedures"),
                user=format_memories(asked),
                schema_name="procedures",
                schema=SCHEMA,
                fit=read_items,
                patient=True,
            )
        except Unavailable as error:
            if error.code != "llm.invalid_output" or isinstance(error, UpstreamOverloaded):
                raise
            return await asyncio.to_thread(procedures_by_rules, episodes)
        return _apart([p for p in (_accept(item, asked) for item in items) if p is not None])


def _accept(item: Item, episodes: Sequence[OldMemory]) -> Procedure | None:
    numbers = item.get("episodes")
    if not isinstance(numbers, list):
        return None
    places = {at for n in numbers if (at := read_place(n, len(episodes))) is not None}
    text = clean(item["text"])
    # The numbers of steps are the model's own.
    said = _NUMBERED.sub(" ", text)
    cited = [episodes[n] for n in sorted(places)]
    if len(places) < EPISODES_MIN or not is_believed(said.strip(), cited, FACT_CHARS_MAX):
        return None
    return Procedure(text, tuple(sorted(places)))


def procedures_by_rules(episodes: Sequence[OldMemory]) -> list[Procedure]:
    """Return the sequences of steps that stand in episodes of three days at least."""
    found: dict[tuple[str, ...], list[int]] = {}
    said: dict[tuple[str, ...], list[str]] = {}
    for n, episode in enumerate(episodes):
        steps = steps_of(episode.text)
        if steps:
            key = tuple(normalise(step) for step in steps)
            found.setdefault(key, []).append(n)
            said.setdefault(key, steps)
    recurring = [
        Procedure(_format_steps(said[key]), tuple(places))
        for key, places in found.items()
        if len({episodes[n].day for n in places}) >= EPISODES_MIN
    ]
    return _apart(sorted(recurring, key=lambda p: -len(p.episodes)))


def _apart(found: Sequence[Procedure]) -> list[Procedure]:
    """Return the first of these that share no episode with one before."""
    taken: set[int] = set()
    kept: list[Procedure] = []
    for procedure in found:
        if len(kept) < FOUND_MAX and not taken.intersection(procedure.episodes):
            kept.append(procedure)
            taken.update(procedure.episodes)
    return kept


def _format_steps(steps: Sequence[str]) -> str:
    return "Recurring steps:\n" + "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))


_NUMBERED: Final = re.compile(r"(?:^|(?<=\s))\(?\d{1,2}[.)]\s+")
_ARROW: Final = re.compile(r"\s*(?:→|->|=>)\s*")
_THEN: Final = re.compile(
    r"[,;.]?\s*\b(?:and\s+|und\s+)?(?:then|next|after that|finally|lastly|danach|dann|anschließend"
    r"|schließlich|zuletzt)\b[,:]?\s*",
    re.IGNORECASE,
)
_FIRST: Final = re.compile(r"\b(?:first|zuerst)\b[,:]?\s*", re.IGNORECASE)
_ENDS: Final = " \t.,;:-–—*•"


def steps_of(text: str) -> list[str]:
    """Return the steps that a text lists in order: numbered, by arrows, or "first … then …"."""
    # Else each blank of a long run would look for an arrow behind all the others.
    text = " ".join(text.split())
    first = _FIRST.search(text)
    for parts in (
        _NUMBERED.split(text)[1:],
        _ARROW.split(_after_colon(text)),
        _THEN.split(text[first.end() :]) if first else [],
    ):
        steps = [part.strip(_ENDS) for part in parts]
        if len(steps) >= STEPS_MIN and all(map(_is_step, steps)):
            return steps
    return []


def _after_colon(text: str) -> str:
    """Return what follows "On Monday:" where that leads a line of arrows in."""
    head, colon, rest = text.partition(": ")
    return rest if colon and not _ARROW.search(head) else text


def _is_step(step: str) -> bool:
    return 0 < len(step) <= STEP_CHARS_MAX and not (
        orders_the_reader(step) or gives_a_password(step)
    )
