"""Embedders of models that are not the current one: loaded when a query first needs them.

It does not own which of them are asked (`models.py`) or how one is built (`building.py`).

- Those used last are kept, `OTHERS_MAX` of them. One that gives way to others is closed when the
  last query that it was lent to is done.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from relayer.embedding.embedders import Embedder
from relayer.logs import warn

_log = logging.getLogger(__name__)

OTHERS_MAX: Final = 8  # an operator changes models one at a time

Load = Callable[[str], Embedder | None]


@dataclass(eq=False)
class _Held:
    loading: "asyncio.Future[Embedder | None]"
    users: int = 0
    dropped: bool = False


class OlderEmbedders:
    """Those used last; `load` builds one, or returns None if the settings name none."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference

    @contextlib.asynccontextmanager
    async def borrow(self, model_id: str) -> AsyncIterator[Embedder | None]:
        """Yield the embedder of a model, open until the block ends; None if the settings name none.

        Raises whatever keeps it from loading; the next one who asks has it loaded again.
        """
        held = self._of(model_id)
        held.users += 1
        try:
            # In a thread of its own, which goes on when this query cannot wait.
            yield await asyncio.shield(held.loading)
        finally:
            held.users -= 1
            self._close_unused(held)

    def list_loaded(self) -> list[Embedder]:
        """Return those that can be asked at once."""
        found = (_load(held.loading) for held in self._held.values())
        return [embedder for embedder in found if embedder is not None]

    async def close(self) -> None:
        """Close them all, those that are lent when they come back."""
        while self._held:
            _, oldest = self._held.popitem(last=False)
            oldest.dropped = True
            self._close_unused(oldest)
        await asyncio.gather(*self._closing)

    def _of(self, model_id: str) -> _Held:
        if model_id not in self._held:
            loading = asyncio.ensure_future(asyncio.to_thread(self._load, model_id))
            held = self._held[model_id] = _Held(loading)
            loading.add_done_callback(lambda _: self._forget_unloaded(model_id, held))
            if len(self._held) > OTHERS_MAX:
                _, oldest = self._held.popitem(last=False)
                oldest.dropped = True
                self._close_unused(oldest)
        self._held.move_to_end(model_id)
        return self._held[model_id]

    def _forget_unloaded(self, model_id: str, held: _Held) -> None:
        if _load(held.loading) is None and self._held.get(model_id) is held:
            del self._held[model_id]  # its files may come back, and it takes no other's place

    def _close_unused(self, held: _Held) -> None:
        if held.dropped and not held.users:
            task = asyncio.create_task(_close(held.loading))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _load(loading: "asyncio.Future[Embedder | None]") -> Embedder | None:
    is_ended = loading.done() and not loading.cancelled() and loading.exception() is None
    return loading.result() if is_ended else None


async def _close(loading: "asyncio.Future[Embedder | None]") -> None:
    await asyncio.wait({loading})
    if (embedder := _load(loading)) is None:
        return  # it never loaded, and has nothing to close
    try:
        await embedder.close()
    except Exception as error:
        warn(_log, "an older model is not closed", "embedder.close", error)
