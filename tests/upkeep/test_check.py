"""Verifying a whole relayer: silent on a healthy one, and no tampering goes unsaid."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.blobs.store import FolderStore
from relayer.database.postings import IN_ROW_MAX
from relayer.llm import LanguageModel
from relayer.upkeep import check, provision
from tests.conftest import BenchMaker
from tests.openai_server import API_KEY, CHAT_MODEL, openai_server
from tests.services import OTHER, TEAM, Bench, random_text
from tests.talking import AWAY, analyze

FLIP = "UPDATE {} SET {} = set_byte({}, {}, get_byte({}, {}) # 1) WHERE {}"


def flip(table: str, column: str, at: int, where: str) -> str:
    return FLIP.format(table, column, column, at, column, at, where)


FIRST = "blob_id = (SELECT blob_id FROM memories WHERE seq = 1)"

TAMPERING = {
    "blob altered": (flip("blobs", "bytes", 300, FIRST), "does not match its name"),
    "blob cut": (f"UPDATE blobs SET bytes = substr(bytes, 1, 400) WHERE {FIRST}", "match its name"),
    "blob lost": (f"DELETE FROM blobs WHERE {FIRST}", "blob is missing"),
    "rows swapped": (
        "UPDATE memories m SET blob_id = o.blob_id FROM memories o"
        " WHERE m.seq IN (1, 2) AND o.seq IN (1, 2) AND m.seq <> o.seq",
        "belongs to another row",
    ),
    "revision edited": ("UPDATE memories SET revision = 2 WHERE seq = 1", "another row"),
    "epoch edited": ("UPDATE memories SET epoch = 2 WHERE seq = 1", "another row"),
    "type edited": ("UPDATE memories SET type = 3 WHERE seq = 1", "another row"),
    "foreign bytes called sealed": (
        "UPDATE memories SET format = 'sealed' WHERE format = 'opaque'", "no envelope",
    ),
    "moved to another namespace": (
        "UPDATE memories SET namespace_id = 2 WHERE seq = 1", "another key",
    ),
    "namespace key edited": (
        flip("namespace_keys", "key_id", 0, "namespace_id = 1"), "another key",
    ),
    "memory of many words lost": (
        "DELETE FROM memories WHERE frequencies IS NULL AND cardinality(tokens) > 0",
        "a posting of a memory that is gone",
    ),
    "memory count": ("UPDATE namespaces SET memory_count = 9", "count is off"),
    "word count": ("UPDATE namespaces SET word_count = 1 WHERE namespace_id = 1", "count is off"),
    "account's count of its index": (
        "UPDATE accounts SET index_bytes = index_bytes - 1", "count is off",
    ),
    "namespace's count of its index": (
        "UPDATE namespaces SET index_bytes = index_bytes + 1", "count is off",
    ),
    "memory's size": (
        "UPDATE memories SET index_bytes = 5000 WHERE seq = 1",
        "its size is not that of its words and vectors",
    ),
    "account's count": ("UPDATE accounts SET storage_bytes = storage_bytes - 1", "count is off"),
    "posting lost": (
        "DELETE FROM postings WHERE ctid = (SELECT min(ctid) FROM postings)", "posting is missing",
    ),
    "a word's frequency lost": (
        "UPDATE memories SET frequencies = substr(frequencies, 2) WHERE seq = 1",
        "posting is missing",
    ),
    "posting planted": (
        "INSERT INTO postings SELECT account_id, namespace_id, 7, memory_id, 1, 1 FROM memories"
        " WHERE seq = 1",
        "a posting of a memory that is gone",
    ),
    "vector lost": ("DELETE FROM vectors WHERE model <> 'manual/6'", "vectors are missing"),
    "its own earlier revision": (
        "UPDATE memories SET revision_of = memory_id, superseded_at = now() WHERE seq = 1",
        "is a revision of nothing",
    ),
    "called a manual upload": (
        "UPDATE memories SET format = 'opaque' WHERE seq = 1", "is no foreign one",
    ),
    "vector of another model planted": (
        "INSERT INTO vectors SELECT account_id, memory_id, part, namespace_id, epoch, 'other/384',"
        " embedding FROM vectors LIMIT 1",
        "vectors of another model too",
    ),
    "vector of another model in its place": (
        "UPDATE vectors SET model = 'other/384' WHERE model <> 'manual/6'", "vectors are missing",
    ),
    "vector moved to another epoch": (
        "UPDATE vectors SET epoch = 9 WHERE model <> 'manual/6'", "another namespace or epoch",
    ),
    "vector moved to another namespace": (
        "UPDATE vectors SET namespace_id = 9", "another namespace or epoch",
    ),
    "first part's vector lost": (
        "UPDATE vectors SET part = part + 1", "vectors of some of its parts are missing",
    ),
    "erased and there": (
        "INSERT INTO tombstones SELECT account_id, memory_id, '{}', now() FROM memories"
        " WHERE seq = 1",
        "was erased and has a row",
    ),
    "grant altered": (flip("grants", "object", 40, "serial = 3"), "does not verify"),
    "grant no object": ("UPDATE grants SET object = '' WHERE serial = 3", "does not verify"),
    "grant's recipient": (flip("grants", "recipient", 0, "serial = 3"), "columns differ"),
    "grant's serial": ("UPDATE grants SET serial = 9 WHERE serial = 4", "columns differ"),
    "grant lost": ("DELETE FROM grants WHERE serial = 3", "does not verify"),
    "last grant lost": ("DELETE FROM grants WHERE serial = 4", "grants are missing"),
    "revocation lost and serial lowered": (
        "WITH gone AS (DELETE FROM grants WHERE serial = 4) UPDATE accounts SET grant_serial = 3",
        "grants are missing",
    ),
    "serial lowered": ("UPDATE accounts SET grant_serial = 3", "does not know its newest grant"),
    "key given away": (
        "UPDATE key_owner SET whole_id = '\\x00' WHERE public_key IN"
        " (SELECT recipient FROM grants WHERE serial = 3)",
        "belongs to another account",
    ),
    "receipt altered": (flip("receipts", "object", 80, "seq = 5"), "receipts: bad signature"),
    "receipt lost": ("DELETE FROM receipts WHERE seq = 5", "receipts: the chain"),
    "receipts exchanged": (
        "UPDATE receipts r SET object = o.object FROM receipts o"
        " WHERE r.seq IN (5, 6) AND o.seq IN (5, 6) AND r.seq <> o.seq",
        "receipts: the chain",
    ),
    "newest receipt lost": (
        "DELETE FROM receipts WHERE seq = (SELECT max(seq) FROM receipts)",
        "not the account's head",
    ),
    "head altered": (flip("accounts", "receipt_head", 0, "true"), "not the account's head"),
    "head set back": (
        "UPDATE accounts SET receipt_seq = receipt_seq - 1", "not the account's head",
    ),
    "grant gone from the store": (
        "DELETE FROM blobs WHERE bytes = (SELECT object FROM grants WHERE serial = 3)",
        "journal object is missing",
    ),
    "erasure gone from the store": (
        "DELETE FROM blobs b USING receipts r WHERE b.bytes = r.object",
        "journal object is missing",
    ),
    "turn altered": (
        flip("blobs", "bytes", 300, "blob_id IN (SELECT blob_id FROM episodes)"), "match its name",
    ),
    "turn lost": (
        "DELETE FROM blobs WHERE blob_id IN (SELECT blob_id FROM episodes)", "blob is missing",
    ),
}  # fmt: skip


@pytest.fixture
def busy_maker(make_bench: BenchMaker, embedder: Any) -> BenchMaker:
    return lambda **changes: make_bench(embedder=embedder, **changes)


async def fill(bench: Bench) -> provision.NewKey:
    """One account with something of everything."""
    founder = await bench.account()
    agent = await bench.key(founder, TEAM)
    await bench.revoke(founder, agent.identity.public_key)
    caller = await bench.caller(founder)
    stored = await bench.remember(caller, "Anna prefers tea.", tags=("drinks",))
    stored += await bench.remember(caller, "Ben sells cups.", idempotency_key="k")
    stored += await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    await bench.embed(caller, stored)
    [doomed] = await bench.remember(caller, "Nobody needs this.")
    await bench.services.memory.forget(caller.access, doomed.id)
    await bench.services.manual.remember(caller, TEAM, b"foreign", np.ones(6, np.float32))
    await analyze(bench, caller, "FACT: The roof leaks.")
    await bench.remember(caller, " ".join(f"room{n}" for n in range(IN_ROW_MAX + 1)))
    return founder


@pytest.fixture
async def busy(busy_maker: BenchMaker) -> Any:
    with openai_server() as server:
        server.script(AWAY)
        model = LanguageModel(
            base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60
        )
        bench = busy_maker(language_model=model)
        await fill(bench)
        yield bench
        await model.close()


async def test_a_busy_database_is_clean(busy: Bench) -> None:
    sealed = await busy.account("sealed")
    await busy.remember(await busy.unlocked(sealed, TEAM), "Anna prefers tea.")
    report = await check.check(busy.storage)
    assert report.problems == []
    assert report.checked["accounts"] == 2
    assert report.checked["memories"] == 6
    assert report.checked["episodes"] == 1
    assert report.checked["grants"] == 5
    assert report.as_json()["ok"]
    assert "everything holds" in report.as_text()


async def test_a_folder_is_clean(make_bench: BenchMaker, tmp_path: Path) -> None:
    bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
    caller = await bench.caller(await bench.account())
    [doomed, _] = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await bench.services.memory.forget(caller.access, doomed.id)
    assert (await check.check(bench.storage)).problems == []
    for path in [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()]:
        path.write_bytes(path.read_bytes()[:-1])
    problems = (await check.check(bench.storage)).problems
    assert {p["problem"] for p in problems} == {
        "its blob does not match its name",
        "a journal object is missing or altered",
    }


async def test_a_store_without_any_blob_is_told_to_be_another_one(
    make_bench: BenchMaker, tmp_path: Path
) -> None:
    bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
    await bench.remember(await bench.caller(await bench.account()), "Anna prefers tea.")
    assert "hint" not in (await check.check(bench.storage)).as_json()
    other = FolderStore(folder=tmp_path / "other")
    report = await check.check(replace(bench.storage, blobs=other))
    assert {"its blob is missing"} < {problem["problem"] for problem in report.problems}
    assert report.as_json()["hint"] == report.as_text().splitlines()[-1]
    assert "RELAYER_BLOB_STORE" in report.as_text()


async def test_writers_and_erasers_meanwhile_are_no_problem(bench: Bench) -> None:
    founder = await bench.account()
    caller = await bench.caller(founder)

    async def work() -> None:
        for _ in range(6):
            [stored] = await bench.remember(caller, random_text())
            await bench.services.memory.forget(caller.access, stored.id)

    working = asyncio.gather(*(work() for _ in range(3)))
    reports = []
    while not working.done():
        reports.append(await check.check(bench.storage))
    await working
    await bench.key(founder, TEAM)
    reports.append(await check.check(bench.storage))
    assert len(reports) > 1
    assert [r.problems for r in reports if not r.ok] == []


async def test_every_tampering_is_reported(busy: Bench) -> None:
    """Each is taken back before the next."""
    for name, (statement, wanted) in TAMPERING.items():
        tables = await busy.sql(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'public'::regnamespace AND relname NOT LIKE 'pgqueuer%'"
        )
        saved = {r[0]: await busy.sql(f'SELECT t::text FROM "{r[0]}" t') for r in tables}
        await busy.sql(statement)
        report = await check.check(busy.storage)
        problems = [p["problem"] for p in report.problems]
        assert any(wanted in problem for problem in problems), (name, problems)
        assert not report.ok
        assert wanted in report.as_text()
        await put_back(busy, saved)
        assert (await check.check(busy.storage)).problems == [], name


async def put_back(bench: Bench, saved: dict[str, list[Any]]) -> None:
    """Give every table the rows it had."""
    async with bench.storage.database.transaction() as connection:
        names = ", ".join(f'"{name}"' for name in saved)
        await connection.execute(f"TRUNCATE {names}")
        for name in ("accounts", "namespaces", "memories", *saved):
            if await connection.fetchval(f'SELECT count(*) FROM "{name}"') == 0:
                rows = [r[0] for r in saved[name]]
                await connection.execute(
                    f'INSERT INTO "{name}" SELECT (t::"{name}").* FROM unnest($1::text[]) t', rows
                )


async def test_another_relayers_receipts_are_not_believed(busy: Bench) -> None:
    stranger = busy.another()
    stranger.storage = type(busy.storage)(
        **{**vars(busy.storage), "identity": (await busy.account()).identity}
    )
    problems = (await check.check(stranger.storage)).problems
    assert any("receipts" in p["problem"] for p in problems)
