"""`memrelay verify`: silent where everything holds; whatever a meddler changes, it names."""

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from memrelay import MemoryClient
from memrelay.cli import main
from memrelay.errors import NotAllowed, UntrustedRelayer
from memrelay.secure_files import write_private
from memrelay.trust_store import TrustState, TrustStore
from relayer.database.pool import Database
from relayer.identity import load_identity
from relayer.sealed.keys import AccountId, Identity
from relayer.sealed.receipts import (
    Checkpoint,
    chain_hash,
    open_receipt,
    sign_checkpoint,
    sign_receipt,
)
from tests.conftest import database_copy
from tests.processes import running_relayer

FLIP = "UPDATE {0} SET {1} = set_byte({1}, {2}, get_byte({1}, {2}) # 1) WHERE {3}"
BLOB = "blob_id = (SELECT blob_id FROM memories WHERE seq = 2)"
STRANGER = Identity(bytes(range(32)))
FIRST = ("accounts", "namespaces", "memories")  # others refer to them
LEFT_ALONE = "^(pgqueuer|alembic|nonce|request_windows|key_owner)"


class Scene:
    """A sealed account with something of everything, its owner's client, and its database."""

    def __init__(self, relayer, database, client, founded):
        self.relayer, self.database, self.client, self.founded = relayer, database, client, founded
        self.ids = {}

    @property
    def account(self):
        return AccountId(bytes.fromhex(self.founded.account_id[2:]))

    async def sql(self, statement, *arguments):
        return await self.database.fetch(statement, *arguments)

    async def findings(self, **options):
        async with self.another() as client:
            found = await client.verify(**options)
        assert found.ok == (not found.findings)
        return found.findings

    @asynccontextmanager
    async def another(self, private_key=None, seen=None):
        """A client that knows what the owner's has seen, in memory of its own."""
        async with MemoryClient.from_settings(
            replace(
                self.client.settings,
                private_key=private_key or self.client.settings.private_key,
                seen_path=None,
            )
        ) as client:
            client._session.trust_store.value = (
                self.client._session.trust_store.value if seen is None else seen
            )
            yield client

    async def fill(self):
        client = self.client
        first = await client.remember("Anna prefers tea.", tags=["drinks"])
        second = await client.remember("Ben sells cups.", namespace="shop")
        many = await client.remember_many(["The roof leaks.", "Carol paints."])
        await client.edit(first.id, text="Anna prefers coffee.")
        await client.pin(second.id)
        agent = await client.add_key(namespaces=["shop"], label="agent")
        doomed = await client.remember("Nobody needs this.")
        self.erased = await self.saved_memory(doomed.id)
        await client.forget(doomed.id)
        last = await client.remember("The last word.")
        await client.wait([first.id, second.id, last.id, *(one.id for one in many)])
        self.ids = {
            "first": first.id,
            "second": second.id,
            "third": many[0].id,
            "erased": doomed.id,
        }
        self.agent = agent.private_key

    async def saved_memory(self, memory_id):
        """A memory's row and blob as texts, to be put back behind the relayer's back."""
        [row] = await self.sql("SELECT m::text FROM memories m WHERE memory_id = $1", memory_id)
        [blob] = await self.sql(
            "SELECT b::text FROM blobs b JOIN memories m USING (account_id, blob_id)"
            " WHERE memory_id = $1",
            memory_id,
        )
        return row[0], blob[0]

    @asynccontextmanager
    async def tampered(self):
        """Whatever is done to the account's tables inside is taken back at the end."""
        found = await self.sql(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ $1"
            " AND relnamespace = 'public'::regnamespace",
            LEFT_ALONE,
        )
        tables = [*FIRST, *sorted({row[0] for row in found} - {*FIRST})]
        async with self.database.snapshot() as connection:  # the relayer may still be embedding
            saved = {
                table: [r[0] for r in await connection.fetch(f"SELECT t::text FROM {table} t")]
                for table in tables
            }
        try:
            yield
        finally:
            async with self.database.transaction() as connection:
                await connection.execute(f"TRUNCATE {', '.join(tables)}")
                for table, rows in saved.items():
                    await connection.execute(
                        f"INSERT INTO {table} SELECT (t::{table}).* FROM unnest($1::text[]) t",
                        rows,
                    )


@pytest_asyncio.fixture(scope="module")
async def scene(postgres, template, model_dir, tmp_path_factory):
    """One for all: what a test changes behind the relayer's back, it takes back."""
    folder = tmp_path_factory.mktemp("verify") / "data"
    async with database_copy(postgres, template) as copy:
        database = await Database.connect(copy.connect_args, connections=5)
        with running_relayer(folder, model_dir, database_url=copy.url) as relayer:
            founded = await MemoryClient.create_account(relayer.url, custody="sealed")
            async with MemoryClient(
                url=relayer.url,
                account_id=founded.account_id,
                private_key=founded.private_key,
                relayer_key=founded.relayer_key,
            ) as client:
                scene = Scene(relayer, database, client, founded)
                await scene.fill()
                yield scene
        await database.close()


def words(findings):
    return {finding.what for finding in findings}


# (what is done, the words that name it, whose id is named)
TAMPERING = {
    "receipt altered": (FLIP.format("receipts", "object", 80, "seq = 4"), {"chain"}, None),
    "receipt removed": ("DELETE FROM receipts WHERE seq = 4", {"chain"}, None),
    "receipts swapped": (
        "UPDATE receipts r SET object = o.object FROM receipts o"
        " WHERE r.seq IN (4, 5) AND o.seq IN (4, 5) AND r.seq <> o.seq",
        {"chain"},
        None,
    ),
    "receipt inserted": (
        "INSERT INTO receipts SELECT account_id, (SELECT max(seq) + 1 FROM receipts), object"
        " FROM receipts WHERE seq = 4",
        {"chain"},
        None,
    ),
    "newest receipt removed": (
        "DELETE FROM receipts WHERE seq = (SELECT max(seq) FROM receipts)",
        {"head", "rollback", "unnamed"},
        None,
    ),
    "head altered": (FLIP.format("accounts", "receipt_head", 0, "true"), {"head"}, None),
    "head set back": ("UPDATE accounts SET receipt_seq = receipt_seq - 1", {"head"}, None),
    "blob altered": (
        FLIP.format("blobs", "bytes", 300, BLOB),
        {"blob"},
        "second",
    ),
    "blob removed": (
        f"DELETE FROM blobs WHERE {BLOB}",
        {"blob"},
        "second",
    ),
    "blobs swapped": (
        "UPDATE memories m SET blob_id = o.blob_id FROM memories o"
        " WHERE m.seq IN (2, 3) AND o.seq IN (2, 3) AND m.seq <> o.seq",
        {"header", "receipt"},
        "second",
    ),
    "memory removed": ("DELETE FROM memories WHERE seq = 2", {"missing"}, "second"),
    "earlier revision removed": (
        "DELETE FROM memories WHERE revision_of IS NOT NULL", {"missing"}, "first",
    ),
    "earlier revision put back": (
        "UPDATE memories m SET blob_id = o.blob_id, revision = o.revision FROM memories o"
        " WHERE m.seq = 1 AND o.revision_of = m.memory_id",
        {"missing"},
        "first",
    ),
    "old text under the new number": (
        "UPDATE memories m SET blob_id = o.blob_id FROM memories o"
        " WHERE m.seq = 1 AND o.revision_of = m.memory_id",
        {"header", "receipt"},
        "first",
    ),
    "memory moved": (
        "UPDATE memories SET namespace_id = (SELECT namespace_id FROM namespaces"
        " WHERE name = 'shop') WHERE seq = 3",
        {"receipt"},
        "third",
    ),
    "epoch edited": (
        "UPDATE memories SET epoch = 2 WHERE seq = 2", {"header", "receipt"}, "second",
    ),
    "unpinned": ("UPDATE memories SET pinned = false WHERE seq = 2", {"state"}, "second"),
    "pinned": ("UPDATE memories SET pinned = true WHERE seq = 3", {"state"}, "third"),
    "superseded": (
        "UPDATE memories SET superseded_at = now() WHERE seq = 3", {"state"}, "third",
    ),
    "its own earlier revision": (
        "UPDATE memories SET revision_of = memory_id, superseded_at = now() WHERE seq = 3",
        {"state"},
        "third",
    ),
    "called a manual upload": (
        "UPDATE memories SET format = 'opaque' WHERE seq = 3", {"header"}, "third",
    ),
    "state object removed": (
        "DELETE FROM blobs WHERE blob_id = (SELECT state_blob FROM memories WHERE seq = 2)",
        {"state"},
        "second",
    ),
    "state object altered": (
        FLIP.format(
            "blobs", "bytes", 80, "blob_id = (SELECT state_blob FROM memories WHERE seq = 2)"
        ),
        {"state"},
        "second",
    ),
    "grant altered": (FLIP.format("grants", "object", 40, "serial = 2"), {"grants"}, None),
    "grant removed": ("DELETE FROM grants WHERE serial = 2", {"grants"}, None),
    "serial lowered": (
        "WITH gone AS (DELETE FROM grants WHERE serial = 2) UPDATE accounts SET grant_serial = 1",
        {"grants"},
        None,
    ),
}  # fmt: skip


async def test_what_holds_has_no_finding(scene):
    async with scene.another() as client:
        found = await client.verify(open_all=True)
    assert found.findings == ()
    assert found.ok
    assert found.unchecked == ()
    assert found.unproven == 0
    [row] = await scene.sql("SELECT receipt_seq, receipt_head FROM accounts")
    assert (found.seq, found.head) == (row["receipt_seq"], row["receipt_head"].hex())
    assert found.receipts == found.seq
    assert found.grants == 2
    rows = (await scene.sql("SELECT count(*) FROM memories"))[0][0]
    assert found.blobs == found.opened == rows >= 6


async def test_every_tampering_is_named(scene):
    """Each is taken back before the next, and then nothing is found."""
    for name, (statement, wanted, about) in TAMPERING.items():
        async with scene.tampered():
            await scene.sql(statement)
            findings = await scene.findings()
            assert wanted <= words(findings), (name, findings)
            if about is not None:
                told = {f.id for f in findings if f.what in wanted}
                assert scene.ids[about] in told, (name, findings)
            assert all(f.found for f in findings), name
        assert await scene.findings() == (), name


async def test_an_erased_memory_that_is_back_is_named(scene):
    row, blob = scene.erased
    async with scene.tampered():
        await scene.sql("INSERT INTO blobs SELECT ($1::text::blobs).*", blob)
        await scene.sql("INSERT INTO memories SELECT ($1::text::memories).*", row)
        [finding] = await scene.findings()
        assert (finding.what, finding.id) == ("erased", scene.ids["erased"])
    assert await scene.findings() == ()


async def test_a_memory_that_no_receipt_names_is_found(scene):
    async with scene.tampered():
        await scene.sql(
            "INSERT INTO memories SELECT (jsonb_populate_record(m, jsonb_build_object("
            "'memory_id', gen_random_uuid(), 'seq', 99, 'fingerprint', null))).*"
            " FROM memories m WHERE seq = 2"
        )
        findings = await scene.findings()
        assert words(findings) == {"unnamed", "header", "state"}


async def forged(scene, identity, *, change):
    """The account's chain once more, changed and signed anew from its beginning."""
    rows = await scene.sql("SELECT object FROM receipts ORDER BY seq")
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    made, head = [], bytes(32)
    for row in rows:
        receipt = change(replace(open_receipt(row["object"], own.public_key), previous=head))
        made.append(sign_receipt(identity, receipt))
        head = chain_hash(made[-1])
    return made, head


async def put(scene, made, head):
    account = scene.account
    await scene.sql("DELETE FROM receipts")
    await scene.sql(
        "INSERT INTO receipts SELECT $1, n, o FROM unnest($2::bytea[]) WITH ORDINALITY r (o, n)",
        account,
        made,
    )
    await scene.sql("UPDATE accounts SET receipt_seq = $1, receipt_head = $2", len(made), head)


async def test_a_chain_signed_anew_by_a_stranger_is_refused(scene):
    async with scene.tampered():
        await put(scene, *await forged(scene, STRANGER, change=lambda receipt: receipt))
        assert "chain" in words(await scene.findings())


def later(receipt):
    return replace(receipt, time_ms=receipt.time_ms + 1)


async def test_history_rewritten_with_the_relayers_own_key_is_a_fork_to_who_remembers(
    scene, tmp_path
):
    """Its signatures are good and its order is: only memory tells. So a checkpoint is worth
    keeping, and a client that knows nothing is helped by another one's.
    """
    async with scene.another() as client:
        kept = await client.checkpoint()
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    async with scene.tampered():
        await put(scene, *await forged(scene, own, change=later))
        [finding] = await scene.findings()
        assert finding.what == "fork"
        assert finding.seq == kept.seq
        async with scene.another(seen=TrustState()) as newcomer:
            assert (await newcomer.verify()).findings == ()
            [finding] = (await newcomer.verify(checkpoints=[kept.signed])).findings
            assert finding.what == "fork"
            assert "another one" in finding.found


async def test_a_history_that_ends_before_what_was_seen_is_a_rollback(scene):
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    async with scene.another() as client:
        kept = await client.checkpoint()
    async with scene.tampered():
        made, _ = await forged(scene, own, change=lambda receipt: receipt)
        await put(scene, made[:-1], chain_hash(made[-2]))
        await scene.sql("DELETE FROM memories WHERE seq = (SELECT max(seq) FROM memories)")
        findings = await scene.findings(checkpoints=[kept.signed])
        assert words(findings) == {"rollback"}
        assert {f.seq for f in findings} == {kept.seq}


async def test_two_checkpoints_that_contradict_each_other_prove_a_fork(scene):
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    async with scene.another() as client:
        true = await client.checkpoint()
    lie = sign_checkpoint(
        own,
        Checkpoint(scene.account, true.seq, bytes(32), true.grant_serial, true.time_ms),
    )
    findings = await scene.findings(checkpoints=[true.signed, lie])
    assert words(findings) == {"fork"}
    assert any("signed two histories" in f.found for f in findings)


@pytest.mark.parametrize("signer", ["stranger", "other account"])
async def test_a_checkpoint_that_is_not_the_relayers_or_not_ours_is_named(scene, signer):
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    account = scene.account if signer == "stranger" else AccountId(bytes(32))
    identity = STRANGER if signer == "stranger" else own
    alien = sign_checkpoint(identity, Checkpoint(account, 1, bytes(32), 1, 1))
    [finding] = await scene.findings(checkpoints=[alien])
    assert finding.what == "checkpoint"


async def test_since_a_checkpoint_only_the_later_history_is_followed(scene):
    async with scene.another() as client:
        kept = await client.checkpoint()
        new = await client.remember("Said after the checkpoint.")
        found = await client.verify(since=kept.signed)
        assert found.findings == ()
        assert found.receipts == 1
        assert found.unproven == found.blobs - 1 > 0
        async with scene.tampered():
            await scene.sql("DELETE FROM memories WHERE memory_id = $1", new.id)
            [finding] = (await client.verify(since=kept.signed)).findings
            assert (finding.what, finding.id) == ("missing", new.id)


async def test_the_checkpoint_to_begin_at_is_held_against_what_was_seen(scene):
    own = load_identity(scene.relayer.data_dir / "relayer.key")
    async with scene.another() as client:
        kept = await client.checkpoint()
        alike = Checkpoint(scene.account, kept.seq, bytes(32), kept.grant_serial, kept.time_ms)
        found = await client.verify(since=sign_checkpoint(own, alike), checkpoints=[kept.signed])
        assert "fork" in words(found.findings)
        assert any("a checkpoint" in f.expected and f.seq == kept.seq for f in found.findings)


async def test_a_key_of_one_namespace_checks_that_and_says_what_it_cannot_see(scene):
    async with scene.another(scene.agent, TrustState()) as agent:
        found = await agent.verify(open_all=True)
        assert found.ok
        assert found.unchecked == ("receipts", "grants")
        assert (found.blobs, found.opened, found.receipts) == (1, 1, 0)
        with pytest.raises(NotAllowed):
            await agent.checkpoint()
        with pytest.raises(NotAllowed):
            await agent.verify(namespaces=["default"])
        async with scene.tampered():
            await scene.sql(
                "UPDATE memories m SET blob_id = o.blob_id FROM memories o"
                " WHERE m.seq = 2 AND o.seq = 3"
            )
            findings = (await agent.verify()).findings
            # The other blob belongs to a namespace that this key has no business with.
            assert [(f.what, f.id) for f in findings] == [("header", scene.ids["second"])]


async def test_a_reader_of_the_whole_account_says_that_it_does_not_see_every_grant(shared_relayer):
    founded = await MemoryClient.create_account(shared_relayer.url, custody="sealed")
    access = {"url": shared_relayer.url, "account_id": founded.account_id}
    async with MemoryClient(**access, private_key=founded.private_key) as owner:
        reader = await owner.add_key(namespaces=None, role="reader")
        assert (await owner.verify()).unchecked == ()
    async with MemoryClient(**access, private_key=reader.private_key) as reading:
        found = await reading.verify()
        assert (found.findings, found.unchecked) == ((), ("grants",))
        assert found.receipts == found.seq > 0


async def test_only_the_namespaces_asked_for_are_looked_at(scene):
    async with scene.tampered():
        await scene.sql("DELETE FROM memories WHERE seq = 2")
        assert words(await scene.findings(namespaces=["shop"])) == {"missing"}
        assert await scene.findings(namespaces=["default"]) == ()


async def test_what_opens_under_another_name_is_no_memory_of_ours(scene):
    """Only `--open` sees inside: a sound envelope in a row whose key is another namespace's."""
    async with scene.tampered():
        await scene.sql("UPDATE namespaces SET name = 'shed' WHERE name = 'shop'")
        findings = await scene.findings(open_all=True)
        assert "sealed" in words(findings)


async def test_writers_meanwhile_are_no_finding(scene):
    """Written, edited and erased between the parts of the check, which looks again."""
    async with scene.another() as client, scene.another() as busy:
        done: list[Any] = []
        has_run = False

        def meddle(what, number):
            done.append(what)

        kept = [await busy.remember(f"Note {n}.") for n in range(3)]
        original = client._operations.inventory_page

        def between(names, cursor):
            nonlocal has_run
            if len(done) < 40 and not has_run:
                has_run = True
                yield from interfere(client, busy, kept)
            return (yield from original(names, cursor))

        client._operations.inventory_page = between
        found = await client.verify(progress=meddle)
        assert found.findings == ()
        assert has_run


def interfere(client, busy, kept):
    """Another client's writes, run as steps of the one that verifies: the account is the same."""
    operations = client._operations
    yield from operations.forget(kept[0].id)
    yield from operations.edit(kept[1].id, text="Note one, corrected.")
    yield from operations.remember("Something new.")


# The command


@pytest.fixture
def profile(scene, tmp_path):
    path = tmp_path / "profile.json"
    write_private(path, scene.client.settings.profile())
    return str(path)


async def test_the_command_exits_0_only_when_everything_holds(scene, profile, capsys):
    assert main(["verify", "--profile", profile, "--json", "--open"], {}) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"]
    assert shown["findings"] == []
    assert main(["verify", "--profile", profile], {}) == 0
    assert "everything holds" in capsys.readouterr().out
    async with scene.tampered():
        await scene.sql("DELETE FROM memories WHERE seq = 2")
        assert main(["verify", "--profile", profile, "--json"], {}) == 1
        told = capsys.readouterr()
        [finding] = json.loads(told.out)["findings"]
        assert (finding["what"], finding["id"]) == ("missing", scene.ids["second"])
        assert "One thing does not hold." in told.err
        assert main(["verify", "--profile", profile], {}) == 1
        assert f"missing: {scene.ids['second']}" in capsys.readouterr().out


async def test_a_checkpoint_file_is_written_once_and_compared(scene, profile, tmp_path, capsys):
    file = tmp_path / "point.json"
    assert main(["checkpoint", str(file), "--profile", profile, "--json"], {}) == 0
    shown = json.loads(capsys.readouterr().out)
    [row] = await scene.sql("SELECT receipt_seq, receipt_head FROM accounts")
    assert (shown["seq"], shown["head"]) == (row["receipt_seq"], row["receipt_head"].hex())
    assert shown["relayer_key"] == scene.founded.relayer_key
    assert main(["checkpoint", str(file), "--profile", profile], {}) == 2
    assert main(["verify", "--profile", profile, "--checkpoint", str(file)], {}) == 0
    assert main(["verify", "--profile", profile, "--since-checkpoint", str(file)], {}) == 0
    file.write_text(json.dumps({"checkpoint": "?"}))
    assert main(["verify", "--profile", profile, "--checkpoint", str(file)], {}) == 2
    assert "no checkpoint" in capsys.readouterr().err


async def test_a_clean_verification_is_remembered(scene, profile, tmp_path, capsys):
    assert main(["verify", "--profile", profile], {}) == 0
    [row] = await scene.sql("SELECT receipt_seq, receipt_head FROM accounts")
    [seen] = tmp_path.glob("profile.*.seen.json")
    value = TrustStore(seen).value
    assert (value.checked_seq, value.checked_head) == (
        row["receipt_seq"],
        row["receipt_head"].hex(),
    )


async def test_another_relayer_is_not_verified_at_all(scene):
    async with MemoryClient.from_settings(
        replace(scene.client.settings, relayer_key=STRANGER.public_key.hex())
    ) as client:
        with pytest.raises(UntrustedRelayer, match="pinned"):
            await client.verify()
