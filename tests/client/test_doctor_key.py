"""`memrelay doctor` on a key that is refused, or that holds or may do too little."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_OK
from memrelay.config import Settings
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING
from memrelay.errors import QuotaExceeded
from memrelay.models import Recalled
from memrelay.sealed.keys import Identity, account_id_of, account_text
from tests.client.doctor_scene import Machine, machine, states, the_problem, user
from tests.conftest import database_copy
from tests.optional import unwrap
from tests.processes import running_relayer

__all__ = ["machine", "user"]  # fixtures

STORAGE_BYTES_MAX = 256 * 1024

# A refused key


def test_a_revoked_key_by_the_owners_list(user: Machine) -> None:
    user.add_key("coder", "coder")
    assert user.run("keys", "revoke", "coder") == EXIT_OK
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail == "The owner revoked this key."
    assert found.command == "memrelay agents provision coder"


def test_an_expired_key_by_the_owners_list(user: Machine) -> None:
    user.add_ended_key("coder", "coder")
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail.startswith("This key's grant ended at 2")
    assert found.command == "memrelay agents provision coder"
    assert user.run(*found.command.split()[1:]) == EXIT_OK
    assert states(user.examine(agent="coder"), PROBLEM) == []


def test_a_key_that_was_never_granted(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.write(path, private_key=Identity.generate().seed_hex())
    found = the_problem(user.examine(agent="coder"), "key")
    assert "was never granted" in found.detail
    assert found.command == "memrelay agents provision coder"


def test_a_refused_key_outside_of_the_agents_folder(user: Machine) -> None:
    """The main profile tells all the same; a new key needs another file."""
    path = user.add_ended_key("coder", "coder")
    moved = path.rename(user.home / "coder.json")
    for options in ({"profile": str(moved)}, {}):
        found = the_problem(user.examine(**options), "key")
        assert found.detail.startswith("This key's grant ended at 2")
        assert found.command == "memrelay keys add --namespace coder --out NEW.json"
        user.environ["MEMRELAY_PROFILE"] = str(moved)


def test_a_refused_key_without_an_owner(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    assert states(user.examine(agent="coder"), PROBLEM) == []  # it worked once
    assert user.run("keys", "revoke", "coder") == EXIT_OK
    user.profile.unlink()
    found = the_problem(user.examine(profile=str(path)), "key")
    public_key = Settings.load(path, environ={}).identity.public_key.hex()
    assert "accepted this key before" in found.detail
    assert found.command == f"relayer doctor --key {public_key[:8]}"


def test_an_owner_of_another_relayer_is_not_asked(user: Machine) -> None:
    user.add_ended_key("coder", "coder")
    user.write(url="http://127.0.0.1:9")
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail == "The relayer does not accept this key: never granted, revoked or ended."
    assert unwrap(found.command).startswith("relayer doctor --key ")


def test_an_account_that_the_relayer_does_not_know(user: Machine) -> None:
    founder = Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    user.write(account_id=account_id, private_key=founder.seed_hex())
    found = the_problem(user.examine(), "key")
    assert "does not know this account" in found.detail
    assert found.command == "relayer account list"


def test_an_owner_that_is_refused_too(user: Machine) -> None:
    user.add_key("coder", "coder")
    founder = Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    user.write(account_id=account_id, private_key=founder.seed_hex())
    agent = user.folder / "agents" / "coder.json"
    user.write(agent, account_id=account_id, private_key=Identity.generate().seed_hex())
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail.startswith("The owner's key is refused, too")
    assert found.command == "relayer account list"


def test_a_key_for_another_account(user: Machine) -> None:
    right = json.loads(user.profile.read_text())["account_id"]
    wrong = "0x" + "ab" * 32
    user.write(account_id=wrong)
    found = the_problem(user.examine(), "key")
    assert found.detail == f"This key belongs to the account {right}, not to {wrong}."
    assert found.command == f"${{EDITOR:-vi}} {user.profile}"


def test_a_wrong_account_in_the_environment(user: Machine) -> None:
    user.environ["MEMRELAY_ACCOUNT_ID"] = "0x" + "ab" * 32
    found = user.examine()
    assert the_problem(found, "key").command == "export MEMRELAY_ACCOUNT_ID=ID"
    assert found["environment"].command == "unset MEMRELAY_ACCOUNT_ID"


# What the key holds


def test_a_namespace_that_the_key_does_not_hold(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.write(path, namespace="private")
    found = user.examine(agent="coder")
    assert "does not hold the namespace private; it holds coder" in found["namespace"].detail
    assert the_problem(found, "namespace").command == f"${{EDITOR:-vi}} {path}"
    assert found["search"].state == SKIPPED
    assert states(user.examine(agent="coder", namespace="coder"), PROBLEM) == []


def test_a_wrong_namespace_in_the_environment(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.environ |= {"MEMRELAY_PROFILE": str(path), "MEMRELAY_NAMESPACE": "private"}
    found = the_problem(user.examine(), "namespace")
    assert found.command == "export MEMRELAY_NAMESPACE=coder"


def test_a_grant_that_ends_soon(user: Machine) -> None:
    user.add_key("coder", "coder", expires=timedelta(days=3))
    found = user.examine(agent="coder")
    assert (found["namespace"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["namespace"].command == "memrelay agents rotate coder --expires 90d"
    assert user.run(*found["namespace"].command.split()[1:]) == EXIT_OK
    assert user.examine(agent="coder")["namespace"].state == OK


def test_an_owner_is_told_which_agents_end_soon(user: Machine) -> None:
    user.add_key("coder", "coder", expires=timedelta(days=3))
    user.add_key("tester", "tester", expires=timedelta(days=30))
    user.add_key("lasting", "lasting")
    found = user.examine()
    assert (found["agents"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["agents"].detail.startswith("Soon these keys end: coder at 2")
    assert "tester" not in found["agents"].detail
    assert found["agents"].command == "memrelay agents rotate coder --expires 90d"
    assert user.examine(agent="coder")["agents"].state == SKIPPED
    assert user.run(*found["agents"].command.split()[1:]) == EXIT_OK
    assert user.examine()["agents"].state == OK


def test_only_an_owner_is_told_that_no_model_is_set(user: Machine) -> None:
    user.add_key("coder", "coder")
    assert user.examine()["facts"].state == WARNING
    assert user.examine(agent="coder")["facts"].state == OK


@pytest.mark.parametrize(
    ("swaps", "uuid", "state"),
    [
        ([], "", OK),
        (["/dev/sda2"], "", WARNING),
        (["/swapfile"], "", WARNING),
        (["/dev/dm-0"], "CRYPT-PLAIN-swap", OK),
        (["/dev/dm-0"], "LVM-swap", WARNING),
        (["/dev/dm-0", "/dev/sda2"], "CRYPT-PLAIN-swap", WARNING),
    ],
)
def test_a_swap_that_is_not_encrypted(
    user: Machine, tmp_path: Path, swaps: list[str], uuid: str, state: str
) -> None:
    lines = ["Filename Type Size Used Priority", *(f"{name} partition 1 0 -2" for name in swaps)]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/swaps").write_text("\n".join(lines) + "\n")
    (tmp_path / "sys/block/dm-0/dm").mkdir(parents=True)
    (tmp_path / "sys/block/dm-0/dm/uuid").write_text(uuid)
    found = user.examine()["swap"]
    assert found.state == state
    if state == WARNING:
        assert found.command == f"sudo swapoff {swaps[-1]}"


def test_a_client_that_sends_no_keys(user: Machine) -> None:
    user.write(custody="managed")
    found = user.examine()
    assert the_problem(found, "custody").command == f"${{EDITOR:-vi}} {user.profile}"
    assert found["search"].state == SKIPPED


# What the account may do


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small_relayer(postgres, template, model_dir, tmp_path_factory):
    """A relayer without an embedder, where an account may store little."""
    async with database_copy(postgres, template) as copy:
        folder = tmp_path_factory.mktemp("small")
        small = {"RELAYER_EMBEDDER": "none", "RELAYER_STORAGE_BYTES_MAX": str(STORAGE_BYTES_MAX)}
        with running_relayer(folder, model_dir, database_url=copy.url, **small) as process:
            yield process


def fill(client: SyncMemoryClient) -> None:
    """Remember until the relayer refuses."""
    with suppress(QuotaExceeded):
        for number in count():
            client.remember(f"Note {number}.")


def test_an_account_that_is_nearly_full_and_then_full(machine: Machine, small_relayer) -> None:
    machine.init(small_relayer.url)
    assert machine.examine()["storage"].state == OK
    with SyncMemoryClient.from_settings(Settings.load(machine.profile, environ={})) as client:
        while client.usage().used_bytes < 0.9 * STORAGE_BYTES_MAX:
            client.remember(f"{client.usage().memory_count} " + "long " * 1000)
        assert machine.examine()["storage"].state == WARNING
        fill(client)
    found = the_problem(machine.examine(), "storage")
    assert "no room for more" in found.detail
    assert found.command == "memrelay forget ID"


def test_a_relayer_without_an_embedder(machine: Machine, small_relayer) -> None:
    machine.init(small_relayer.url)
    found = machine.examine()
    assert (found["search"].state, states(found, PROBLEM)) == (WARNING, [])
    assert "by their words only" in found["search"].detail
    assert found["search"].command == "relayer doctor"


def test_a_relayer_that_lost_its_database(
    machine: Machine, small_relayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SyncMemoryClient.usage
    machine.init(small_relayer.url)
    monkeypatch.setattr(
        SyncMemoryClient, "usage", lambda client: replace(usage(client), unrestored=True)
    )
    found = machine.examine()["search"]
    assert (found.state, found.command) == (WARNING, "memrelay recall WORDS --namespace NAME")
    assert "not all memories are back" in found.detail


def test_a_search_that_estimates(user: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "estimated" not in user.examine()["search"].detail
    read = Recalled.from_json
    monkeypatch.setattr(Recalled, "from_json", lambda answer: read({**answer, "estimated": True}))
    found = user.examine()["search"]
    assert (found.state, "are estimated" in found.detail) == (OK, True)


async def test_a_memory_that_cannot_be_opened(user: Machine, shared_relayer) -> None:
    with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as client:
        client.remember("The memrelay doctor opens memories.")
        account = bytes.fromhex(client.settings.account_id[2:])
    connection = await asyncpg.connect(shared_relayer.environment["RELAYER_DATABASE_URL"])
    try:
        damage = """UPDATE blobs b SET bytes = $2 FROM memories m
            JOIN accounts a USING (account_id) WHERE a.whole_id = $1
            AND b.account_id = m.account_id AND b.blob_id = m.blob_id"""
        assert await connection.execute(damage, account, b"damaged") == "UPDATE 1"
    finally:
        await connection.close()
    found = user.examine()
    assert (found["search"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["search"].detail == "1 memory could not be opened."
    assert found["search"].command == "relayer check"
