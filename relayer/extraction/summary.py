"""One text for several old episodes: by a language model, or by rules without one.

It does not own which episodes belong together (`database.consolidation`) nor storing the summary.

- A model that is away is waited for; one that answers uselessly is replaced by the rules.
- No model is asked about episodes of which nothing may be said again.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

from relayer.errors import Unavailable, UpstreamOverloaded
from relayer.extraction.facts import IMPORTANCES
from relayer.extraction.injection_filter import gives_a_password, orders_the_reader
from relayer.extraction.old_memories import OldMemory, clean, format_memories, is_believed
from relayer.llm import LanguageModel
from relayer.prompts import system_prompt

SUMMARY_CHARS_MAX: Final = 2_000
LINES_MAX: Final = 12
LINE_CHARS_MAX: Final = 140
SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary"],
    "properties": {"summary": {"type": "string", "maxLength": SUMMARY_CHARS_MAX}},
}
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？])\s+|\n+")


class Summariser:
    """Makes one text of several episodes."""

    def __init__(self, *, model: LanguageModel | None) -> None:
        self._model = model

    @property
    def is_paid(self) -> bool:
        """Return true if a language model is asked, which costs money."""
        return self._model is not None

    async def summarise(self, episodes: Sequence[OldMemory]) -> str | None:
        """Return what happened, in one text; None if nothing of it may be said again.

        Raises:
            Unavailable: `llm.unavailable`, the model is away.
            UpstreamOverloaded: it fails at these episodes alone, or comes to no end with them.
        """
        by_rules = await asyncio.to_thread(summary_by_rules, episodes)
        if self._model is None or by_rules is None:
            return by_rules
        try:
            text = await self._model.ask_structured(
                system=system_prompt("summarise"),
                user=format_memories(episodes),
                schema_name="summary",
                schema=SCHEMA,
                fit=_extract_summary,
                patient=True,
            )
        except Unavailable as error:
            if error.code != "llm.invalid_output" or isinstance(error, UpstreamOverloaded):
                raise
            return by_rules
        if is_believed(text, episodes, SUMMARY_CHARS_MAX):
            return text
        return by_rules


def _extract_summary(value: Any) -> str | None:
    """Return the summary that a decoded value holds, also within another object."""
    if not isinstance(value, dict):
        return None
    members = {str(key).strip().casefold(): inner for key, inner in value.items()}
    if isinstance(members.get("summary"), str):
        return clean(members["summary"])
    inners = [inner for inner in value.values() if isinstance(inner, dict)]
    return _extract_summary(inners[0]) if len(value) == len(inners) == 1 else None


def summary_by_rules(episodes: Sequence[OldMemory]) -> str | None:
    """Return a dated line for each of the most important episodes, in order of time."""
    lines = [(e, _first_sentence(e.text)) for e in episodes]
    lines = [(e, line) for e, line in lines if line]
    if not lines:
        return None
    # The most important ones, of these the last.
    best = sorted(range(len(lines)), key=lambda n: (IMPORTANCES.index(lines[n][0].importance), -n))
    chosen = sorted(best[:LINES_MAX])
    days = [e.day for e in episodes]
    head = f"{len(episodes)} episodes from {min(days)} to {max(days)}:"
    return "\n".join([head, *(f"- {lines[n][0].day}: {lines[n][1]}" for n in chosen)])


def _first_sentence(text: str) -> str:
    """Return the first sentence that may be said again, cut at a word."""
    for sentence in map(str.strip, _SENTENCE_END.split(text)):
        if sentence and not orders_the_reader(sentence) and not gives_a_password(sentence):
            line = " ".join(sentence.split())
            if len(line) <= LINE_CHARS_MAX:
                return line
            return line[:LINE_CHARS_MAX].rpartition(" ")[0].rstrip(",;:") + " …"
    return ""
