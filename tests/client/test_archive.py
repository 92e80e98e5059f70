"""Moving an account between two real relayers, through an archive."""

import base64
import json
import os
import stat
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.archive_reader import Archive, import_archive, open_archive, open_memories
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.config import Settings
from memrelay.errors import NotAuthenticated, NotGranted, UntrustedRelayer
from memrelay.models import Draft
from memrelay.sealed.archive import CHUNK_BYTES_MAX, Record
from memrelay.sealed.keys import Identity, account_bytes
from tests.client.archive_scene import TEXTS, Scene, exported, found, other_relayer, quiet
from tests.optional import unwrap

__all__ = ["found", "other_relayer"]  # fixtures


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
        assert [m.id for m in after.results] == [m.id for m in before.results]
        # One may come from memory, where a number has one byte, and one from the database.
        assert [m.score for m in after.results] == pytest.approx(
            [m.score for m in before.results], abs=0.005
        )
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

    def breaking(client: SyncMemoryClient, page: str, **more: Any) -> object:
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
    texts = {m.text for m in open_memories(archive, scene.founder, 2**43)}
    assert len(texts) == 152
    assert "Anna prefers coffee." in texts
    assert not texts & {TEXTS[0], TEXTS[1]}


def meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, part: str, act: Callable[[], object]
) -> Mapping[str, int]:
    """Export while something happens just before the first page of a part."""
    whole, waiting = SyncMemoryClient.export_page, [act]

    def racing(client: SyncMemoryClient, page: str, **more: Any) -> object:
        if page == part and waiting:
            waiting.pop()()
        return whole(client, page, **more)

    with monkeypatch.context() as patch:
        patch.setattr(SyncMemoryClient, "export_page", racing)
        return exported(scene)


def held(scene: Scene) -> list[Record]:
    archive = open_archive(scene.archive, scene.founder, account_bytes(scene.account_id))
    return list(archive.rows())


@pytest.mark.parametrize("part", ["memories", "episodes", "receipts"])
def test_what_is_remembered_during_an_export_is_in_it_once(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        ids = {m.id for m in client.remember_many(TEXTS)}

        def remember() -> None:
            ids.add(client.remember("Said during the export.").id)

        counts = meanwhile(scene, monkeypatch, part, remember)
    assert {row["id"] for row in held(scene)} == ids
    assert counts["memory"] == len(ids)


def test_what_is_remembered_before_a_broken_export_goes_on_is_in_it(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = found("sealed")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with scene.client(scene.founder) as client:
        ids = {m.id for m in client.remember_many(TEXTS)}
        with pytest.raises(KeyboardInterrupt):
            meanwhile(scene, monkeypatch, "receipts", interrupt)
        ids.add(client.remember("Said a week later.").id)
    exported(scene)
    assert {row["id"] for row in held(scene)} == ids


def test_what_a_turn_said_during_an_export_is_in_it(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn itself, which is kept, and its facts."""
    scene = found("managed")
    with scene.client(scene.founder) as client:
        client.change_settings(keep_turns=True)
        meanwhile(
            scene,
            monkeypatch,
            "receipts",
            lambda: client.analyze("Anna lives in Bremen. She drinks tea."),
        )
        facts = {m.id for m in client.list().memories}
    rows = held(scene)
    assert facts
    assert {row["id"] for row in rows if row["record"] == "memory"} == facts
    assert [row["state"] for row in rows if row["record"] == "episode"] == ["kept"]


def test_what_is_sealed_anew_during_an_export_can_be_read_where_it_arrives(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = found("managed")
    with scene.client(scene.founder) as client:
        client.change_settings(keep_turns=True)
        client.analyze("Anna lives in Bremen. She drinks tea.")
    meanwhile(scene, monkeypatch, "receipts", lambda: scene.run("rotate", "--reseal", "all"))
    rows = held(scene)
    assert {row["record"] for row in rows} == {"memory", "episode"}
    assert {row["epoch"] for row in rows} == {2}


def test_a_relayer_that_gives_no_turn_by_its_id_can_be_left(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one; that a memory is gone is no reason to lack all others either."""
    scene = found("sealed")
    whole = SyncMemoryClient.export_page

    def older(client: SyncMemoryClient, page: str, **more: Any) -> object:
        if page == "episodes" and "ids" in more:
            return whole(client, "receipts", **more)  # as it answered then
        return whole(client, page, **more)

    with scene.client(scene.founder) as client:
        client.remember_many(TEXTS)
        monkeypatch.setattr(SyncMemoryClient, "export_page", older)
        counts = meanwhile(
            scene, monkeypatch, "receipts", lambda: client.forget(client.remember("Never mind.").id)
        )
    assert counts["memory"] == len(TEXTS)


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        ("altered", "Receipt 3 .* signature"),
        ("lost", "Receipt 4 .* break after number 2"),
        ("newest lost", "newest receipts are missing"),
    ],
)
def test_a_history_that_does_not_hold_is_no_archive(
    found: Callable[[str], Scene],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    defect: str,
    said: str,
) -> None:
    """Nobody could read it; it is said while the memories can still be had in another way."""
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        for text in TEXTS:
            client.remember(text)
    whole = SyncMemoryClient.export_page

    def forging(client: SyncMemoryClient, page: str, **more: Any) -> object:
        records, following = whole(client, page, **more)
        if page == "receipts":
            records = [changed(dict(one)) for one in records if not lost(one["seq"])]
        return records, following

    def lost(seq: int) -> bool:
        return seq == {"lost": 3, "newest lost": 4}.get(defect)

    def changed(one: Record) -> Record:
        data = base64.b64decode(one["object"])
        altered = base64.b64encode(data[:-64] + bytes(64)).decode()
        return {**one, "object": altered} if (one["seq"], defect) == (3, "altered") else one

    with monkeypatch.context() as patch:
        patch.setattr(SyncMemoryClient, "export_page", forging)
        with pytest.raises(UntrustedRelayer, match=said):
            exported(scene)
        assert not scene.archive.exists()
        assert scene.run("export", str(scene.archive)) == EXIT_FAILED
        err = capsys.readouterr().err
        assert "memrelay export --format jsonl" in err
        assert f"remove {scene.archive}.part and begin anew" in err
    assert exported(scene)["receipt"] == 4, "it goes on once the relayer was mended"


@pytest.mark.parametrize("part", ["memories", "episodes"])
def test_what_a_relayer_leaves_out_of_an_export_is_named(
    found: Callable[[str], Scene],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    part: str,
) -> None:
    """What is there is kept; what was erased or sealed anew in between is not missed."""
    scene = found("managed")
    with scene.client(scene.founder) as client:
        client.change_settings(keep_turns=True)
        client.analyze("Anna lives in Bremen. She drinks tea.")
        client.forget(client.remember("Nobody needs this.").id)
        client.edit(client.remember("The kettle is old.").id, text="The kettle is new.")
    scene.run("rotate", "--reseal", "all")
    exported(scene)
    assert len(held(scene)) > 3
    scene.archive.unlink()
    whole, left_out = SyncMemoryClient.export_page, list[str]()

    def omitting(client: SyncMemoryClient, page: str, **more: Any) -> object:
        records, following = whole(client, page, **more)
        if page == part and records:
            left_out.append(records[0]["id"])
        return [one for one in records if one.get("id") not in left_out], following

    monkeypatch.setattr(SyncMemoryClient, "export_page", omitting)
    capsys.readouterr()
    assert scene.run("export", str(scene.archive), "--json") == EXIT_FAILED
    out, err = capsys.readouterr()
    assert json.loads(out)["missing"] == sorted(left_out)
    assert "receipts promise" in err
    assert scene.run("import", str(scene.archive), "--dry-run") == EXIT_OK


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


def edited_since(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    memories: list[str],
    texts: list[str],
    **sizes: int,
) -> list[list[Record]]:
    """Move, edit each of these there in turn, and move again with requests of such sizes; the
    memories in each request of the second move."""
    account = account_bytes(scene.account_id)
    exported(scene)
    whole, requests = SyncMemoryClient.import_page, list[list[Record]]()

    def watched(client: SyncMemoryClient, page: Record) -> object:
        requests.append(page.get("memories", []))
        return whole(client, page)

    with scene.client(scene.founder, at=scene.there) as there:
        import_archive(there, open_archive(scene.archive, scene.founder, account), quiet)
        with scene.client(scene.founder) as client:
            for text in texts:
                for number, memory in enumerate(memories):
                    client.edit(memory, text=f"{text} {number}")
        scene.archive.unlink()
        exported(scene)
        archive = open_archive(scene.archive, scene.founder, account)
        for name, size in sizes.items():
            module = "archive_reader" if name == "_HELD_BYTES" else "rows"
            monkeypatch.setattr(f"memrelay.{module}.{name}", size)
        monkeypatch.setattr(SyncMemoryClient, "import_page", watched)
        tally = import_archive(there, archive, quiet)
        assert (tally["differs"], tally["refused"]) == (0, 0)
        for number, memory in enumerate(memories):
            assert there.get(memory).text == f"{texts[-1]} {number}"
            history = [one.text for one in there.history(memory).revisions]
            assert len(history) == 1 + len(texts)
    return requests


def test_a_large_memory_that_was_edited_since_comes_too(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its revisions together are more than a request has otherwise."""
    scene = found("sealed")
    text = "é" + "\N{NO-BREAK SPACE}" * 350_000 + " in Bremen."
    with scene.client(scene.founder) as client:
        large = client.remember(text).id
    edited_since(scene, monkeypatch, [large], [f"{text} New."])


@pytest.mark.parametrize("sizes", [{"PAGE_ITEMS_MAX": 3}, {"_PAGE_BYTES": 1, "_ROW_BYTES_MAX": 1}])
def test_a_memory_with_more_revisions_than_a_request_has_comes_too(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int]
) -> None:
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        memories = [m.id for m in client.remember_many(TEXTS[:2])]
    texts = [f"Edited {n} times." for n in range(1, 7)]
    requests = edited_since(scene, monkeypatch, memories, texts, **sizes)
    assert max(len(rows) for rows in requests) <= 3


def test_many_memories_that_were_edited_since_take_few_requests_and_passes(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for some of them at once, as many passes as that takes."""
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        memories = [m.id for m in client.remember_many([f"Note {n}." for n in range(20)])]
    passes: list[None] = []
    whole = Archive.rows

    def counted(archive: Archive) -> object:
        passes.append(None)
        return whole(archive)

    monkeypatch.setattr(Archive, "rows", counted)
    sizes = {"_HELD_BYTES": 60_000, "PAGE_ITEMS_MAX": 8}
    requests = edited_since(scene, monkeypatch, memories, ["Edited."], **sizes)
    assert [len(rows) for rows in requests if rows] == [8] * 10
    assert 6 < len(passes) < 12


def test_an_import_goes_on_where_it_broke_off(
    found: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its requests, before or behind it; nothing doubles, and nothing erased returns."""
    monkeypatch.setattr("memrelay.rows.PAGE_ITEMS_MAX", 4)
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
        assert sorted(unwrap(m.text) for m in memories) == sorted(
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


@pytest.mark.parametrize(
    "chosen",
    [
        ("--namespace", "elsewhere"),
        ("--wait",),
        ("--wait", "5"),
        ("--from", "jsonl"),
        ("--utc-offset", "+02:00"),
        ("--dry-run", "--verbose"),
    ],
    ids=str,
)
def test_an_archive_takes_no_choice_that_is_for_files(
    found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str], chosen: tuple[str, ...]
) -> None:
    scene = found("sealed")
    with scene.client(scene.founder) as client:
        client.remember(TEXTS[0])
    exported(scene)
    command = ("import", str(scene.archive), "--url", scene.there.url)
    assert scene.run(*command, *chosen) == EXIT_USAGE
    assert "are for other files" in capsys.readouterr().err
    assert scene.run(*command, "--utc-offset", "+00:00") == EXIT_OK
    assert "1 imported" in capsys.readouterr().out
    assert scene.run("export", str(scene.archive), "--force", "--namespace", "team") == EXIT_USAGE


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
