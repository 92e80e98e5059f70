"""Chat completions of one OpenAI-compatible endpoint: one request, and the body of its answer.

Not here: what an answer says, and whether to ask again (`llm.py`).

- The library's own retries are off: its caller knows about deadlines.
- Redirects are not followed, so a prompt goes to the configured endpoint and nowhere else.
- A failure is a fixed word or an HTTP status: nothing of the prompt, the key or the address.
- No more of an answer is held than it may have, however it is packed. Of an error's body nothing is
  kept but which of our parameters it names.
- A call that is given up is cancelled at the server: its connection is closed.
"""

import asyncio
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

from relayer.embedding.endpoints import retry_after_s
from relayer.parameters import Named, find_named

_RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_ANSWER_BYTES_MAX: Final = 2**20  # unpacked; twenty facts have a few KiB, with long reasoning 100
# Statuses by which servers refuse a parameter; some fall over a schema they cannot use.
_REFUSING: Final = frozenset({400, 422, 500, 501})
_ERROR_BYTES_MAX: Final = 8_192
_ERROR_S_MAX: Final = 2.0  # for the body of an error; nobody else waits for it
_NAMED: Final = "relayer.named"  # in a response's extensions
_GZIP: Final = 47  # for `zlib`: of gzip or its own, the greatest window


@dataclass(frozen=True)
class NoAnswer:
    """The reason why a request was not answered, in words of our own, and if another may help."""

    cause: str
    status: int = 0
    retry: bool = False
    useless: bool = False  # an answer came, but not one that can be used
    named: tuple[Named, ...] = ()  # the parameters that a refusal names
    retry_after_s: float | None = None


class ChatEndpoint:
    """One model of an endpoint."""

    def __init__(self, *, base_url: str, api_key: str | None, model: str, timeout_s: float) -> None:
        self._model = model
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",  # local servers need none, the library insists on one
            max_retries=0,
            timeout=timeout_s,
            # What can be unpacked bit by bit.
            default_headers={"Accept-Encoding": "gzip"},
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"response": [_close_error]}
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self, *, system: str, user: str, members: Mapping[str, Any]
    ) -> bytes | NoAnswer:
        """Return the body of a successful answer as it came; `members` go beside the messages."""
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ]
        try:
            # Read here: the library takes any size, and builds objects from whatever it is sent.
            async with self._client.chat.completions.with_streaming_response.create(
                model=self._model, messages=messages, **members
            ) as answer:
                return await _body(answer.http_response, _ANSWER_BYTES_MAX)
        except openai.APIStatusError as error:
            return _to_no_answer(error)
        except (openai.APIConnectionError, httpx2.TransportError):
            return NoAnswer("no connection", retry=True)
        # UnicodeError: a lone surrogate in the text.
        except (openai.OpenAIError, httpx2.HTTPError, UnicodeError):
            return NoAnswer("client error")


async def _close_error(response: httpx2.Response) -> None:
    """Close an answer that is none, which the library would read whole."""
    if response.is_success:
        return
    if response.status_code in _REFUSING:
        response.extensions[_NAMED] = await _parse_named(response)
    await response.aclose()


async def _parse_named(response: httpx2.Response) -> tuple[Named, ...]:
    """Return the parameters that the beginning of an error's body names.

    The stream is read by itself: the library takes a response that was read for one that is whole.
    """
    body = bytearray()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    try:
        async with asyncio.timeout(_ERROR_S_MAX):
            async for part in _unpack(response.stream, response, _ERROR_BYTES_MAX):
                body += part
    except (TimeoutError, httpx2.HTTPError, zlib.error):
        pass  # what came so far may name one
    return find_named(body.decode("utf-8", "replace"))


async def _body(response: httpx2.Response, bytes_max: int) -> bytes | NoAnswer:
    body = bytearray()
    try:
        async for part in _unpack(response.aiter_raw(), response, bytes_max + 1):
            body += part
    except zlib.error:
        return NoAnswer("client error")
    if len(body) > bytes_max:
        return NoAnswer("answer too long", useless=True)
    return bytes(body)


async def _unpack(
    chunks: AsyncIterable[bytes], response: httpx2.Response, bytes_max: int
) -> AsyncIterator[bytes]:
    """Yield at most so many bytes of a body that comes in `chunks`, unpacked."""
    packed = response.headers.get("content-encoding", "").lower() in {"gzip", "x-gzip", "deflate"}
    unpacking = zlib.decompressobj(_GZIP) if packed else None
    room = bytes_max
    async for chunk in chunks:
        part = chunk[:room] if unpacking is None else unpacking.decompress(chunk, room)
        room -= len(part)
        yield part
        # What follows the end of a packed body would be kept beside it.
        if not room or (unpacking is not None and unpacking.eof):
            return


def _to_no_answer(error: openai.APIStatusError) -> NoAnswer:
    status = error.status_code
    return NoAnswer(
        f"status {status}",
        status=status,
        retry=status in _RETRIED,
        named=error.response.extensions.get(_NAMED, ()),
        retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
    )
