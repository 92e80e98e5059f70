"""What a command imports: an agent may start a process of it for every turn.

Not here: how long that takes, which other work on the machine changes.
"""

import subprocess
import sys
from types import ModuleType

import pytest

import memrelay.gateway
from tests.client.shell_scene import Machine

# Each takes longer to import than Python takes to start, or is of no use to who asks.
TRANSPORT = ("httpx", "httpcore", "nacl", "ssl", "asyncio", "email")
STARTING = ("dataclasses", "inspect", "json", "ctypes", "logging")
OPERATIONS = tuple(
    f"memrelay.operations.{name}"
    for name in (
        "lists",
        "writes",
        "corrections",
        "deletion",
        "audit",
        "keyholders",
        "archives",
    )
)
PROGRAM = """
import atexit, sys
names = sys.argv.pop(1).split(",")
atexit.register(lambda: print(*(name for name in names if name in sys.modules)))
from memrelay.cli import main
sys.exit(main(sys.argv[1:]))
"""


def imported(names: tuple[str, ...], *argv: str, given: str = "") -> list[str]:
    """Return which of these modules a process imports that is this command."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(names), *argv],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("asked", ["--version", "--help", "--help-all", "-h"])
def test_help_and_version_import_nothing_that_sends_or_opens(asked: str) -> None:
    absent = (*TRANSPORT, *STARTING, "memrelay.config", "memrelay.models")
    assert imported(absent, asked) == []


def test_a_recall_imports_no_loop_and_no_other_operation(run: Machine) -> None:
    others = ("asyncio", "memrelay.sync_client", "memrelay.async_client", "memrelay.gateway")
    absent = (*others, "memrelay.importing", "memrelay.outcomes", *OPERATIONS)
    names = ("httpx", "nacl.bindings", *absent)
    argv = ("recall", "tea", "--profile", str(run.profile))
    assert imported(names, *argv) == ["httpx", "nacl.bindings"]


def test_a_hook_imports_no_loop_and_no_gateway_that_runs(run: Machine) -> None:
    run("agents", "provision", "coder")
    absent = (
        *("asyncio", "memrelay.async_client", "memrelay.sync_client", "memrelay.gateway.hooks"),
        *("memrelay.gateway.capture", "memrelay.gateway.roster", *OPERATIONS),
    )
    argv = ("--host", "claude", "--agent", "coder", "--profile", str(run.profile))
    prompt = '{"session_id": "s", "prompt": "I prefer tea.", "last_assistant_message": "Noted."}'
    for event in ("prompt", "stop"):
        assert imported(absent, "hook", event, *argv, given=prompt) == []


@pytest.mark.parametrize("command", ["remember", "recall", "forget", "status", "keys"])
def test_the_help_of_a_command_imports_no_other_command(command: str) -> None:
    others = (
        "memrelay.commands.imports",
        "memrelay.commands.gateway",
        "memrelay.doctor",
        "asyncio",
    )
    assert imported(others, command, "--help") == []


@pytest.mark.parametrize("package", [memrelay, memrelay.gateway])
def test_every_public_name_is_there_once_it_is_asked_for(package: ModuleType) -> None:
    assert all(getattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'anything'"):
        _ = package.anything
