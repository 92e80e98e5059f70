"""Chat completions of one OpenAI-compatible endpoint: one request, and the body of its answer.

Not here: what an answer says, and whether to ask again (`llm.py`).

- The library's own retries are off: its caller knows about deadlines.
- Redirects are not followed, so a prompt goes to the configured endpoint and nowhere else.
- A failure is a fixed word or an HTTP status: nothing of the prompt, the key or the address.
"""

from dataclasses import dataclass
from typing import Final, cast

import openai
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import ResponseFormat

from relayer.embedding.endpoints import retry_after_s

_RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True)
class NoAnswer:
    """Why a request was not answered, in words of our own, and whether another one may help."""

    cause: str
    status: int = 0
    retry: bool = False
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
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
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
            # Raw, because the library builds objects from whatever it is sent.
            answer = await self._client.chat.completions.with_raw_response.create(
                model=self._model, messages=messages, response_format=wanted
            )
        except openai.APIStatusError as error:
            return _refused(error)
        except openai.APIConnectionError:
            return NoAnswer("no connection", retry=True)
        except (openai.OpenAIError, UnicodeError):  # UnicodeError: a lone surrogate in the text
            return NoAnswer("client error")
        return answer.content


def _refused(error: openai.APIStatusError) -> NoAnswer:
    status = error.status_code
    return NoAnswer(
        f"status {status}",
        status=status,
        retry=status in _RETRIED,
        retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
    )
