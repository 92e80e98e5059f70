"""Captured turns on their way to the relayer: kept first, delivered after, once.

It does not own which turns are captured (`hooks.py`), what is sent (`captured_turn.py`) or how
turns are kept (`spool.py`).

- A turn leaves the spool only when the relayer has it, has refused it for good, or its session has
  erased a memory since: while that is not sure, it waits.
- Where signed grants say that a key may not write, one turn waits for that to change, and no more.
- Delivery is tried when a turn is captured, whenever the relayer answers anything, and by a timer.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar, TypeVarTuple

from memrelay.async_client import MemoryClient
from memrelay.errors import Conflict, MemrelayError, NotAllowed, NotGranted, ServerError
from memrelay.extraction import degradation
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.line_breaks import one_line
from memrelay.gateway.outage import CAPTURE, Outages
from memrelay.gateway.roster import Binding
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.models import Analysis, Remembered

log = logging.getLogger("memrelay.gateway")

_KNOWN_MAX = 5  # nearest memories that are compared with a wish
PAUSE_S, PAUSE_S_MAX = 30.0, 900.0
# Only the relayer's own word about a turn is final: a proxy's, a full account's, a key's is not.
_FINAL = frozenset({"request.invalid", "request.too_large", "namespace.invalid"})
_OTHER_TEXT = "idempotency.conflict"  # than the one that was taken before under the same key
_OF_ONE_TURN = frozenset({400, 403, 413, 422, 500})

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Destination = tuple[str, str]  # an agent's name and a namespace
Own = Callable[[str, str], MemoryClient | None]


@dataclass(eq=False)
class _Line:
    """The turns of one key that wait, and the work on them."""

    client: MemoryClient
    key: SpoolKey
    task: asyncio.Task[None] | None = None
    again: bool = False
    timer: asyncio.TimerHandle | None = None
    failures: int = 0
    degradation: str | None = None  # of how the relayer finds facts, as it was told last
    # Those of waiting turns that were read.
    destinations: dict[str, Destination] = field(default_factory=dict)
    closed: set[Destination] = field(default_factory=set)  # where the key may not write


class Captures:
    """Keeps captured turns and delivers them, one at a time for each key, oldest first.

    A request that fails is sent once more after `retry_s`; then all wait for `pause_s`, twice as
    long each time. What is refused to one turn, or to one namespace, holds up nothing else.
    `own` returns the client of an agent's own key for a namespace, if it has one here.
    """

    def __init__(
        self,
        spool: Spool,
        outages: Outages,
        *,
        retry_s: float,
        pause_s: float = PAUSE_S,
        own: Own = lambda agent, namespace: None,
        erasures: Erasures | None = None,
    ) -> None:
        self._own = own
        self._erasures = erasures or Erasures()
        self._spool = spool
        self._outages = outages
        self._retry_s = retry_s
        self._pause_s = pause_s
        self._lines: dict[str, _Line] = {}
        self._closed = False
        # Not those of the loop: names are looked up there, and a resolver may hang.
        self._keeping = ThreadPoolExecutor(1, "memrelay-spool")

    def anew(self, own: Own) -> "Captures":
        """Return the same for another event loop or a forked process, with no work under way."""
        return Captures(
            self._spool.anew(),
            self._outages,
            retry_s=self._retry_s,
            pause_s=self._pause_s,
            own=own,
            erasures=self._erasures,
        )

    async def add(self, client: MemoryClient, turn: CapturedTurn) -> None:
        """Keep a turn; when this returns, it is durable, and its delivery has begun."""
        if turn.is_erased_by(self._erasures):  # while others of the same session were being kept
            return
        await self._on_disk(self._spool.put, self._line(client).key, turn.to_bytes())
        self.wake(client)

    def wake(self, client: MemoryClient) -> None:
        """Try now to deliver what waits for a client's key."""
        if self._closed:
            return
        line = self._line(client)
        line.again = True
        if line.task is None:
            if line.timer is not None:
                line.timer.cancel()
            line.task = asyncio.create_task(self._work(line))

    def tell_strangers(self) -> None:
        """Say how many turns wait for keys that were never woken: nobody here delivers them."""
        if count := self._spool.strangers(line.key for line in self._lines.values()):
            text = "captured turns wait for keys that no profile here has (%d): see memrelay doctor"
            log.warning(text, count)

    def takes(self, binding: Binding) -> bool:
        """Return whether a turn is worth keeping: not if one waits since its key may not write."""
        return (binding.agent, binding.namespace) not in self._line(binding.client).closed

    async def drop(self, client: MemoryClient) -> None:
        """Drop what waits of sessions that erased; a request under way is not called back."""
        self._line(client)
        # It may wait for the key that the agent borrowed, or had, before.
        keys = [line.key for line in self._lines.values()]
        if count := await self._on_disk(self._drop, keys):
            log.info("captured turns were dropped: their session erased a memory (%d)", count)

    async def _on_disk(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._keeping, work, *args)
        except RuntimeError:  # closed just now, or the interpreter begins no thread any more
            return work(*args)

    def _drop(self, keys: Iterable[SpoolKey]) -> int:
        count = 0
        waiting = [(key, name) for key in keys for name in self._spool.names(key)]
        for key, name in waiting:
            turn = self._read(key, name)
            if turn is not None and turn.is_erased_by(self._erasures):
                self._spool.remove(name)
                count += 1
        return count

    async def flush(self) -> bool:
        """Wait for the work under way; return whether nothing is left to deliver."""
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        return not any(self._spool.names(line.key) for line in self._lines.values())

    async def close(self) -> None:
        """Stop all work; what waits on disk stays there."""
        self._closed = True
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for line in self._lines.values():
            if line.timer is not None:
                line.timer.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keeping.shutdown()
        self._spool.close()

    def _line(self, client: MemoryClient) -> _Line:
        key = SpoolKey.of(client.settings.identity)
        line = self._lines.setdefault(key.name, _Line(client, key))
        line.client = client
        return line

    async def _work(self, line: _Line) -> None:
        complete = True
        try:
            while line.again:
                line.again = False
                complete = await self._deliver(line)
        except Exception as error:
            log.warning("captured turns could not be delivered (%s)", type(error).__name__)
            complete = False
        finally:
            line.task = None
        line.failures = 0 if complete else line.failures + 1
        if line.failures and not self._closed:
            pause_s = pause_after(line.failures, self._pause_s)
            loop = asyncio.get_running_loop()
            line.timer = loop.call_later(pause_s, self.wake, line.client)

    async def _deliver(self, line: _Line) -> bool:
        """Send what waits; return whether nothing has to be tried again."""
        complete, refused = True, 0
        closed: set[Destination] = set()
        for name in self._list_waiting(line):
            if line.destinations.get(name) in closed:
                complete = False  # nothing new is in the file
                continue
            turn = self._read(line.key, name)
            if turn is None:
                continue
            destination = line.destinations[name] = (turn.agent, turn.namespace)
            if destination in closed or turn.is_erased_by(self._erasures):
                complete = False
                continue
            client, turn = self._sender(line.client, turn)
            operation = (client.settings.masked_key, turn.agent, CAPTURE)
            began_s = self._outages.now_s()
            try:
                kept = await self._send(client, turn, line.key, name)
            except Exception as error:
                if not is_final(error):
                    complete = False
                    self._outages.note_failure(*operation, error, began_s=began_s)
                    if concerns_one_namespace(error):
                        closed.add(destination)
                        await self._note_refusal(line, client, turn)
                    elif not concerns_one_turn(error):
                        break
                    continue
                refused += 1
            else:
                self._outages.note_success(*operation)
                line.closed.discard(destination)
                _tell_extraction(line, kept)
            self._spool.remove(name)
        if refused:
            log.warning("captured turns were refused for good and dropped (%d)", refused)
        return complete

    def _list_waiting(self, line: _Line) -> list[str]:
        """Return the names of the waiting turns; nothing else is known of those that are gone."""
        names = self._spool.names(line.key)
        line.destinations = {
            name: line.destinations[name] for name in names if name in line.destinations
        }
        line.closed.intersection_update(line.destinations.values())
        return names

    async def _note_refusal(self, line: _Line, client: MemoryClient, turn: CapturedTurn) -> None:
        """Keep no more turns for where a key may not write; one that waits tells if that ends."""
        destination = (turn.agent, turn.namespace)
        if destination not in line.closed and await _may_not_write(client, turn):
            line.closed.add(destination)
            text = "turns of the agent %s are not captured: its key may not write there (key %s)"
            log.warning(text, turn.agent, client.settings.masked_key)

    def _read(self, key: SpoolKey, name: str) -> CapturedTurn | None:
        data = self._spool.get(key, name)
        try:
            return None if data is None else CapturedTurn.from_bytes(data)
        except (TypeError, ValueError):
            self._spool.set_aside(name)
            return None

    def _sender(
        self, client: MemoryClient, turn: CapturedTurn
    ) -> tuple[MemoryClient, CapturedTurn]:
        """Return who sends a turn: an agent that has a profile since then borrows nothing more."""
        own = self._own(turn.agent, turn.namespace) if turn.borrowed else None
        return (client, turn) if own is None else (own, replace(turn, borrowed=False))

    async def _send(
        self, client: MemoryClient, turn: CapturedTurn, key: SpoolKey, name: str
    ) -> Analysis | Remembered | None:
        try:
            return await send_turn(client, turn)
        except Exception as error:
            if is_final(error) or concerns_one_turn(error) or concerns_one_namespace(error):
                raise
            await asyncio.sleep(self._retry_s)
            if self._read(key, name) is None or turn.is_erased_by(self._erasures):
                raise  # it does not wait any more, or not for this
            return await send_turn(client, turn)


def _tell_extraction(line: _Line, kept: Analysis | Remembered | None) -> None:
    """Say once that the relayer's language model does not find the facts of turns, and why."""
    if not isinstance(kept, Analysis) or (kept.status == "done" and kept.extractor is None):
        return  # one that was answered before says nothing of how it is now
    told, line.degradation = line.degradation, degradation(kept)
    if line.degradation and line.degradation != told:
        key = line.client.settings.masked_key
        log.warning("a captured turn: %s (key %s)", one_line(line.degradation), key)
    elif told and not line.degradation:
        log.info("facts of captured turns are found again")


async def send_turn(client: MemoryClient, turn: CapturedTurn) -> Analysis | Remembered | None:
    """Send a turn and return what it became: facts, a wish kept as it is, or nothing new (None).

    An analysis of a wish has facts.

    Raises:
        MemrelayError: it was not taken.
    """
    if turn.borrowed and await client.held_by_others(turn.namespace):
        raise NotGranted("What other keys hold by name is not borrowed.")
    try:
        return await _store_turn(client, turn)
    except Conflict as error:
        if error.code != _OTHER_TEXT:
            raise
        return None  # it was captured before the relayer's rules of redaction changed


async def _may_not_write(client: MemoryClient, turn: CapturedTurn) -> bool:
    """Return whether signed grants say so; a key without any may be about to be replaced."""
    try:
        if turn.borrowed and await client.held_by_others(turn.namespace):
            return True
        return await client.cannot_write(turn.namespace)
    except MemrelayError:
        return False


async def _store_turn(client: MemoryClient, turn: CapturedTurn) -> Analysis | Remembered | None:
    analysis = await client.analyze(
        turn.text,
        namespace=turn.namespace,
        occurred_at=turn.occurred_at,
        source=turn.source,
        idempotency_key=turn.idempotency_key,
    )
    # Of one whose facts are still to be found nobody knows whether there will be any.
    if not turn.wish or analysis.fact_count:
        return analysis
    if await _knows(client, turn):
        return None
    return await client.remember(
        turn.text,
        namespace=turn.namespace,
        source=turn.source,
        idempotency_key=turn.idempotency_key,
    )


async def _knows(client: MemoryClient, turn: CapturedTurn) -> bool:
    recalled = await client.recall(turn.text, namespace=turn.namespace, limit=_KNOWN_MAX)
    return any(one_line(memory.text or "") == one_line(turn.text) for memory in recalled.results)


def pause_after(failures: int, first_s: float) -> float:
    """Return how long to wait after so many failures in a row: twice as long each time."""
    # More doublings than that are past the maximum anyway.
    return min(first_s * 2.0 ** min(failures - 1, 16), PAUSE_S_MAX)


def is_final(error: Exception) -> bool:
    """Return whether the relayer will never take what it refused so."""
    return isinstance(error, ServerError) and error.status < 500 and error.code in _FINAL


def concerns_one_namespace(error: Exception) -> bool:
    """Return whether turns of the same namespace would be refused alike, and others not."""
    if isinstance(error, NotAllowed):
        return not error.code.startswith("http.")  # a proxy knows nothing of namespaces
    return isinstance(error, NotGranted)


def concerns_one_turn(error: Exception) -> bool:
    """Return whether other turns of the same key may fare better at once."""
    return isinstance(error, ServerError) and error.status in _OF_ONE_TURN
