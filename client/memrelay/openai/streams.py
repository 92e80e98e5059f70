"""Answers on their way to the caller, heard while they pass: streams, raw responses, whole ones.

It does not own what is taken from them (`memory.py`).
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from openai import AsyncStream, Stream

from memrelay.openai.memory import Listener, fail_open

UNPARSED = "of raw responses, only what `parse()` returns is captured: one was read otherwise"


def pass_on(answer: Any, listener: Listener) -> Any:
    """Return an answer for the caller, and let `listener` hear it now or as it is read."""
    if isinstance(answer, Stream):
        return _CaptureStream(answer, listener)
    if isinstance(answer, AsyncStream):
        return _AsyncCaptureStream(answer, listener)
    if hasattr(answer, "http_response"):
        with fail_open("capture"):
            _attach_to_raw(answer, listener)
    else:
        listener.hear_whole(answer)
    return answer


class _CaptureStream(Stream[Any]):
    def __init__(self, source: Stream[Any], listener: Listener) -> None:
        self.response = source.response
        self._source = source
        self._listener = listener

    def __next__(self) -> Any:
        event = next(self._source)
        self._listener.hear(event)
        return event

    def __iter__(self) -> Iterator[Any]:
        return self

    def close(self) -> None:
        self._source.close()


class _AsyncCaptureStream(AsyncStream[Any]):
    def __init__(self, source: AsyncStream[Any], listener: Listener) -> None:
        self.response = source.response
        self._source = source
        self._listener = listener

    async def __anext__(self) -> Any:
        event = await anext(self._source)
        self._listener.hear(event)
        return event

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def close(self) -> None:
        await self._source.close()


def _attach_to_raw(answer: Any, listener: Listener) -> None:
    """Hear what `parse()` returns of a raw response; say so if that is closed without it."""
    parse, is_parsed = answer.parse, False

    def parse_and_hear(**options: Any) -> Any:
        nonlocal is_parsed
        is_parsed = True
        return pass_on(parse(**options), listener)

    async def parse_and_hear_async(**options: Any) -> Any:
        nonlocal is_parsed
        is_parsed = True
        return pass_on(await parse(**options), listener)

    def warn_unless_parsed() -> None:
        if not is_parsed:
            listener.miss(UNPARSED)

    answer.parse = parse_and_hear_async if inspect.iscoroutinefunction(parse) else parse_and_hear
    http = answer.http_response
    if not http.is_closed:
        _act_before_closing(answer if hasattr(answer, "close") else http, warn_unless_parsed)
    else:  # it has been read already, and is parsed once only
        answer.parse()


def _act_before_closing(response: Any, act: Callable[[], None]) -> None:
    for name in ("close", "aclose"):
        if close := getattr(response, name, None):

            def act_and_close(close: Callable[[], Any] = close) -> Any:
                act()
                return close()

            setattr(response, name, act_and_close)
