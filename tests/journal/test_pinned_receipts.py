"""Receipts stay what they were, byte for byte: a day of changes, at a set clock and seed.

Each step is pinned by the operations that it left receipts of, and by the beginning of the hash of
the chain behind them. That hash covers every byte of every receipt before it, and through the names
in them every byte of memories, states and grants. A step that differs is the first that changed.
Pin anew only what a change of a format or of a text is meant to alter.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from nacl import bindings

from relayer import record
from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.journal.states import Change
from relayer.memories.conversations import Conversation
from relayer.sealed.keys import AccountId, Identity
from relayer.sealed.receipts import chain_hash, open_receipt
from tests.chains import assert_chain_holds, chain_of
from tests.conftest import BenchMaker
from tests.consolidating import MEETINGS, TEA, TEA_AGAIN, consolidated, happened, said, week
from tests.editing import COFFEE, edit
from tests.moving import founded, packed, there
from tests.rotator import Rotator
from tests.services import START, TEAM, Bench
from tests.setting_back import backup, restarted, set_back

__all__ = ["there"]  # a fixture

HERE = Identity(bytes(range(32)))
Steps = list[tuple[str, str, str]]  # (step, operations, beginning of the chain's hash)
DAY: Steps = [
    ("founded", "grant grant grant", "0f5db793dbab2ae0"),
    ("remembered", "remember", "4119d779913150cd"),
    ("edited", "edit", "86910ca44ce63dbd"),
    ("edited in the same moment", "edit", "8abb341229fa023a"),
    ("decided", "state state state state", "87a76f561391b250"),
    ("gone", "remember expire forget", "e8999215f339a7fc"),
    ("extracted", "analyze", "d376ea239fa48ae1"),
    ("happened", "remember remember remember remember remember remember", "00aa5bd3880cf36d"),
    ("consolidated", "state consolidate", "530041e6c08a946e"),
    ("undone", "forget state", "5b2b1e46a1f72c60"),
    ("rotated", "revoke grant grant", "2f673ad499b0c9d3"),
    ("sealed anew", "reseal", "335a224d9c785a54"),
    ("closed", "close", "ec4616a9f787e157"),
]
SET_BACK: Steps = [
    ("caught up", "grant grant remember state grant forget", "de179017f7d27847"),
    ("restored", "restore restore", "4f0e00a53bc93c86"),
]
ARRIVED: Steps = [
    ("arrived", "grant forget import state", "d6aa5815a5e7f5ab"),
]


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that is drawn follows from a seed, and time moves by the test alone."""
    stream = _draws()

    def draw(size: int) -> bytes:
        return b"".join(next(stream) for _ in range(size))

    def seal(message: bytes, recipient: bytes) -> bytes:
        """libsodium's sealed box, whose key would come from its own source."""
        public, private = bindings.crypto_box_seed_keypair(draw(32))
        nonce = hashlib.blake2b(public + recipient, digest_size=24).digest()
        return public + bytes(bindings.crypto_box_easy(message, nonce, recipient, private))

    monkeypatch.setattr(os, "urandom", draw)
    monkeypatch.setattr(record, "urandom", draw)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=draw(16), version=4))
    monkeypatch.setattr(bindings, "crypto_box_seal", seal)
    ticks = iter(range(1, 1_000_000))
    start_ns = int(START.timestamp()) * 10**9
    times = SimpleNamespace(time_ns=lambda: start_ns + next(ticks) * 1_000_000)
    monkeypatch.setattr(record, "time", times)


@pytest.fixture
def here(seeded: None, make_bench: BenchMaker, embedder: Embedder) -> Bench:
    return make_bench(embedder=embedder, identity=HERE)


def _draws() -> Iterator[bytes]:
    number = 0
    while True:
        for value in hashlib.sha256(number.to_bytes(8, "big")).digest():
            yield bytes([value])
        number += 1


class Day:
    """What the chain of an account is behind each step."""

    def __init__(self, bench: Bench, account: AccountId) -> None:
        self.bench, self.account = bench, account
        self.steps: Steps = []
        self._seq = 0

    async def note(self, step: str) -> None:
        """Note the receipts that came since the step before."""
        chain = await chain_of(self.bench, self.account)
        relayer = self.bench.storage.identity.public_key
        new = [open_receipt(signed, relayer).op for signed in chain[self._seq :]]
        self._seq = len(chain)
        self.steps.append((step, " ".join(new), chain_hash(chain[-1]).hex()[:16]))


async def test_a_day_of_changes(here: Bench) -> None:
    founder = await here.account()
    caller, day = await here.caller(founder), Day(here, founder.account)
    agent = await here.key(founder, TEAM)
    await day.note("founded")
    [tea, coffee, rent, key] = await said(
        here, caller, TEA, COFFEE, "Bob rents a flat in Oslo.", "Carol lost her key in Bergen."
    )
    here.clock.advance(60)
    await day.note("remembered")
    await edit(here, caller, rent.id, text="Bob rents a house in Oslo.")
    await day.note("edited")
    await edit(here, caller, rent.id, tags=["home"])
    await day.note("edited in the same moment")
    changer, access = here.services.state_changer, caller.access
    await changer.set_state(access, tea.id, Change(pinned=True))
    await changer.set_state(access, key.id, Change(superseded_by=rent.id))
    await changer.set_state(access, key.id, Change(superseded_by=None))
    await changer.set_state(access, coffee.id, Change(review="rejected"))
    await day.note("decided")
    await said(here, caller, "Dora stays until noon.", expires_at=here.clock() + timedelta(hours=1))
    here.clock.advance(7200)
    await here.services.expiry.expire()
    await here.services.deletion.forget(access, coffee.id)
    await day.note("gone")
    turn = Conversation(text="user: I live in a small town near Turin.", namespace=TEAM)
    await here.services.analysis.analyze(caller, turn)
    await day.note("extracted")
    await said(here, caller, TEA_AGAIN)
    await happened(here, caller, *MEETINGS, day=week(here))
    await day.note("happened")
    run, done = await consolidated(here, caller)
    await day.note("consolidated")
    assert {row["action"] for row in done} == {"merge", "summary"}
    await here.services.runs.undo(caller.access, run["run_id"])
    await day.note("undone")
    await here.revoke(founder, agent.identity.public_key)
    owner = Rotator(here, founder)
    await owner.rotate(reseal="all")
    await day.note("rotated")
    keys = await here.storage.custody.reseal_keys(founder.account)
    assert keys is not None
    await here.services.resealer.work(founder.account, keys, lambda: True)
    await day.note("sealed anew")
    await assert_chain_holds(here, founder.account)
    await here.services.closing.close((await here.caller(founder)).access)
    await day.note("closed")
    assert day.steps == DAY


async def test_a_database_that_was_set_back(
    seeded: None, make_bench: BenchMaker, database: Database, tmp_path: Path
) -> None:
    here = make_bench(blob_store=f"file:{tmp_path / 'blobs'}", identity=HERE)
    founder = await here.account()
    caller = await here.caller(founder)
    changer, access = here.services.state_changer, caller.access
    [tea, coffee] = await here.remember(caller, TEA, COFFEE)
    saved = await backup(database)
    here.clock.advance(60)
    await edit(here, caller, tea.id, text="Anna prefers white tea.")
    await changer.set_state(access, tea.id, Change(pinned=True))
    await here.services.deletion.forget(access, coffee.id)
    await here.remember(caller, "Bob rents a flat in Oslo.")
    await here.key(founder, TEAM)
    started = await set_back(here, database, saved)
    day = Day(started, founder.account)
    await day.note("caught up")
    await restarted(started, founder)
    await day.note("restored")
    assert day.steps == SET_BACK


async def test_an_account_that_arrives(here: Bench, there: Bench) -> None:
    founder = await here.account("sealed")
    caller = await here.unlocked(founder, TEAM)
    [tea, coffee, rent] = await here.remember(caller, TEA, COFFEE, "Bob rents a flat in Oslo.")
    await edit(here, caller, rent.id, text="Bob rents a house in Oslo.")
    await here.services.state_changer.set_state(caller.access, tea.id, Change(pinned=True))
    await here.services.deletion.forget(caller.access, coffee.id)
    arrival = await packed(here, await here.caller(founder))
    owner, day = await founded(here, there, founder), Day(there, founder.account)
    await there.services.importer.take_in(owner.access, arrival)
    await day.note("arrived")
    assert day.steps == ARRIVED
