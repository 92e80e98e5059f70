"""One OpenAI-compatible endpoint of an embedding model: what it is sent, and in which form.

Not here: which endpoint is asked when, and until when (`endpoints.py`), what an answer holds
(`answers.py`).

- "Compatible" endpoints differ in what they take: some refuse every field but the model and the
  texts, some a list, some more than ten texts. Once one refuses, which form it takes is found out
  by a word, and how many texts by halving. Both are remembered until the process ends.
- A text that an endpoint refuses for itself changes nothing of that: others are taken beside it.
- Few models can choose their dimension: it is asked for only where theirs is another.
- Redirects are not followed, so texts go to the configured address and nowhere else. Of an answer
  no more is read than it may have, and nothing of an error's.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx2
import numpy as np
import openai

from relayer.embedding.answers import DIMENSION, MISCOUNTED, vectors_in
from relayer.embedding.embedders import Vectors
from relayer.embedding.endpoints import Endpoint, Failure, retry_after_s

_log = logging.getLogger(__name__)

# Of one text's vector in an answer, also of the wrong dimension: 8,192 numbers, with spaces.
_ANSWER_BYTES_PER_TEXT: Final = 8_192 * 40
_RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSALS: Final = frozenset({400, 413, 422})  # about the input, not about the endpoint
_REFUSALS_BELIEVED: Final = 8  # in a row, until it is asked again whether the form is at fault
_WORD: Final = "memory"  # which no endpoint has a reason to refuse


@dataclass(frozen=True)
class _Form:
    """The form of a request: how vectors are to be written, or not; a list, or a single text."""

    has_encoding: bool
    is_list: bool
    name: str


_FORMS: Final = (
    _Form(True, True, "as documented"),
    _Form(False, True, "without encoding_format"),
    _Form(False, False, "for one text at a time"),
)
# The library fills in an encoding of its own where none is given: this takes it out again.
_WITHOUT_ENCODING: Final = {"encoding_format": openai.omit}


class RemoteModel:
    """A model behind one endpoint, whose vectors are to have `dim` numbers."""

    def __init__(self, endpoint: Endpoint, *, model: str, dim: int, timeout_s: float) -> None:
        self._model = model
        self._dim = dim
        self._client = openai.AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key or "none",  # local servers need none, the library insists
            max_retries=0,  # `Fallback` knows about deadlines and other endpoints
            timeout=timeout_s,
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"response": [_close_error_body]}
            ),
        )
        self._form = _FORMS[0]
        self._finding = asyncio.Lock()
        self._refusals = 0  # in a row
        self._texts_max: int | None = None
        self._taken = (0, 0)  # the most texts of a request that was taken, and the most characters
        self._asks_for_dim = False

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def embed(self, texts: Sequence[str]) -> Vectors | Failure:
        """Return the vectors of `texts`, (n, dim), by as many requests as the endpoint needs.

        A refusal is about what a text says: others of its length are taken, in some form.
        """
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:  # a lone surrogate
            return Failure("not text", refused=True)
        parts: list[Vectors] = []
        done = 0
        while part := texts[done : done + self._part_max(len(texts))]:
            outcome = await self._embed_part(part)
            if isinstance(outcome, Failure):
                return outcome
            parts.append(outcome)
            done += len(part)
        return np.concatenate(parts)

    def _part_max(self, count: int) -> int:
        return min(count, self._texts_max or count) if self._form.is_list else 1

    async def _embed_part(self, texts: Sequence[str]) -> Vectors | Failure:
        """Return the vectors of `texts`, in halves where they are too many for a request."""
        form = self._form
        outcome = await self._ask(texts, form)
        if not isinstance(outcome, Failure):
            self._refusals = 0
            return outcome
        if outcome.refused and await self._finds_another_than(form):
            return await self.embed(texts)
        is_many = outcome.refused and await self._refuses_size(texts)
        if len(texts) > 1 and (is_many or outcome.cause == MISCOUNTED):
            return await self._embed_halves(texts)
        return outcome

    async def _finds_another_than(self, form: _Form) -> bool:
        """Look for another form after a refusal; true if the form has changed.

        Of several refusals in a row, not each is looked into.
        """
        self._refusals += 1
        number = self._refusals
        async with self._finding:  # for a call that was refused beside another one
            if self._form is form and number % _REFUSALS_BELIEVED == 1:
                await self._find_form()
        return self._form is not form

    async def _find_form(self) -> None:
        """Keep the first form in which the endpoint takes a word, if there is one."""
        for form in _FORMS:
            outcome = await self._ask([_WORD], form)
            if not isinstance(outcome, Failure):
                if form is not self._form:
                    _log.warning("embedder: an endpoint is asked %s from now on", form.name)
                self._form = form
            if not (isinstance(outcome, Failure) and outcome.refused):
                break

    async def _refuses_size(self, texts: Sequence[str]) -> bool:
        """Tell whether other texts, as many and as long, are refused as well."""
        size = (len(texts), len("".join(texts)))
        if len(texts) == 1 or all(n <= n_max for n, n_max in zip(size, self._taken, strict=True)):
            return False
        words = [(_WORD * (len(text) // len(_WORD) + 1))[: max(len(text), 1)] for text in texts]
        outcome = await self._ask(words, self._form)
        return isinstance(outcome, Failure) and outcome.refused

    async def _embed_halves(self, texts: Sequence[str]) -> Vectors | Failure:
        half = (len(texts) + 1) // 2
        first = await self.embed(texts[:half])
        if isinstance(first, Failure):
            return first
        second = await self.embed(texts[half:])
        if isinstance(second, Failure):
            return second
        self._remember_size(half)
        return np.concatenate([first, second])

    def _remember_size(self, count: int) -> None:
        """Ask for so many texts at most: all together were too many, the halves were not."""
        if self._form.is_list and count < (self._texts_max or count + 1):
            self._texts_max = count
            _log.warning("embedder: an endpoint takes fewer texts at a time: %d", count)

    async def _ask(self, texts: Sequence[str], form: _Form) -> Vectors | Failure:
        outcome = await self._ask_once(texts, form, asks_for_dim=self._asks_for_dim)
        if not isinstance(outcome, Failure):
            self._taken = max(self._taken[0], len(texts)), max(self._taken[1], len("".join(texts)))
        elif outcome.cause.startswith(DIMENSION) and not self._asks_for_dim:
            chosen = await self._ask_once(texts, form, asks_for_dim=True)
            if not isinstance(chosen, Failure):
                self._asks_for_dim = True
                _log.warning("embedder: an endpoint is asked for %d dimensions", self._dim)
                return chosen
        return outcome

    async def _ask_once(
        self, texts: Sequence[str], form: _Form, *, asks_for_dim: bool
    ) -> Vectors | Failure:
        body = await self._post(texts, form, asks_for_dim=asks_for_dim)
        if isinstance(body, Failure):
            return body
        return vectors_in(body, texts=len(texts), dim=self._dim)

    async def _post(
        self, texts: Sequence[str], form: _Form, *, asks_for_dim: bool
    ) -> bytes | Failure:
        """Return the body of a successful answer to one request, as it came."""
        body_bytes_max = len(texts) * _ANSWER_BYTES_PER_TEXT
        try:
            # The body is read and decoded here: the library takes any size and any shape.
            async with self._client.embeddings.with_streaming_response.create(
                model=self._model,
                input=list(texts) if form.is_list else texts[0],
                encoding_format="float",
                dimensions=self._dim if asks_for_dim else openai.omit,
                extra_body=None if form.has_encoding else _WITHOUT_ENCODING,
            ) as response:
                body = bytearray()
                async for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > body_bytes_max:
                        return Failure("answer too long")
        except openai.APIStatusError as error:
            return _status_failure(error)
        except (openai.APIConnectionError, httpx2.TransportError):
            return Failure("no connection", retry=True)
        except (openai.OpenAIError, httpx2.HTTPError):
            return Failure("client error")
        return bytes(body)


async def _close_error_body(response: httpx2.Response) -> None:
    """Close an answer that is none, which the library would read whole."""
    if not response.is_success:
        await response.aclose()


def _status_failure(error: openai.APIStatusError) -> Failure:
    status = error.status_code
    return Failure(
        f"status {status}",
        retry=status in _RETRIED,
        refused=status in _REFUSALS,
        rest_s=retry_after_s(error.response.headers.get("retry-after")),
    )
