"""The order of steps of ask: recall, show what fits, let the model answer, find what it cites.

An answer that rests on no memory is never told: `NOTHING` is. Where nothing was recalled, no model
is asked.

Not here: finding (`recall.py`), how a model is asked (`llm`), what an answer rests on
(`extraction.citations`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.errors import NotConfigured
from relayer.extraction.citations import find_citations
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.recall import RecalledMemory, RecallService, redact_query
from relayer.memories.sealed_drafts import beginning_without_secrets
from relayer.prompts import ask_prompt
from relayer.query.query import Query

ASK_TEXT_CHARACTERS_MAX: Final = 4_000  # of one memory, in a prompt
ASK_CHARACTERS_MAX: Final = 32_000  # of all together: about 8,000 tokens
NOTHING: Final = "Not in memory."


@dataclass(frozen=True)
class Answer:
    """A model's answer.

    Attributes:
        memories: that the model was given, by the numbers that its text cites, from 1 on.
        cited: those on which the answer rests; none where it is `NOTHING`.
    """

    text: str = field(repr=False)
    memories: Sequence[RecalledMemory] = field(repr=False)
    cited: Sequence[RecalledMemory] = field(repr=False)


class Answerer:
    """Answers questions from memories."""

    def __init__(self, *, recaller: RecallService, model: LanguageModel | None) -> None:
        self._recaller = recaller
        self._model = model

    async def ask(self, caller: Caller, query: Query) -> Answer:
        """Return a model's answer to a question, from what is recalled for it; or `NOTHING`.

        Raises:
            NotConfigured: there is no model.
            Unavailable: it is away.
            NotAllowed: not a reader of the namespace, or its key is missing.
        """
        if self._model is None:
            raise NotConfigured(
                "This relayer has no language model; recall works without one.",
                code="llm.not_configured",
            )
        recalled = await self._recaller.recall(caller, query)
        shown = await _shorten(caller, recalled.found)
        memories, notes = [found for found, _ in shown], [text for _, text in shown]
        if not notes:
            return Answer(NOTHING, memories, ())
        question = redact_query(caller, query).text
        system, user = ask_prompt(question, notes)
        text = await self._model.answer(system=system, user=user)
        places = await asyncio.to_thread(find_citations, text, question, notes)
        return Answer(text if places else NOTHING, memories, [memories[at] for at in places])


async def _shorten(
    caller: Caller, found: Sequence[RecalledMemory]
) -> list[tuple[RecalledMemory, str]]:
    """Return the best memories with as much of their text as a prompt has room for."""
    shown, room = [], ASK_CHARACTERS_MAX
    for one in found:
        if not room:
            break
        text = await beginning_without_secrets(
            caller.access, one.memory.text or "", min(ASK_TEXT_CHARACTERS_MAX, room)
        )
        if text:
            shown.append((one, text))
            room -= len(text)
    return shown
