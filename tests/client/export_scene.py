"""Accounts whose memories are exported, and what a folder or a file has of them afterwards."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_OK, main
from memrelay.models import Draft

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


def run(capsys, *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"], {}) == EXIT_OK
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def lines(capsys, profile: str, *argv: str) -> list[dict[str, Any]]:
    assert main(["export", "--format", "jsonl", "--profile", profile, *argv], {}) == EXIT_OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def everything(profile: str, folder: Path) -> tuple[str, ...]:
    return ("export", "--all-namespaces", "--out", str(folder), "--profile", profile)
