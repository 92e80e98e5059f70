"""Importing at a real relayer: what is stored, told and left out."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.importing.reader import UNKNOWN_MAX
from tests.client.import_scene import MEMORY_MD, MEMSEARCH_MD, STRANGER, profile, run, write
from tests.processes import running_relayer

__all__ = ["profile"]  # a fixture


def numbers(result: dict[str, Any]) -> tuple[int, int, int]:
    return result["stored"], result["known"], result["failed"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_is_no_file_is_not_waited_for(profile, tmp_path, capsys, more):
    os.mkfifo(tmp_path / "pipe.md")
    argv = ["import", str(tmp_path / "pipe.md"), "--profile", profile, *more]
    assert main(argv, {}) == EXIT_USAGE
    assert "There is no file or folder" in capsys.readouterr().err


def test_a_workspace_is_imported_once(profile, tmp_path, capsys):
    """capability 2.10: import indexes folders, recall searches them, status counts them."""
    folder = tmp_path / "workspace"
    write(folder / "MEMORY.md", MEMORY_MD)
    write(folder / ".memsearch/memory/2026-05-06.md", MEMSEARCH_MD)
    argv = ("import", str(folder), "--profile", profile)
    code, result, err = run(capsys, *argv, "--wait")
    assert (code, numbers(result)) == (EXIT_OK, (11, 0, 0))
    assert err == "", "nobody at a terminal watches"
    assert [(file["file"], file["format"], file["stored"]) for file in result["files"]] == [
        (".memsearch/memory/2026-05-06.md", "memsearch", 3),
        ("MEMORY.md", "openclaw", 8),
    ]
    code, result, _ = run(capsys, *argv)
    assert (code, numbers(result)) == (EXIT_OK, (0, 11, 0))
    _, status, _ = run(capsys, "status", "--profile", profile)
    assert [entry["memory_count"] for entry in status["namespaces"]] == [11]
    _, recalled, _ = run(capsys, "recall", "weekly backups", "--profile", profile)
    memory = recalled["results"][0]
    assert memory["text"] == "Anna decided on weekly backups."
    assert memory["event_time"] == "2026-05-06T10:02:00.000Z"
    assert memory["source"] == "import:.memsearch/memory/2026-05-06.md#9d2f"
    assert memory["metadata"] == {"session": "9d2f", "transcript": "9d2f of Anna.jsonl"}


def test_what_is_imported_can_be_audited_searched_and_deleted(profile, tmp_path, capsys):
    """capability 3.21: list and receipts audit what is stored, recall searches, forget deletes."""
    path = write(tmp_path / "facts.txt", "The harbour opens at six.\n\nThe bakery closes at noon.")
    assert run(capsys, "import", str(path), "--profile", profile)[0] == EXIT_OK
    _, listed, _ = run(capsys, "list", "--profile", profile)
    assert {memory["source"] for memory in listed["memories"]} == {"import:facts.txt"}
    _, receipts, _ = run(capsys, "receipts", "--profile", profile)
    assert receipts["checked"] > 0
    _, before, _ = run(capsys, "recall", "harbour", "--profile", profile)
    wrong = next(m["id"] for m in before["results"] if "harbour" in m["text"])
    assert run(capsys, "forget", wrong, "--profile", profile)[0] == EXIT_OK
    _, after, _ = run(capsys, "recall", "harbour", "--profile", profile)
    assert wrong not in {memory["id"] for memory in after["results"]}
    _, receipts, _ = run(capsys, "receipts", "--profile", profile)
    assert receipts["checked"] == 1
    code, result, _ = run(capsys, "import", str(path), "--profile", profile)
    assert (code, numbers(result)) == (EXIT_OK, (1, 1, 0))


def test_bad_entries_do_not_stop_the_rest(profile, tmp_path, capsys):
    lines: list[dict[str, Any]] = [{"text": f"Fact number {n} of the list."} for n in range(45)]
    lines[7]["metadata"] = {"a\0b": "which only a relayer looks at"}
    lines[9]["text"] = " "
    lines[11]["expires_at"] = "2024-01-01T00:00:00Z"
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    code, result, err = run(capsys, "import", str(path), "--profile", profile)
    assert (code, numbers(result), result["expired"]) == (EXIT_FAILED, (42, 0, 3), 1)
    assert {failure["place"] for failure in result["failures"]} == {"8", "10", "46"}
    assert "facts.jsonl:46: not JSON" in err
    assert "facts.jsonl:8: refused" in err
    assert "Fact number" not in err
    assert "no JSON\n" not in err.replace("not JSON", "")


def test_a_dry_run_sends_nothing_and_needs_no_account(tmp_path, capsys):
    folder = write(tmp_path / "notes/MEMORY.md", MEMORY_MD).parent
    assert main(["import", str(folder), "--dry-run"], {}) == EXIT_OK
    out, err = capsys.readouterr()
    assert out == "MEMORY.md (openclaw): 8 found\n8 found; nothing was stored\n"
    assert err == ""
    assert main(["import", str(folder), "--dry-run", "--verbose"], {}) == EXIT_OK
    assert "MEMORY.md:6  preference  Preferences  Anna drinks" in capsys.readouterr().out
    code, result, _ = run(capsys, "import", str(folder), "--dry-run")
    assert (code, result["entries"], numbers(result)) == (EXIT_OK, 8, (0, 0, 0))


def test_members_that_no_memory_has_are_told(tmp_path, capsys):
    """One misspelt puts a memory in another namespace than was meant."""
    lines = [
        {"id": "x", "text": "a", "namespace": "team", "created_at": "2024-01-01T00:00:00Z"},
        {"text": "b", "namespce": "team"},
        {"text": "c", "namespce": "team", "Tag": ["x"], "user": 7, "what\nAnna said": 1},
    ]
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)))
    code, result, err = run(capsys, "import", str(path), "--dry-run")
    assert (code, result["entries"], result["failed"]) == (EXIT_OK, 3, 0)
    assert result["files"][0]["unknown"] == [
        {"member": "namespce", "place": "2", "entries": 2},
        {"member": "Tag", "place": "3", "entries": 1},
        {"member": "user", "place": "3", "entries": 1},
        {"member": "", "place": "3", "entries": 1},
    ]
    meant = 'facts.jsonl:2: no memory has "namespce" (did you mean "namespace"?)'
    assert err.splitlines() == [
        f"memrelay: {meant}: left out of 2 entries.",
        'memrelay: facts.jsonl:3: no memory has "Tag" (did you mean "tags"?): left out of 1 entry.',
        'memrelay: facts.jsonl:3: no memory has "user": left out of 1 entry.',
        "memrelay: facts.jsonl:3: no memory has other members: left out of 1 entry.",
    ]
    code, result, err = run(capsys, "import", str(path), "--dry-run", "--strict")
    assert (code, result["entries"], result["failed"]) == (EXIT_FAILED, 1, 2)
    assert meant in err.splitlines()[0]
    assert "Anna" not in err


def test_members_without_end_are_told_by_name_up_to_a_bound(tmp_path, capsys):
    """An entry with several members beyond it is one entry."""
    lines = [{"text": "a", f"member_{n}": 1} for n in range(3 * UNKNOWN_MAX - 1)]
    lines.append({"text": "a", "one_more": 1, "another": 1, "a_third": 1})
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)))
    _, result, err = run(capsys, "import", str(path), "--dry-run")
    *_, last = result["files"][0]["unknown"]
    assert last == {"member": "", "place": str(UNKNOWN_MAX + 1), "entries": 2 * UNKNOWN_MAX}
    assert len(err.splitlines()) == UNKNOWN_MAX + 1


@pytest.mark.parametrize(
    "argv",
    [
        ["import", "MISSING", "--dry-run"],
        ["import", "FOLDER"],
    ],
)
def test_wrong_paths_and_settings_are_usage_errors(tmp_path, argv, capsys):
    write(tmp_path / "folder/a.md", "- a note about nothing")
    places = {"MISSING": str(tmp_path / "missing"), "FOLDER": str(tmp_path / "folder")}
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert main([places.get(one, one) for one in argv], environ) == EXIT_USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("offset", ["2", "+2:00", "+15:00", "+02:60", "Berlin"])
def test_an_offset_is_hours_and_minutes(offset, capsys):
    with pytest.raises(SystemExit) as done:
        main(["import", "x", f"--utc-offset={offset}"], {})
    assert done.value.code == EXIT_USAGE
    assert "+02:00" in capsys.readouterr().err


def test_days_of_another_offset_are_stored_as_such(profile, tmp_path, capsys):
    path = write(tmp_path / "2026-05-04.md", "- The release was on Friday.")
    argv = ("import", str(path), "--profile", profile, "--utc-offset=-05:30", "--namespace", "log")
    assert numbers(run(capsys, *argv)[1]) == (1, 0, 0)
    _, listed, _ = run(capsys, "list", "--namespace", "log", "--profile", profile)
    assert listed["memories"][0]["event_time"] == "2026-05-04T05:30:00.000Z"


def test_an_import_that_was_killed_is_run_again(profile, tmp_path, capsys):
    lines = [json.dumps({"text": f"Fact {n} of many."}) for n in range(400)]
    path = write(tmp_path / "facts.jsonl", "\n".join(lines))
    argv = ["import", str(path), "--profile", profile]
    with (
        SyncMemoryClient.from_profile(profile) as memory,
        subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv], stdout=subprocess.DEVNULL
        ) as process,
    ):
        while process.poll() is None and memory.stats().memory_count < 20:
            pass
        os.kill(process.pid, signal.SIGKILL)
    code, result, _ = run(capsys, *argv)
    stored, known, failed = numbers(result)
    assert (code, stored + known, failed) == (EXIT_OK, 400, 0)
    assert known >= 20
    with SyncMemoryClient.from_profile(profile) as memory:
        assert memory.stats().memory_count == 400


def test_a_relayer_that_is_away_is_told_with_how_far_it_got(profile, tmp_path, capsys):
    values = json.loads(Path(profile).read_text())
    environ = {"MEMRELAY_URL": "http://127.0.0.1:9", "MEMRELAY_CUSTODY": "managed"}
    path = write(tmp_path / "a.txt", "One paragraph that nobody takes.")
    assert values["url"] != environ["MEMRELAY_URL"]
    assert main(["import", str(path), "--profile", profile], environ) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == "a.txt (text): 0 stored, 0 known already\n0 stored, 0 known already\n"
    assert "the same command goes on with the rest." in err
    assert "nobody takes" not in err


def test_an_interrupted_import_says_that_it_broke_off(profile, tmp_path):
    """Its last line looks like that of one that came to its end."""
    path = write(tmp_path / "a.txt", "One paragraph that nobody takes.")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "memrelay", "import", str(path), "--profile", profile],
            env={**os.environ, "MEMRELAY_URL": url, "MEMRELAY_CUSTODY": "managed"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            connection, _ = listener.accept()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            connection.close()
    assert process.returncode != EXIT_OK
    assert out.endswith("0 stored, 0 known already\n")
    assert err == "memrelay: The import broke off; the same command goes on with the rest.\n"


def test_an_import_that_can_never_go_on_does_not_promise_to(profile, tmp_path, capsys):
    path = write(tmp_path / "a.txt", "One paragraph that nobody takes.")
    assert main(["import", str(path), "--profile", profile, "--json"], STRANGER) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert numbers(json.loads(out)) == (0, 0, 0)
    assert "goes on" not in err


@pytest.fixture
def key(profile, tmp_path, capsys):
    """Makes profiles of keys that hold the namespace `open` only."""

    def make(role: str) -> str:
        path = str(tmp_path / f"{role}.json")
        argv = ["keys", "add", "--namespace", "open", "--role", role, "--out", path]
        assert main([*argv, "--profile", profile], {}) == EXIT_OK
        capsys.readouterr()
        return path

    return make


def test_a_namespace_that_is_not_granted_does_not_stop_the_rest(key, tmp_path, capsys):
    lines = [{"text": f"Fact number {n} of the list.", "namespace": "open"} for n in range(45)]
    for number in (3, 30, 44):
        lines[number]["namespace"] = "closed"
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)))
    code, result, err = run(capsys, "import", str(path), "--profile", key("writer"))
    assert (code, numbers(result)) == (EXIT_FAILED, (42, 0, 3))
    assert {failure["place"] for failure in result["failures"]} == {"4", "31", "45"}
    assert "facts.jsonl:4: refused: This key holds no grant for the namespace 'closed'." in err
    assert "goes on" not in err


def test_a_key_that_may_not_write_is_told_once_by_the_relayer(
    key, shared_relayer, tmp_path, capsys
):
    path = write(tmp_path / "facts.txt", "\n\n".join(f"Fact number {n}." for n in range(19)))
    reader = key("reader")
    before = shared_relayer.log.read_text().count("/v1/remember")
    code, result, err = run(capsys, "import", str(path), "--profile", reader)
    assert (code, numbers(result)) == (EXIT_FAILED, (0, 0, 19))
    assert err.count("refused") == 19
    # Once for all of them, and once for the first alone.
    assert shared_relayer.log.read_text().count("/v1/remember") <= before + 2


def test_secrets_that_were_taken_out_are_counted(profile, tmp_path, capsys):
    text = f"The key is AKIA{'ABCDEFGH' * 2}, the other AKIA{'HGFEDCBA' * 2}.\n\nNo secret at all."
    argv = ["import", str(write(tmp_path / "a.txt", text)), "--profile", profile]
    assert main(argv, {}) == EXIT_OK
    assert "2 stored, 0 known already, 2 secrets redacted\n" in capsys.readouterr().out
    _, result, _ = run(capsys, *argv)
    assert (numbers(result), result["redacted"]) == ((0, 2, 0), 0)
    one = write(tmp_path / "b.txt", f"The third key is AKIA{'GHFEDCAB' * 2}.")
    assert main(["import", str(one), "--profile", profile], {}) == EXIT_OK
    assert "1 stored, 0 known already, 1 secret redacted\n" in capsys.readouterr().out


def test_waiting_in_vain_comes_after_the_totals(fresh_database, model_dir, tmp_path, capsys):
    nobody = {"RELAYER_EMBEDDING_BASE_URLS": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none"}
    path = write(tmp_path / "a.txt", "One paragraph that is never found by meaning.")
    profile = str(tmp_path / "profile.json")
    with running_relayer(
        tmp_path / "data",
        model_dir,
        database_url=fresh_database.url,
        RELAYER_EMBEDDING_MODEL="nothing",
        **nobody,
    ) as relayer:
        assert main(["init", relayer.url, "--profile", profile], {}) == EXIT_OK
        capsys.readouterr()
        argv = ["import", str(path), "--profile", profile]
        code, result, err = run(capsys, *argv, "--wait", "0.5")
        assert (code, numbers(result)) == (EXIT_FAILED, (1, 0, 0))
        assert "still under way" in err
        assert run(capsys, *argv)[:1] == (EXIT_OK,)


DIRECTIVES_MD = """\
<!-- observed: 2026-05-10 | status: superseded -->

- Prefer long reports on the kiln.

<!-- observed: 2026-07-27 | status: active -->

- Prefer short reports on the kiln.
"""


def test_a_superseded_directive_is_stored_as_history_once(profile, tmp_path, capsys):
    argv = ("import", str(write(tmp_path / "USER.md", DIRECTIVES_MD)), "--profile", profile)
    for expected in ((2, 0, 0), (0, 2, 0)):
        code, result, _ = run(capsys, *argv)
        assert (code, numbers(result), result["superseded"]) == (EXIT_OK, expected, 1)
    _, listed, _ = run(capsys, "list", "--state", "all", "--profile", profile)
    states = {memory["text"]: memory["state"] for memory in listed["memories"]}
    assert len(listed["memories"]) == 2
    assert states == {
        "Prefer long reports on the kiln.": "superseded",
        "Prefer short reports on the kiln.": "active",
    }
    _, recalled, _ = run(capsys, "recall", "long reports on the kiln", "--profile", profile)
    assert [memory["text"] for memory in recalled["results"]] == [
        "Prefer short reports on the kiln."
    ]


def test_files_that_were_left_out_are_counted(tmp_path, capsys):
    write(tmp_path / "MEMORY.md", MEMORY_MD)
    for other in ("AGENTS.md", "notes/a.txt", "picture.png", ".hidden/b.md"):
        write(tmp_path / other, "no memory")
    assert main(["import", str(tmp_path), "--dry-run"], {}) == EXIT_OK
    assert capsys.readouterr().err == "memrelay: Left out: 2 other files; to import one, name it.\n"
    assert run(capsys, "import", str(tmp_path), "--dry-run")[1]["left_out"] == 2
