"""The order of steps of a deep recall: recall, let a model plan further looks, take them, merge.

Not here: finding (`recall.py`), how a model is asked (`llm`), what of its plan is taken and the
places of what was found (`query.looks`).

- A look is the same query with another text: it finds nothing that the query could not find.
- Model and looks have one deadline. Without them, or without some, the answer is the ordinary one,
  and says why.
- A model takes its time: what the caller may read is asked again before a look is taken.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Final, Literal

from relayer.errors import NotAuthenticated, Unavailable, UpstreamTimeout
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled, RecalledMemory, RecallService, redact_query
from relayer.memories.sealed_drafts import beginning_without_secrets
from relayer.prompts import looks_prompt
from relayer.query import rank
from relayer.query.looks import (
    NOTE_CHARACTERS_MAX,
    NOTES_MAX,
    QUESTION_CHARACTERS_MAX,
    SCHEMA,
    choose_looks,
    merge_looks,
    read_plan,
)
from relayer.query.query import Query
from relayer.tenants.accounts import Accounts
from relayer.tenants.custody import Custody

log = logging.getLogger("relayer.recall")

_DEEP_S_MAX: Final = 8.0  # of the model and all looks; MCP clients give up after ten
_DEEP_SHARE: Final = 0.5  # of a request's time, at most
_ASKED_S_MIN: Final = 1.0
Shortfall = Literal["no model", "model away", "unusable plan", "deadline", "search failed"]


@dataclass(frozen=True)
class DeepRecalled:
    """The answer to a query and further looks.

    Attributes:
        looks: that were taken, by the number that a find names, from 1 on.
        shortfall: why they are fewer than planned, or none was planned.
    """

    recalled: Recalled
    looks: Sequence[str] = field(default=(), repr=False)
    shortfall: Shortfall | None = None


def deadline_of_looks(request_timeout_s: float, answer_s: float = 0.0) -> float:
    """Return how long looks may take, planned and taken; `answer_s` are for an answer from them."""
    left_s = max(_ASKED_S_MIN, request_timeout_s - answer_s)
    return min(_DEEP_S_MAX, _DEEP_SHARE * request_timeout_s, left_s)


class DeepRecaller:
    """Finds memories by looks that a language model plans beside the query, for `within_s`."""

    def __init__(
        self,
        *,
        recaller: RecallService,
        model: LanguageModel | None,
        accounts: Accounts,
        custody: Custody,
        within_s: float,
    ) -> None:
        self._recaller = recaller
        self._model = model
        self._accounts = accounts
        self._custody = custody
        self._within_s = within_s

    async def recall(self, caller: Caller, query: Query) -> DeepRecalled:
        """Return what the query and the looks find, in turn.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing, also by the time that
                the model has answered.
            NotAuthenticated: by then, the key has lost all its grants.
        """
        until_s = asyncio.get_running_loop().time() + self._within_s
        unbounded = replace(query, max_tokens=None)  # the budget is of all together
        answers = [await self._recaller.recall(caller, unbounded)]
        looks: Sequence[str] = ()
        shortfall: Shortfall | None = None
        try:
            async with asyncio.timeout_at(until_s):
                looks, shortfall = await self._plan(caller, query, answers[0])
                caller = await self._confirm(caller) if looks else caller
                for look in looks:
                    further = replace(unbounded, text=look)
                    answers.append(await self._recaller.recall(caller, further))
        except TimeoutError:
            shortfall = "deadline"
        except Unavailable:
            shortfall = "search failed"
        if shortfall is not None:
            log.info("fewer looks", extra={"event": "recall.deep", "cause": shortfall})
        merged = _merge(answers, query.limit)
        whole = await self._recaller.keep_within(merged, query.max_tokens)
        return DeepRecalled(whole, looks[: len(answers) - 1], shortfall)

    async def _plan(
        self, caller: Caller, query: Query, first: Recalled
    ) -> tuple[Sequence[str], Shortfall | None]:
        """Return the looks to take; without a plan, why there is none."""
        if self._model is None:
            return (), "no model"
        question = redact_query(caller, query).text
        notes = [await _note(caller, found) for found in first.found[:NOTES_MAX]]
        day = (query.as_of or caller.access.time).astimezone(UTC).date().isoformat()
        system, user = looks_prompt(day, question[:QUESTION_CHARACTERS_MAX], notes)
        try:
            planned = await self._model.ask_structured(
                system=system,
                user=user,
                schema_name="looks",
                schema=SCHEMA,
                fit=read_plan,
                brief=True,
            )
        except Unavailable as error:
            return (), _shortfall(error)
        return choose_looks(planned, question), None

    async def _confirm(self, caller: Caller) -> Caller:
        """Return the caller with the rights and the keys that it has now.

        Raises:
            NotAuthenticated: it has none any more.
        """
        access = await self._accounts.access(caller.access.account, caller.access.key)
        if access is None:
            raise NotAuthenticated("grant")
        return Caller(access, await self._custody.confirm(access, caller.keys))


async def _note(caller: Caller, found: RecalledMemory) -> str:
    """Return the day and the beginning of a memory, as a model may see it."""
    memory = found.memory
    day = (memory.event_time or memory.created_at).astimezone(UTC).date().isoformat()
    text = await beginning_without_secrets(caller.access, memory.text or "", NOTE_CHARACTERS_MAX)
    return f"({day}) {text}"


def _shortfall(error: Unavailable) -> Shortfall:
    if isinstance(error, UpstreamTimeout):
        return "deadline"
    return "unusable plan" if error.code == "llm.invalid_output" else "model away"


def _merge(answers: Sequence[Recalled], limit: int) -> Recalled:
    """Return one answer of those to the query and to each look, copies of better ones behind."""
    own, *others = [answer.found for answer in answers]
    merged = merge_looks(own, others, lambda found: found.memory.id)
    found = rank.Copies[RecalledMemory](lambda one: one.memory.text or "")
    found.add(replace(one, look=number) for number, one in merged)
    return Recalled(
        [*found.kept, *found.copies][:limit],
        # The same memory may have been dropped by each.
        dropped=max(answer.dropped for answer in answers),
        degraded=any(answer.degraded for answer in answers),
        estimated=any(answer.estimated for answer in answers),
    )
