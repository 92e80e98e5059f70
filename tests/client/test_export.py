"""Exporting from a real relayer, and bringing it back."""

import json
import os
import pty
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.config import Settings
from memrelay.errors import ServerError
from memrelay.exporting import collect, folder_name, record, write_pages
from memrelay.models import Draft, Memory
from memrelay.pages import read_page
from memrelay.sealed.keys import Identity, account_id_of, account_text
from memrelay.signing import RequestSigner
from tests.processes import running_relayer

EXPIRES = datetime(2100, 1, 1, tzinfo=UTC)
DRAFTS = [
    Draft(text="Anna prefers green tea."),
    Draft(
        text="The release was moved.\n\n---\nid: no id of anything\n---\n\nA second half.\n",
        kind="decision",
        tags=("release", "Zürich"),
        source="chat:7",
        event_time=datetime(2026, 5, 4, 9, 30, 0, 123000, tzinfo=UTC),
        metadata={"session": "3d2f", "empty": "", "created_at": "yesterday"},
        importance="vital",
        confidence="low",
        expires_at=EXPIRES,
    ),
    Draft(
        text="Max moved to Bremen.",
        kind="event",
        event_time=datetime(2026, 5, 4, 8, tzinfo=UTC),
    ),
    Draft(text="A note of the team.", namespace="Team/red"),
]


@pytest.fixture
def accounts(shared_relayer, tmp_path, capsys):
    """Makes profiles of accounts of this test's own."""

    def make(name: str, *choices: str) -> str:
        path = tmp_path / name / "profile.json"
        argv = ["init", shared_relayer.url, "--profile", str(path), *choices]
        assert main(argv, {}) == EXIT_OK
        capsys.readouterr()
        return str(path)

    return make


@pytest.fixture
def profile(accounts):
    """The profile of an account that has some memories."""
    path = accounts("first")
    with SyncMemoryClient.from_profile(path) as memory:
        memory.remember_many(DRAFTS)
    return path


def run(capsys, *argv: str) -> dict:
    assert main([*argv, "--json"], {}) == EXIT_OK
    result: dict = json.loads(capsys.readouterr().out)
    return result


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def lines(capsys, profile: str, *argv: str) -> list[dict]:
    assert main(["export", "--format", "jsonl", "--profile", profile, *argv], {}) == EXIT_OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def nameless(records: list[dict]) -> list[dict]:
    return [{name: part for name, part in one.items() if name != "id"} for one in records]


def test_pages_are_dated_readable_and_the_same_every_time(profile, tmp_path, capsys):
    """capability 3.7: an export is dated Markdown that changes only where a memory does."""
    folder = tmp_path / "memories"
    argv = ("export", "--all-namespaces", "--out", str(folder), "--profile", profile)
    result = run(capsys, *argv)
    assert (result["memories"], result["pages"], result["removed"]) == (4, 3, 0)
    first = files(folder)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert set(first) == {
        "default/2026-05-04.md",
        f"default/{today}.md",
        f"%54eam%2fred/{today}.md",
        ".memrelay-export",
    }
    page = first["default/2026-05-04.md"].decode()
    records = [record for _, record in read_page(page.splitlines(keepends=True))]
    assert [record["text"] for record in records] == [DRAFTS[2].text, DRAFTS[1].text]
    assert records[1]["tags"] == ["release", "Zürich"]
    assert records[1]["expires_at"] == "2100-01-01T00:00:00.000Z"
    assert '\nevent_time: "2026-05-04T09:30:00.123Z"\nkind: "decision"\n' in page
    assert '\ntags: ["release", "Zürich"]\nsource: "chat:7"\nimportance: "vital"\n' in page
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    run(capsys, *argv)
    assert files(folder) == first
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")} == times


def test_exported_files_are_for_this_user_only(profile, tmp_path, capsys):
    folder = tmp_path / "new" / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    file = tmp_path / "lines" / "all.jsonl"
    run(capsys, "export", "--format", "jsonl", "--out", str(file), "--profile", profile)
    paths = [folder, file, file.parent, *folder.rglob("*")]
    assert folder / ".memrelay-export" in paths
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}
    hidden = {path.name for path in paths if path.name.startswith(".")}
    assert hidden == {".memrelay-export"}


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_importing_an_export_again_changes_nothing(profile, tmp_path, capsys, format):
    out = tmp_path / ("pages" if format == "markdown" else "all.jsonl")
    argv = ("--all-namespaces", "--profile", profile)
    run(capsys, "export", "--format", format, "--out", str(out), *argv)
    before = lines(capsys, profile, "--all-namespaces")
    result = run(capsys, "import", str(out), "--profile", profile)
    assert (result["stored"], result["known"], result["failed"]) == (0, 4, 0)
    assert lines(capsys, profile, "--all-namespaces") == before
    assert [file["format"] for file in result["files"]] == (
        ["memrelay"] * 3 if format == "markdown" else ["jsonl"]
    )


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_an_export_brings_everything_to_another_account(
    profile, accounts, tmp_path, capsys, format
):
    second = accounts("second")
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    everything = ("--format", format, "--all-namespaces")
    run(capsys, "export", *everything, "--out", str(out), "--profile", profile)
    result = run(capsys, "import", str(out), "--profile", second)
    assert (result["stored"], result["known"], result["failed"]) == (4, 0, 0)
    # Also when the memories were first stored is kept, though the second relayer cannot be told.
    original = lines(capsys, profile, "--all-namespaces")
    copy = lines(capsys, second, "--all-namespaces")
    assert nameless(copy) == nameless(original)
    assert {one["id"] for one in copy}.isdisjoint(one["id"] for one in original)
    run(capsys, "export", *everything, "--out", str(again), "--profile", second)
    if format == "markdown":
        assert files(again).keys() == files(out).keys()


def test_an_export_can_be_imported_into_one_namespace(profile, tmp_path, capsys):
    out = tmp_path / "all.jsonl"
    argv = ("--format", "jsonl", "--all-namespaces", "--out", str(out))
    run(capsys, "export", *argv, "--profile", profile)
    run(capsys, "import", str(out), "--profile", profile, "--namespace", "copy")
    copied = lines(capsys, profile, "--namespace", "copy")
    assert {one["namespace"] for one in copied} == {"copy"}
    assert sorted(one["text"] for one in copied) == sorted(draft.text for draft in DRAFTS)


def test_what_was_forgotten_leaves_the_pages(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    argv = ("export", "--out", str(folder), "--profile", profile)
    run(capsys, *argv)
    note = folder / "default" / "2026-05-03.md"
    note.write_text("- a note of the user's own\n")
    for one in lines(capsys, profile):
        if one.get("event_time"):
            run(capsys, "forget", one["id"], "--profile", profile)
    result = run(capsys, *argv)
    assert (result["pages"], result["removed"]) == (1, 1)
    assert not (folder / "default" / "2026-05-04.md").exists()
    assert note.read_text() == "- a note of the user's own\n"


def everything(profile: str, folder: Path) -> tuple[str, ...]:
    return ("export", "--all-namespaces", "--out", str(folder), "--profile", profile)


def forget_team(capsys, profile: str) -> None:
    argv = ("--namespace", "Team/red", "--yes", "--profile", profile)
    run(capsys, "forget", *argv)


def test_a_namespace_that_was_forgotten_leaves_the_pages(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, *everything(profile, folder))
    (page,) = (folder / "%54eam%2fred").iterdir()
    page.write_text(f"\ufeff{page.read_text()}")  # by an editor
    note, copy = page.with_name("note.md"), folder / "copy" / page.name
    note.write_text("- a note of the user's own\n")
    copy.parent.mkdir()
    copy.write_bytes(page.read_bytes())
    forget_team(capsys, profile)
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    assert page.exists()  # one namespace's export leaves those of others
    result = run(capsys, *everything(profile, folder))
    assert (result["memories"], result["pages"], result["removed"]) == (3, 2, 1)
    assert not page.exists()
    assert note.exists()
    assert copy.exists()


def test_a_key_that_may_not_read_a_namespace_leaves_its_pages(profile, tmp_path, capsys):
    folder, agent = tmp_path / "memories", Identity.generate()
    owner = json.loads(Path(profile).read_text())
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.add_key(namespaces=["default", "second"], identity=agent)
        memory.remember("A note of the second.", namespace="second")
    run(capsys, *everything(profile, folder))
    before = files(folder)
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**owner, "private_key": agent.seed_hex()}))
    path.chmod(0o600)
    run(capsys, *everything(str(path), folder))
    assert files(folder) == before
    run(capsys, "forget", "--namespace", "second", "--yes", "--profile", profile)
    assert run(capsys, *everything(str(path), folder))["removed"] == 1
    assert {name.split("/")[0] for name in files(folder)} == {
        ".memrelay-export", "default", "%54eam%2fred",
    }  # fmt: skip


def test_pages_from_an_archive_lack_what_it_lacks(profile, tmp_path, capsys):
    folder, archive = tmp_path / "memories", tmp_path / "all.archive"
    run(capsys, *everything(profile, folder))
    forget_team(capsys, profile)
    run(capsys, "export", str(archive), "--profile", profile)
    offline = ("--from-archive", str(archive))
    named = ("export", "--out", str(folder), "--namespace", "Team/red", "--profile", profile)
    pages = files(folder)
    assert run(capsys, *named, *offline)["removed"] == 1
    for name, data in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    assert run(capsys, *everything(profile, folder), *offline)["removed"] == 1
    assert files(folder).keys() == {name for name in pages if "red" not in name}


def numbers(result: dict) -> tuple[int, int, int, int]:
    return tuple(result[name] for name in ("stored", "edited", "known", "failed"))


def correct(folder: Path, old: str, new: str) -> None:
    page = folder / "default" / "2026-05-04.md"
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new))


def test_an_edited_page_is_an_edit_of_its_memory(profile, tmp_path, capsys):
    """capability 3.7: a memory is exported, edited in its file, and imported as a new revision."""
    folder = tmp_path / "memories"
    export = ("export", "--out", str(folder), "--profile", profile)
    run(capsys, *export)
    correct(folder, "Max moved to Bremen.", "Max moved to Hamburg.")
    correct(folder, '"release", "Zürich"', '"release"')
    assert numbers(run(capsys, "import", str(folder), "--profile", profile)) == (0, 2, 1, 0)
    texts = {one["text"]: one for one in lines(capsys, profile)}
    moved = texts["Max moved to Hamburg."]
    assert (moved["event_time"], moved["kind"]) == ("2026-05-04T08:00:00.000Z", "event")
    assert moved["revision"] == 2
    assert texts[DRAFTS[1].text]["tags"] == ["release"]
    assert texts[DRAFTS[1].text]["metadata"] == DRAFTS[1].metadata
    assert "Max moved to Bremen." not in texts
    history = run(capsys, "history", moved["id"], "--profile", profile)
    assert [one["text"] for one in history["revisions"]] == [
        "Max moved to Hamburg.",
        "Max moved to Bremen.",
    ]
    # Again, before and after the next export, which tells the new revisions.
    assert numbers(run(capsys, "import", str(folder), "--profile", profile)) == (0, 0, 3, 0)
    run(capsys, *export)
    assert "revision: 2" in (folder / "default" / "2026-05-04.md").read_text()
    assert numbers(run(capsys, "import", str(folder), "--profile", profile)) == (0, 0, 3, 0)


def test_a_page_that_nobody_edited_takes_nothing_back(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    moved = next(one for one in lines(capsys, profile) if "Bremen" in one["text"])
    run(capsys, "edit", moved["id"], "--text", "Max moved to Kiel.", "--profile", profile)
    assert numbers(run(capsys, "import", str(folder), "--profile", profile)) == (0, 0, 3, 0)
    # Whoever edits the old words is told that there are newer ones.
    correct(folder, "Max moved to Bremen.", "Max moved to Hamburg.")
    argv = ["import", str(folder), "--profile", profile, "--json"]
    assert main(argv, {}) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert numbers(json.loads(out)) == (0, 0, 2, 1)
    assert "changed since the export" in err
    texts = {one["text"] for one in lines(capsys, profile)}
    assert "Max moved to Kiel." in texts
    assert "Max moved to Hamburg." not in texts


def test_what_leaves_a_page_stays_remembered(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    correct(folder, 'tags: ["release", "Zürich"]\n', "")
    (page,) = (one for one in folder.rglob("*.md") if one.name != "2026-05-04.md")
    page.unlink()
    before = lines(capsys, profile)
    assert numbers(run(capsys, "import", str(folder), "--profile", profile)) == (0, 0, 2, 0)
    assert lines(capsys, profile) == before


@pytest.mark.parametrize("revision", [0, -1, "2", 2.5, True, 1 << 40])
def test_a_revision_that_cannot_be_is_a_fault(profile, tmp_path, capsys, revision):
    path = tmp_path / "one.jsonl"
    one = {"id": lines(capsys, profile)[0]["id"], "revision": revision, "text": "Something else."}
    path.write_text(json.dumps(one))
    assert main(["import", str(path), "--profile", profile], {}) == EXIT_FAILED
    assert "revision is a whole number" in capsys.readouterr().err


def test_ids_of_others_are_new_memories(profile, accounts, tmp_path, capsys):
    other = accounts("other")
    foreign = lines(capsys, profile)[0]["id"]
    path = tmp_path / "some.jsonl"
    ids = (foreign, "00000000-0000-7000-8000-000000000000", "17", 18, None)
    path.write_text("".join(json.dumps({"id": i, "text": f"Of {i}."}) + "\n" for i in ids))
    assert numbers(run(capsys, "import", str(path), "--profile", other)) == (5, 0, 0, 0)
    assert foreign not in {one["id"] for one in lines(capsys, other)}
    assert "Of " not in json.dumps(lines(capsys, profile))


def test_a_file_that_is_no_page_is_not_replaced(profile, tmp_path, capsys):
    note = tmp_path / "notes" / "default" / "2026-05-04.md"
    note.parent.mkdir(parents=True)
    note.write_text("- a note of the user's own\n")
    argv = ["export", "--out", str(tmp_path / "notes"), "--profile", profile]
    assert main(argv, {}) == EXIT_USAGE
    assert "choose another folder" in capsys.readouterr().err
    assert note.read_text() == "- a note of the user's own\n"


def test_more_memories_than_fit_an_answer_are_all_exported(accounts, tmp_path, capsys):
    profile = accounts("many")
    texts = {f"Fact number {n} of many." for n in range(101)}
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.remember_many(sorted(texts))
    exported = [one["text"] for one in lines(capsys, profile)]
    assert (len(exported), set(exported)) == (101, texts)


def test_a_folder_belongs_to_one_account(profile, accounts, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    before = files(folder)
    argv = ["export", "--out", str(folder), "--profile", accounts("second")]
    assert main(argv, {}) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "pages of another account" in err
    assert files(folder) == before


def test_pages_of_nobody_knows_whom_are_not_touched(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    argv = ["export", "--out", str(folder), "--profile", profile]
    run(capsys, *argv)
    (folder / ".memrelay-export").unlink()
    before = files(folder)
    assert main(argv, {}) == EXIT_USAGE
    assert "choose another folder" in capsys.readouterr().err
    assert files(folder) == before


def test_lines_replace_files_only(profile, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    argv = ["export", "--format", "jsonl", "--profile", profile, "--out"]
    for name in ("folder", "pipe", "to-pipe"):
        assert main([*argv, str(tmp_path / name)], {}) == EXIT_USAGE
        assert "is no file" in capsys.readouterr().err
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "to-pipe").is_symlink()


def test_lines_go_where_a_link_leads(profile, tmp_path, capsys):
    target = tmp_path / "elsewhere" / "all.jsonl"
    target.parent.mkdir()
    target.write_text("of yesterday")
    (tmp_path / "link").symlink_to(target)
    argv = ("export", "--format", "jsonl", "--profile", profile, "--out", str(tmp_path / "link"))
    assert main([*argv], {}) == EXIT_USAGE
    assert target.read_text() == "of yesterday"
    capsys.readouterr()
    assert run(capsys, *argv, "--force")["memories"] == 3
    assert (tmp_path / "link").is_symlink()
    assert len(target.read_text().splitlines()) == 3


def test_other_files_beside_pages_are_no_memories(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    (folder / "README.md").write_text("- Who reads this folder, and why.\n")
    (folder / "default" / "2026-05-03.md").write_text("- a note of the user's own\n")
    result = run(capsys, "import", str(folder), "--profile", profile)
    assert (result["stored"], result["known"], result["left_out"]) == (0, 3, 2)


@pytest.mark.parametrize("fits", [0, 60], ids=["full", "almost"])
def test_metadata_that_leaves_no_room_for_a_date_is_imported(accounts, tmp_path, capsys, fits):
    size = 8192 - len('{"notes":"","more":""}') - fits
    with SyncMemoryClient.from_profile(accounts("first")) as memory:
        memory.remember("A fact.", metadata={"notes": "x" * size, "more": ""})
    out = tmp_path / "all.jsonl"
    argv = ("--format", "jsonl", "--out", str(out))
    run(capsys, "export", *argv, "--profile", str(tmp_path / "first" / "profile.json"))
    second = accounts("second")
    assert run(capsys, "import", str(out), "--profile", second)["stored"] == 1
    (one,) = lines(capsys, second)
    assert one["metadata"] == {"notes": "x" * size, "more": ""}
    (exported,) = map(json.loads, out.read_text().splitlines())
    assert (one["created_at"] == exported["created_at"]) is bool(fits)


def test_a_page_that_an_editor_marked_is_a_page(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    argv = ("export", "--out", str(folder), "--profile", profile)
    run(capsys, *argv)
    before = files(folder)
    page = folder / "default" / "2026-05-04.md"
    page.write_bytes(b"\xef\xbb\xbf" + page.read_bytes())
    assert run(capsys, "import", str(folder), "--profile", profile)["known"] == 3
    run(capsys, *argv)
    assert files(folder) == before


def test_what_another_client_sealed_is_told_to_be_left_out(accounts, tmp_path, capsys):
    profile = accounts("managed", "--custody", "managed")
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.remember("A fact that can be read.")
    settings = Settings.load(profile, environ={})
    signer = RequestSigner(Identity.from_hex(settings.private_key), account_id=settings.account_id)
    body = {"encrypted_data": "AAAA", "vector": [1.0, 0.0], "namespace": "default"}
    with httpx.Client(base_url=settings.url, auth=signer) as relayer:
        assert relayer.post("/api/remember/manual", json=body).status_code == 200
    archive = str(tmp_path / "all.archive")
    assert main(["export", archive, "--profile", profile], {}) == EXIT_OK
    capsys.readouterr()
    export = ["export", "--out", str(tmp_path / "out"), "--profile", profile]
    for argv in (export, [*export, "--from-archive", archive]):
        assert main(argv, {}) == EXIT_OK
        out, err = capsys.readouterr()
        assert out.startswith("1 memory on 1 page in ")
        assert "Left out: 1 memory" in err


@pytest.fixture
def lossy(fresh_database, model_dir, tmp_path, capsys):
    """A profile with memories, and what has its relayer lose the bytes of all of one day."""
    store, path = tmp_path / "store", str(tmp_path / "lossy" / "profile.json")
    choices = ("--blob-store", f"file:{store}")
    with running_relayer(
        tmp_path / "data", model_dir, *choices, database_url=fresh_database.url
    ) as relayer:
        assert main(["init", relayer.url, "--profile", path], {}) == EXIT_OK
        capsys.readouterr()
        with SyncMemoryClient.from_profile(path) as memory:
            memory.remember_many(DRAFTS)
            lost = [m.blob_id for m in memory.list(namespace="default").memories if m.event_time]

        def lose() -> None:
            for blob_id in lost:
                (file,) = store.rglob(str(blob_id))
                file.unlink()

        yield path, lose


def test_what_cannot_be_read_stays_on_its_page(lossy, tmp_path, capsys):
    """The relayer lost it: the pages are the only copy left."""
    profile, lose = lossy
    folder = tmp_path / "memories"
    run(capsys, *everything(profile, folder))
    before = files(folder)
    lose()
    for _ in range(2):
        assert main(everything(profile, folder), {}) == EXIT_FAILED
        out, err = capsys.readouterr()
        assert out.startswith("2 memories on 3 pages in ")
        assert "2 memories could not be read" in err
        assert "another client" not in err
        assert files(folder) == before
    # Beside it stands what is new, and it goes when it is forgotten.
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.remember("Eva called.", event_time=DRAFTS[2].event_time)
        doomed = next(one.id for one in memory.list().memories if one.kind == "event")
        memory.forget(doomed)
    assert main(everything(profile, folder), {}) == EXIT_FAILED
    page = (folder / "default" / "2026-05-04.md").read_text()
    records = [record for _, record in read_page(page.splitlines(keepends=True))]
    assert [one["text"] for one in records] == ["Eva called.", DRAFTS[1].text]


def test_what_an_archive_lacks_stays_on_its_page(lossy, tmp_path, capsys):
    """It was written when the relayer had lost it: the pages are the only copy left."""
    profile, lose = lossy
    folder, archive, file = tmp_path / "memories", tmp_path / "all.archive", tmp_path / "all.jsonl"
    run(capsys, *everything(profile, folder))
    lines = ["export", "--format", "jsonl", "--force", "--out", str(file), "--profile", profile]
    assert main([*lines, "--all-namespaces"], {}) == EXIT_OK
    before, told = files(folder), file.read_bytes()
    lose()
    assert main(["export", str(archive), "--profile", profile], {}) == EXIT_FAILED
    capsys.readouterr()
    offline = ("--from-archive", str(archive))
    for argv in (everything(profile, folder), (*lines, "--namespace", "default")):
        assert main([*argv, *offline], {}) == EXIT_FAILED
        assert "2 memories could not be read" in capsys.readouterr().err
    assert files(folder) == before
    assert file.read_bytes() == told


def test_what_is_kept_on_a_page_stays_as_it_is(tmp_path):
    """Also on one that an editor marked, and that somebody has worked on."""
    texts = {"1" * 36: "one\u2028---\nid: none\x0b---\n", "2" * 36: "two\n\n---\n"}
    made = {"namespace": "team", "created_at": "2026-05-04T00:00:00.000Z", "kind": "event"}
    records = [{"id": one, **made, "text": text} for one, text in texts.items()]
    assert write_pages(tmp_path, "team", records) == (1, 0)
    (path,) = tmp_path.rglob("*.md")
    before = path.read_text()
    path.write_text(f"\ufeff{before}\n---\nid: [1]\nkind: 5\n---\n\nmine\n")
    assert write_pages(tmp_path, "team", records[1:], kept={"1" * 36}) == (1, 0)
    assert path.read_text() == before


def test_lines_that_lack_what_cannot_be_read_replace_no_file(lossy, tmp_path, capsys):
    profile, lose = lossy
    file, rest = tmp_path / "all.jsonl", tmp_path / "rest.jsonl"
    argv = ["export", "--format", "jsonl", "--force", "--profile", profile, "--out"]
    assert main([*argv, str(file)], {}) == EXIT_OK
    before = file.read_bytes()
    lose()
    assert main([*argv, str(file)], {}) == EXIT_FAILED
    assert file.read_bytes() == before
    assert "2 memories could not be read" in capsys.readouterr().err
    assert main([*argv, str(rest)], {}) == EXIT_FAILED
    assert [json.loads(line)["text"] for line in rest.read_text().splitlines()] == [DRAFTS[0].text]


def test_a_terminal_does_not_obey_a_memory(accounts):
    profile = accounts("steered")
    text = "A title\u009b2J and \u202eturned\u202c words"
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.remember(text)
    argv = [sys.executable, "-m", "memrelay", "export", "--format", "jsonl", "--profile", profile]
    controller, terminal = pty.openpty()
    with open(controller, "rb", buffering=0) as shown:
        subprocess.run(argv, stdout=terminal, stderr=subprocess.DEVNULL, check=True, timeout=60)
        printed = shown.read(1 << 16).decode()
        os.close(terminal)
    assert "\\u202e" in printed
    assert printed.isascii()
    assert json.loads(printed)["text"] == text
    piped = subprocess.run(argv, capture_output=True, check=True, timeout=60, text=True).stdout
    assert "\u202e" in piped
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    piped = subprocess.run(argv, capture_output=True, check=True, timeout=60, env=latin).stdout
    assert json.loads(piped)["text"] == text


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--out", "-"],
        ["--format", "jsonl", "--json"],
        ["--format", "jsonl", "--all-namespaces", "--namespace", "team"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(argv, capsys):
    assert main(["export", *argv], {}) == EXIT_USAGE
    assert capsys.readouterr().out == ""


def test_a_folder_that_cannot_be_written_is_told(tmp_path, profile, capsys):
    (tmp_path / "file").write_text("in the way")
    argv = ["export", "--out", str(tmp_path / "file"), "--profile", profile]
    assert main(argv, {}) == EXIT_USAGE
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a/b", "A", "con\\x", "%41", "ß:ä", "A" * 128, "\U0001f375" * 128, "ä~" * 64],
)
def test_a_namespace_is_one_folder_whatever_its_name(tmp_path, name):
    assert folder_name(name) not in {"", ".", ".."}
    assert set(folder_name(name)).isdisjoint("/\\:.")
    assert len(folder_name(name).encode()) <= 255
    assert folder_name(name) != folder_name(f"{name[:-1]}y")
    assert folder_name(name) != folder_name(name.swapcase()) or name.swapcase() == name
    record = {"id": "0" * 36, "created_at": "2026-05-04T00:00:00.000Z", "text": "a"}
    assert write_pages(tmp_path / "out", name, [record]) == (1, 0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [folder_name(name)]
    assert write_pages(tmp_path / "out", name, []) == (0, 1)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_memory_keeps_when_it_was_first_stored():
    now = datetime(2026, 5, 4, tzinfo=UTC)
    first = now - timedelta(days=900)
    metadata = {"memrelay_created_at": first.isoformat(), "a": "b"}
    memory = Memory(id="1", namespace="x", text="t", created_at=now, metadata=metadata)
    assert record(memory)["created_at"] == "2023-11-16T00:00:00.000Z"
    assert record(memory)["metadata"] == {"a": "b"}
    metadata = {"memrelay_created_at": "once"}
    odd = Memory(id="1", namespace="x", text="t", created_at=now, metadata=metadata)
    assert record(odd)["created_at"] == "2026-05-04T00:00:00.000Z"
    assert record(odd)["metadata"] == metadata


def test_a_list_that_leads_to_itself_is_not_followed_for_ever():
    founder = Identity.generate()
    page = {"memories": [], "next_cursor": "1"}
    client = SyncMemoryClient(
        url="http://127.0.0.1:9",
        account_id=account_text(account_id_of(founder.public_key)),
        private_key=founder.seed_hex(),
        custody="managed",
        transport=httpx.MockTransport(lambda request: httpx.Response(200, json=page)),
    )
    with client, pytest.raises(ServerError, match="cursor"):
        collect(client, "team", lambda count: None)
