"""Which keys `keys revoke` and `rotate --revoke` withdraw, whatever labels a relayer tells."""

import io
import sys

import asyncpg
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from memrelay.models import KeyInfo
from memrelay.sealed.keys import mask_key
from tests.client.agents_scene import Machine, machine
from tests.processes import RunningRelayer

__all__ = ["machine"]  # fixtures

COMMANDS = pytest.mark.parametrize("command", [("keys", "revoke"), ("rotate", "--revoke")])


class Terminal(io.StringIO):
    """A terminal at which somebody types this."""

    def isatty(self) -> bool:
        return True


def whole_account(machine: Machine, label: str) -> str:
    """A key that holds the whole account."""
    shown = machine.json("keys", "add", "--whole-account", "--label", label)
    return str(shown["public_key"])


async def relabel(relayer: RunningRelayer, labels: dict[str, str]) -> None:
    """What a hostile relayer tells: labels of keys, which nobody signed."""
    connection = await asyncpg.connect(relayer.environment["RELAYER_DATABASE_URL"])
    for key, label in labels.items():
        done = await connection.execute(
            "UPDATE grants SET label = $2 WHERE recipient = $1", bytes.fromhex(key), label
        )
        assert done != "UPDATE 0"
    await connection.close()


def revoked(machine: Machine) -> set[str]:
    listed = machine.json("keys", "list")["keys"]
    return {key["public_key"] for key in listed if key["revoked"]}


def epoch(machine: Machine) -> int:
    return int(machine.json("rotate", "--status")["progress"]["epoch"])


@COMMANDS
async def test_swapped_labels_do_not_pass_unseen(
    machine: Machine, shared_relayer: RunningRelayer, command: tuple[str, ...]
) -> None:
    """The label is the relayer's word: without anybody to ask, it withdraws nothing."""
    laptop, desk = whole_account(machine, "laptop"), whole_account(machine, "desk")
    await relabel(shared_relayer, {laptop: "desk", desk: "laptop"})
    machine.run(*command, "laptop", code=EXIT_USAGE)
    assert f"{desk}, writer of the whole account" in machine.err
    assert (revoked(machine), epoch(machine)) == (set(), 1)
    machine.run(*command, laptop, code=EXIT_OK)
    assert revoked(machine) == {laptop}


@COMMANDS
def test_a_person_agrees_to_the_key_behind_a_label(
    machine: Machine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = whole_account(machine, "laptop")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(AssertionError):  # more than one line: what it is, and the question
        machine.run(*command, "laptop", code=EXIT_FAILED)
    assert f"{laptop}, writer of the whole account" in machine.err
    assert "Nothing was revoked." in machine.err
    assert revoked(machine) == set()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    out = machine.run(*command, "laptop")
    assert f"{laptop}, writer of the whole account" in out
    assert revoked(machine) == {laptop}


@COMMANDS
def test_a_yes_shows_the_whole_key_before_and_after(
    machine: Machine, command: tuple[str, ...]
) -> None:
    laptop = whole_account(machine, "laptop")
    out = machine.run(*command, "laptop", "--yes")
    for shown in (machine.err, out):
        assert f"{laptop}, writer of the whole account" in shown
    assert revoked(machine) == {laptop}


@COMMANDS
async def test_a_key_counts_before_a_label_that_looks_like_it(
    machine: Machine, shared_relayer: RunningRelayer, command: tuple[str, ...]
) -> None:
    laptop, desk, old = (whole_account(machine, name) for name in ("laptop", "desk", "old"))
    await relabel(shared_relayer, {desk: laptop[:8]})
    machine.run(*command, laptop[:8])
    await relabel(shared_relayer, {desk: mask_key(old)})
    machine.run(*command, mask_key(old))
    assert revoked(machine) == {laptop, old}


@COMMANDS
async def test_an_agents_own_profile_is_believed_and_contradicts_a_relayer(
    machine: Machine, shared_relayer: RunningRelayer, command: tuple[str, ...]
) -> None:
    keys = {name: machine.provision(name)["public_key"] for name in ("coder", "tester")}
    desk = whole_account(machine, "desk")
    await relabel(shared_relayer, {desk: "coder"})
    machine.run(*command, "coder", "--yes", code=EXIT_FAILED)
    assert "give the whole public key" in machine.err
    await relabel(shared_relayer, {desk: "desk", keys["tester"]: "desk"})
    machine.run(*command, "desk", "--yes", code=EXIT_FAILED)
    assert revoked(machine) == set()
    await relabel(shared_relayer, {desk: "tester", keys["coder"]: "nobody"})
    machine.run(*command, "coder")
    assert revoked(machine) == {keys["coder"]}


def test_an_agent_whose_key_goes_has_ended_here_too(machine: Machine) -> None:
    """As by `agents revoke`: no gateway goes on with its profile, or takes the owner's key."""
    keys = {name: machine.provision(name)["public_key"] for name in ("coder", "tester")}
    shown = machine.run("rotate", "--revoke", keys["coder"])
    assert "ended     coder: its profile is deleted" in shown
    left = {path.name for path in machine.folder.glob("*.json*")}
    assert left == {"coder.json.revoked", "tester.json"}
    assert "ended" not in machine.run("rotate", "--revoke", whole_account(machine, "desk"))
    assert machine.provision("coder")["public_key"] not in keys.values()


@COMMANDS
def test_only_an_owner_chooses(machine: Machine, command: tuple[str, ...]) -> None:
    desk = whole_account(machine, "desk")
    machine.provision("coder")
    profile = str(machine.folder / "coder.json")
    machine.run(*command, desk, "--profile", profile, code=EXIT_FAILED)
    assert "Only an owner's key" in machine.err


@COMMANDS
def test_owners_that_only_the_relayer_names_are_none(
    machine: Machine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    [own] = machine.json("keys", "list")["keys"]
    invented = tuple(KeyInfo(public_key=f"{number:064x}", role="owner") for number in (1, 2))
    told = SyncMemoryClient.keys
    monkeypatch.setattr(SyncMemoryClient, "keys", lambda client: (*told(client), *invented))
    machine.run(*command, own["public_key"], code=EXIT_USAGE)
    assert "nobody could read" in machine.err
    assert epoch(machine) == 1
