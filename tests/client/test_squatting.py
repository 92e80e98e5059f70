"""A writer of the whole account who names a namespace's key wrongly, and the owner's own client."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient
from memrelay.errors import NotAllowed
from memrelay.sealed.keys import Identity, NamespaceKey
from memrelay.sealed.ledger import Keyring
from tests.client.agents_scene import Machine
from tests.processes import RunningRelayer


@pytest.fixture
def sealed(
    shared_relayer: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    return machine


def holder(owner: SyncMemoryClient) -> SyncMemoryClient:
    """The client of another key of the whole account, a writer's."""
    identity = Identity.generate()
    owner.add_key(namespaces=None, role="writer", identity=identity)
    settings = replace(owner.settings, private_key=identity.seed_hex(), seen_path=None)
    return SyncMemoryClient.from_settings(settings)


class Inventing(Keyring):
    """Keys of which the newest of each namespace is none."""

    def namespace_keys(self, namespace: str) -> tuple[NamespaceKey, ...]:
        *older, newest = super().namespace_keys(namespace)
        return (*older, replace(newest, key=os.urandom(32)))


def squat(owner: SyncMemoryClient, namespace: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have a writer write first, under a key that it invented; that writer's public key."""
    with holder(owner) as writer:
        keyring = writer.run(writer._session.keyring())
        monkeypatch.setattr(keyring, "__class__", Inventing)
        assert writer.remember("Anna prefers coffee.", namespace=namespace).id
        return Identity.from_hex(writer.settings.private_key).public_key.hex()


def texts(client: SyncMemoryClient, namespace: str) -> set[str | None]:
    return {found.text for found in client.recall("Anna", namespace=namespace).results}


def assert_allowed_soon(agent: SyncMemoryClient, namespace: str) -> None:
    """An agent may write once the owner's key is in its place, behind the owner's read."""
    until = time.monotonic() + 60
    while True:
        try:
            assert agent.remember("Anna prefers tea.", namespace=namespace).id
        except NotAllowed:
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def test_an_owner_goes_on_after_a_rotation_and_is_rid_of_the_writer(
    sealed: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sealed.client() as owner:
        owner.remember("Anna prefers tea.", namespace="team")
        owner.rotate(reseal="none")
        writer = squat(owner, "team", monkeypatch)
        assert texts(owner, "team") == {"Anna prefers tea."}
        owner.remember("Anna prefers water.", namespace="team")
        listed = {m.text: (m.status, m.writer) for m in owner.list(namespace="team").memories}
        assert listed[None] == ("failed", writer), "what it stored is not hidden"
    shown = sealed.json("rotate", "--revoke", writer, "--reseal", "all", "--yes")
    assert (shown["progress"]["remaining"], shown["retired"], shown["epochs"]) == (0, True, [3])
    with sealed.client() as owner:
        assert texts(owner, "team") == {"Anna prefers tea.", "Anna prefers water."}


def test_the_rotation_itself_puts_it_right(
    sealed: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the owner has asked for anything there: the keys that it lends for it do."""
    with sealed.client() as owner:
        owner.remember("Anna prefers tea.", namespace="team")
        owner.rotate(reseal="none")
        squat(owner, "team", monkeypatch)
    shown = sealed.json("rotate", "--resume", "--namespace", "team")
    assert (shown["progress"]["remaining"], shown["retired"]) == (0, True)
    with sealed.client() as owner:
        assert texts(owner, "team") == {"Anna prefers tea."}


def test_others_are_told_which_key_it_is_until_an_owner_asks(
    sealed: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sealed.client() as owner, holder(owner) as agent:
        squat(owner, "new", monkeypatch)
        with pytest.raises(NotAllowed, match="'new' has another key in epoch 1"):
            agent.remember("Anna prefers tea.", namespace="new")
        assert agent.remember("Anna prefers tea.", namespace="elsewhere").id
        assert texts(owner, "new") == set()
        assert_allowed_soon(agent, "new")
        assert texts(owner, "new") == {"Anna prefers tea."}
