"""What the command sync takes, says and refuses, and how it follows."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, main
from memrelay.models import Draft
from memrelay.replication.agreement import agreement_path, held_agreement
from memrelay.sealed.keys import Identity
from tests.client.archive_scene import Scene, found, other_relayer
from tests.client.sync_scene import Pair, contents, taken

__all__ = ["found", "other_relayer"]  # fixtures


@pytest.fixture
def pair(found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]) -> Pair:
    """An account that its founder has just founded at both."""
    pair = Pair(found("sealed"), capsys)
    pair.run("--found")
    return pair


def refused(pair: Pair, *argv: str, code: int) -> str:
    """The line in which the command says why not."""
    pair.capsys.readouterr()
    assert main(["sync", *argv, "--profile", pair.here], {}) == code
    said: str = pair.capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_dry_run_says_what_would_be_done_and_does_nothing(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        kept, gone = (m.id for m in here.remember_many(["Anna drinks tea.", "Gone."]))
        pair.run()
        there.forget(gone)
        there.edit(kept, text="Anna drinks milk.")
        here.remember_many(["One.", "Two."])
        before = contents(here), contents(there)
        told = pair.run("--dry-run")
        assert told["dry_run"]
        assert taken(told) == [{"revisions": 1, "erased": 1}, {"new": 2}]
        assert (contents(here), contents(there)) == before
        assert taken(pair.run()) == taken(told)


def test_only_the_namespaces_that_were_named_travel(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        here.remember_many([Draft(text="Team."), Draft(text="Apart.", namespace="other")])
        erased = here.remember("Gone.", namespace="other").id
        assert taken(pair.run("--namespace", "team")) == [{}, {"new": 1}]
        assert [info.name for info in there.namespaces()] == ["team"]
        here.forget(erased)
        assert taken(pair.run("--namespace", "team")) == [{}, {}]
        assert taken(pair.run("--namespace", "other", "--namespace", "third")) == [{}, {"new": 1}]
        assert contents(here, ("team", "other")) == contents(there, ("team", "other"))


def test_by_a_url_without_a_profile_of_its_own(
    found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(found("managed"), capsys)
    url = pair.there = pair.scene.there.url
    said = refused(pair, url, code=EXIT_FAILED)
    assert "--found" in said
    with pair.client(pair.scene.here) as here:
        here.remember("Anna drinks tea.")
    assert taken(pair.run("--found")) == [{}, {"new": 1}]
    capsys.readouterr()
    assert main(["sync", url, "--profile", pair.here], {}) == EXIT_OK
    assert capsys.readouterr().out.splitlines() == [
        f"{pair.scene.here.url}: nothing new",
        f"{url}: nothing new",
    ]
    stranger = Identity.generate().public_key.hex()
    said = refused(pair, url, "--relayer-key", stranger, code=EXIT_FAILED)
    assert said.startswith(f"memrelay: {url}: ")


def test_two_accounts_one_relayer_and_readers_are_refused(pair: Pair) -> None:
    assert "same relayer" in refused(pair, pair.here, code=EXIT_USAGE)
    other = json.loads(Path(pair.there).read_text())
    other["account_id"] = "0x" + "ab" * 32
    stranger = Path(pair.there).with_name("stranger.json")
    stranger.write_text(json.dumps(other))
    stranger.chmod(0o600)
    assert "different accounts" in refused(pair, str(stranger), code=EXIT_USAGE)
    agent = Identity.generate()
    with pair.client(pair.scene.here) as client:
        client.add_key(namespaces=["team"], identity=agent, label="agent")
    mine = json.loads(Path(pair.here).read_text()) | {"private_key": agent.seed_hex()}
    Path(pair.here).write_text(json.dumps(mine))
    refused(pair, pair.there, code=EXIT_FAILED)


def test_keys_that_were_rotated_at_one_alone_stop_it_until_the_grants_are_there(
    pair: Pair,
) -> None:
    here, there = pair.both()
    with here, there:
        here.remember("Sealed before.")
        pair.run()
        here.rotate(reseal="none")
        here.remember("Sealed after.")
        assert "rotated" in refused(pair, pair.there, code=EXIT_FAILED)
        archive = str(Path(pair.here).with_name("anna.archive"))
        assert main(["export", archive, "--profile", pair.here], {}) == EXIT_OK
        assert main(["import", archive, "--profile", pair.there], {}) == EXIT_OK
        there.edit(next(there.memories()).id, text="Edited after.")
        pair.run()
        assert len(contents(there)) == 2
        assert contents(here) == contents(there)


def test_it_follows_both_until_it_is_interrupted(pair: Pair) -> None:
    argv = ["sync", pair.there, "--profile", pair.here, "--follow", "--json"]
    here, there = pair.both()
    with (
        here,
        there,
        subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        memory = here.remember("Anna drinks tea.").id
        assert taken(json.loads(process.stdout.readline())) == [{}, {"new": 1}]
        there.edit(memory, text="Anna drinks milk.")
        until(lambda: here.get(memory).text == "Anna drinks milk.")
        here.remember("Elsewhere.", namespace="later")
        until(lambda: len(list(there.memories(namespace="later"))) == 1)
        process.send_signal(signal.SIGINT)
        assert process.wait() == EXIT_INTERRUPTED
        assert contents(here) == contents(there)


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.1)


def test_one_at_a_time(pair: Pair) -> None:
    with pair.client(pair.scene.here) as here, pair.client(pair.scene.there) as there:
        keys = (here.statement().relayer.hex(), there.statement().relayer.hex())
    path = agreement_path(Path(pair.here), pair.scene.account_id, keys)
    with held_agreement(path, keys):
        assert "Another sync" in refused(pair, pair.there, code=EXIT_USAGE)
