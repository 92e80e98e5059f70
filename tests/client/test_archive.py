"""Moving an account between two real relayers, through an archive."""

import base64
import json
import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from memrelay import SyncMemoryClient
from memrelay.archived import Archive, import_archive, open_archive, opened_memories
from memrelay.archiving import _READ, Losses, export_archive
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.config import Settings
from memrelay.errors import ConfigError, Invalid, NotAuthenticated, NotGranted, UntrustedRelayer
from memrelay.models import Draft
from memrelay.sealed.archive import (
    CHUNK_BYTES_MAX,
    ChunkKey,
    Record,
    open_box,
    opened_chunks,
    read_head,
    read_records,
    write_record,
)
from memrelay.sealed.keys import Identity, account_bytes
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import database_copy
from tests.processes import RunningRelayer, running_relayer

ROW = {"record": "memory", "id": "a", "revision_of": "b", "blob_id": "n", "blob": None}
MAY_BE_NULL = {"succession", "revision_of", "blob", "superseded_at", "review", "expires_at"}
STONE = "01234567-89ab-7def-8123-456789abcdef"
FORMER = {  # a turn's id from before they were random; its tombstone has another
    "record": "episode", "id": "01234567-89ab-8def-8123-456789abcdef", "blob_id": "t", "blob": None,
}  # fmt: skip
LATER = "76543210-89ab-7def-8123-456789abcdef"
TEXTS = ["Anna prefers green tea.", "Ben sells cups in Bremen.", "The kettle is broken."]


@pytest_asyncio.fixture(scope="module")
async def other_relayer(
    postgres: EmbeddedPostgres,
    template: str,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RunningRelayer]:
    """A second relayer with a key and a database of its own."""
    folder = tmp_path_factory.mktemp("other") / "data"
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder, model_dir, database_url=copy.url) as process:
            yield process


@dataclass
class Scene:
    """An account at one relayer, and how its clients reach the other."""

    here: RunningRelayer
    there: RunningRelayer
    founder: Identity
    account_id: str
    folder: Path

    def client(self, identity: Identity, *, at: RunningRelayer | None = None) -> SyncMemoryClient:
        return SyncMemoryClient(
            url=(at or self.here).url,
            account_id=self.account_id,
            private_key=identity.seed_hex(),
            namespace="team",
        )

    def profile(self, at: RunningRelayer | None = None, name: str = "profile") -> str:
        path = self.folder / f"{name}.json"
        path.write_text(
            json.dumps(
                {
                    "url": (at or self.here).url,
                    "account_id": self.account_id,
                    "private_key": self.founder.seed_hex(),
                    "namespace": "team",
                }
            )
        )
        path.chmod(0o600)
        return str(path)

    def run(self, *argv: str) -> int:
        return main([*argv, "--profile", self.profile()], {})

    @property
    def archive(self) -> Path:
        return self.folder / "anna.archive"


@pytest.fixture
def found(
    shared_relayer: RunningRelayer, other_relayer: RunningRelayer, tmp_path: Path
) -> Callable[[str], Scene]:
    def make(custody: str = "sealed") -> Scene:
        founder = Identity.generate()
        account = SyncMemoryClient.create_account(
            shared_relayer.url, custody=custody, identity=founder, label="anna"
        )
        return Scene(shared_relayer, other_relayer, founder, account.account_id, tmp_path)

    return make


def quiet(_: int) -> None:
    """No progress."""


def exported(scene: Scene) -> dict[str, int]:
    with scene.client(scene.founder) as client:
        return export_archive(client, scene.archive, quiet)


def test_everything_arrives_and_is_found_as_before(found: Callable[[str], Scene]) -> None:
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        ids = [m.id for m in client.remember_many(TEXTS)]
        client.wait(ids, timeout_s=60)
        before = client.recall("What does Anna drink?")
    counts = exported(scene)
    assert (counts["memory"], counts["grant"]) == (3, 1)
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    with scene.client(scene.founder, at=scene.there) as client:
        tally = import_archive(client, archive, quiet)
        assert tally == {"imported": 3}
        after = client.recall("What does Anna drink?")
        assert [(m.id, m.score) for m in after.results] == [(m.id, m.score) for m in before.results]
        again = import_archive(client, archive, quiet)
        assert again == {"unchanged": 3}


def test_each_key_finds_what_it_found_and_no_other_does(found: Callable[[str], Scene]) -> None:
    """An account moves between relayers that never see a key or a word of it."""
    scene = found("sealed")
    agent = Identity.generate()
    with scene.client(scene.founder) as client:
        client.add_key(namespaces=["team"], identity=agent, label="agent")
        client.remember_many([*TEXTS, Draft(text="Elsewhere.", namespace="other")])
        client.edit(client.remember("The kettle is old.").id, text="The kettle is new.")
    exported(scene)
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    sent: list[httpx.Request] = []

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return super().handle_request(request)

    with SyncMemoryClient(
        url=scene.there.url,
        account_id=scene.account_id,
        private_key=scene.founder.seed_hex(),
        transport=Watched(),
    ) as client:
        import_archive(client, archive, quiet)
    assert len(sent) > 4
    assert not any("x-memrelay-unlock" in request.headers for request in sent)
    assert not any(text.encode() in request.content for request in sent for text in TEXTS)
    with scene.client(agent, at=scene.there) as client:
        assert client.recall("kettle", mode="keyword").results[0].text == "The kettle is new."
        [new] = [m for m in client.list().memories if m.text == "The kettle is new."]
        assert [m.text for m in client.history(new.id).revisions] == [
            "The kettle is new.",
            "The kettle is old.",
        ]
        with pytest.raises(NotGranted):
            client.recall("anything", namespace="other")
    with (
        scene.client(Identity.generate(), at=scene.there) as client,
        pytest.raises(NotAuthenticated),
    ):
        client.recall("kettle")


def test_export_goes_on_where_it_broke_off(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        ids = [m.id for m in client.remember_many([*TEXTS, *(f"Note {n}." for n in range(150))])]
    part = scene.archive.with_name(f"{scene.archive.name}.part")
    asked: list[str] = []

    def breaking(client: SyncMemoryClient, page: str, **more: object) -> object:
        asked.append(f"{page}{more}")
        if len(asked) == 3:
            raise KeyboardInterrupt
        return whole(client, page, **more)

    whole = SyncMemoryClient.export_page
    monkeypatch.setattr(SyncMemoryClient, "export_page", breaking)
    with pytest.raises(KeyboardInterrupt):
        exported(scene)
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    assert not scene.archive.exists()
    with part.open("ab") as file:
        file.write(b"\0\0\1\0half a chunk")
    monkeypatch.undo()
    # What changes in between is in it as it is now; what is erased is not.
    with scene.client(scene.founder) as client:
        client.edit(ids[0], text="Anna prefers coffee.")
        client.forget(ids[1])
    exported(scene)
    assert not part.exists()
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    texts = {m.text for m in opened_memories(archive, scene.founder, 2**43)}
    assert len(texts) == 152
    assert "Anna prefers coffee." in texts
    assert not texts & {TEXTS[0], TEXTS[1]}


def test_a_history_that_the_relayer_does_not_stand_for_is_no_archive(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = found("sealed")
    whole = SyncMemoryClient.export_page

    def forging(client: SyncMemoryClient, page: str, **more: object) -> object:
        records, following = whole(client, page, **more)
        if page == "receipts":
            records = [{**one, "object": alien(one["object"])} for one in records]
        return records, following

    def alien(signed: str) -> str:
        return base64.b64encode(base64.b64decode(signed)[:-64] + bytes(64)).decode()

    monkeypatch.setattr(SyncMemoryClient, "export_page", forging)
    with pytest.raises(UntrustedRelayer, match="signature"):
        exported(scene)
    assert not scene.archive.exists()


def test_what_was_edited_since_comes_with_a_later_archive(found: Callable[[str], Scene]) -> None:
    scene = found("sealed")
    account = account_bytes(scene.account_id)
    with scene.client(scene.founder) as client:
        edited, other = [m.id for m in client.remember_many(TEXTS[:2])]
    exported(scene)
    with scene.client(scene.founder, at=scene.there) as there:
        import_archive(there, open_archive(scene.archive, scene.founder, account), quiet)
        with scene.client(scene.founder) as client:
            client.edit(edited, text="Anna prefers black tea.")
        scene.archive.unlink()
        exported(scene)
        archive = open_archive(scene.archive, scene.founder, account)
        assert import_archive(there, archive, quiet) == {"imported": 1, "unchanged": 2}
        assert there.get(edited).text == "Anna prefers black tea."
        assert there.get(edited, revision=1).text == TEXTS[0]
        assert import_archive(there, archive, quiet) == {"unchanged": 3}
        # What was edited here stays as it is here.
        there.edit(other, text="Ben sells bowls.")
        with scene.client(scene.founder) as client:
            client.edit(other, text="Ben sells plates.")
            client.edit(other, text="Ben sells spoons.")
        scene.archive.unlink()
        exported(scene)
        archive = open_archive(scene.archive, scene.founder, account)
        assert import_archive(there, archive, quiet)["differs"] > 0
        assert there.get(other).text == "Ben sells bowls."


def test_an_import_goes_on_where_it_broke_off(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its requests, before or behind it; nothing doubles, and nothing erased returns."""
    monkeypatch.setattr("memrelay.archived._PAGE_ITEMS_MAX", 4)
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        ids = [m.id for m in client.remember_many([f"Note {n}." for n in range(9)])]
        client.edit(ids[0], text="Note of today.")
        client.forget(ids[1])
    exported(scene)
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    whole, sent, breaks = SyncMemoryClient.import_page, 0, (0, "")

    def breaking(client: SyncMemoryClient, page: Record) -> object:
        nonlocal sent
        sent += 1
        if breaks == (sent, "before"):
            raise KeyboardInterrupt
        answer = whole(client, page)
        if breaks == (sent, "behind"):
            raise KeyboardInterrupt
        return answer

    with scene.client(scene.founder, at=scene.there) as there:
        with monkeypatch.context() as patch:
            patch.setattr(SyncMemoryClient, "import_page", breaking)
            for place in product(range(1, 8), ("before", "behind")):
                sent, breaks = 0, place
                with pytest.raises(KeyboardInterrupt):
                    import_archive(there, archive, quiet)
        there.forget(ids[2])
        tally = import_archive(there, archive, quiet)
        assert (tally["erased"], tally["unchanged"] + tally["imported"]) == (1, 8)
        assert import_archive(there, archive, quiet) == {"erased": 1, "unchanged": 8}
        memories = there.list(limit=100).memories
        assert sorted(m.text for m in memories) == sorted(
            ["Note of today.", *(f"Note {n}." for n in range(3, 9))]
        )
        history = there.history(ids[0]).revisions
        assert [m.text for m in history] == ["Note of today.", "Note 0."]


def test_a_memory_of_the_largest_size_goes_through_several_chunks(
    found: Callable[[str], Scene],
) -> None:
    scene = found("sealed")
    # Spaces of two bytes each, of which nothing is embedded for minutes in both relayers.
    text = "é" + "\N{NO-BREAK SPACE}" * (2**19 - 10) + " in Bremen. 123456"
    assert len(text.encode()) == 2**20
    with scene.client(scene.founder) as client:
        large = client.remember(text).id
        client.remember_many(TEXTS)
    assert exported(scene)["memory"] == 4
    assert scene.archive.stat().st_size > CHUNK_BYTES_MAX
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    with scene.client(scene.founder, at=scene.there) as there:
        assert import_archive(there, archive, quiet) == {"imported": 4}
        assert there.get(large).text == text
        assert there.recall("Bremen", mode="keyword").results


def again(scene: Scene, change: Callable[[list[Record]], None]) -> None:
    """Seal the archive once more, with other records."""
    with scene.archive.open("rb") as file:
        header = read_head(file)
        key = ChunkKey(header.archive, open_box(header, scene.founder))
        head = scene.archive.read_bytes()[: file.tell()]
        records = list(read_records(opened_chunks(file, key)))
    change(records)
    counts = Counter(r["record"] for r in records if r["record"] not in {"mark", "end"})
    records[-1] = {"record": "end", "counts": dict(counts)}
    plain = b"".join(write_record(record) for record in records)
    parts = [plain[at : at + CHUNK_BYTES_MAX] for at in range(0, len(plain), CHUNK_BYTES_MAX)]
    sealed = [key.seal(n, p, last=n == len(parts) - 1) for n, p in enumerate(parts)]
    scene.archive.write_bytes(head + b"".join(sealed))


class TestEvidence:
    """Receipts inside an archive, altered by somebody who has its key."""

    @pytest.fixture
    def scene(self, found: Callable[[str], Scene]) -> Scene:
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            client.remember_many(TEXTS)
            client.forget(client.remember("Nobody needs this.").id)
        exported(scene)
        return scene

    def test_sealed_once_more_it_still_holds(self, scene: Scene) -> None:
        again(scene, lambda records: None)
        archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        assert archive.counts["receipt"] > 2

    def test_invented_key_ids_shut_no_namespace(self, scene: Scene) -> None:
        def change(records: list[Record]) -> None:
            [namespace] = [r for r in records if r["record"] == "namespace"]
            invented = {"keys": [{"epoch": 1, "key_id": "ab" * 32}]}
            at = records.index(namespace)
            records[at:at] = [namespace | invented | {"name": name} for name in ("team", "plans")]
            records.remove(namespace)

        again(scene, change)
        archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        with scene.client(scene.founder, at=scene.there) as there:
            assert import_archive(there, archive, quiet) == {"refused": len(TEXTS)}
            for namespace in ("team", "plans"):
                assert there.remember("Anna plans a trip.", namespace=namespace).id

    @pytest.mark.parametrize(
        ("defect", "said"),
        [
            ("altered", "A receipt"),
            ("left out", "break after number 1"),
            ("first", "break after number 0"),
            ("newest", "newest receipts are missing"),
            ("renumbered", "stands in another one's place"),
            ("another relayer", "names two relayers"),
        ],
    )
    def test_what_does_not_hold_is_named(
        self, scene: Scene, defect: str, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def change(records: list[Record]) -> None:
            receipts = [n for n, r in enumerate(records) if r["record"] == "receipt"]
            if defect == "altered":
                data = bytearray(base64.b64decode(records[receipts[1]]["object"]))
                data[-1] ^= 1
                records[receipts[1]]["object"] = base64.b64encode(data).decode()
            elif defect == "renumbered":
                records[receipts[1]]["seq"] = 7
            elif defect == "another relayer":
                records[0]["relayer"] = "ab" * 32
            else:
                del records[
                    {"left out": receipts[1], "first": receipts[0]}.get(defect, receipts[-1])
                ]

        again(scene, change)
        with pytest.raises(Invalid, match=said):
            open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        assert scene.run("import", str(scene.archive), "--dry-run") == EXIT_FAILED
        assert said in capsys.readouterr().err

    def test_a_record_without_what_it_has_to_have(self, scene: Scene) -> None:
        """Whatever a relayer wrote for its owner, reading it ends with a word."""
        whole = scene.archive.read_bytes()
        read = [(kind, name) for kind, names in _READ.items() for name in sorted(names)]
        for kind, name in read:
            for value in (7.5, None, ...):  # nothing at all stands there
                if kind in {"episode", "end"} or (value is None and name in MAY_BE_NULL):
                    continue
                scene.archive.write_bytes(whole)
                again(scene, partial(_give, kind, name, value))
                with pytest.raises(Invalid) as refusal:
                    open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
                assert refusal.value.code == "record", (kind, name, value)


def _give(kind: str, name: str, value: object, records: list[Record]) -> None:
    record = next(r for r in records if r["record"] == kind)
    record.pop(name)
    record |= {} if value is ... else {name: value}


class TestRowsThatDoNotCount:
    """A relayer loses a blob; a turn is erased while an export goes on."""

    def test_what_is_lost_is_counted(
        self, found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """With its earlier revision, which nobody could erase without it."""
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            lost = client.remember_many(TEXTS)[0].id
            client.edit(lost, text="Anna prefers black tea.")
        exported(scene)

        def change(records: list[Record]) -> None:
            [row] = [r for r in records if r["record"] == "memory" and r["id"] == lost]
            row["blob"] = None

        again(scene, change)
        command = ("import", str(scene.archive), "--url", scene.there.url, "--json")
        assert scene.run(*command) == EXIT_FAILED
        told = json.loads(capsys.readouterr().out)
        assert (told["imported"], told["refused"], told["lost"]) == (2, 1, 1)

    def test_a_turn_that_a_tombstone_names(self, found: Callable[[str], Scene]) -> None:
        scene = found("managed")
        with scene.client(scene.founder) as client:
            client.change_settings(keep_turns=True)
            client.analyze("Anna lives in Bremen. She drinks tea.")
        exported(scene)
        account = account_bytes(scene.account_id)
        [turn] = self.turns(open_archive(scene.archive, scene.founder, account))

        def change(records: list[Record]) -> None:
            stone = {"id": turn["id"], "namespace": "team", "blob_ids": [turn["blob_id"]]}
            stone |= {"record": "tombstone", "erased_at": turn["created_at"]}
            records.insert(-1, stone)

        again(scene, change)
        assert self.turns(open_archive(scene.archive, scene.founder, account)) == []

    @pytest.mark.parametrize("former", [True, False])
    def test_a_turn_with_a_former_name_is_known_by_its_blob(
        self, found: Callable[[str], Scene], former: bool
    ) -> None:
        """Erased while the export went on: the tombstone that comes last has another id."""
        scene = found("managed")
        with scene.client(scene.founder) as client:
            client.change_settings(keep_turns=True)
            client.analyze("Anna lives in Bremen. She drinks tea.")
        exported(scene)
        account = account_bytes(scene.account_id)

        def change(records: list[Record]) -> None:
            [turn] = [r for r in records if r["record"] == "episode"]
            turn["id"] = FORMER["id"] if former else LATER
            stone = {"id": STONE, "namespace": "team", "blob_ids": [turn["blob_id"]]}
            stone |= {"record": "tombstone", "erased_at": turn["created_at"]}
            records.insert(-1, stone)

        again(scene, change)
        archive = open_archive(scene.archive, scene.founder, account)
        assert len(self.turns(archive)) == (not former)

    def turns(self, archive: Archive) -> list[Record]:
        return [row for row in archive.rows() if row["record"] == "episode"]

    @pytest.mark.parametrize(
        ("later", "number"),
        [
            ([], 1),
            ([ROW | {"blob": "AA=="}], 0),
            ([ROW], 1),
            ([{"record": "tombstone", "id": ROW["id"], "blob_ids": []}], 0),
            ([{"record": "tombstone", "id": ROW["revision_of"], "blob_ids": []}], 0),
            ([{"record": "tombstone", "id": STONE, "blob_ids": [ROW["blob_id"]]}], 1),
            ([FORMER, {"record": "tombstone", "id": STONE, "blob_ids": []}], 2),
            ([FORMER, {"record": "tombstone", "id": STONE, "blob_ids": ["t"]}], 1),
            ([FORMER | {"id": LATER}, {"record": "tombstone", "id": STONE, "blob_ids": ["t"]}], 2),
        ],
    )
    def test_which_rows_are_lost(self, later: list[Record], number: int) -> None:
        losses = Losses()
        for record in [ROW, ROW | {"id": "whole", "blob": "AA=="}, *later]:
            losses.take(record)
        assert len(losses) == number


class TestRefused:
    @pytest.fixture
    def scene(self, found: Callable[[str], Scene]) -> Scene:
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            client.remember_many(TEXTS)
        exported(scene)
        return scene

    @pytest.mark.parametrize("cut", [1, 30, -20, -1])
    def test_a_cut_file(self, scene: Scene, cut: int) -> None:
        data = scene.archive.read_bytes()
        scene.archive.write_bytes(data[:cut])
        with pytest.raises(Invalid) as caught:
            open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        assert caught.value.code in {"archive", "length"}

    def test_an_altered_byte(self, scene: Scene) -> None:
        data = bytearray(scene.archive.read_bytes())
        data[-100] ^= 1
        scene.archive.write_bytes(data)
        with pytest.raises(Invalid) as caught:
            open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        assert caught.value.code == "aead"

    def test_another_account_and_another_key(self, scene: Scene) -> None:
        with pytest.raises(Invalid) as caught:
            open_archive(scene.archive, scene.founder, bytes(32))
        assert caught.value.code == "account"
        stranger = Identity.generate()
        with pytest.raises(Invalid) as caught:
            open_archive(scene.archive, stranger, account_bytes(scene.account_id))
        assert caught.value.code == "recipient"

    def test_only_an_owner_exports(self, scene: Scene) -> None:
        agent = Identity.generate()
        with scene.client(scene.founder) as client:
            client.add_key(namespaces=["team"], identity=agent)
        with scene.client(agent) as client, pytest.raises(NotGranted):
            export_archive(client, scene.folder / "agents.archive", quiet)

    def test_one_export_writes_a_file(self, scene: Scene) -> None:
        path = scene.folder / "once.archive"
        with scene.client(scene.founder) as client, scene.client(scene.founder) as other:

            def begin_another(count: int) -> None:
                with pytest.raises(ConfigError, match="Another export"):
                    export_archive(other, path, quiet)

            counts = export_archive(client, path, begin_another)
            assert export_archive(other, path, quiet) == counts

    def test_a_beginning_of_something_else_is_kept(self, scene: Scene) -> None:
        part = scene.archive.with_name(f"{scene.archive.name}.part")
        part.write_bytes(b"notes of mine")
        with pytest.raises(ConfigError):
            exported(scene)
        assert part.read_bytes() == b"notes of mine"

    def test_an_owner_who_is_not_the_founder_comes_second(self, scene: Scene) -> None:
        owner = Identity.generate()
        with scene.client(scene.founder) as client:
            client.add_key(namespaces=None, role="owner", identity=owner)
        exported(scene)
        archive = open_archive(scene.archive, owner, account_bytes(scene.account_id))
        with scene.client(owner, at=scene.there) as client, pytest.raises(NotGranted):
            import_archive(client, archive, quiet)
        with scene.client(scene.founder, at=scene.there) as client:
            import_archive(client, archive, quiet)
        with scene.client(owner, at=scene.there) as client:
            assert import_archive(client, archive, quiet) == {"unchanged": 3}


def test_the_commands(found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]) -> None:
    scene = found("managed")
    with scene.client(scene.founder) as client:
        client.remember_many(TEXTS)
    assert scene.run("export", str(scene.archive), "--json") == EXIT_OK
    assert json.loads(capsys.readouterr().out)["counts"]["memory"] == 3
    assert stat.S_IMODE(os.stat(scene.archive).st_mode) == 0o600
    lines = scene.folder / "clear.jsonl"
    clear = ("--from-archive", str(scene.archive), "--format", "jsonl", "--out", str(lines))
    assert scene.run("export", *clear) == EXIT_OK
    assert {json.loads(line)["text"] for line in lines.read_text().splitlines()} == set(TEXTS)
    capsys.readouterr()
    assert scene.run("import", str(scene.archive), "--dry-run", "--json") == EXIT_OK
    assert json.loads(capsys.readouterr().out)["counts"]["memory"] == 3
    there = scene.folder / "there.json"
    move = ("--url", scene.there.url, "--managed", "--save", str(there), "--json")
    assert scene.run("import", str(scene.archive), *move) == EXIT_OK
    moved = json.loads(capsys.readouterr().out)
    assert (moved["imported"], moved["custody"], moved["url"]) == (3, "managed", scene.there.url)
    assert main(["recall", "tea", "--json", "--profile", str(there)], {}) == EXIT_OK
    assert "green tea" in capsys.readouterr().out
    assert Settings.load(there, environ={}).relayer_key == moved["relayer_key"]
    assert scene.run("import", str(scene.archive), *move[:-1]) == EXIT_OK
    out, err = capsys.readouterr()
    assert f"the profile for it is {there}" in out
    assert "agents" not in err
    assert scene.run("export", str(scene.archive), "--format", "jsonl") == EXIT_USAGE
    assert scene.run("import", str(lines), "--managed") == EXIT_USAGE
    scene.archive.write_bytes(scene.archive.read_bytes()[:-1])
    assert scene.run("import", str(scene.archive)) in (EXIT_FAILED, EXIT_USAGE)


def test_a_profile_that_moves_along_follows_the_history_there(
    found: Callable[[str], Scene], caplog: pytest.LogCaptureFixture
) -> None:
    scene = found("sealed")
    profile = scene.profile()
    archive = str(scene.archive)
    for argv in (
        ("remember", TEXTS[0]),
        ("receipts",),
        ("export", archive),
        ("import", archive, "--url", scene.there.url, "--save", profile),
        ("remember", TEXTS[1]),
        ("receipts",),
        ("verify",),
    ):
        assert main([*argv, "--profile", profile], {}) == EXIT_OK, argv
    assert caplog.messages == []


def test_agents_stay_until_their_keys_are_replaced(
    found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    scene = found("sealed")
    assert scene.run("agents", "provision", "coder") == EXIT_OK
    assert scene.run("remember", TEXTS[0], "--agent", "coder") == EXIT_OK
    assert scene.run("export", str(scene.archive)) == EXIT_OK
    there = scene.folder / "there.json"
    move = ("--url", scene.there.url, "--save", str(there))
    capsys.readouterr()
    assert scene.run("import", str(scene.archive), *move) == EXIT_OK
    out, err = capsys.readouterr()
    assert f"the profile for it is {there}" in out
    assert f"The agents' profiles in {scene.folder / 'agents'} still name" in err
    assert f"memrelay agents rotate NAME --profile {there}" in err
    owner = ["--profile", str(there)]
    assert main(["agents", "rotate", "coder", *owner], {}) == EXIT_OK
    capsys.readouterr()
    assert main(["recall", "tea", "--agent", "coder", *owner], {}) == EXIT_OK
    assert TEXTS[0] in capsys.readouterr().out
    assert main(["status", "--agent", "coder", *owner], {}) == EXIT_OK
    assert scene.there.url in capsys.readouterr().out
