"""Exporting from a real relayer, and bringing it back, also with edits.

Not here: the files that it may write (`test_export_files.py`), what leaves a page or is lost
(`test_export_removed.py`).
"""

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_USAGE, main
from memrelay.errors import ServerError
from memrelay.exporting import collect, record
from memrelay.models import Memory
from memrelay.pages import read_page
from memrelay.sealed.keys import Identity, account_id_of, account_text
from tests.client.export_scene import DRAFTS, accounts, files, lines, profile, run

__all__ = ["accounts", "profile"]  # fixtures


def nameless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def numbers(result: dict[str, Any]) -> tuple[int, int, int, int]:
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


def test_more_memories_than_fit_an_answer_are_all_exported(accounts, tmp_path, capsys):
    profile = accounts("many")
    texts = {f"Fact number {n} of many." for n in range(101)}
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.remember_many(sorted(texts))
    exported = [one["text"] for one in lines(capsys, profile)]
    assert (len(exported), set(exported)) == (101, texts)


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
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60, env=latin)
    assert json.loads(done.stdout)["text"] == text


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
