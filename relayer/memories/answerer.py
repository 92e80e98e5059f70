"""The order of steps of ask: recall, show what fits, let the model answer, find what it cites.

An answer that rests on no memory is never told: `NOTHING` is. Where nothing was recalled, no model
is asked for an answer.

Not here: finding (`recall.py`, `deep_recall.py`), how a model is asked (`llm`), what an answer
rests on (`extraction.citations`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from relayer.errors import NotConfigured
from relayer.extraction.citations import find_citations
from relayer.llm import LanguageModel
from relayer.memories.deep_recall import DeepRecalled, DeepRecaller
from relayer.memories.opener import Caller
from relayer.memories.recall import RecalledMemory, RecallService, redact_query
from relayer.memories.sealed_drafts import beginning_without_secrets
from relayer.prompts import ask_prompt
from relayer.query.query import Query
from relayer.settings import Limits

ASK_TEXT_CHARACTERS_MAX: Final = 4_000  # of one memory, in a prompt
ASK_CHARACTERS_MAX: Final = 32_000  # of all together: about 8,000 tokens
NOTHING: Final = "Not in memory."


@dataclass(frozen=True)
class Answer:
    """A model's answer.

    Attributes:
        memories: that the model was given, by the numbers that its text cites, from 1 on.
        cited: those on which the answer rests; none where it is `NOTHING`.
        deep: the further looks, where they were asked for.
    """

    text: str = field(repr=False)
    memories: Sequence[RecalledMemory] = field(repr=False)
    cited: Sequence[RecalledMemory] = field(repr=False)
    deep: DeepRecalled | None = None


class Answerer:
    """Answers questions from memories."""

    def __init__(
        self,
        *,
        recaller: RecallService,
        deep_recaller: DeepRecaller,
        model: LanguageModel | None,
    ) -> None:
        self._recaller = recaller
        self._deep_recaller = deep_recaller
        self._model = model

    async def ask(self, caller: Caller, query: Query, *, is_deep: bool = False) -> Answer:
        """Return a model's answer to a question, from what is recalled for it; or `NOTHING`.

        A deep one has all that the question finds, and as much again by further looks.

        Raises:
            NotConfigured: there is no model.
            Unavailable: it is away.
            NotAllowed: not a reader of the namespace, or its key is missing.
            NotAuthenticated: the key lost its grants while looks were planned.
        """
        if self._model is None:
            raise NotConfigured(
                "This relayer has no language model; recall works without one.",
                code="llm.not_configured",
            )
        deep = await self._look_deeply(caller, query) if is_deep else None
        recalled = await self._recaller.recall(caller, query) if deep is None else deep.recalled
        shown = await _shorten(caller, recalled.found)
        memories, notes = [found for found, _ in shown], [text for _, text in shown]
        if not notes:
            return Answer(NOTHING, memories, (), deep)
        question = redact_query(caller, query).text
        system, user = ask_prompt(question, notes)
        text = await self._model.answer(system=system, user=user)
        places = await asyncio.to_thread(find_citations, text, question, notes)
        cited = [memories[at] for at in places]
        return Answer(text if cited else NOTHING, memories, cited, deep)

    async def _look_deeply(self, caller: Caller, query: Query) -> DeepRecalled:
        limit = min(2 * query.limit, Limits.recall_limit_max)
        return await self._deep_recaller.recall(caller, replace(query, limit=limit))


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
