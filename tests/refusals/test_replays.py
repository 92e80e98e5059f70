"""Replays that need several senders, relayers or lives: at once, elsewhere, after a crash.

Not here: requests that simply come again (`replays.py`).
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from nacl import bindings

from tests import reference as ref
from tests.processes import RunningRelayer, running_relayer
from tests.refusals import unlocks
from tests.refusals.case import Signed
from tests.refusals.conftest import QUIET, Desk
from tests.refusals.curve import SMALL_ORDER
from tests.refusals.world import World

AT_ONCE = 6  # fewer than an account may have under way in one process


async def _statuses(*worlds: World, request: Signed, times: int = 1) -> list[int]:
    """The answers to one request, sent everywhere at once."""
    sent = [world.send(request.sent()) for world in worlds for _ in range(times)]
    return sorted(reply.status for reply in await asyncio.gather(*sent))


async def test_of_one_request_sent_to_two_relayers_at_once_one_is_accepted(
    desk: Desk, tmp_path: Path
) -> None:
    """A request is accepted once, whichever relayer of a database it reaches."""
    world = desk.world
    key_file = str(desk.relayer.data_dir / "relayer.key")
    with running_relayer(
        tmp_path, tmp_path, database_url=desk.database.url, RELAYER_KEY_FILE=key_file, **QUIET
    ) as second:
        other = World(second)
        at_once = await _statuses(world, other, request=world.got("/v1/keys"), times=AT_ONCE)
        body = {"text": "The ferry leaves at seven.", "namespace": "ferry"}
        write = world.change("/v1/remember", body)
        written = await _statuses(world, other, request=write, times=AT_ONCE)
        one_by_one = world.got("/v1/keys")
        here = await _statuses(world, request=one_by_one)
        there = await _statuses(other, request=one_by_one)
        unlocked = await world.send(unlocks.lent(world, unlocks.header(world)))
        elsewhere = await other.send(unlocks.lent(world, unlocks.header(world)))
    assert at_once == [200] + [401] * (2 * AT_ONCE - 1)
    assert written == [202] + [401] * (2 * AT_ONCE - 1)
    assert (here, there) == ([200], [401])
    assert unlocked.status == 200
    assert (elsewhere.status, elsewhere.json()["code"]) == (421, "unlock_key_unknown")


async def test_nothing_that_was_accepted_passes_again_after_a_crash(tmp_path: Path) -> None:
    """A request, also one dated ahead, stays used when relayer and database die."""
    with running_relayer(tmp_path, tmp_path, **QUIET) as relayer:
        world = await World.of(relayer)
        now_s = int(time.time())
        used = [world.got("/v1/keys", timestamp=str(now_s + off_s)) for off_s in (200, 0, -60)]
        for request in used:
            assert await _statuses(world, request=request) == [200]
        _crash(relayer)
    with running_relayer(tmp_path, tmp_path, **QUIET) as restarted:
        world.host, world.port = World(restarted).host, World(restarted).port
        await _refused(world, used)
        while (await world.send(world.got("/v1/keys").sent())).status != 200:
            await asyncio.sleep(0.2)
        await _refused(world, used)


async def _refused(world: World, used: list[Signed]) -> None:
    for request in used:
        assert set(await _statuses(world, request=request, times=4)) <= {401, 503}


def _crash(relayer: RunningRelayer) -> None:
    """Kill the relayer and its database at once."""
    [pid_file] = relayer.data_dir.glob("**/postmaster.pid")
    postmaster = int(pid_file.read_text().splitlines()[0])
    relayer.kill()
    os.kill(postmaster, signal.SIGKILL)


def test_the_small_orders_of_the_table_are_small_orders() -> None:
    """The points of the table are what they claim: eight times each point is the identity."""
    assert len(set(SMALL_ORDER.values())) == 14
    signer = ref.Signer(os.urandom(32))
    for name, point in SMALL_ORDER.items():
        if name.startswith("order-8"):
            total = signer.public
            for _ in range(8):
                total = bindings.crypto_core_ed25519_add(total, point)
            assert total == signer.public
            assert bindings.crypto_core_ed25519_add(signer.public, point) != signer.public
