"""Commands on agents, killed at any request or run side by side: the next one finishes it."""

import json
import stat
import subprocess
import sys
from contextlib import suppress
from subprocess import TimeoutExpired

import pytest

from memrelay.cli import EXIT_USAGE
from memrelay.config import Settings
from memrelay.gateway.spool import SpoolKey
from tests.client.agents_scene import grants, machine
from tests.client.breakpoints import COMMAND_S_MAX, breakpoint_at, killed_at
from tests.client.spool_scene import spool_in, turns

__all__ = ["machine"]  # fixtures

OTHER_S_MAX = 5  # in which one that nothing keeps away comes to its end


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_provisioning_killed_at_the_grant_is_finished_by_the_next(machine, after):
    with breakpoint_at(machine.url, "/v1/grants", after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder", "--shared", "team")
        (pending,) = machine.folder.glob("coder*")
        assert stat.S_IMODE(pending.stat().st_mode) == 0o600
        planned = json.loads(pending.read_text())["profile"]["private_key"]
        assert len(machine.keys("coder")) == after
        agent = machine.provision("coder", "--shared", "team")
        assert agent["state"] == "created"
        assert machine.settings("coder").private_key == planned
        assert machine.live("coder") == [agent["public_key"]]
        assert len(grants(machine, agent["public_key"])) == 1
        assert not pending.exists()
        machine.run("remember", "alive", "--agent", "coder")


@pytest.mark.parametrize(
    ("path", "after", "next_command"),
    [
        ("/v1/grants", False, "rotate"),
        ("/v1/grants", True, "provision"),
        ("/v1/revocations", False, "provision"),
        ("/v1/revocations", True, "rotate"),
    ],
)
def test_a_rotation_killed_anywhere_is_finished_by_the_next(machine, path, after, next_command):
    old = machine.provision("coder", "--shared", "team")
    spools = [spool_in(folder / "spool") for folder in (machine.folder, machine.profile.parent)]
    for spool in spools:
        spool.put(SpoolKey.of(machine.settings("coder").identity), b"a turn")
    with breakpoint_at(machine.url, path, after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        with machine.client("coder") as client:
            client.remember("there is always a key that works")
        agent = machine.rotate("coder") if next_command == "rotate" else machine.provision("coder")
        assert agent["state"] == "rotated"
        assert agent["grants"] == old["grants"]
        for spool in spools:
            assert turns(spool, SpoolKey.of(machine.settings("coder").identity)) == [b"a turn"]
        assert machine.live("coder") == [agent["public_key"]] != [old["public_key"]]
        assert len(machine.keys("coder")) == 2
        assert len(grants(machine, agent["public_key"])) == 1
        assert not list(machine.folder.glob("*.pending"))
        machine.run("remember", "alive", "--agent", "coder")


def test_two_at_once_make_one_key(machine):
    with breakpoint_at(machine.url, "/v1/keys", after=True, method="GET") as point:
        machine.environ["MEMRELAY_URL"] = point.url
        argv = ("agents", "provision", "coder", "--shared", "team")
        with machine.process(*argv) as one:
            # It has seen that there is no plan, and has not made its own.
            assert point.reached.wait(COMMAND_S_MAX)
            while not point.requests.empty():
                point.requests.get()
            with machine.process(*argv) as other:
                point.requests.get(timeout=COMMAND_S_MAX)
                point.released.set()
        assert (one.returncode, other.returncode) == (0, 0)
        assert machine.live("coder") == [machine.settings("coder").public_key]
        assert len(machine.keys("coder")) == 1
        assert len(grants(machine, machine.settings("coder").public_key)) == 1


def test_what_is_there_is_looked_up_once_for_all(machine):
    names = ("a1", "b2", "c3")
    machine.run("agents", "provision", *names)
    with breakpoint_at(machine.url, "", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        asked = []
        for chosen in (names[:1], names):
            machine.run("agents", "provision", *chosen)
            asked.append([point.requests.get() for _ in range(point.requests.qsize())])
    assert asked[0] == asked[1]
    assert ("GET", "/v1/grants") in asked[0]


def test_a_plan_whose_key_was_revoked_is_dropped(machine):
    with breakpoint_at(machine.url, "/v1/grants", after=True) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder")
    machine.environ.pop("MEMRELAY_URL")
    (planned,) = machine.live("coder")
    machine.run("keys", "revoke", planned)
    agent = machine.provision("coder")
    assert machine.live("coder") == [agent["public_key"]] != [planned]
    assert len(grants(machine, planned)) == 1
    assert not list(machine.folder.glob("*.pending"))


def test_revoking_ends_what_a_killed_rotation_left_under_another_label(machine):
    path = machine.folder / "coder.json"
    machine.run("keys", "add", "--namespace", "coder", "--label", "laptop", "--out", str(path))
    (old,) = machine.live("laptop")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert machine.live("laptop") == [old]
        machine.run("agents", "revoke", "coder")
        assert machine.live("laptop") == machine.live("coder") == []


def test_revoking_ends_what_a_killed_rotation_left(machine):
    machine.run("agents", "provision", "coder")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert len(machine.live("coder")) == 2
        machine.run("agents", "revoke", "coder")
        assert machine.live("coder") == []
        assert [path.name for path in machine.folder.glob("coder.json*")] == ["coder.json.revoked"]


KILLED = """
import os, signal, sys
from pathlib import Path
from memrelay import secure_files

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

secure_files.os.replace = killed
secure_files.write_private(Path(sys.argv[1]), {"private_key": "SECRET"})
"""


@pytest.mark.parametrize("command", ["provision", "rotate", "revoke"])
def test_a_key_that_a_killed_command_was_writing_is_deleted_by_the_next(machine, command):
    machine.provision("coder")
    for name in ("coder.json", "coder.json.pending", "other.json"):
        path = str(machine.folder / name)
        assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode < 0
    seen = machine.folder / ".coder.0123456789abcdef.seen.json.abcd1234"
    seen.touch()
    assert sum(b"SECRET" in path.read_bytes() for path in machine.folder.iterdir()) == 3
    machine.run("agents", command, "coder")
    assert not any(b"SECRET" in path.read_bytes() for path in machine.folder.iterdir())
    assert seen.exists()  # whoever is writing that holds another lock


def test_of_two_at_one_file_one_adds_a_key(machine):
    """A key whose profile another process replaced would be granted, and nobody's."""
    path = machine.folder.parent / "laptop.json"
    argv = ["keys", "add", "--namespace", "work", "--label", "laptop", "--out", str(path)]
    with breakpoint_at(machine.url, "/v1/relayer", after=False, method="GET") as point:
        machine.environ["MEMRELAY_URL"] = point.url
        with machine.process(*argv) as one:
            # It has seen that there is no file, and has not made its own.
            assert point.reached.wait(COMMAND_S_MAX)
            with machine.process(*argv) as other:
                with suppress(TimeoutExpired):
                    other.wait(OTHER_S_MAX)
                point.released.set()
        assert (one.returncode, other.returncode) == (0, EXIT_USAGE)
        assert machine.live("laptop") == [Settings.load(path, environ={}).public_key]
