"""The room of an account: what has expired leaves its own to what says the same."""

from datetime import timedelta

import pytest

from relayer.errors import QuotaExceeded
from tests.conftest import BenchMaker
from tests.editing import writer

LONG = "word " * 4000  # sealed, it takes more than half of the room
ROOM_BYTES = 30_000


async def test_what_has_expired_leaves_its_room_to_what_says_the_same(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(storage_bytes_max=ROOM_BYTES)
    caller = await writer(bench)
    await bench.remember(caller, LONG, expires_at=bench.clock() + timedelta(hours=1))
    with pytest.raises(QuotaExceeded):
        await bench.remember(caller, f"another {LONG}")
    bench.clock.advance(3601)
    with pytest.raises(QuotaExceeded):  # not that of others, before it is erased
        await bench.remember(caller, f"another {LONG}")
    [again] = await bench.remember(caller, LONG)
    assert not again.duplicate
    assert await bench.value("SELECT count(*) FROM memories") == 1
    assert await bench.value("SELECT storage_bytes FROM accounts") < ROOM_BYTES
