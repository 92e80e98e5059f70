"""A language model: it is asked until a deadline, and its answer can be used or is an error.

Not here: how it is reached (`chat.py`), the prompts it is given (`prompts`), what is done with an
answer: `extraction/model.py` checks facts, `memories/analysis.py` decides what a failure means for
the user.

- One deadline spans a call with all its attempts; it is a longer one where no request waits.
- A prompt is refused, not merely unanswered, only by a model that takes another at that moment:
  some servers answer so whatever they are asked, a mistyped model or an empty account.
- An error or a page of a proxy in place of a completion is a server that is away, whatever its
  status says.
- Prompts, answers, keys, addresses and upstream messages reach neither an error nor a log line of
  ours: a failure is a fixed word or an HTTP status.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from relayer.errors import Overtaxed, TooSlow, Unavailable
from relayer.shares import outside
from relayer.telemetry.instruments import LLM_SECONDS, llm_failed
from relayer.telemetry.stages import Timed

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 3  # a dead endpoint should not cost the caller the whole deadline
_BACKOFF_S: Final = 0.25
_RETRY_AFTER_S_MAX: Final = 3600
# What servers answer to a response_format they do not know.
_FORMAT_REFUSED: Final = frozenset({400, 422})
# What they answer to a prompt that is too long for them or that a filter of theirs stops.
_PROMPT_REFUSED: Final = frozenset({400, 413, 422})
_ANOTHER: Final = "(nothing)"
_DEADLINE: Final = "deadline"
PATIENCE: Final = 4  # times the deadline of a call, where no request waits for it

_JSON_OBJECT: Final[dict[str, object]] = {"type": "json_object"}
_IN_WORDS: Final = "\nAnswer with one JSON object that satisfies this JSON Schema:\n"


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    error: Any = None


class _Completion(msgspec.Struct):
    choices: Any = None
    error: Any = None


@dataclass(frozen=True)
class _Failure:
    """Why an attempt failed, in words of our own, and whether another one may help."""

    cause: str
    status: int = 0
    retry: bool = False
    invalid: bool = False  # an answer came, but not one that can be used
    other: bool = False  # something came that is no completion at all
    overtaxed: bool = False  # nothing came, while something did for another prompt
    retry_after_s: float | None = None


_NO_COMPLETION: Final = _Failure("no completion", other=True)


class LanguageModel:
    """Chat completions of one model; every failure is an `Unavailable`."""

    def __init__(
        self, *, base_url: str, api_key: str | None, model: str, timeout_s: float = 20.0
    ) -> None:
        from relayer.chat import ChatEndpoint  # noqa: PLC0415  # brings `openai`

        self._chat = ChatEndpoint(
            base_url=base_url, api_key=api_key, model=model, timeout_s=PATIENCE * timeout_s
        )
        self._timeout_s = timeout_s
        self._format: Literal["json_schema", "json_object"] = "json_schema"

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()

    async def structured(
        self,
        *,
        system: str,
        user: str,
        schema_name: str,
        schema: dict[str, object],
        patient: bool = False,
    ) -> bytes:
        """Return the model's answer to `user`, meant to be JSON of `schema`; not yet validated.

        Servers that refuse `json_schema` are asked once more with `json_object` and the schema in
        the prompt; if that works it is remembered. With `patient` no request waits for the answer.

        Raises:
            Unavailable: `llm.unavailable`, or `llm.invalid_output` for a refusal, of the prompt as
                well, or a cut answer.
            Overtaxed: with `patient`: at this prompt alone the model fails, or comes to no end.
        """
        until = self._until(PATIENCE if patient else 1)

        async def asked(text: str, until: float) -> str | _Failure:
            return await self._in_some_format(system, text, schema_name, schema, until)

        outcome = await asked(user, until)
        overtaxed = patient and _may_fail_at_it(outcome)
        if overtaxed:
            until = self._until()  # to ask another there may be no time left
        elif not _may_refuse(outcome):
            return _json_part(_content(outcome)).encode()
        if _took_it(await asked(_ANOTHER, until)):
            outcome = _Failure("prompt refused", invalid=True, overtaxed=overtaxed)
        return _json_part(_content(outcome)).encode()

    async def _in_some_format(
        self, system: str, user: str, name: str, schema: dict[str, object], until: float
    ) -> str | _Failure:
        if self._format == "json_schema":
            wanted = _json_schema_format(name, schema)
            outcome = await _retried(lambda: self._attempt(system, user, wanted), until)
            if not _has_status(outcome, _FORMAT_REFUSED):
                return outcome
        fallback = system + _IN_WORDS + msgspec.json.encode(schema).decode()
        outcome = await _retried(lambda: self._attempt(fallback, user, _JSON_OBJECT), until)
        if isinstance(outcome, str):
            self._format = "json_object"
        return outcome

    async def answer(self, *, system: str, user: str) -> str:
        """Return the model's answer to `user` as text, without its reasoning.

        Raises:
            Unavailable: `llm.unavailable`, or `llm.invalid_output` for a refusal or no text.
        """
        until = self._until()
        outcome = await _retried(lambda: self._attempt(system, user, None), until)
        if isinstance(outcome, str):
            outcome = _answer_part(outcome) or _Failure("empty answer", invalid=True)
        return _content(outcome)

    def _until(self, times: int = 1) -> float:
        return asyncio.get_running_loop().time() + times * self._timeout_s

    async def _attempt(
        self, system: str, user: str, response_format: dict[str, object] | None
    ) -> str | _Failure:
        outcome = await self._chat.complete(
            system=system, user=user, response_format=response_format
        )
        if isinstance(outcome, bytes):
            return _first_choice(outcome, whole=response_format is not None)
        return _Failure(
            outcome.cause,
            status=outcome.status,
            retry=outcome.retry,
            invalid=outcome.useless,
            retry_after_s=outcome.retry_after_s,
        )


async def _retried(
    attempt: Callable[[], Awaitable[str | _Failure]], until: float
) -> str | _Failure:
    """Return the first outcome not worth repeating; `until` is on the event loop's clock."""
    try:
        async with outside(), asyncio.timeout_at(until):
            with Timed(LLM_SECONDS, "llm"):
                return await _attempts(attempt, until)
    except TimeoutError:
        return _Failure(_DEADLINE)


async def _attempts(
    attempt: Callable[[], Awaitable[str | _Failure]], until: float
) -> str | _Failure:
    for n in range(1, _ATTEMPTS_MAX + 1):
        outcome = await attempt()
        if isinstance(outcome, str) or not outcome.retry or n == _ATTEMPTS_MAX:
            break
        wait_s = (
            _BACKOFF_S * 2 ** (n - 1) if outcome.retry_after_s is None else outcome.retry_after_s
        )
        if asyncio.get_running_loop().time() + wait_s >= until:
            break  # waiting would only use up the deadline; the caller may as well know now
        await asyncio.sleep(wait_s)
    return outcome


def _content(outcome: str | _Failure) -> str:
    """Return the text, or raise outside every handler, so that no cause is chained to the error."""
    if isinstance(outcome, str):
        return outcome
    _log.warning("language model: %s", outcome.cause)
    llm_failed(outcome.cause)
    if outcome.invalid:
        useless = Overtaxed if outcome.overtaxed else Unavailable
        raise useless("The language model gave no usable answer.", code="llm.invalid_output")
    retry_after_s = min(max(math.ceil(outcome.retry_after_s or 2), 1), _RETRY_AFTER_S_MAX)
    failed = TooSlow if outcome.cause == _DEADLINE else Unavailable
    raise failed(
        "The language model is not available.", code="llm.unavailable", retry_after_s=retry_after_s
    )


def _first_choice(body: bytes, *, whole: bool) -> str | _Failure:
    """Return the text of a completion; with `whole`, only if the model came to its end."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_COMPLETION
    if completion.choices is None:
        return _NO_COMPLETION
    try:
        choices = msgspec.convert(completion.choices, list[_Choice])
    except msgspec.ValidationError:
        return _NO_COMPLETION if completion.error else _Failure("not a completion", invalid=True)
    choice = choices[0] if choices else _Choice()
    message = choice.message or _Message()
    if message.refusal or choice.finish_reason == "content_filter":
        return _Failure("refusal", invalid=True)
    if whole and choice.finish_reason == "length":
        return _Failure("cut answer", invalid=True)
    failed = choice.finish_reason == "error"
    text = (message.content or "").strip()
    if text and not failed:  # what is told beside it may be a warning
        return text
    if failed or choice.error or completion.error:
        return _NO_COMPLETION
    return _Failure("empty answer", invalid=True)


def _json_schema_format(name: str, schema: dict[str, object]) -> dict[str, object]:
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": True},
    }


def _has_status(outcome: str | _Failure, statuses: frozenset[int]) -> bool:
    return isinstance(outcome, _Failure) and outcome.status in statuses


def _may_refuse(outcome: str | _Failure) -> bool:
    """Whether a server may have meant the prompt: some tell an error of it with status 200."""
    told = isinstance(outcome, _Failure) and outcome.other
    return told or _has_status(outcome, _PROMPT_REFUSED)


def _may_fail_at_it(outcome: str | _Failure) -> bool:
    """Whether a server may have failed at the prompt, and be there for another."""
    return isinstance(outcome, _Failure) and (outcome.cause == _DEADLINE or outcome.status >= 500)


def _took_it(outcome: str | _Failure) -> bool:
    return isinstance(outcome, str) or outcome.invalid


def _json_part(text: str) -> str:
    """Return the JSON object in `text`, without the reasoning, prose or fence that models add."""
    text = _answer_part(text) or text
    begin, end = text.find("{"), text.rfind("}")
    return text[begin : end + 1] if 0 <= begin < end else text


def _answer_part(text: str) -> str:
    """Return `text` without the reasoning that models begin with; nothing if that has no end."""
    if not text.startswith("<think>"):
        return text
    _, end, rest = text.rpartition("</think>")
    return rest.strip() if end else ""
