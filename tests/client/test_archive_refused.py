"""What in an archive does not hold, which of its rows do not count, and what is no archive."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.archive_reader import Archive, import_archive, open_archive
from memrelay.archive_writer import _READ, Losses, export_archive
from memrelay.cli import EXIT_FAILED
from memrelay.errors import ConfigError, Invalid, NotGranted, UntrustedRelayer
from memrelay.sealed.archive import (
    CHUNK_BYTES_MAX,
    ChunkKey,
    Record,
    new_header,
    open_box,
    open_chunks,
    read_head,
    read_records,
    write_head,
    write_record,
)
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.keys import Identity, Root, account_bytes, hash_256
from tests import hostile
from tests.client.archive_scene import TEXTS, Scene, exported, found, other_relayer, quiet

__all__ = ["found", "other_relayer"]  # fixtures

ROW = {"record": "memory", "id": "a", "revision_of": "b", "blob_id": "n", "blob": None}
MAY_BE_NULL = {"succession", "revision_of", "blob", "superseded_at", "review", "expires_at"}
STONE = "01234567-89ab-7def-8123-456789abcdef"
FORMER = {  # a turn's id from before they were random; its tombstone has another
    "record": "episode", "id": "01234567-89ab-8def-8123-456789abcdef", "blob_id": "t", "blob": None,
}  # fmt: skip
LATER = "76543210-89ab-7def-8123-456789abcdef"


def again(scene: Scene, change: Callable[[list[Record]], None]) -> None:
    """Seal the archive once more, with other records."""
    with scene.archive.open("rb") as file:
        header = read_head(file)
        key = ChunkKey(header.archive, open_box(header, scene.founder))
        head = scene.archive.read_bytes()[: file.tell()]
        records = list(read_records(open_chunks(file, key)))
    change(records)
    counts = Counter(r["record"] for r in records if r["record"] not in {"mark", "end"})
    records[-1] = {"record": "end", "counts": dict(counts)}
    plain = b"".join(write_record(record) for record in records)
    parts = [plain[at : at + CHUNK_BYTES_MAX] for at in range(0, len(plain), CHUNK_BYTES_MAX)]
    sealed = [key.seal(n, p, last=n == len(parts) - 1) for n, p in enumerate(parts)]
    scene.archive.write_bytes(head + b"".join(sealed))


def written(*records: Record) -> bytes:
    """An archive of the hostile relayer's account with these records and their end."""
    key = ChunkKey(uuid4(), Root.generate().key)
    header = new_header(
        hostile.FOUNDER,
        archive=key.archive,
        account=hostile.ACCOUNT,
        relayer=hostile.RELAYER.public_key,
        created_ms=hostile.NOW_MS,
        owners=[hostile.FOUNDER.public_key],
        key=key.key,
    )
    end = {"record": "end", "counts": dict(Counter(one["record"] for one in records))}
    plain = b"".join(map(write_record, [*records, end]))
    return write_head(header) + key.seal(0, plain, last=True)


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

    @pytest.mark.parametrize("began", [1, 2])
    def test_a_turn_whose_facts_were_taken_in_between(self, tmp_path: Path, began: int) -> None:
        """Taken once more where it arrives, it would say what was forgotten since."""
        data, turn = b"sealed", str(uuid4())
        granted = [[str(uuid4()), 0, blob_id(hostile.GRANT)]]
        first = hostile.receipt(op="grant", items=granted, namespace=None, epoch=None)
        second = hostile.receipt(
            seq=2,
            prev=hash_256(base64.b64decode(first)).hex(),
            op="analyze",
            items=[[turn, 0, blob_id(data)]],
        )
        path = tmp_path / "anna.archive"
        path.write_bytes(
            written(
                {"record": "account", "label": "anna", "relayer": hostile.RELAYER.public_key.hex(),
                 "succession": [], "receipt_seq": began, "memory_seq": 0},
                {"record": "episode", "id": turn, "blob_id": blob_id(data),
                 "blob": base64.b64encode(data).decode()},
                {"record": "receipt", "seq": 1, "object": first},
                {"record": "receipt", "seq": 2, "object": second},
                {"record": "grant", "object": base64.b64encode(hostile.GRANT).decode(),
                 "succession": None},
            )
        )  # fmt: skip
        archive = open_archive(path, hostile.FOUNDER, hostile.ACCOUNT)
        assert len(self.turns(archive)) == began - 1

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


class TestRowsThatNobodyReads:
    """A relayer, or another release, wrote rows that are none where they arrive."""

    @pytest.mark.parametrize(
        "member",
        [
            {"revision": 2**70},
            {"type": 999},
            {"epoch": -1},
            {"importance": {}},
            {"namespace": "a\0"},
            {"created_at": "yesterday"},
            {"links": 1},
            {"vectors": None},
            {"writer": None},
            {"unheard": "of"},
        ],
        ids=str,
    )
    def test_the_others_come_all_the_same(
        self, found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str], member: Record
    ) -> None:
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            client.remember_many([*TEXTS, "Cleo prefers milk."])
        exported(scene)

        def change(records: list[Record]) -> None:
            row = next(r for r in records if r["record"] == "memory")
            row |= member

        again(scene, change)
        command = ("import", str(scene.archive), "--url", scene.there.url, "--json")
        assert scene.run(*command) == EXIT_FAILED
        out, err = capsys.readouterr()
        told = json.loads(out)
        assert (told["imported"], told["refused"]) == (len(TEXTS), 1)
        assert "1 refused" in err

    def test_what_is_said_to_be_there_twice_comes_once(self, found: Callable[[str], Scene]) -> None:
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            client.remember_many(TEXTS)
        exported(scene)

        def change(records: list[Record]) -> None:
            records.insert(-1, next(r for r in records if r["record"] == "memory"))

        again(scene, change)
        archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
        with scene.client(scene.founder, at=scene.there) as there:
            tally = import_archive(there, archive, quiet)
            assert tally["refused"] == 0
            assert len(there.list().memories) == len(TEXTS)


def test_an_older_relayer_is_not_told_of_turns_whose_facts_were_taken(
    found: Callable[[str], Scene],
) -> None:
    """It knows no such tombstones, and refused every one that came with them."""
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        client.remember_many(TEXTS)
        gone = client.remember("Nobody needs this.").id
        client.forget(gone)
    exported(scene)
    turn = {
        "record": "tombstone", "id": str(uuid4()), "namespace": "team",
        "blob_ids": [blob_id(b"sealed")], "erased_at": "2026-01-01T00:00:00Z", "taken": True,
    }  # fmt: skip
    again(scene, lambda records: records.insert(-1, turn))
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    told: list[str] = []

    class Older(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            stones = json.loads(request.content or b"{}").get("tombstones", [])
            if any("taken" in stone for stone in stones):
                error = {"code": "request.invalid", "message": "Object contains unknown field"}
                return httpx.Response(400, json=error)
            told.extend(stone["id"] for stone in stones)
            return super().handle_request(request)

    with SyncMemoryClient(
        url=scene.there.url,
        account_id=scene.account_id,
        private_key=scene.founder.seed_hex(),
        transport=Older(),
    ) as client:
        assert import_archive(client, archive, quiet) == {"imported": len(TEXTS)}
    assert told == [gone]
    with scene.client(scene.founder, at=scene.there) as client:
        assert import_archive(client, archive, quiet) == {"unchanged": len(TEXTS)}


class TestWithoutReceipts:
    """A relayer says that it took rows in, and signs nothing that it could be held to."""

    @pytest.mark.parametrize("defect", ["nothing stored", "no receipt", "there already"])
    def test_it_is_not_believed(self, found: Callable[[str], Scene], defect: str) -> None:
        scene = found("sealed")
        with scene.client(scene.founder) as client:
            client.remember_many(TEXTS)
        exported(scene)
        archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))

        class Lying(httpx.HTTPTransport):
            def handle_request(self, request: httpx.Request) -> httpx.Response:
                body = json.loads(request.content or b"{}")
                if request.url.path != "/v1/import" or "memories" not in body:
                    return super().handle_request(request)
                if defect == "nothing stored":
                    results = [{"id": row["id"]} for row in body["memories"]]
                    answer: dict[str, Any] = {"grants": 0, "results": results, "receipts": []}
                else:
                    response = super().handle_request(request)
                    answer = json.loads(response.read())
                if defect == "no receipt":
                    answer["receipts"] = []
                return httpx.Response(200, json=answer | {"results": told(answer["results"])})

        def told(results: list[Record]) -> list[Record]:
            return [row | {"status": "imported"} for row in results]

        if defect == "there already":
            with scene.client(scene.founder, at=scene.there) as there:
                import_archive(there, archive, quiet)
        with (
            SyncMemoryClient(
                url=scene.there.url,
                account_id=scene.account_id,
                private_key=scene.founder.seed_hex(),
                transport=Lying(),
            ) as lied_to,
            pytest.raises(UntrustedRelayer, match="without its receipt"),
        ):
            import_archive(lied_to, archive, quiet)
