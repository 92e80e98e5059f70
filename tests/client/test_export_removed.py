"""What leaves the pages of an export as it was forgotten, and what stays as it cannot be read."""

import json
from pathlib import Path

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.config import Settings
from memrelay.exporting import write_pages
from memrelay.pages import read_page
from memrelay.sealed.keys import Identity
from memrelay.signing import RequestSigner
from tests.client.export_scene import DRAFTS, accounts, everything, files, lines, profile, run
from tests.processes import running_relayer

__all__ = ["accounts", "profile"]  # fixtures


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
