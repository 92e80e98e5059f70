"""`memrelay rotate`: new keys for everybody but the revoked, through a real relayer."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, main
from memrelay.commands import rotation as commands
from memrelay.errors import NotAuthenticated, NotGranted
from memrelay.sealed.grants import read_grant
from memrelay.sealed.keys import Identity, Root
from memrelay.sealed.ledger import Ledger, read_revocation
from memrelay.sealed.reissue import SCOPE_ENTRIES_MAX, Reissue, reissue
from memrelay.signing import RequestSigner
from tests.client.agents_scene import Machine
from tests.client.conftest import Example
from tests.client.signed import grant, ledger
from tests.processes import RunningRelayer

NOW_MS = 1_770_000_000_000


@pytest.fixture(params=["sealed", "managed"])
def machine(
    request: pytest.FixtureRequest,
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Machine:
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url, "--custody", request.param)
    return machine


@pytest.fixture
def sealed(
    shared_relayer: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    return machine


def now_ms() -> int:
    return int(time.time() * 1000)


def texts(client: SyncMemoryClient, query: str, namespace: str) -> set[str | None]:
    return {found.text for found in client.recall(query, namespace=namespace).results}


def test_a_revoked_agent_is_out_and_all_others_go_on(machine: Machine) -> None:
    machine.run("agents", "provision", "coder", "tester", "--shared", "team")
    machine.run("remember", "Anna prefers tea.", "--agent", "coder", "--namespace", "team")
    machine.run("remember", "Only the tester knows.", "--agent", "tester")
    with machine.client("tester") as tester, machine.client("coder") as coder:
        assert texts(tester, "tea", "team") == {"Anna prefers tea."}
        assert texts(coder, "tea", "team") == {"Anna prefers tea."}
        shown = machine.json("rotate", "--revoke", "coder")
        assert (shown["epoch"], len(shown["revoked"])) == (2, 1)
        progress = shown["progress"]
        assert [(n["name"], n["done"], n["remaining"]) for n in progress["namespaces"]] == [
            ("team", 1, 0)
        ]
        assert progress["older"] == 1, "the tester's own, which the revoked key never read"
        with pytest.raises(NotAuthenticated):
            texts(coder, "tea", "team")
        # The tester's client learns of it by itself, and so does a fresh one.
        with machine.client("tester") as fresh:
            for client in (tester, fresh):
                assert texts(client, "tea", "team") == {"Anna prefers tea."}
                assert texts(client, "who knows", "tester") == {"Only the tester knows."}
        assert tester.remember("Said after the rotation.", namespace="team").id
    [kept] = machine.json("agents", "provision", "tester", "--shared", "team")["agents"]
    assert kept["state"] == "kept"
    states = {agent["name"]: agent["state"] for agent in machine.json("agents", "list")["agents"]}
    assert states == {"coder": "revoked", "tester": "active"}


def test_sealing_everything_anew_ends_the_old_epoch(machine: Machine) -> None:
    machine.run("agents", "provision", "coder")
    for name in ("default", "team", "coder"):
        machine.run("remember", f"Anna prefers tea in {name}.", "--namespace", name)
    shown = machine.json("rotate", "--reseal")
    assert (shown["retired"], shown["epochs"]) == (True, [2])
    assert shown["progress"]["older"] == 0
    with machine.client() as owner:
        for name in ("default", "team"):
            assert texts(owner, "tea", name) == {f"Anna prefers tea in {name}."}
    with machine.client("coder") as coder:
        assert texts(coder, "tea", "coder") == {"Anna prefers tea in coder."}
    # What is granted from now on has nothing of the old epoch.
    machine.run("agents", "provision", "late")
    with machine.client("late") as late:
        assert late.remember("Hello.").id
    again = machine.json("rotate", "--reseal", "all")
    assert (again["epoch"], again["epochs"], again["retired"]) == (3, [3], True)


def test_no_wait_status_and_resume(machine: Machine) -> None:
    machine.run("remember", "Anna prefers tea.")
    shown = machine.json("rotate", "--no-wait", "--reseal", "none")
    assert (shown["epoch"], shown["epochs"]) == (2, [1, 2])
    status = machine.json("rotate", "--status")
    assert status == {"epochs": [1, 2], "progress": status["progress"]}
    assert (status["progress"]["older"], status["progress"]["total"]) == (1, 0)
    resumed = machine.json("rotate", "--resume")
    assert (resumed["retired"], resumed["epochs"]) == (False, [1, 2])
    resumed = machine.json("rotate", "--resume", "--namespace", "default")
    assert (resumed["retired"], resumed["epochs"]) == (True, [2])
    out = machine.run("rotate", "--status")
    assert "epoch     2" in out
    assert "tea" not in out


def test_what_is_not_sealed_anew_hides_nothing_of_the_rotation(
    sealed: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new keys count, and that is shown, also if the rest does not go on."""
    sealed.run("remember", "Anna prefers tea.")
    monkeypatch.setattr(commands, "_STALLED_S", -1.0)
    assert main(["rotate", "--reseal", "--json"], sealed.environ) == EXIT_FAILED
    out, err = capsys.readouterr()
    shown = json.loads(out)
    assert (shown["epoch"], shown["epochs"], shown["retired"]) == (2, [1, 2], False)
    assert shown["progress"]["remaining"] == 1
    assert "--resume" in err


def test_more_namespaces_than_one_request_lends_keys_of(sealed: Machine) -> None:
    names = [f"namespace number {n:02} with a long name {'x' * 60}" for n in range(30)]
    with sealed.client() as owner:
        for name in names:
            owner.remember("Anna prefers tea.", namespace=name)
    shown = sealed.json("rotate", "--reseal")
    assert shown["progress"]["done"] == shown["progress"]["total"] == 30
    assert shown["retired"]


def test_a_rotation_goes_on_after_an_interruption(sealed: Machine) -> None:
    """Whoever stops it anywhere finds either the old epoch or the new one, and goes on."""
    with sealed.client() as owner:
        owner.remember_many([f"note {n} on the harbour" for n in range(200)])
    process = sealed.process("rotate", "--reseal")
    with sealed.client() as owner:
        while owner.rotation().epoch == 1:
            assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.wait()
    shown = sealed.json("rotate", "--resume")
    assert shown["progress"]["epoch"] == 2
    assert shown["progress"]["remaining"] == 0
    with sealed.client() as owner:
        assert len(texts(owner, "harbour", "default")) == 10
        assert owner.remember("note 7 on the harbour").duplicate


class Line(httpx.HTTPTransport):
    """A connection to a relayer on which something happens to the first rotation."""

    def __init__(self, *, before: Callable[[], Any] | None = None, loses: bool = False) -> None:
        super().__init__()
        self._before, self._loses = before, loses
        self.rotations = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if (request.method, request.url.path) != ("POST", "/v1/rotations"):
            return super().handle_request(request)
        self.rotations += 1
        if self.rotations == 1 and self._before is not None:
            self._before()
        response = super().handle_request(request)
        if self.rotations == 1 and self._loses:
            response.read()
            raise httpx.ReadError("the connection broke")
        return response


def test_another_grant_in_between_is_no_matter(sealed: Machine) -> None:
    """The rotation is built anew for the chain as it is then: nobody is left behind."""
    with sealed.client() as other:
        added: list[str] = []

        def add() -> None:
            added.append(other.add_key(namespaces=["default"], label="in between").public_key)

        line = Line(before=add)
        with SyncMemoryClient.from_settings(other.settings, transport=line) as owner:
            assert owner.rotate().epoch == 2
            held = owner.grants().list_grants_to(bytes.fromhex(added[0]), now_ms())
    assert line.rotations == 2
    assert [entry.epoch for entry in held[-1].scope] == [1, 2]


def test_an_answer_that_got_lost_is_no_second_rotation(sealed: Machine) -> None:
    with sealed.client() as other:
        line = Line(loses=True)
        with SyncMemoryClient.from_settings(other.settings, transport=line) as owner:
            rotated = owner.rotate()
        assert line.rotations == 2
        assert (rotated.epoch, rotated.receipts) == (2, ())
        assert other.rotation().epoch == 2
        assert other.remember("Anna prefers tea.").id


def test_what_a_memwal_client_uploaded_is_found_and_verified_afterwards(
    shared_relayer: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url, "--custody", "managed")
    with machine.client() as owner:
        settings = owner.settings
    own = Identity.from_hex(settings.private_key)
    asked = {"vector": [1.0, 2.0, 3.0], "namespace": settings.namespace, "limit": 1}
    with httpx.Client(
        base_url=settings.url, auth=RequestSigner(own, account_id=settings.account_id)
    ) as line:
        body = {"encrypted_data": "AAAA", "vector": [1.0, 2.0, 3.0]}
        kept = line.post("/api/remember/manual", json=body | {"namespace": settings.namespace})
        machine.run("rotate", "--reseal", "all")
        [found] = line.post("/api/recall/manual", json=asked).raise_for_status().json()["results"]
    assert found["blob_id"] == kept.json()["blob_id"]
    assert found["distance"] == pytest.approx(0, abs=1e-3)
    assert machine.json("verify")["findings"] == []


def test_who_may_not_rotate(sealed: Machine) -> None:
    sealed.run("agents", "provision", "coder")
    with sealed.client("coder") as coder, pytest.raises(NotGranted):
        coder.rotate()
    with sealed.client() as owner:
        writer = owner.add_key(namespaces=None, role="writer")
        settings = owner.settings
    values = {name: getattr(settings, name) for name in ("url", "account_id", "relayer_key")}
    with SyncMemoryClient(**values, private_key=writer.private_key) as client:
        with pytest.raises(NotGranted):
            client.rotate()
        assert client.rotation().epoch == 1


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--revoke", "nobody"), EXIT_NOT_FOUND),
        (("--reseal", "all", "--namespace", "default"), EXIT_USAGE),
        (("--resume", "--revoke", "coder"), EXIT_USAGE),
        (("--status", "--revoke", "coder"), EXIT_USAGE),
        (("--status", "--reseal"), EXIT_USAGE),
        (("--namespace", "nowhere"), EXIT_NOT_FOUND),
    ],
)
def test_wrong_arguments_rotate_nothing(sealed: Machine, argv: tuple[str, ...], code: int) -> None:
    sealed.run("rotate", *argv, code=code)
    assert sealed.json("rotate", "--status")["progress"]["epoch"] == 1


def test_the_newest_epoch_is_kept_as_seen(sealed: Machine) -> None:
    """So that yesterday's grants, shown again, are refused by the next process, too."""
    sealed.run("rotate", "--reseal", "none")
    [seen] = sealed.profile.parent.glob("*.seen.json")
    assert json.loads(seen.read_text())["epoch"] == 2


class TestReissue:
    """What a rotation sends, by the rules alone."""

    def of(self, example: Example, book: Ledger, *epochs: int, **members: Any) -> Reissue:
        roots = [Root(bytes([epoch]) * 32, epoch) for epoch in epochs]
        return reissue(
            book,
            example.founder,
            **{
                "account": example.account,
                "roots": roots,
                "withdrawn": [],
                "relayer": example.relayer.public_key,
                "now_ms": NOW_MS,
                **members,
            },
        )

    def judged(self, example: Example, book: Ledger, sent: Reissue) -> Ledger:
        for data in sent.revocations:
            book.add(read_revocation(data))
        for data in sent.grants:
            book.add(read_grant(data))
        return book

    def test_everybody_holds_the_same_in_every_epoch(self, example: Example) -> None:
        root = Root(bytes([1]) * 32, 1)
        team = root.namespace_key(example.account, "team")
        book = ledger(
            example,
            grant(example, 1, example.founder, example.founder, keys=[root]),
            grant(example, 2, example.founder, example.agent, "reader", keys=[team]),
            grant(example, 3, example.founder, example.relayer, "custodian", keys=[root]),
        )
        sent = self.of(example, book, 1, 2)
        assert (sent.epoch, sent.serial, len(sent.grants)) == (2, 6, 3)
        book = self.judged(example, book, sent)
        assert book.complete
        keyring = book.keyring(example.agent, NOW_MS)
        assert [key.epoch for key in keyring.namespace_keys("team")] == [1, 2]
        assert keyring.roles == {"reader"}
        assert book.keyring(example.founder, NOW_MS).epoch == 2
        assert book.is_managed_by(example.relayer.public_key, NOW_MS)

    def test_who_is_withdrawn_or_elsewhere_gets_nothing(self, example: Example) -> None:
        root = Root(bytes([1]) * 32, 1)
        book = ledger(
            example,
            grant(example, 1, example.founder, example.founder, keys=[root]),
            grant(example, 2, example.founder, example.agent, "writer", keys=[root]),
            grant(example, 3, example.founder, example.relayer, "custodian", keys=[root]),
        )
        sent = self.of(example, book, 1, 2, withdrawn=[example.agent.public_key], relayer=bytes(32))
        assert (len(sent.revocations), len(sent.grants)) == (1, 1)
        book = self.judged(example, book, sent)
        assert book.list_grants_to(example.agent.public_key, NOW_MS) == []

    def test_an_epoch_left_out_by_the_newest_grant_is_over(self, example: Example) -> None:
        root = Root(bytes([1]) * 32, 1)
        book = ledger(example, grant(example, 1, example.founder, example.founder, keys=[root]))
        book = self.judged(example, book, self.of(example, book, 1, 2))
        assert [r.epoch for r in book.keyring(example.founder, NOW_MS).roots()] == [1, 2]
        book = self.judged(example, book, self.of(example, book, 2))
        assert [r.epoch for r in book.keyring(example.founder, NOW_MS).roots()] == [2]

    def test_many_namespaces_take_several_grants(self, example: Example) -> None:
        root = Root(bytes([1]) * 32, 1)
        names = [f"n{n:03}" for n in range(100)]
        keys = [root.namespace_key(example.account, name) for name in names]
        book = ledger(
            example,
            grant(example, 1, example.founder, example.founder, keys=[root]),
            grant(example, 2, example.founder, example.agent, "writer", keys=keys),
        )
        sent = self.of(example, book, 1, 2, 3)
        assert len(sent.grants) == 1 + -(-100 // (SCOPE_ENTRIES_MAX // 3))
        keyring = self.judged(example, book, sent).keyring(example.agent, NOW_MS)
        assert keyring.names == tuple(names)
        assert all(len(keyring.namespace_keys(name)) == 3 for name in names)
