"""Which key and namespace an agent of a gateway gets, from real profiles on disk.

Not here: namespaces that several agents share (`test_gateway_shared.py`).
"""

import json
import os
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay import MemoryClient, Settings
from memrelay.config import trust_store_path
from memrelay.errors import ConfigError, Invalid
from memrelay.gateway import Context, Gateway, Roster
from memrelay.gateway.profiles import FAULT_S
from memrelay.sealed.envelope import _HEADER, MEMORY, Address, open_envelope
from memrelay.sealed.keys import NamespaceKey, account_bytes
from tests.client.gateway_scene import (
    PATIENT,
    TEA,
    agent_settings,
    conversation,
    founded,
    texts_of,
    write_profile,
)
from tests.processes import RunningRelayer

MAIN = Context(session_key="agent:main:main")
CODER = Context(session_key="agent:coder:main")
RESEARCHER = Context(agent_id="researcher")
ASKED = {"prompt": "Do I prefer green tea or coffee in the morning?"}


def settings(number: int, namespace: str = "default") -> Settings:
    """Settings of nobody that a relayer knows."""
    return Settings(
        url="http://127.0.0.1:9",
        account_id=f"0x{'1' * 64}",
        private_key=f"{number:064x}",
        namespace=namespace,
    )


class Home:
    """A folder of profiles."""

    def __init__(self, folder: Path) -> None:
        self.profile = folder / "profile.json"
        self.agents = folder / "agents"
        write_profile(self.profile, settings(1, "home"))
        write_profile(self.agents / "coder.json", settings(2, "code"))

    def load(self, **environ: str) -> Roster:
        return Roster.load(self.profile, environ=environ)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def key_of(roster: Roster, context: Context) -> tuple[str, str] | None:
    """The private key and namespace of an agent's binding."""
    binding = roster.bind(context)
    if binding is None:
        return None
    return binding.client.settings.private_key, binding.namespace


async def test_each_agent_has_its_own_place(home: Home) -> None:
    """capability 2.9: agents are apart by key or namespace without configuration."""
    roster = home.load()
    assert key_of(roster, MAIN) == (f"{1:064x}", "home")
    assert key_of(roster, Context()) == (f"{1:064x}", "home")
    assert key_of(roster, Context(session_key="main:0f1e")) == (f"{1:064x}", "home")
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    assert key_of(roster, Context(agent_id="CODER")) == (f"{2:064x}", "code")
    assert key_of(roster, RESEARCHER) == (f"{1:064x}", "researcher")
    bindings = [roster.bind(context) for context in (MAIN, CODER, RESEARCHER)]
    assert [binding.borrows for binding in bindings if binding] == [False, False, True]
    assert len(roster.clients()) == 2
    await roster.close()


async def test_one_client_serves_all_calls(home: Home) -> None:
    roster = home.load()
    bindings = [roster.bind(context) for context in (CODER, CODER, MAIN, RESEARCHER)]
    coder, again, main, borrower = [binding.client for binding in bindings if binding]
    assert coder is again
    assert main is borrower
    await roster.close()


@pytest.mark.parametrize(
    "name", ["../../profile", "..", "a/b", "/etc/x", "coder.json", "x\x00y", "CON:", "é" * 99]
)
async def test_no_name_leads_to_another_file(home: Home, name: str) -> None:
    write_profile(home.agents / "sub" / "b.json", settings(3, "stolen"))
    roster = home.load()
    for context in (Context(agent_id=name), Context(session_key=f"agent:{name}:main")):
        found = key_of(roster, context)
        assert found is not None
        assert found[0] == f"{1:064x}"
    await roster.close()


async def test_the_environment_is_the_main_agents_alone(home: Home) -> None:
    roster = home.load(MEMRELAY_PRIVATE_KEY=f"{9:064x}", MEMRELAY_NAMESPACE="env")
    assert key_of(roster, MAIN) == (f"{9:064x}", "env")
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    await roster.close()


async def test_a_replaced_profile_is_used_at_once(home: Home) -> None:
    roster = home.load()
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    fresh = home.agents / "new"
    write_profile(fresh, settings(4, "code"))
    os.replace(fresh, home.agents / "coder.json")
    assert key_of(roster, CODER) == (f"{4:064x}", "code")
    write_profile(home.agents / "late.json", settings(5, "late"))
    assert key_of(roster, Context(agent_id="late")) == (f"{5:064x}", "late")
    await roster.close()


async def test_a_replaced_main_profile_is_used_at_once(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    roster = home.load()
    before = roster.clients()[0]
    home.profile.write_text("{")
    for _ in range(2):  # while it cannot be used, the one before counts
        assert key_of(roster, RESEARCHER) == (f"{1:064x}", "researcher")
    assert len(caplog.messages) == 1
    write_profile(home.profile, settings(4, "home"))
    assert key_of(roster, RESEARCHER) == (f"{4:064x}", "researcher")
    assert key_of(roster.anew(), MAIN) == (f"{4:064x}", "home")
    fresh = roster.clients()[0]
    home.profile.touch()
    assert roster.clients()[0] is fresh
    await roster.close()
    assert before._http.is_closed


@pytest.mark.parametrize("name", ["profile", "agents/coder"])
async def test_a_fault_beside_a_profile_lasts_no_longer_than_itself(
    home: Home, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    now_s = [0.0]
    path = home.profile.parent / f"{name}.json"
    roster = Roster.load(home.profile, environ={}, monotonic=lambda: now_s[0])
    write_profile(path, settings(4, "new"))
    damaged = trust_store_path(path, settings(4).account_id)
    damaged.touch(mode=0o600)
    context = MAIN if name == "profile" else CODER
    for now_s[0] in (0.0, FAULT_S - 1, FAULT_S, 2 * FAULT_S):
        assert key_of(roster, context) in (None, (f"{1:064x}", "home"))
    assert len(caplog.messages) == 1
    damaged.unlink()
    assert key_of(roster, context) != (f"{4:064x}", "new")
    now_s[0] += FAULT_S
    assert key_of(roster, context) == (f"{4:064x}", "new")
    await roster.close()


_FAULTS = {
    "malformed": '{"private_key": "77aa',
    "short key": json.dumps(
        {"url": "http://127.0.0.1:9", "account_id": f"0x{'1' * 64}", "private_key": "77aa"}
    ),
    "wrong type": json.dumps({"url": 5, "account_id": f"0x{'1' * 64}", "private_key": "77aa"}),
    "deep": '{"private_key":' * 4_000,
}


@pytest.mark.parametrize("fault", ["readable", *_FAULTS])
async def test_a_broken_profile_never_falls_back(
    home: Home, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = home.agents / "coder.json"
    working = home.load()
    if fault == "readable":
        path.chmod(0o644)
        os.utime(path, ns=(1, 1))
    else:
        path.write_text(_FAULTS[fault])
        os.utime(path, ns=(1, 1))
    for _ in range(3):
        assert working.bind(CODER) is None
    assert len(caplog.records) == 1
    assert "77aa" not in caplog.text
    await working.close()
    # A gateway that starts now serves the others.
    anew = home.load()
    assert anew.bind(CODER) is None
    assert key_of(anew, MAIN) == (f"{1:064x}", "home")
    await anew.close()


@pytest.mark.parametrize("target", ["coder.json", "nowhere", "nowhere/coder.json"])
async def test_a_profile_that_leads_nowhere_never_falls_back(
    home: Home, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = home.agents / "coder.json"
    path.unlink()
    path.symlink_to(target)
    roster = home.load()
    for _ in range(3):
        assert roster.bind(CODER) is None
        assert len(roster.clients()) == 1
    assert len(caplog.records) == 1
    assert "coder.json cannot be used" in caplog.text
    path.unlink()
    write_profile(path, settings(2, "code"))
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    await roster.close()


async def test_a_file_in_the_place_of_the_agents_folder_holds_no_profiles(tmp_path: Path) -> None:
    write_profile(tmp_path / "profile.json", settings(1, "home"))
    (tmp_path / "agents").touch()
    roster = Roster.load(tmp_path / "profile.json", environ={})
    assert key_of(roster, MAIN) == (f"{1:064x}", "home")
    assert key_of(roster, CODER) == (f"{1:064x}", "coder")
    await roster.close()


async def test_a_profile_is_used_again_when_only_its_mode_is_mended(home: Home) -> None:
    path = home.agents / "coder.json"
    roster = home.load()
    path.chmod(0o644)
    assert roster.bind(CODER) is None
    path.chmod(0o600)
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    await roster.close()


async def test_every_client_is_closed(home: Home) -> None:
    roster = home.load()
    clients = roster.clients()
    fresh = home.agents / "new"
    write_profile(fresh, settings(4, "code"))
    os.replace(fresh, home.agents / "coder.json")
    clients += [client for client in roster.clients() if client not in clients]
    assert len(clients) == 3
    await roster.close()
    assert all(client._http.is_closed for client in clients)


async def test_one_client_that_does_not_close_keeps_none_open(
    shared_relayer: RunningRelayer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await founded(shared_relayer.url)
    write_profile(tmp_path / "profile.json", owner)
    write_profile(tmp_path / "agents" / "coder.json", await agent_settings(owner, "coder"))
    roster = Roster.load(tmp_path / "profile.json", environ={})
    main, coders = roster.clients()
    for _ in range(3):  # the last receipts are noted when the client is closed
        await main.remember(TEA)
    [seen] = tmp_path.glob("profile.*.seen.json")
    seen.write_text("{")
    await roster.close()
    assert main._http.is_closed
    assert coders._http.is_closed
    assert "ConfigError" in caplog.text


async def test_a_revoked_agent_does_not_get_the_main_key(home: Home) -> None:
    roster = home.load()
    (home.agents / "coder.json").rename(home.agents / "coder.json.revoked")
    assert roster.bind(CODER) is None
    assert key_of(roster, RESEARCHER) == (f"{1:064x}", "researcher")
    await roster.close()


@pytest.mark.parametrize("mark", ["coder.json.revoked", "elsewhere"])
async def test_a_profile_that_is_gone_is_held_no_more(home: Home, mark: str) -> None:
    roster = home.load()
    main, coders = roster.clients()
    (home.agents / "coder.json").rename(home.agents / mark)
    assert roster.clients() == [main]
    await roster.close()
    assert coders._http.is_closed


async def test_agents_alone_are_enough(home: Home) -> None:
    home.profile.unlink()
    roster = home.load()
    assert key_of(roster, CODER) == (f"{2:064x}", "code")
    assert roster.bind(MAIN) is None
    await roster.close()


async def test_a_broken_main_profile_is_an_error(home: Home) -> None:
    home.profile.write_text("{")
    with pytest.raises(ConfigError, match="malformed"):
        home.load()


async def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Roster.load(environ={"XDG_CONFIG_HOME": str(tmp_path)})


async def test_one_profile_for_all_agents() -> None:
    roster = Roster.single(settings(7))
    assert key_of(roster, MAIN) == (f"{7:064x}", "default")
    assert key_of(roster, CODER) == (f"{7:064x}", "coder")
    await roster.close()


async def keys_of(settings: Settings) -> list[NamespaceKey]:
    """Every namespace key that an agent holds."""
    async with MemoryClient.from_settings(settings) as client:
        keyring = await client.run(client._session.keyring())
        return [key for name in keyring.names for key in keyring.namespace_keys(name)]


async def test_an_agents_key_opens_only_its_own(
    shared_relayer: RunningRelayer, tmp_path: Path
) -> None:
    """capability 0.35: with a key per agent, another agent's stored bytes do not decrypt."""
    owner = await founded(shared_relayer.url)
    agents = {name: await agent_settings(owner, name) for name in ("researcher", "coder")}
    write_profile(tmp_path / "profile.json", owner)
    for name, one in agents.items():
        write_profile(tmp_path / "agents" / f"{name}.json", one)
    roster = Roster.load(tmp_path / "profile.json", environ={})
    ctx = {"agentId": "researcher", "sessionId": "s"}
    async with Gateway(roster, PATIENT) as gateway:
        await gateway.agent_end(conversation(TEA), ctx)
        assert await gateway.flush(30)
        own = await gateway.before_prompt_build(ASKED, ctx)
        assert "green tea" in own["prependContext"]
        for other in ({"agentId": "coder"}, {"agentId": "main"}, {"agentId": "third"}):
            answer = await gateway.before_prompt_build(ASKED, {**ctx, **other})
            assert "prependContext" not in answer
    assert await texts_of(agents["researcher"]) == [TEA]
    async with MemoryClient.from_settings(agents["researcher"]) as client:
        [memory] = (await client.list()).memories
    account = account_bytes(owner.account_id)
    connection = await asyncpg.connect(shared_relayer.environment["RELAYER_DATABASE_URL"])
    rows = await connection.fetch(
        "SELECT bytes FROM blobs JOIN accounts USING (account_id) WHERE whole_id = $1", account
    )
    await connection.close()
    [envelope] = [row["bytes"] for row in rows if UUID(memory.id).bytes in row["bytes"]]
    address = Address(account=account, type=MEMORY, memory=UUID(memory.id), revision=1)
    [researchers], [coders] = [await keys_of(one) for one in agents.values()]
    assert TEA.encode() in open_envelope(address, researchers, envelope)
    with pytest.raises(Invalid, match="key_id"):
        open_envelope(address, coders, envelope)
    # Also not without the check of the key's id, which an attacker would leave out.
    header, sealed = envelope[: _HEADER.size], envelope[_HEADER.size :]
    with pytest.raises(CryptoError):
        bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, header, header[-24:], coders.subkey("seal")
        )
