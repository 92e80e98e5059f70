"""Chat completions of one OpenAI-compatible endpoint: one request, and the body of its answer.

Not here: what an answer says, and whether to ask again (`llm.py`).

- The library's own retries are off: its caller knows about deadlines.
- Redirects are not followed, so a prompt goes to the configured endpoint and nowhere else.
- A failure is a fixed word or an HTTP status: nothing of the prompt, the key or the address.
- No more of an answer is held than it may have, however it is packed, and nothing of an error's.
"""

import zlib
from dataclasses import dataclass
from typing import Final, cast

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import ResponseFormat

from relayer.embedding.endpoints import retry_after_s

_RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_ANSWER_BYTES_MAX: Final = 2**20  # unpacked; twenty facts have a few KiB, with long reasoning 100
_GZIP: Final = 47  # for `zlib`: of gzip or its own, the greatest window


@dataclass(frozen=True)
class NoAnswer:
    """Why a request was not answered, in words of our own, and whether another one may help."""

    cause: str
    status: int = 0
    retry: bool = False
    useless: bool = False  # an answer came, but not one that can be used
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
                follow_redirects=False, event_hooks={"response": [_without_error_body]}
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self, *, system: str, user: str, response_format: dict[str, object] | None
    ) -> bytes | NoAnswer:
        """Return the body of a successful answer as it came, whatever is in it."""
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ]
        wanted = openai.omit if response_format is None else cast(ResponseFormat, response_format)
        try:
            # Read here: the library takes any size, and builds objects from whatever it is sent.
            async with self._client.chat.completions.with_streaming_response.create(
                model=self._model, messages=messages, response_format=wanted
            ) as answer:
                return await _body(answer.http_response)
        except openai.APIStatusError as error:
            return _refused(error)
        except (openai.APIConnectionError, httpx2.TransportError):
            return NoAnswer("no connection", retry=True)
        # UnicodeError: a lone surrogate in the text.
        except (openai.OpenAIError, httpx2.HTTPError, UnicodeError):
            return NoAnswer("client error")


async def _without_error_body(response: httpx2.Response) -> None:
    """Close an answer that is none, which the library would read whole."""
    if not response.is_success:
        await response.aclose()


async def _body(response: httpx2.Response) -> bytes | NoAnswer:
    packed = response.headers.get("content-encoding", "").lower() in {"gzip", "x-gzip", "deflate"}
    unpacking = zlib.decompressobj(_GZIP) if packed else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            room = _ANSWER_BYTES_MAX + 1 - len(body)
            body += chunk if unpacking is None else unpacking.decompress(chunk, room)
        except zlib.error:
            return NoAnswer("client error")
        if len(body) > _ANSWER_BYTES_MAX:
            return NoAnswer("answer too long", useless=True)
        if unpacking is not None and unpacking.eof:
            break  # what follows would be kept beside it
    return bytes(body)


def _refused(error: openai.APIStatusError) -> NoAnswer:
    status = error.status_code
    return NoAnswer(
        f"status {status}",
        status=status,
        retry=status in _RETRIED,
        retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
    )
