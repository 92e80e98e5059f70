"""What can go wrong, each by name: how it is inflicted, how it is healed, what it excuses.

Not here: in which order (`plan.py`).

- A fault is healed even if a relayer or the database died meanwhile.
- `excuses` are codes of answers that are right while it lasts; whatever else a relayer answers but
  503 with Retry-After is a violation.
"""

import asyncio
import contextlib
import ctypes
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg

from tests.openai_server import Step
from tests.reference import b64url
from tests.torture.far import Wire
from tests.torture.ground import Ground

CLOCK_S = 600
LAG_S = (0.1, 4.0)  # each way; a relayer waits for 3 s
PASSES_BYTES_MAX = 6_000  # into the head, the body or what comes after
HELD_S_MAX = 10.0  # how long a worker may take to ask for a vector
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_VICTIM = """
SELECT whole_id, blob_id, coalesce(revision_of, memory_id) AS id
FROM memories JOIN accounts USING (account_id)
WHERE embedding_model = 'tiny-embedder/6' AND revision_of IS NULL
"""
Do = Callable[[Ground, random.Random], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong for a while."""

    name: str
    inflict: Do
    heal: Do
    hold_s: tuple[float, float] = (0.5, 2.5)
    excuses: frozenset[str] = frozenset()


# Kills


async def _kill_one(ground: Ground, rng: random.Random) -> None:
    rng.choice(ground.relayers).kill()
    ground.kills += 1


async def _kill_all(ground: Ground, _: random.Random) -> None:
    for relayer in ground.relayers:
        relayer.kill()
        ground.kills += 1


async def _kill_postgres(ground: Ground, _: random.Random) -> None:
    ground.kill_postgres()
    ground.kills += 1


async def _kill_everything(ground: Ground, rng: random.Random) -> None:
    await _kill_postgres(ground, rng)
    await _kill_all(ground, rng)


async def _kill_holders(ground: Ground, rng: random.Random) -> None:
    """End all workers as soon as one of them holds a job: it waits for a vector."""
    ground.embedder.always = "hang"
    ground.embedder.asked.clear()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ground.embedder.asked.wait(), HELD_S_MAX)
    await _kill_all(ground, rng)
    ground.embedder.always = None


async def _start_again(ground: Ground, _: random.Random) -> None:
    if ground.postgres is not None and not ground.postgres_pids():
        await ground.start_postgres()  # an embedded one is brought back by its relayer
    await ground.start_relayers()


KILLS = [
    Fault("kill a relayer", _kill_one, _start_again),
    Fault("kill all relayers", _kill_all, _start_again),
    Fault("kill the database", _kill_postgres, _start_again),
    Fault("kill relayers and database", _kill_everything, _start_again),
    Fault("kill who holds a job", _kill_holders, _start_again),
]


# The endpoints


def _embedder(fault: str) -> Fault:
    async def inflict(ground: Ground, _: random.Random) -> None:
        ground.embedder.always = fault

    async def heal(ground: Ground, _: random.Random) -> None:
        ground.embedder.always = None

    return Fault(f"embedder: {fault}", inflict, heal)


def _model(name: str, step: Step) -> Fault:
    async def inflict(ground: Ground, _: random.Random) -> None:
        ground.model.script(*[step] * 10_000)

    async def heal(ground: Ground, _: random.Random) -> None:
        ground.model.clear()

    return Fault(f"model: {name}", inflict, heal)


ENDPOINTS = [
    *map(_embedder, ("500", "429,1", "hang", "garbage", "cut", "narrow", "nan", "disconnect")),
    _model("500", Step(status=500)),
    _model("429", Step(status=429, headers={"retry-after": "1"})),
    _model("hang", Step(hang=True)),
    _model("garbage", Step(body=b"\xff<html>")),
    _model("cut", Step(content='{"facts": []}', cut=40)),
    _model("drop", Step(drop=True)),
]


# Database


async def _hold_postgres(ground: Ground, _: random.Random) -> None:
    ground.freeze_postgres()


async def _let_postgres_go(ground: Ground, _: random.Random) -> None:
    ground.thaw_postgres()


async def _stop_postgres(ground: Ground, _: random.Random) -> None:
    await ground.stop_postgres()


DATABASE = [
    Fault("database frozen", _hold_postgres, _let_postgres_go, (20.0, 20.0)),
    Fault("database stopped", _stop_postgres, _start_again, (20.0, 20.0)),
]


# A relayer that hangs for longer than its jobs are its own


async def _freeze_one(ground: Ground, rng: random.Random) -> None:
    rng.choice(ground.relayers).signal(signal.SIGSTOP)


async def _thaw(ground: Ground, _: random.Random) -> None:
    for relayer in ground.relayers:
        relayer.signal(signal.SIGCONT)


FROZEN = Fault("a relayer frozen", _freeze_one, _thaw, (12.0, 15.0))


# The blob folder and the disk


def _exchange(one: Path, other: Path) -> None:
    """Swap two names at once, so that neither is ever missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


async def _take_blobs(ground: Ground, _: random.Random) -> None:
    """A file in the folder's place: every access fails, for root as well."""
    assert ground.blobs is not None
    aside = ground.blobs.with_name("aside")
    aside.write_text("in the way")
    _exchange(aside, ground.blobs)


async def _give_blobs(ground: Ground, _: random.Random) -> None:
    assert ground.blobs is not None
    aside = ground.blobs.with_name("aside")
    _exchange(aside, ground.blobs)
    aside.unlink()


async def _fill_disk(ground: Ground, _: random.Random) -> None:
    if ground.disk is None:  # said at the end; the plan stays the same
        return
    with (ground.disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
            file.flush()


async def _free_disk(ground: Ground, rng: random.Random) -> None:
    if ground.disk is None:
        return
    (ground.disk / "ballast").unlink(missing_ok=True)
    await asyncio.sleep(1)  # a server that gave up does so within that
    await _start_again(ground, rng)


async def _alter_blob(ground: Ground, rng: random.Random) -> None:
    """Turn a bit of one stored memory."""
    assert ground.blobs is not None
    if (victim := await _victim(ground, rng)) is None:
        return
    account, blob_id, memory_id = victim
    path = ground.blobs / account.hex() / (name := b64url(blob_id))[:2] / name
    ground.altered.add(str(memory_id))
    _turn_bit(path)
    (ground.folder / "altered").write_text(str(path))


async def _restore_blob(ground: Ground, _: random.Random) -> None:
    note = ground.folder / "altered"
    if note.exists():
        _turn_bit(Path(note.read_text()))
        note.unlink()
    await asyncio.sleep(1)  # answers that are on their way still speak of it
    ground.altered.clear()


async def _victim(ground: Ground, rng: random.Random) -> tuple[bytes, bytes, UUID] | None:
    """A memory that needs nothing more: one that is altered before it is embedded stays lost."""
    connection = await asyncpg.connect(await ground.database_url())
    try:
        rows = await connection.fetch(_VICTIM)
    finally:
        await connection.close()
    if not rows:
        return None
    row = rng.choice(rows)
    return row["whole_id"], row["blob_id"], row["id"]


def _turn_bit(path: Path) -> None:
    # In place: what was erased meanwhile must not come back.
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        file.seek(200)
        byte = file.read(1)[0]
        file.seek(200)
        file.write(bytes([byte ^ 1]))


BLOBS = [
    Fault("blob folder away", _take_blobs, _give_blobs),
    Fault("a blob altered", _alter_blob, _restore_blob, excuses=frozenset({"store.corrupted"})),
]
FULL = Fault("disk full", _fill_disk, _free_disk)


# The wire to a bucket


def _wire(name: str, happen: Callable[[Wire, random.Random], None]) -> Fault:
    async def inflict(ground: Ground, rng: random.Random) -> None:
        assert ground.far is not None
        happen(ground.far.wire, rng)

    async def heal(ground: Ground, _: random.Random) -> None:
        assert ground.far is not None
        ground.far.wire.heal()

    return Fault(f"object store: {name}", inflict, heal, (2.0, 8.0))


def _lag(wire: Wire, rng: random.Random) -> None:
    wire.lag_s = rng.uniform(*LAG_S)


def _silence(wire: Wire, _: random.Random) -> None:
    wire.silent = True


def _cut_short(wire: Wire, rng: random.Random) -> None:
    wire.passes = rng.randrange(PASSES_BYTES_MAX)
    wire.cut()


def _leave(wire: Wire, _: random.Random) -> None:
    wire.away = True
    wire.cut()


BUCKET = [
    _wire("lags", _lag),
    _wire("silent", _silence),
    _wire("cut", _cut_short),
    _wire("away", _leave),
]


# Clock


def _clock(seconds: int) -> Fault:
    async def inflict(ground: Ground, _: random.Random) -> None:
        ground.clock_file.write_text(str(seconds))

    async def heal(ground: Ground, _: random.Random) -> None:
        ground.clock_file.unlink()

    # Signatures and unlock headers count for five minutes.
    excuses = frozenset({"auth.rejected", "unlock_rejected", "stale", "issued", "future"})
    return Fault(f"clock {seconds:+d} s", inflict, heal, excuses=excuses)


CLOCKS = [_clock(CLOCK_S), _clock(-CLOCK_S)]


def companions(ground: Ground) -> Sequence[Fault]:
    """Everything but kills that can be done to it."""
    if ground.postgres is None:
        return [*ENDPOINTS, *CLOCKS]
    if ground.far is not None:  # what the folder's relayers are put through is not repeated
        return [*BUCKET, *DATABASE[-1:], *CLOCKS]
    return [*ENDPOINTS, *DATABASE, FROZEN, *BLOBS, FULL, *CLOCKS]
