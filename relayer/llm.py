"""A language model: it is asked until a deadline, and its answer can be used or is an error.

Not here: how it is reached (`chat.py`), what a request says beside its prompt (`parameters.py`),
reading an answer (`answers`), the prompts (`prompts`), what is done with an answer:
`extraction/model.py` checks facts, `memories/analysis.py` decides what a failure means.

- One deadline spans a call with all its attempts; it is a longer one where no request waits.
- A call is one request, and one more where a passing fault lost it, or too little room for
  reasoning. An endpoint that refuses a parameter is asked without it; from then on at once.
- A prompt is refused, not merely unanswered, only by a model that takes another at that moment:
  some servers answer so whatever they are asked, a mistyped model or an empty account.
- Prompts, answers, keys, addresses and upstream messages reach neither an error nor a log line of
  ours: a failure is a fixed word or an HTTP status.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import msgspec

from relayer.answers.completion import Completion, Fault, read
from relayer.answers.decoding import Fit, find_last
from relayer.answers.reasoning import strip_reasoning
from relayer.concurrency import pause_slot
from relayer.errors import Unavailable, UpstreamOverloaded, UpstreamTimeout
from relayer.parameters import Named, Parameters
from relayer.telemetry.instruments import LLM_SECONDS, Timed, llm_failed

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS_MAX: Final = 2  # a dead endpoint should not cost the caller the whole deadline
_BACKOFF_S: Final = 0.25
_RETRY_AFTER_S_MAX: Final = 3600
# What servers answer to a parameter, to a prompt that is too long for them or that a filter stops.
_UNNAMED_REFUSAL: Final = frozenset({400, 422})
_PROMPT_REFUSED: Final = frozenset({400, 413, 422})
_ANOTHER: Final = "(nothing)"
_DEADLINE: Final = "deadline"
PATIENCE: Final = 4  # times the deadline of a call, where no request waits for it
_GIVEN_UP: Final = 1.1  # times as long as its caller waited, at least, a call would have taken


@dataclass(frozen=True)
class _Question:
    """A question to the model; without a `name` any text will do."""

    system: str = field(repr=False)
    user: str = field(repr=False)
    name: str | None = None
    schema: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class _Failure:
    """The reason why an attempt failed, in words of our own, and if another one may help."""

    cause: str
    status: int = 0
    retry: bool = False
    invalid: bool = False  # an answer came, but not one that can be used
    other: bool = False  # something came that is no completion at all
    overloaded: bool = False  # nothing came, while something did for another prompt
    named: tuple[Named, ...] = ()
    retry_after_s: float | None = None


class LanguageModel:
    """Chat completions of one model; every failure is an `Unavailable` whose `cause` says why."""

    def __init__(
        self, *, base_url: str, api_key: str | None, model: str, timeout_s: float = 20.0
    ) -> None:
        from relayer.chat import ChatEndpoint  # noqa: PLC0415  # brings `openai`

        self._chat = ChatEndpoint(
            base_url=base_url, api_key=api_key, model=model, timeout_s=PATIENCE * timeout_s
        )
        self._timeout_s = timeout_s
        self._parameters = Parameters()  # what the endpoint takes, as far as that is known
        self._is_accepted = False  # a request with these was answered
        self._is_proven = False  # with a value that could be used
        # How long the last call took. Before the first, as long as the operator lets one take.
        self._last_s = timeout_s

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()

    def is_slow(self, within_s: float) -> bool:
        """Return whether a call is likely to take longer than that, as the last one did."""
        return self._last_s > within_s

    async def ask_structured(
        self,
        *,
        system: str,
        user: str,
        schema_name: str,
        schema: dict[str, object],
        fit: Fit[T],
        patient: bool = False,
        brief: bool = False,
    ) -> T:
        """Return what `fit` makes of the value in the model's answer to `user`.

        `fit` returns None for a value that is no answer; it is run in another thread. The schema
        is asked for as strictly as the endpoint can hold the model to it; the prompt has to say in
        words what is wanted. With `patient` no request waits for the answer. That of a `brief`
        question is so short that it does not tell how long others take.

        Raises:
            Unavailable: `llm.unavailable`, or `llm.invalid_output` for a refusal, of the prompt as
                well, or an answer without such a value.
            UpstreamOverloaded: with `patient`: at this prompt alone the model fails, or comes to
                no end.
        """
        until = self._until(PATIENCE if patient else 1)
        question = _Question(system, user, schema_name, schema)
        outcome = await (self._completion if brief else self._ask_timed)(question, until)
        if isinstance(outcome, _Failure):
            outcome = await self._judge(outcome, question, until) if patient else outcome
            raise _error(outcome)
        keys = tuple(key.casefold() for key in _properties(schema))
        value: T | None = await asyncio.to_thread(lambda: _value(outcome, fit, keys))
        if value is None:
            self._doubt()
            raise _error(_useless(outcome))
        self._is_proven = True
        return value

    async def answer(self, *, system: str, user: str) -> str:
        """Return the model's answer to `user` as text, without its reasoning.

        Raises:
            Unavailable: `llm.unavailable`, or `llm.invalid_output` for a refusal or no text.
        """
        outcome = await self._completion(_Question(system, user), self._until())
        if isinstance(outcome, _Failure):
            raise _error(outcome)
        text = await asyncio.to_thread(strip_reasoning, outcome.text)
        if not text:
            raise _error(_useless(outcome))
        return text

    def _until(self, times: int = 1) -> float:
        return asyncio.get_running_loop().time() + times * self._timeout_s

    async def _judge(self, failure: _Failure, question: _Question, until: float) -> _Failure:
        """Return the failure as one of this prompt, where another is answered at that moment."""
        overloaded = failure.cause == _DEADLINE or failure.status >= 500
        if overloaded:
            until = self._until()  # to ask another there may be no time left
        elif not (failure.other or failure.status in _PROMPT_REFUSED):
            return failure
        other = await self._completion(replace(question, user=_ANOTHER), until)
        if isinstance(other, Completion) or other.invalid:
            return _Failure("prompt refused", invalid=True, overloaded=overloaded)
        return failure

    async def _ask_timed(self, question: _Question, until: float) -> Completion | _Failure:
        """Ask, and remember how long it took, also where the caller gives up."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            outcome = await self._completion(question, until)
        except asyncio.CancelledError:
            self._last_s = _GIVEN_UP * (clock() - began)
            raise
        if isinstance(outcome, Completion):
            self._last_s = clock() - began
        elif outcome.cause == _DEADLINE:
            self._last_s = math.inf
        return outcome

    async def _completion(self, question: _Question, until: float) -> Completion | _Failure:
        """Return what the endpoint answers before `until`, on the event loop's clock."""
        try:
            async with pause_slot(), asyncio.timeout_at(until):
                with Timed(LLM_SECONDS, "llm"):
                    return await self._negotiate(question, until)
        except TimeoutError:
            return _Failure(_DEADLINE)

    async def _negotiate(self, question: _Question, until: float) -> Completion | _Failure:
        """Ask with all that the endpoint is thought to take, and without what it refuses."""
        parameters = self._parameters
        if question.name is None:
            parameters = replace(parameters, form="words")
        while True:
            outcome = await self._retry(question, parameters, until)
            if isinstance(outcome, Completion):
                only_reasoning = await asyncio.to_thread(_is_only_reasoning, outcome)
                roomy = parameters.for_reasoning() if only_reasoning else None
                if roomy is None:
                    self._accept(parameters, question)
                    return outcome
                parameters = roomy
                self._keep(replace(self._parameters, tokens_max=roomy.tokens_max))
                continue
            less = parameters.without(outcome.named)
            if less is None and outcome.status in _UNNAMED_REFUSAL and not self._is_accepted:
                less = parameters.next()
            if less is None:
                return outcome
            parameters = less

    def _accept(self, parameters: Parameters, question: _Question) -> None:
        """Remember what an endpoint took."""
        if question.name is None:
            parameters = replace(parameters, form=self._parameters.form)
        else:
            self._is_accepted = True
        self._keep(parameters)

    def _doubt(self) -> None:
        """Ask for less structure from now on, where none was ever given in a form of use."""
        if not self._is_proven:
            self._keep(self._parameters.less_structured() or self._parameters)

    def _keep(self, parameters: Parameters) -> None:
        for change in parameters.changes(self._parameters):
            _log.info("language model: the endpoint takes %s", change)
        self._parameters = parameters

    async def _retry(
        self, question: _Question, parameters: Parameters, until: float
    ) -> Completion | _Failure:
        """Return the first outcome not worth repeating."""
        members = parameters.members(question.name, question.schema)
        for n in range(1, _ATTEMPTS_MAX + 1):
            outcome = await self._attempt(question, members)
            if isinstance(outcome, Completion) or not outcome.retry or n == _ATTEMPTS_MAX:
                break
            if parameters.without(outcome.named):
                break  # it may have been that
            wait_s = _BACKOFF_S if outcome.retry_after_s is None else outcome.retry_after_s
            if asyncio.get_running_loop().time() + wait_s >= until:
                break  # waiting would only use up the deadline; the caller may as well know now
            await asyncio.sleep(wait_s)
        return outcome

    async def _attempt(
        self, question: _Question, members: dict[str, object]
    ) -> Completion | _Failure:
        outcome = await self._chat.complete(
            system=question.system, user=question.user, members=members
        )
        if isinstance(outcome, bytes):
            said = read(outcome)
            if isinstance(said, Fault):
                return _Failure(said.cause, invalid=not said.is_outage, other=said.is_outage)
            return said
        return _Failure(
            outcome.cause,
            status=outcome.status,
            retry=outcome.retry,
            invalid=outcome.useless,
            named=outcome.named,
            retry_after_s=outcome.retry_after_s,
        )


def _error(failure: _Failure) -> Unavailable:
    """Return the error for a failure, which is counted and told in one line."""
    _log.warning("language model: %s", failure.cause)
    llm_failed(failure.cause)
    if failure.invalid:
        useless = UpstreamOverloaded if failure.overloaded else Unavailable
        error = useless("The language model gave no usable answer.", code="llm.invalid_output")
    else:
        retry_after_s = min(max(math.ceil(failure.retry_after_s or 2), 1), _RETRY_AFTER_S_MAX)
        away = UpstreamTimeout if failure.cause == _DEADLINE else Unavailable
        error = away(
            "The language model is not available.",
            code="llm.unavailable",
            retry_after_s=retry_after_s,
        )
    error.cause = failure.cause
    return error


def _value(said: Completion, fit: Fit[T], keys: Sequence[str]) -> T | None:
    """Return what `fit` makes of an answer: of the call of a tool, of its text, of its thoughts.

    Some servers take all of an answer for reasoning; of one that broke off, thoughts are drafts.
    """
    whole = _decode(said.text)
    if whole is not None and (value := fit(whole)) is not None:
        return value  # a text in it may speak of reasoning
    for source in ("\n".join(said.calls), strip_reasoning(said.text)):
        value = find_last(source, fit, keys=keys, is_cut=said.is_cut) if source else None
        if value is not None:
            return value
    for source in () if said.is_cut else (said.text, said.reasoning):
        value = find_last(source, fit, keys=keys, is_json=True)
        if value is not None:
            return value
    return None


def _decode(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _useless(said: Completion) -> _Failure:
    cause = "cut answer" if said.is_cut else "unusable answer" if said.text else "empty answer"
    return _Failure(cause, invalid=True)


def _is_only_reasoning(said: Completion) -> bool:
    """Return whether a model thought until it had to stop."""
    if not said.is_cut or said.calls:
        return False
    return said.has_reasoned if not said.text else not strip_reasoning(said.text)


def _properties(schema: dict[str, object]) -> Sequence[str]:
    properties = schema.get("properties")
    return tuple(properties) if isinstance(properties, dict) else ()
