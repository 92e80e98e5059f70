"""Unlock keys of several processes on one database: a header opens wherever it arrives."""

import asyncio
import os
from typing import Any

import asyncpg
import pytest

from relayer.database import unlock_keys as rows
from relayer.errors import Misdirected
from relayer.sealed.keys import Identity
from relayer.sealed.objects import sign_object
from relayer.sealed.primitives import CryptoError, blake2b_256
from relayer.sealed.receipts import ListedKey, open_statement, sign_statement
from relayer.sealed.unlock import BOXES_MAX, generate_unlock_key
from relayer.serve import Ending, attend, bind
from relayer.settings import Limits
from relayer.tenants import unlock_directory
from relayer.tenants.unlock_directory import SEEN, UnlockDirectory
from relayer.tenants.unlock_key_pairs import HandedKeys, MadeKeys
from tests.conftest import TestDatabase
from tests.life import WAIT_S_MAX
from tests.services import TEAM, Bench

ALIVE = 2_000_000_000_000
PROCESSES = "SELECT count(*) FROM unlock_keys"


def announcements(bench: Bench) -> UnlockDirectory:
    """Those of a process that has just begun, by the bench's clock."""
    return UnlockDirectory(
        database=bench.storage.database,
        custody=bench.storage.custody,
        identity=bench.storage.identity,
        clock=bench.clock,
    )


def listed(bench: Bench, statement: bytes) -> list[bytes]:
    return [k.kid for k in open_statement(statement, bench.storage.identity.public_key)]


def own(bench: Bench) -> list[bytes]:
    return listed(bench, bench.storage.custody.statement())


class TestTwoProcesses:
    async def test_either_opens_what_is_sealed_to_the_statement_of_the_other(
        self, bench: Bench
    ) -> None:
        other = bench.another()
        founder = await bench.account("sealed")
        keys = [bench.namespace_key(founder.account, TEAM)]
        alone = bench.unlock(founder, keys)
        with pytest.raises(Misdirected):
            await other.caller(founder, alone)
        await announcements(other).announce()
        both = await announcements(bench).statement()
        assert listed(bench, both) == own(bench) + own(other)
        header = bench.unlock(founder, keys, statement=both)
        for process in (bench, other):
            caller = await process.caller(founder, header)
            await process.remember(caller, f"Anna drinks tea at {os.urandom(4).hex()}.")

    async def test_a_new_key_is_told_with_the_statement_that_lists_it(self, bench: Bench) -> None:
        other = bench.another()
        mine, theirs = announcements(bench), announcements(other)
        await mine.announce()
        bench.clock.advance(Limits.unlock_key_life_s - 1)
        first = await mine.statement()
        assert len(listed(bench, first)) == 2
        assert set(listed(bench, first)) <= set(listed(bench, await theirs.statement()))

    async def test_keys_that_are_over_are_not_listed(self, bench: Bench) -> None:
        other = bench.another()
        await announcements(other).announce()
        bench.clock.advance(Limits.unlock_key_life_s)
        assert listed(bench, await announcements(bench).statement()) == own(bench)

    async def test_a_process_that_is_silent_is_not_listed(self, bench: Bench) -> None:
        database = bench.storage.database
        await announcements(bench.another()).announce()
        await database.execute(
            "UPDATE unlock_keys SET seen_at = seen_at - $1::interval - $1::interval", SEEN
        )
        assert listed(bench, await announcements(bench).statement()) == own(bench)
        await rows.forget_silent(database, since=SEEN)
        row = await database.fetchrow("SELECT count(*) FROM unlock_keys")
        assert row is not None
        assert row[0] == 1, "its own"

    async def test_at_most_as_many_as_a_header_has_boxes(self, bench: Bench) -> None:
        for _ in range(BOXES_MAX + 2):
            await announcements(bench.another()).announce()
        found = listed(bench, await announcements(bench).statement())
        assert len(found) == len(set(found)) == BOXES_MAX
        assert found[:1] == own(bench)


class TestEveryMinute:
    """A process is listed as long as it serves, whatever its housekeeping does meanwhile."""

    async def test_it_is_said_again_whatever_failed_before(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(unlock_directory, "ROUND_S", 0.01)
        await bench.sql("ALTER TABLE unlock_keys RENAME TO elsewhere")
        announced = asyncio.create_task(announcements(bench).run())
        async with asyncio.timeout(WAIT_S_MAX):
            while "announcing waits" not in caplog.messages:
                await asyncio.sleep(0.01)
        await bench.sql("ALTER TABLE elsewhere RENAME TO unlock_keys")
        for _ in range(2):
            await bench.until(PROCESSES, 1)
            await bench.sql("DELETE FROM unlock_keys")
        announced.cancel()
        await asyncio.wait({announced})

    async def test_a_process_says_so_while_its_housekeeping_is_stuck(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, fresh_database: TestDatabase
    ) -> None:
        monkeypatch.setattr(unlock_directory, "ROUND_S", 0.01)
        ending, ready = Ending(), asyncio.Event()
        blocker = await asyncpg.connect(**fresh_database.connect_args)
        with bind(bench.settings) as sockets:
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE nonces IN ACCESS EXCLUSIVE MODE")
                serving = asyncio.create_task(
                    attend(bench.storage, bench.settings, sockets, ending, ready.set)
                )
                async with asyncio.timeout(WAIT_S_MAX):
                    await ready.wait()
                for _ in range(2):
                    await bench.sql("DELETE FROM unlock_keys")
                    await bench.until(PROCESSES, 1)
            ending.end()
            await serving
        await blocker.close()


class TestWhoeverWritesToTheDatabase:
    """A key of his own never gets into a statement."""

    async def planted(self, bench: Bench, signed: bytes) -> list[bytes]:
        await rows.announce(bench.storage.database, kid=os.urandom(8), signed=signed)
        return listed(bench, await announcements(bench).statement())

    async def test_another_signer_is_not_believed(self, bench: Bench) -> None:
        key = generate_unlock_key(not_after_ms=ALIVE)
        thief = Identity(os.urandom(32))
        told = sign_statement(
            thief, issued_ms=1, unlock_keys=[(key.kid, key.public_key, key.not_after_ms)]
        )
        assert await self.planted(bench, told) == own(bench)

    @pytest.mark.parametrize("at", [40, -70, -1])
    async def test_an_altered_announcement_is_not_believed(self, bench: Bench, at: int) -> None:
        told = bytearray(bench.another().storage.custody.statement())
        told[at] ^= 1
        assert await self.planted(bench, bytes(told)) == own(bench)

    @pytest.mark.parametrize("signed", [b"", b"{}", bytes(200)])
    async def test_nonsense_is_not_believed(self, bench: Bench, signed: bytes) -> None:
        assert await self.planted(bench, signed) == own(bench)


class TestStatements:
    def members(self, identity: Identity, **changed: Any) -> bytes:
        entry = {"kid": blake2b_256(bytes(32))[:8].hex(), "key": "00" * 32, "not_after": 5}
        own: dict[str, Any] = {
            "relayer": identity.public_key.hex(),
            "issued": 1,
            "unlock_keys": [entry],
        }
        return sign_object(identity, "relayer", own | changed)

    def test_what_is_signed_is_what_is_read(self) -> None:
        identity, key = Identity(os.urandom(32)), generate_unlock_key(not_after_ms=ALIVE)
        entry = ListedKey(key.kid, key.public_key, key.not_after_ms)
        signed = sign_statement(identity, issued_ms=1, unlock_keys=[entry])
        assert open_statement(signed, identity.public_key) == [entry]
        assert open_statement(self.members(identity), identity.public_key)[0].not_after_ms == 5

    @pytest.mark.parametrize(
        "changed",
        [
            {"relayer": "11" * 32},
            {"unlock_keys": {}},
            {"unlock_keys": ["key"]},
            {"unlock_keys": [{"kid": "00" * 8, "key": "00" * 32}]},
            {"unlock_keys": [{"kid": "00" * 8, "key": "00" * 32, "not_after": 5}]},
            {"unlock_keys": [{"kid": "00" * 8, "key": "00" * 31, "not_after": 5}]},
            {"more": 1},
        ],
    )
    def test_malformed_ones_are_refused(self, changed: dict[str, Any]) -> None:
        identity = Identity(os.urandom(32))
        with pytest.raises(CryptoError):
            open_statement(self.members(identity, **changed), identity.public_key)


class TestHandedKeys:
    """Keys that another process makes and replaces."""

    def test_they_end_as_made_ones_do(self) -> None:
        made = MadeKeys()
        handed = HandedKeys(list(made.live(0).values()))
        end_ms = Limits.unlock_key_life_s * 1000
        assert handed.live(end_ms - 1) == made.live(0)
        assert handed.live(end_ms) == {}, "it makes none of its own"
        handed.take(list(made.live(end_ms).values()))
        assert handed.live(end_ms) == made.live(end_ms) != {}

    async def test_processes_with_the_same_keys_speak_with_one_voice(self, bench: Bench) -> None:
        for _ in range(2):
            await announcements(bench).announce()
        assert listed(bench, await announcements(bench).statement()) == own(bench)
