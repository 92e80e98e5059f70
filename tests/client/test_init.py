"""`memrelay init`: no key of an account that was founded is lost, whatever comes in between."""

from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.client.agents_scene import Machine
from tests.client.breakpoints import COMMAND_S_MAX, breakpoint_at, killed_at
from tests.conftest import TestDatabase
from tests.processes import RunningRelayer, running_relayer

TOKEN = "open-sesame-" * 3


@pytest.fixture
def machine(
    shared_relayer: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    """A machine without a profile."""
    return Machine(tmp_path, shared_relayer.url, capsys)


def profiles(machine: Machine) -> list[str]:
    return sorted(path.name for path in machine.profile.parent.glob("profile*"))


def test_of_several_at_once_one_makes_the_profile(machine: Machine) -> None:
    processes = [machine.process("init", machine.url) for _ in range(4)]
    codes = sorted(process.wait(COMMAND_S_MAX) for process in processes)
    assert codes == [EXIT_OK, EXIT_USAGE, EXIT_USAGE, EXIT_USAGE]
    assert profiles(machine) == ["profile.json"]
    machine.run("remember", "the profile works")


def test_a_refusal_leaves_no_file(machine: Machine) -> None:
    machine.run("init", machine.url, "--relayer-key", "ab" * 32, code=EXIT_USAGE)
    machine.run("init", "http://127.0.0.1:9", code=EXIT_FAILED)
    assert profiles(machine) == []


def test_a_key_whose_founding_nobody_saw_end_is_kept(machine: Machine) -> None:
    with breakpoint_at(machine.url, "/v1/accounts", after=True) as point:
        killed_at(machine, point, "init", point.url)
    assert profiles(machine) == ["profile.json.new"]
    machine.run("init", machine.url)
    kept = machine.profile.with_name("profile.json.new.old")
    kept.rename(kept.with_suffix(".json"))
    before = str(kept.with_suffix(".json"))
    machine.environ["MEMRELAY_URL"] = machine.url
    machine.run("remember", "the first account is there", "--profile", before)


def test_who_is_not_let_in_is_told_where_the_token_comes_from(
    fresh_database: TestDatabase,
    model_dir: Path,
    machine: Machine,
    tmp_path: Path,
) -> None:
    machine.run("init", machine.url)
    archive = str(tmp_path / "archive")
    machine.run("export", archive)
    asked = {"RELAYER_REGISTRATION": "token", "RELAYER_REGISTRATION_TOKEN": TOKEN}
    place = {"database_url": fresh_database.url}
    with running_relayer(tmp_path / "data", model_dir, **place, **asked) as guarded:
        other = ("--profile", str(tmp_path / "other.json"))
        for argv in (
            ("init", guarded.url, *other),
            ("init", guarded.url, *other, "--token", "another"),
            ("import", archive, "--url", guarded.url),
        ):
            machine.run(*argv, code=EXIT_FAILED)
            assert "ask its operator, and set MEMRELAY_TOKEN" in machine.err
            assert "403 registration.token, request " in machine.err
        machine.environ["MEMRELAY_TOKEN"] = TOKEN
        machine.run("init", guarded.url, *other)
        machine.run("import", archive, "--url", guarded.url)
