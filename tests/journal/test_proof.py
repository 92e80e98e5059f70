"""Stored bytes for whoever may have them, checkpoints, and the relayer's own key."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import main
from memrelay.errors import UntrustedRelayer
from memrelay.sealed.envelope import blob_id
from memrelay.secure_files import write_private
from relayer.blobs.cache import CachedStore
from relayer.clock import to_ms, utc_now
from relayer.errors import BadRequest, Conflict, NotAllowed
from relayer.identity import (
    IdentityError,
    load_identity,
    load_succession,
    make_identity,
    next_path,
    replace_identity,
    take_over,
    write_next,
)
from relayer.installation import open_storage
from relayer.run_file import alone
from relayer.sealed.grants import Grant, Revocation, issue_grant, open_grant, parse_any
from relayer.sealed.keys import AccountId, Identity, Root, account_text, parse_public_key
from relayer.sealed.primitives import random_key, to_base64url
from relayer.sealed.receipts import open_checkpoint
from relayer.sealed.succession import keys_of, name_next
from relayer.settings import Limits, Settings
from relayer.storage import Storage
from relayer.tenants.granting import Granting
from relayer.tenants.proof import Proof
from relayer.upkeep import check, provision, succession
from tests.processes import RunningRelayer, command, running_relayer
from tests.services import OTHER, TEAM, Bench

STRANGER = Identity(bytes(range(32)))


# What is stored, by name and by bytes


def proof_of(bench: Bench) -> Proof:
    return Proof(
        database=bench.storage.database,
        blobs=bench.storage.blobs,
        identity=bench.storage.identity,
        succession=bench.storage.succession,
        clock=bench.clock,
    )


async def names(bench: Bench, caller: Any, limit: int = 2) -> list[dict[str, Any]]:
    """Everything an inventory lists, in pages."""
    proof, found = proof_of(bench), list[dict[str, Any]]()
    cursor: str | None = ""
    while cursor is not None:
        page = await proof.inventory(caller.access, None, cursor, limit)
        found += [dict(row) for row in (*page.revisions, *page.episodes)]
        cursor = page.cursor
    return found


async def test_what_another_process_erased_is_not_shown(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    account, store = caller.access.account, bench.storage.blobs
    [name] = [to_base64url(row["blob_id"]) for row in await names(bench, caller)]
    kept = CachedStore(store=store, bytes_max=2**20)
    assert len(await kept.get_many(account, [name])) == 1
    await store.delete(account, name)
    proof = proof_of(replace(bench, storage=replace(bench.storage, blobs=kept)))
    assert (await proof.blobs(caller.access, [name])).found == {name: None}


async def test_the_inventory_names_everything_once(bench: Bench) -> None:
    founder = await bench.account()
    caller = await bench.caller(founder)
    stored = await bench.remember(caller, *(f"Note {n}." for n in range(5)))
    stored += await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    for limit in (1, 2, 6, 7):
        assert [row["id"] for row in await names(bench, caller, limit)] == [s.id for s in stored]


async def test_a_key_sees_names_and_bytes_of_its_own_namespaces_only(bench: Bench) -> None:
    founder = await bench.account("sealed")
    whole = await bench.unlocked(founder, TEAM, OTHER)
    [team] = await bench.remember(whole, "Anna prefers tea.")
    [other] = await bench.remember(whole, "Elsewhere.", namespace=OTHER)
    agent = await bench.caller(await bench.key(founder, TEAM, role="reader"))
    assert [row["id"] for row in await names(bench, agent)] == [team.id]
    with pytest.raises(NotAllowed):
        await proof_of(bench).inventory(agent.access, [OTHER], "", 10)
    blobs = {str(row["id"]): row["blob_id"] for row in await names(bench, whole)}
    mine, foreign = (to_base64url(blobs[str(i)]) for i in (team.id, other.id))
    read = await proof_of(bench).blobs(agent.access, [foreign, mine])
    assert read.found[foreign] is None
    data = read.found[mine]
    assert isinstance(data, bytes)
    assert blob_id(data) == mine
    # Keys of the whole account may have any object of it; nobody has another account's.
    assert isinstance((await proof_of(bench).blobs(whole.access, [foreign])).found[foreign], bytes)
    stranger = await bench.caller(await bench.account())
    assert (await proof_of(bench).blobs(stranger.access, [mine])).found == {mine: None}
    with pytest.raises(NotAllowed):
        await proof_of(bench).checkpoint(agent.access)


async def test_an_answer_has_as_many_blobs_as_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, *(f"Note {n}." for n in range(12)))
    asked = [to_base64url(row["blob_id"]) for row in await names(bench, caller)]
    monkeypatch.setattr(Limits, "blobs_bytes_max", 500)  # an envelope here has 396
    got: list[str] = []
    while asked:
        read = await proof_of(bench).blobs(caller.access, asked)
        assert len(read.found) == 1
        assert [*read.found, *read.left] == asked
        got += read.found
        asked = read.left
    assert len(got) == 12


@pytest.mark.parametrize("cursor", ["x", "-1", "١", "1" * 19, "enope", "E"])
async def test_a_strange_cursor_is_refused(bench: Bench, cursor: str) -> None:
    caller = await bench.caller(await bench.account())
    with pytest.raises(BadRequest):
        await proof_of(bench).inventory(caller.access, None, cursor, 10)


async def test_a_checkpoint_says_where_the_chain_stands(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    signed = await proof_of(bench).checkpoint(caller.access)
    point = open_checkpoint(signed, bench.storage.identity.public_key)
    row = (await bench.sql("SELECT receipt_seq, receipt_head, grant_serial FROM accounts"))[0]
    assert (point.seq, point.head, point.grant_serial) == tuple(row)
    assert point.account == caller.access.account


# The relayer's own key


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "relayer.key"
    make_identity(path)
    return path


def replaced(path: Path) -> tuple[Identity, Identity]:
    """A key file's key replaced as the command does it, without any account; both."""
    before, after = load_identity(path), Identity(bytes([len(load_succession(path)) + 1]) * 32)
    named = name_next(before, after.public_key, created_ms=1)
    write_next(path, after.seed, (*load_succession(path), named))
    replace_identity(path)
    return before, after


def test_a_key_file_tells_how_it_came_to_its_key(key_file: Path) -> None:
    first, second = replaced(key_file)
    _, third = replaced(key_file)
    assert load_identity(key_file) == third
    keys = keys_of(load_succession(key_file), third.public_key)
    assert keys == (first.public_key, second.public_key, third.public_key)
    assert key_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines, "?"],
        lambda lines: [lines[0], lines[1], *lines[1:]],
        lambda lines: [lines[0], lines[2], lines[1]],
        lambda lines: lines[:2],
        lambda lines: ["07" * 32, *lines[1:]],
    ],
    ids=["no base64", "repeated", "swapped", "last lost", "another key"],
)
def test_a_key_file_whose_lines_do_not_lead_to_its_key_is_refused(
    key_file: Path, change: Callable[[list[str]], list[str]]
) -> None:
    replaced(key_file)
    replaced(key_file)
    lines = key_file.read_text().splitlines()
    key_file.write_text("\n".join(change(lines)))
    with pytest.raises(IdentityError, match="lead"):
        load_succession(key_file)


async def rotated(settings: Settings) -> succession.Rotated:
    return await succession.rotate(settings, utc_now)


async def test_a_rotation_hands_managed_accounts_over(settings: Settings) -> None:
    async with open_storage(settings) as storage:
        first = storage.identity.public_key
        managed = await provision.create_account(
            storage, label="m", custody="managed", clock=utc_now
        )
        sealed = await provision.create_account(storage, label="s", custody="sealed", clock=utc_now)
    done = await rotated(settings)
    assert (done.before, done.accounts) == (first, 1)
    async with open_storage(settings) as storage:
        assert storage.identity.public_key == done.now
        assert storage.relayers == (first, done.now)
        for account, custody in ((managed.account, "managed"), (sealed.account, "sealed")):
            chain = await storage.accounts.chain(account)
            assert storage.accounts.custody(chain) == custody
            assert chain.live(first, 2**50) == []
        # What the new custodian signs counts as what the old one signed: the chain got no longer.
        await provision.add_key(
            storage,
            account=managed.account,
            namespaces=[TEAM],
            role="writer",
            label="agent",
            expires_at=None,
            owner=None,
            clock=utc_now,
        )
        assert (await check.check(storage)).problems == []


async def test_many_rotations_leave_room_for_grants(settings: Settings) -> None:
    async with open_storage(settings) as storage:
        managed = await provision.create_account(
            storage, label="m", custody="managed", clock=utc_now
        )
    for _ in range(5):  # more than a chain of issuers may be long
        await rotated(settings)
    async with open_storage(settings) as storage:
        await provision.add_key(
            storage,
            account=managed.account,
            namespaces=[],
            role="reader",
            label="agent",
            expires_at=None,
            owner=None,
            clock=utc_now,
        )
        assert (await check.check(storage)).problems == []


async def spoiled(storage: Storage) -> provision.NewKey:
    """An account whose chain has the relayer's key for an owner at its end, too, as an earlier
    release took it in: the custodian can name no successor."""
    made = await provision.create_account(storage, label="bad", custody="managed", clock=utc_now)
    chain = (await storage.accounts.chain(made.account)).copy()
    [root] = open_grant(chain.grants[made.identity.public_key][0], made.identity)
    assert isinstance(root, Root)
    issuers = [made.identity, *(Identity(random_key()) for _ in range(3))]
    steps: list[tuple[Grant | Revocation, str, bytes | None]] = []
    for issuer, recipient in pairwise([*issuers, storage.identity]):
        signed = issue_grant(
            issuer,
            account=made.account,
            serial=chain.serial + 1,
            recipient=recipient.public_key,
            role="owner",
            keys=[root],
            created_ms=to_ms(utc_now()),
        )
        chain.add(parse_any(signed))
        steps.append((parse_any(signed), "", None))
    await storage.granting.accept_moved(chain, steps, actor=made.identity.public_key)
    return made


async def test_an_account_that_cannot_be_handed_over_keeps_no_other_one_from_it(
    settings: Settings,
) -> None:
    async with open_storage(settings) as storage:
        first = storage.identity.public_key
        bad = await spoiled(storage)
        good = [
            await provision.create_account(storage, label="m", custody="managed", clock=utc_now)
            for _ in range(2)
        ]
        broken = good.pop(0)
        await storage.database.execute(
            "DELETE FROM grants WHERE account_id = $1 AND serial = 2", broken.account
        )
    done = command(
        *("identity", "rotate", "--json"),
        data=settings.data_dir,
        database_url=settings.database_url,
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    said = json.loads(done.stdout)
    assert (said["earlier"], said["managed_accounts"]) == (first.hex(), 1)
    assert {one["account_id"]: one["reason"] for one in said["not_handed_over"]} == {
        account_text(bad.account): "The grant was refused: the chain of issuers is too long.",
        account_text(broken.account): "The account's grants are incomplete.",
    }
    assert not next_path(settings.data_dir / "relayer.key").exists()
    async with open_storage(settings) as storage:
        assert storage.identity.public_key.hex() == said["relayer_key"]
        for account, custody in ((bad.account, "sealed"), (good[0].account, "managed")):
            chain = await storage.accounts.chain(account)
            assert storage.accounts.custody(chain) == custody


class Stopped(Exception):
    """As if the power had failed."""


@pytest.mark.parametrize("stop_at", range(1, 6))
async def test_an_interrupted_rotation_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """After each step that lasts: the key waits, two accounts with two entries each."""
    async with open_storage(settings) as storage:
        first = storage.identity.public_key
        for label in ("one", "two"):
            await provision.create_account(storage, label=label, custody="managed", clock=utc_now)
    accept, steps = Granting._accept, iter(range(2, 99))

    async def counted(self: Granting, *arguments: Any, **named: Any) -> bytes:
        done = await accept(self, *arguments, **named)
        if next(steps) == stop_at:
            raise Stopped
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Granting, "_accept", counted)
        if stop_at == 1:
            patch.setattr(Granting, "hand_over", stopped)
        with pytest.raises(Stopped):
            await rotated(settings)
    path = settings.data_dir / "relayer.key"
    assert load_identity(path).public_key == first
    waiting = load_identity(next_path(path)).public_key
    with pytest.raises(IdentityError, match="rotate"):
        async with open_storage(settings):
            pytest.fail("it starts with half a key")
    done = await rotated(settings)
    assert (done.before, done.now) == (first, waiting)
    assert not next_path(path).exists()
    async with open_storage(settings) as storage:
        for row in await storage.database.fetch("SELECT whole_id, grant_serial FROM accounts"):
            assert row["grant_serial"] == 4  # nothing was done twice
            chain = await storage.accounts.chain(AccountId(row["whole_id"]))
            assert storage.accounts.custody(chain) == "managed"
        assert (await check.check(storage)).problems == []
    assert len(load_succession(path)) == 1


async def stopped(*_: Any) -> bool:
    raise Stopped


async def test_a_key_is_not_replaced_beside_a_running_relayer(settings: Settings) -> None:
    make_identity(settings.data_dir / "relayer.key")
    with alone(settings.data_dir), pytest.raises(Conflict, match="Stop"):
        await rotated(settings)
    assert not next_path(settings.data_dir / "relayer.key").exists()


TAMPERED_HANDOVER = {
    "successor's evidence removed": "UPDATE grants SET succession = NULL",
    "successor's evidence altered": (
        "UPDATE grants SET succession = set_byte(succession, 80, get_byte(succession, 80) # 1)"
        " WHERE succession IS NOT NULL"
    ),
    "successor's evidence gone from the journal": (
        "DELETE FROM blobs b USING grants g WHERE b.bytes = g.succession"
    ),
}


async def test_custody_passed_on_without_proof_is_reported(settings: Settings) -> None:
    async with open_storage(settings) as storage:
        await provision.create_account(storage, label="m", custody="managed", clock=utc_now)
    await rotated(settings)
    async with open_storage(settings) as storage:
        assert (await check.check(storage)).problems == []
        for name, statement in TAMPERED_HANDOVER.items():
            saved = await storage.database.fetch("SELECT serial, succession FROM grants")
            blobs = await storage.database.fetch("SELECT b::text AS row FROM blobs b")
            await storage.database.execute(statement)
            assert (await check.check(storage)).problems, name
            for row in saved:
                await storage.database.execute(
                    "UPDATE grants SET succession = $2 WHERE serial = $1", *row
                )
            await storage.database.execute(
                "INSERT INTO blobs SELECT (t::blobs).* FROM unnest($1::text[]) t"
                " ON CONFLICT DO NOTHING",
                [row["row"] for row in blobs],
            )
            assert (await check.check(storage)).problems == [], name


# With real processes


def client_of(relayer: RunningRelayer, account: dict[str, Any], **changes: Any) -> SyncMemoryClient:
    values = {
        "url": relayer.url,
        "account_id": account["account_id"],
        "private_key": account["private_key"],
        "relayer_key": account["relayer_key"],
    }
    return SyncMemoryClient(**{**values, **changes})


def rotate_by_command(data_dir: Path, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "relayer", "identity", "rotate"),
            *("--data-dir", str(data_dir), "--json"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_clients_follow_a_relayer_to_its_next_key(
    tmp_path: Path, model_dir: Path, fresh_database: Any
) -> None:
    """Managed and sealed accounts, clients with and without memory, and a stranger in the end."""
    folder = tmp_path / "data"
    seen = {custody: tmp_path / f"{custody}.json" for custody in ("managed", "sealed")}
    accounts: dict[str, dict[str, Any]] = {}
    with running_relayer(folder, model_dir, database_url=fresh_database.url) as relayer:
        environment = relayer.environment
        refused = subprocess.run(
            [
                *(sys.executable, "-m", "relayer", "identity", "rotate"),
                *("--data-dir", str(folder)),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert refused.returncode == 1
        assert "Stop the relayer" in refused.stderr
        for custody, path in seen.items():
            accounts[custody] = relayer.command("account", "create", "--custody", custody)
            with client_of(relayer, accounts[custody], seen_path=path) as client:
                client.remember("Anna prefers tea.")
                if custody == "managed":
                    client.rotate(reseal="all")  # the custodian holds the roots of two epochs
                assert client.verify(open_all=True).findings == ()
    told = rotate_by_command(folder, environment)
    assert told["managed_accounts"] == 1
    with running_relayer(folder, model_dir, database_url=fresh_database.url) as relayer:
        for custody, path in seen.items():
            account = accounts[custody]
            # One that remembers, one that only has the old pin, one that meets it for the first
            # time; each writes first, for which it must name the relayer.
            changed: list[dict[str, Any]] = [
                {"seen_path": path}, {}, {"relayer_key": None}, {"custody": custody},
            ]  # fmt: skip
            for at, changes in enumerate(changed):
                with client_of(relayer, account, **changes) as client:
                    client.remember(f"Said after the change, {custody} {at}.")
                    assert "tea" in str(client.recall("What does Anna prefer?").results[0].text)
                    found = client.verify(open_all=True)
                    assert found.findings == ()
                    assert found.relayer_key == told["relayer_key"] != account["relayer_key"]
            with client_of(relayer, account, seen_path=path) as client:
                key = client.add_key(namespaces=["default"])
                assert key.relayer_key == told["relayer_key"]
                client.receipts()
            with (
                client_of(relayer, account, relayer_key=STRANGER.public_key.hex()) as client,
                pytest.raises(UntrustedRelayer, match="pinned"),
            ):
                client.remember("For somebody else.")
        assert relayer.command("check")["ok"]


def test_a_relayer_that_nobody_named_is_a_hard_error_until_it_is_trusted_by_hand(
    tmp_path: Path, model_dir: Path, fresh_database: Any
) -> None:
    folder = tmp_path / "data"
    profile = tmp_path / "profile.json"
    with running_relayer(folder, model_dir, database_url=fresh_database.url) as relayer:
        account = relayer.command("account", "create", "--custody", "sealed")
    key_path = folder / "relayer.key"
    key_path.unlink()
    own = make_identity(key_path)
    take_over(key_path, [parse_public_key(account["relayer_key"])])
    with running_relayer(folder, model_dir, database_url=fresh_database.url) as relayer:
        values = {name: account[name] for name in ("account_id", "private_key", "relayer_key")}
        write_private(profile, values | {"url": relayer.url})
        assert main(["remember", "Tea.", "--profile", str(profile)], {}) == 1
        assert main(["trust", own.public_key.hex(), "--profile", str(profile)], {}) == 0
        assert main(["remember", "Tea.", "--profile", str(profile)], {}) == 0
        # It wrote on behind receipts that another key had signed: that stays visible.
        assert main(["verify", "--profile", str(profile)], {}) == 1
