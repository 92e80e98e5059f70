"""Conversations at a real relayer: what becomes of them, once each, however often it is tried."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from tests.client.conversations_scene import BEGUN, CHAT, chat, chatgpt, node, zipped
from tests.client.import_scene import STRANGER, profile, run, write
from tests.processes import running_relayer

__all__ = ["profile"]  # a fixture


def counts(result: dict[str, Any]) -> dict[str, int]:
    """Return what became of the parts of conversations; numbers of nothing are left out."""
    names = ("conversations", "stored", "known", "pending", "skipped", "failed")
    return {name: result[name] for name in names if result[name]}


def journal(profile: str) -> Path:
    (path,) = Path(profile).parent.glob("*.imported")
    return path


def chats(number: int) -> list[object]:
    """Return conversations of two messages; each tells a fact of its own."""
    return [
        chat(
            f"c-{n}",
            "a",
            [
                node("r", None),
                node(
                    *("q", "r", "user"),
                    text=f"My locker at the kiln works has the number {n + 1000}.",
                    create_time=BEGUN + 3600 * n,
                ),
                node("a", "q", "assistant", text="Noted.", create_time=BEGUN + 3600 * n + 9),
            ],
        )
        for n in range(number)
    ]


def test_facts_of_an_export_are_stored_with_their_days(profile, tmp_path, capsys):
    path = zipped(tmp_path / "export.zip", chatgpt(tmp_path / "export"))
    argv = ("import", str(path), "--profile", profile)
    code, result, err = run(capsys, *argv, "--wait")
    assert (code, err.count("Left out")) == (EXIT_OK, 1)
    assert counts(result) == {"conversations": 1, "stored": result["stored"]}
    assert result["messages"] == 5
    _, listed, _ = run(capsys, "list", "--profile", profile)
    by_text = {memory["text"]: memory for memory in listed["memories"]}
    assert "I live in Porto." in by_text
    assert by_text["Ines moved out yesterday."]["event_time"] == "2025-11-19T00:00:00.000Z"
    sources = {memory["source"] for memory in listed["memories"]}
    assert sources == {"import:export.zip/conversations.json#c-1"}


def test_an_export_that_has_grown_costs_only_what_is_new(profile, tmp_path, capsys):
    before, after = chats(3), chats(5)
    first = write(tmp_path / "a" / "conversations.json", before)
    argv = ("--profile", profile)
    assert counts(run(capsys, "import", str(first), *argv)[1]) == {"conversations": 3, "stored": 3}
    second = write(tmp_path / "b" / "conversations-000.json", after)
    result = run(capsys, "import", str(second), *argv)[1]
    assert counts(result) == {"conversations": 5, "stored": 2, "skipped": 3}
    assert counts(run(capsys, "import", str(second), *argv, "--namespace", "other")[1]) == {
        "conversations": 5,
        "stored": 5,
    }
    told = run(capsys, "import", str(second), *argv, "--again")[1]
    assert counts(told) == {"conversations": 5, "known": 5}


def test_the_journal_tells_nobody_what_was_said(profile, tmp_path, capsys):
    path = write(tmp_path / "conversations.json", chats(2))
    run(capsys, "import", str(path), "--profile", profile)
    kept = journal(profile)
    assert kept.stat().st_mode & 0o077 == 0
    assert [len(line) for line in kept.read_text().splitlines()] == [32, 32]
    # Another account's key names the same parts otherwise.
    other = str(tmp_path / "other" / "profile.json")
    url = json.loads(Path(profile).read_text())["url"]
    assert main(["init", url, "--profile", other], {}) == EXIT_OK
    capsys.readouterr()
    run(capsys, "import", str(path), "--profile", other)
    assert not set(kept.read_text().split()) & set(journal(other).read_text().split())


@pytest.mark.parametrize("damage", ["gone", "unreadable", "garbage"])
def test_without_its_journal_an_import_still_stores_nothing_twice(
    profile, tmp_path, capsys, damage
):
    path = write(tmp_path / "conversations.json", chats(2))
    argv = ("import", str(path), "--profile", profile)
    assert counts(run(capsys, *argv)[1]) == {"conversations": 2, "stored": 2}
    kept = journal(profile)
    kept.unlink()
    if damage == "unreadable":
        kept.mkdir()
    elif damage == "garbage":
        kept.write_bytes(b"\xff\xfe not a journal")
    assert counts(run(capsys, *argv)[1]) == {"conversations": 2, "known": 2}


def test_an_import_of_conversations_that_was_killed_is_taken_up_again(profile, tmp_path, capsys):
    path = write(tmp_path / "conversations.json", chats(60))
    argv = ["import", str(path), "--profile", profile]
    with (
        SyncMemoryClient.from_profile(profile) as memory,
        subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv], stdout=subprocess.DEVNULL
        ) as process,
    ):
        while process.poll() is None and memory.stats().memory_count < 5:
            pass
        os.kill(process.pid, signal.SIGKILL)
    code, result, _ = run(capsys, *argv)
    assert (code, result["failed"]) == (EXIT_OK, 0)
    assert result["skipped"] >= 4
    assert result["stored"] + result["known"] + result["skipped"] == 60
    with SyncMemoryClient.from_profile(profile) as memory:
        assert memory.stats().memory_count == 60


def test_a_dry_run_of_conversations_needs_no_relayer(tmp_path, capsys):
    write(tmp_path / "conversations.json", [CHAT, *chats(2)])
    write(tmp_path / "memories.json", [{"conversations_memory": "- Ines leads the kiln team."}])
    assert main(["import", str(tmp_path), "--dry-run", "--verbose"], {}) == EXIT_OK
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "memories.json:1    Ines leads the kiln team.",
        "conversations.json:#2  2025-11-20T10:00  2 messages  "
        "My locker at the kiln works has the number 1000.",
        "conversations.json:#1  2025-11-20T10:01  5 messages  I live in Porto.",
        "conversations.json:#3  2025-11-20T11:00  2 messages  "
        "My locker at the kiln works has the number 1001.",
        "conversations.json (chatgpt): 3 conversations, 9 messages, 3 parts (2025-11-20)",
        "memories.json (claude): 1 found",
        "1 found, 3 conversations, 9 messages, 3 parts; nothing was stored",
    ]
    assert "the relayer finds when it reads them" in err
    code, result, _ = run(capsys, "import", str(tmp_path), "--dry-run", "--since", "2025-11-21")
    assert (code, result["conversations"], result["entries"]) == (EXIT_OK, 0, 1)


def test_secrets_in_conversations_are_taken_out_and_counted(profile, tmp_path, capsys):
    text = f"Remember that the key of our staging is AKIA{'ABCDEFGH' * 2}."
    nodes = [node("r", None), node("a", "r", "user", text=text, create_time=BEGUN)]
    path = write(tmp_path / "conversations.json", [chat("c", "a", nodes)])
    _, result, err = run(capsys, "import", str(path), "--profile", profile)
    assert result["redacted"] == 1
    _, listed, _ = run(capsys, "list", "--profile", profile)
    assert "AKIA" not in json.dumps(listed) + err


def test_a_key_that_may_not_write_is_told_once(profile, tmp_path, capsys):
    reader = str(tmp_path / "reader.json")
    argv = ["keys", "add", "--namespace", "open", "--role", "reader", "--out", reader]
    assert main([*argv, "--profile", profile], {}) == EXIT_OK
    capsys.readouterr()
    path = write(tmp_path / "conversations.json", chats(3))
    code, result, err = run(capsys, "import", str(path), "--profile", reader)
    assert (code, counts(result)) == (EXIT_FAILED, {"conversations": 3})
    assert "goes on" not in err
    assert "locker" not in err


def test_an_import_of_conversations_breaks_off_where_the_relayer_is_away(profile, tmp_path, capsys):
    environ = {"MEMRELAY_URL": "http://127.0.0.1:9", "MEMRELAY_CUSTODY": "managed"}
    path = write(tmp_path / "conversations.json", chats(3))
    assert main(["import", str(path), "--profile", profile], environ) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.endswith("3 conversations, 0 stored, 0 known already\n")
    assert "the same command goes on with the rest." in err
    assert main(["import", str(path), "--profile", profile], STRANGER) == EXIT_FAILED
    assert "goes on" not in capsys.readouterr().err


def test_parts_that_wait_for_a_model_are_counted_and_not_sent_again(
    fresh_database, model_dir, tmp_path, capsys
):
    profile = str(tmp_path / "profile.json")
    path = write(tmp_path / "conversations.json", chats(2))
    argv = ("import", str(path), "--profile", profile)
    away = {"RELAYER_LLM_BASE_URL": "http://127.0.0.1:9/v1", "RELAYER_LLM_MODEL": "away"}
    with running_relayer(
        tmp_path / "data",
        model_dir,
        database_url=fresh_database.url,
        OPENAI_API_KEY="none",
        **away,
    ) as relayer:
        assert main(["init", relayer.url, "--profile", profile], {}) == EXIT_OK
        capsys.readouterr()
        assert counts(run(capsys, *argv)[1]) == {"conversations": 2, "pending": 2}
        assert counts(run(capsys, *argv)[1]) == {"conversations": 2, "skipped": 2}


@pytest.mark.parametrize("day", ["tomorrow", "2025-13-01", "20"])
def test_since_is_a_time_that_is_past(day, capsys):
    with pytest.raises(SystemExit) as done:
        main(["import", "x", "--since", day], {})
    assert done.value.code == EXIT_USAGE
    assert "2026-05-04" in capsys.readouterr().err
