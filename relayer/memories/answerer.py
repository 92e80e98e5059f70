"""The order of steps of ask: recall, show as much as fits, let the model answer.

Not here: finding (`recall.py`), how a model is asked (`llm`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.errors import NotConfigured
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.recall import RecalledMemory, RecallService, redact_query
from relayer.memories.sealed_drafts import beginning_without_secrets
from relayer.prompts import ask_prompt
from relayer.query.query import Query

ASK_TEXT_CHARACTERS_MAX: Final = 4_000  # of one memory, in a prompt
ASK_CHARACTERS_MAX: Final = 32_000  # of all together: about 8,000 tokens


@dataclass(frozen=True)
class Answer:
    """A model's answer and the memories it was given."""

    text: str = field(repr=False)
    memories: Sequence[RecalledMemory] = field(repr=False)


class Answerer:
    """Answers questions from memories."""

    def __init__(self, *, recaller: RecallService, model: LanguageModel | None) -> None:
        self._recaller = recaller
        self._model = model

    async def ask(self, caller: Caller, query: Query) -> Answer:
        """Return a model's answer to a question, from what is recalled for it.

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
        system, user = ask_prompt(redact_query(caller, query).text, [text for _, text in shown])
        answer = await self._model.answer(system=system, user=user)
        return Answer(answer, [found for found, _ in shown])


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
