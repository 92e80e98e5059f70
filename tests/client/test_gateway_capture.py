"""Captured turns: kept before they are sent, delivered once, whatever breaks in between."""

import asyncio
import json
import logging
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from memrelay import Conflict, MemoryClient, Settings
from memrelay.gateway import Context, Gateway, GatewaySettings, Roster
from memrelay.gateway.capture import Captures, pause_after
from memrelay.gateway.captured_turn import TEXT_BYTES_MAX, CapturedTurn
from memrelay.gateway.conversation import capturable, number_messages
from memrelay.gateway.host_events import read_messages
from memrelay.gateway.outage import Outages
from memrelay.gateway.roster import Binding
from memrelay.gateway.spool import Spool, SpoolKey
from tests.client.gateway_scene import (
    CTX,
    PATIENT,
    TEA,
    Network,
    agent_settings,
    conversation,
    founded,
    refusal,
    texts_of,
    until,
    write_profile,
)
from tests.client.spool_scene import spool_in
from tests.processes import RunningRelayer

MOVED = "The staging server moved to Frankfurt."
CAT = "My neighbour's cat is called Othello."
THEN = datetime(2031, 5, 4, 9, 30, tzinfo=UTC)
ASKED = {"prompt": "Do I prefer green tea or coffee in the morning?"}

KILLED = """
import asyncio, sys
from pathlib import Path
from memrelay.gateway import Gateway, Roster

async def main():
    roster = Roster.load(sys.argv[1], environ={})
    async with Gateway(roster, spool_path=Path(sys.argv[2])) as gateway:
        event = {"success": True, "messages": [{"role": "user", "content": sys.argv[3]}]}
        await gateway.agent_end(event, {"sessionKey": "agent:main:main", "sessionId": "first"})
        print("kept", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def gateway_of(
    settings: Settings, spool: Path | None = None, gateway_settings: GatewaySettings = PATIENT
) -> Gateway:
    return Gateway(Roster.single(settings), gateway_settings, spool_path=spool)


def waiting(spool: Path) -> int:
    return len(list(spool.glob("*.turn")))


def turn(
    settings: Settings, text: str = TEA, *, session: str = "s", **changes: Any
) -> CapturedTurn:
    client = MemoryClient.from_settings(settings)
    binding = Binding(agent="main", client=client, namespace=settings.namespace)
    made = CapturedTurn.of(binding, text=text, session=session, source="test", occurred_at=THEN)
    return replace(made, **changes)


async def delivered(
    settings: Settings, *turns: CapturedTurn, spool: Spool | None = None, retry_s: float = 0
) -> tuple[bool, Spool]:
    """Whether turns were all delivered (or given up), and the spool with what is left."""
    spool = spool or spool_in(None)
    captures = Captures(spool, Outages(), retry_s=retry_s)
    async with MemoryClient.from_settings(settings, attempts_max=1) as client:
        for one in turns:  # all of them are kept before the first is sent
            spool.put(SpoolKey.of(settings.identity), one.to_bytes())
        captures.wake(client)
        async with asyncio.timeout(30):
            complete = await captures.flush()
        await captures.close()
    return complete, spool


async def test_a_turn_is_kept_while_names_cannot_be_looked_up(
    shared_relayer: RunningRelayer, tmp_path: Path
) -> None:
    """The loop looks names up in threads of its own; a resolver that hangs keeps them all."""
    settings, spool, answer = await founded(shared_relayer.url), spool_in(tmp_path), Event()
    captures, loop = Captures(spool, Outages(), retry_s=0), asyncio.get_running_loop()
    lookups = [loop.run_in_executor(None, answer.wait) for _ in range(100)]
    try:
        async with MemoryClient.from_settings(settings, attempts_max=1) as client:
            async with asyncio.timeout(30):
                await captures.add(client, turn(settings))
            await captures.close()
    finally:
        answer.set()
        await asyncio.gather(*lookups)


class TestOnce:
    async def test_one_window_sent_five_times_is_one(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        """capability 1.23: an idempotency key makes one capture of a window sent again."""
        owner = await founded(shared_relayer.url)
        for moment in range(5):
            # As after a restart, some seconds later.
            now_s = THEN.timestamp() + moment
            roster = Roster.single(owner)
            async with Gateway(
                roster, PATIENT, spool_path=tmp_path, clock=partial(float, now_s)
            ) as gateway:
                await gateway.agent_end(conversation(TEA, "Noted."), CTX)
                assert await gateway.flush(30)
        async with MemoryClient.from_settings(owner) as client:
            assert [memory.text for memory in (await client.list()).memories] == [TEA]
            receipts = [receipt.op for receipt in await client.receipts()]
            assert receipts.count("analyze") == 1
            # The relayer knows the key of this window, with this text.
            messages = capturable(read_messages(conversation(TEA, "Noted.")["messages"]), PATIENT)
            sent = turn(owner, number_messages(messages), session="first").idempotency_key
            with pytest.raises(Conflict):
                await client.analyze(CAT, idempotency_key=sent)
            await client.analyze(number_messages(messages), idempotency_key=sent)

    async def test_the_key_is_of_namespace_session_and_text(self) -> None:
        first = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
        binding = Binding(agent="a", client=MemoryClient.from_settings(first), namespace="x")
        second = MemoryClient.from_settings(replace(first, private_key="2" * 64))
        usual = {"text": TEA, "session": "s", "source": "test", "occurred_at": THEN}
        key = CapturedTurn.of(binding, **usual).idempotency_key  # type: ignore[arg-type]
        later = {**usual, "occurred_at": datetime.now(UTC), "source": "other"}
        assert CapturedTurn.of(binding, **later).idempotency_key == key  # type: ignore[arg-type]
        others = [
            CapturedTurn.of(changed, **{**usual, **members}).idempotency_key  # type: ignore[arg-type]
            for changed, members in (
                (binding, {"text": TEA + "."}),
                (binding, {"session": "t"}),
                (replace(binding, namespace="y"), {}),
                (replace(binding, client=second), {}),
            )
        ]
        assert len({key, *others}) == 5

    async def test_two_processes_share_a_spool(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            network.silent = True
            away = replace(owner, url=network.url)
            gateway = gateway_of(away, tmp_path)
            await gateway.agent_end(conversation(TEA), CTX)
            await gateway.agent_end(conversation(CAT), CTX)
            await gateway.close(timeout_s=0)
        both = [gateway_of(owner, tmp_path), gateway_of(owner, tmp_path)]
        assert all(await asyncio.gather(*(one.flush(30) for one in both)))
        await asyncio.gather(*(one.close() for one in both))
        assert waiting(tmp_path) == 0
        assert sorted(map(str, await texts_of(owner))) == sorted([TEA, CAT])


class TestAway:
    async def test_a_broken_request_is_sent_once_more(self, shared_relayer: RunningRelayer) -> None:
        """capability 0.31: a capture that fails is tried once more after two seconds."""
        assert GatewaySettings().capture_retry_s == 2.0
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            network.breaks = 1
            away = replace(owner, url=network.url)
            complete, _ = await delivered(away, turn(away))
            assert complete
            assert network.connections_seen > 1
        assert await texts_of(owner) == [TEA]

    async def test_between_both_there_is_a_pause(self, shared_relayer: RunningRelayer) -> None:
        """capability 0.31: the second attempt does not follow at once."""
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            network.breaks = 1
            away = replace(owner, url=network.url)
            captures = Captures(spool_in(None), Outages(), retry_s=3600)
            async with MemoryClient.from_settings(away, attempts_max=1) as client:
                await captures.add(client, turn(away))
                await until(lambda: network.breaks == 0)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await captures.flush()
                await captures.close()
            assert network.connections_seen == 1

    async def test_after_the_second_failure_a_turn_waits(
        self, shared_relayer: RunningRelayer
    ) -> None:
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            network.breaks = 100
            away = replace(owner, url=network.url)
            complete, spool = await delivered(away, turn(away))
            assert not complete
            assert network.connections_seen == 2
            assert len(spool.names(SpoolKey.of(owner.identity))) == 1

    async def test_turns_of_an_outage_arrive_when_it_ends(
        self,
        shared_relayer: RunningRelayer,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """capability 2.17: a turn that could not be summarised waits as it was said."""
        caplog.set_level(logging.INFO, "memrelay.gateway")
        owner = await founded(shared_relayer.url)
        network = Network(shared_relayer.url)
        await network.up()
        await network.down()
        settings = replace(PATIENT, outage_pause_s=0, capture_retry_s=0)
        away = replace(owner, url=network.url)
        gateway = Gateway(Roster.single(away), settings, spool_path=tmp_path, clock=THEN.timestamp)
        async with gateway:
            for number in range(5):
                await gateway.before_prompt_build(ASKED, CTX)
                said = f"I prefer brand number {number} of coffee."
                await gateway.agent_end(conversation(said), {**CTX, "sessionId": f"s{number}"})
            deadline = "The deadline of the tax report is tomorrow."
            await gateway.agent_end(conversation(deadline), CTX)
            assert not await gateway.flush(30)
            assert waiting(tmp_path) == 6
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            await network.up()
            # That recall works again is what sets the turns free.
            await gateway.before_prompt_build(ASKED, CTX)
            await until(lambda: waiting(tmp_path) == 0)
            assert await gateway.flush(30)
        await network.down()
        async with MemoryClient.from_settings(owner) as client:
            memories = (await client.list()).memories
        assert len(memories) == 6
        [dated] = [memory for memory in memories if memory.text == deadline]
        assert dated.event_time is not None
        assert dated.event_time.date().isoformat() == "2031-05-05"
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        assert "coffee" not in caplog.text

    async def test_a_timer_delivers_without_any_turn(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        spool = spool_in(None)
        captures = Captures(spool, Outages(), retry_s=0, pause_s=0.2)
        async with Network(shared_relayer.url) as network:
            network.breaks = 2
            away = replace(owner, url=network.url)
            async with MemoryClient.from_settings(away, attempts_max=1) as client:
                await captures.add(client, turn(away))
                assert not await captures.flush()
                key = SpoolKey.of(owner.identity)
                await until(lambda: not spool.names(key))
                await captures.close()
        assert await texts_of(owner) == [TEA]

    async def test_without_a_folder_turns_wait_in_memory(
        self, shared_relayer: RunningRelayer
    ) -> None:
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            network.breaks = 100
            async with gateway_of(replace(owner, url=network.url)) as gateway:
                await gateway.agent_end(conversation(TEA), CTX)
                assert not await gateway.flush(30)
                network.breaks = 0
                assert await gateway.flush(30)
        assert await texts_of(owner) == [TEA]

    async def test_a_killed_process_loses_nothing(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        """capability 2.17: what was kept before a crash is captured after it."""
        owner = await founded(shared_relayer.url)
        spool = tmp_path / "spool"
        async with Network(shared_relayer.url) as network:
            network.silent = True
            write_profile(tmp_path / "profile.json", replace(owner, url=network.url))
            command = [sys.executable, "-c", KILLED, tmp_path / "profile.json", spool, TEA]
            process = await asyncio.create_subprocess_exec(
                *map(str, command), stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            assert await process.stdout.readline() == b"kept\n"
            process.kill()
            await process.wait()
        assert waiting(spool) == 1
        assert not [path for path in spool.iterdir() if b"green tea" in path.read_bytes()]
        async with gateway_of(owner, spool) as gateway:  # what is left is sent at the start
            await until(lambda: waiting(spool) == 0)
            assert await gateway.flush(30)
        assert await texts_of(owner) == [TEA]

    async def test_closing_at_once_still_keeps_what_was_said(self, tmp_path: Path) -> None:
        nowhere = Settings(
            url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64
        )
        gateway = gateway_of(nowhere, tmp_path)
        gateway.capture(read_messages(conversation(TEA)["messages"]), Context())
        await gateway.close(timeout_s=0)
        assert waiting(tmp_path) == 1


async def test_turns_of_a_key_that_is_not_here_are_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
    before, spool = replace(away, private_key="2" * 64), spool_in(tmp_path)
    for settings in (before, before, away):
        spool.put(SpoolKey.of(settings.identity), b"a turn")
    async with gateway_of(away, tmp_path):
        told = [message for message in caplog.messages if "no profile here" in message]
    assert ["(2)" in message for message in told] == [True]


class TestRefused:
    async def test_refusals_for_good_block_nothing(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await founded(shared_relayer.url)
        bad = turn(owner, CAT, idempotency_key="x" * 1000)
        complete, _ = await delivered(owner, bad, bad, turn(owner))
        assert complete
        assert await texts_of(owner) == [TEA]
        assert "refused for good and dropped" in caplog.text
        assert "Othello" not in caplog.text

    async def test_a_key_that_may_not_write_keeps_its_turns(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await founded(shared_relayer.url)
        coder = await agent_settings(owner, "coder")
        elsewhere = turn(coder, CAT, namespace="secret", agent="borrower")
        complete, spool = await delivered(coder, elsewhere, turn(coder))
        assert not complete
        assert len(spool.names(SpoolKey.of(coder.identity))) == 1
        assert await texts_of(owner, "coder") == [TEA]
        assert await texts_of(owner, "secret") == []
        assert "NotGranted" in caplog.text

    async def test_where_a_key_may_not_write_one_turn_waits_and_no_more(
        self, shared_relayer: RunningRelayer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await founded(shared_relayer.url)
        async with MemoryClient.from_settings(owner) as client:
            key = await client.add_key(namespaces=["coder"], label="coder", role="reader")
        coder = replace(owner, private_key=key.private_key, namespace="coder")
        async with gateway_of(coder, tmp_path) as gateway:
            for text in (TEA, CAT, MOVED):
                await gateway.agent_end(conversation(text), CTX)
                assert not await gateway.flush(30)
                assert waiting(tmp_path) == 1
        told = [message for message in caplog.messages if "not captured" in message]
        assert ["agent main" in message for message in told] == [True]
        async with MemoryClient.from_settings(owner) as client:
            await client.add_key(namespaces=["coder"], role="writer", identity=coder.identity)
        async with gateway_of(coder, tmp_path) as gateway:
            assert await gateway.flush(30)
            await gateway.agent_end(conversation(CAT), CTX)
            assert await gateway.flush(30)
        assert set(await texts_of(coder)) == {TEA, CAT}

    async def test_a_revoked_key_keeps_its_turns(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        coder = await agent_settings(owner, "coder")
        async with MemoryClient.from_settings(owner) as client:
            await client.revoke_key(coder.identity.public_key.hex())
        complete, spool = await delivered(coder, turn(coder), turn(coder, CAT))
        assert not complete
        assert len(spool.names(SpoolKey.of(coder.identity))) == 2

    async def test_a_conflict_means_it_was_captured(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await founded(shared_relayer.url)
        same_key = turn(owner, CAT, idempotency_key=turn(owner).idempotency_key)
        complete, _ = await delivered(owner, turn(owner), same_key)
        assert complete
        assert await texts_of(owner) == [TEA]
        assert not caplog.records  # it is no refusal

    @pytest.mark.parametrize(
        ("status", "code", "asked"),
        [
            # Of a relayer: a full account, a key, a namespace, a fault, an outage.
            (400, "relayer.other", 6),  # each time it asks who the relayer is by now
            (401, "auth.rejected", 2),
            (402, "quota.exceeded", 2),
            (403, "auth.not_allowed", 4),  # and each time what it was granted
            (409, "something.new", 2),
            (413, "something.new", 3),
            (500, "store.corrupted", 3),
            (503, "llm.unavailable", 2),
            # Of something in between, such as a proxy or another service on that port.
            (200, None, 2),
            (400, None, 3),
            (403, None, 3),
            (405, None, 2),
            (407, None, 2),
            (409, None, 2),
            (410, None, 2),
            (413, None, 3),
            (451, None, 2),
            (400, "request.bad", 3),
        ],
    )
    async def test_what_may_be_mended_costs_no_turn(
        self, shared_relayer: RunningRelayer, status: int, code: str | None, asked: int
    ) -> None:
        """What concerns one turn (3) or namespace (2) holds up no other, anything else does."""
        owner = await founded(shared_relayer.url)
        async with MemoryClient.from_settings(owner) as client:
            relayer_key = (await client.statement()).relayer.hex()
        kept = [turn(owner), turn(owner, CAT), turn(owner, MOVED, namespace="other")]
        async with Network(shared_relayer.url) as network:
            # Without questions before it, each request is one for a turn.
            away = replace(owner, url=network.url, custody="managed", relayer_key=relayer_key)
            network.answer = refusal(status, "<html>No.</html>")
            if code is not None:
                body = json.dumps({"error": "No.", "code": code})
                network.answer = refusal(status, body, "application/json")
            complete, spool = await delivered(away, *kept)
            assert (complete, network.connections_seen) == (False, asked)
        assert len(spool.names(SpoolKey.of(owner.identity))) == 3
        assert (await delivered(owner, spool=spool))[0]
        assert sorted(map(str, await texts_of(owner))) == sorted([TEA, CAT])
        assert await texts_of(owner, "other") == [MOVED]

    @pytest.mark.parametrize(
        ("status", "code"), [(400, "request.invalid"), (413, "request.too_large")]
    )
    async def test_the_relayers_own_word_about_a_turn_is_final(
        self, shared_relayer: RunningRelayer, status: int, code: str
    ) -> None:
        owner = await founded(shared_relayer.url)
        async with Network(shared_relayer.url) as network:
            body = json.dumps({"error": "No.", "code": code})
            network.answer = refusal(status, body, "application/json")
            away = replace(owner, url=network.url)
            complete, _ = await delivered(away, turn(away), turn(away, CAT))
            assert (complete, network.connections_seen) == (True, 2)

    async def test_a_refused_turn_delays_no_other(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        coder = await agent_settings(owner, "coder")
        elsewhere = [turn(coder, f"{CAT} {n}", namespace="secret") for n in range(3)]
        complete, _ = await delivered(coder, *elsewhere, turn(coder), retry_s=3600)
        assert not complete
        assert await texts_of(owner, "coder") == [TEA]

    async def test_a_turn_that_is_too_long_keeps_its_end(
        self, shared_relayer: RunningRelayer
    ) -> None:
        owner = await founded(shared_relayer.url)
        long = turn(owner, "ä" * TEXT_BYTES_MAX + f"\n\n{TEA}")
        assert len(long.text.encode()) <= TEXT_BYTES_MAX
        complete, _ = await delivered(owner, long)
        assert complete
        assert TEA in await texts_of(owner)


async def test_a_kept_turn_comes_back_as_it_was() -> None:
    kept = CapturedTurn(
        agent="main",
        namespace="default",
        text="Grüße \u2028 \U0001f600",
        source="test:s",
        occurred_at="2031-05-04T09:30:00.000Z",
        idempotency_key="k",
    )
    assert CapturedTurn.from_bytes(kept.to_bytes()) == kept
    assert not kept.wish
    assert "Grüße" not in repr(kept)
    assert json.loads(kept.to_bytes())["occurred_at"] == "2031-05-04T09:30:00.000Z"


async def test_half_a_character_costs_no_turn(shared_relayer: RunningRelayer) -> None:
    owner = await founded(shared_relayer.url)
    half = "\ud83d"
    async with gateway_of(owner) as gateway:
        await gateway.agent_end(conversation(f"{TEA} {half}"), {"sessionId": half})
        assert await gateway.flush(30)
        answer = await gateway.before_prompt_build({"prompt": f"{ASKED['prompt']} {half}"}, {})
    assert "green tea" in answer["prependContext"]


async def test_an_agent_of_no_profile_is_captured_in_its_own_namespace(
    shared_relayer: RunningRelayer,
) -> None:
    owner = await founded(shared_relayer.url)
    async with gateway_of(owner) as gateway:
        gateway.capture([], Context(session_key="agent:coder:main"))
        await gateway.agent_end(conversation(TEA), {"sessionKey": "agent:coder:main"})
        assert await gateway.flush(30)
    assert (await texts_of(owner, "coder"), await texts_of(owner)) == ([TEA], [])


@pytest.mark.parametrize("later", [{"mood": "glad"}, {"text": None}, [], "text", 7])
async def test_a_turn_of_another_version_stops_no_other(
    shared_relayer: RunningRelayer, tmp_path: Path, later: object, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await founded(shared_relayer.url)
    unreadable = later
    if isinstance(later, dict):
        members = {**json.loads(turn(owner).to_bytes()), **later}
        unreadable = {name: value for name, value in members.items() if value is not None}
    spool = spool_in(tmp_path)
    spool.put(SpoolKey.of(owner.identity), json.dumps(unreadable).encode())
    complete, _ = await delivered(owner, turn(owner), spool=spool)
    assert complete
    assert await texts_of(owner) == [TEA]
    assert len(list(tmp_path.glob("*.damaged"))) == 1
    assert "damaged" in caplog.text


async def test_an_unforeseen_fault_is_told_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    nobody = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
    spool = spool_in(None)
    spool.put(SpoolKey.of(nobody.identity), b"[" * 100_000)
    complete, _ = await delivered(nobody, spool=spool)
    assert not complete
    assert [record.getMessage() for record in caplog.records] == [
        "captured turns could not be delivered (RecursionError)"
    ]


async def test_a_wish_without_facts_is_kept_as_it_is(shared_relayer: RunningRelayer) -> None:
    owner = await founded(shared_relayer.url)
    wish = turn(owner, "Locker 17, blue door.", wish=True)
    for one in (wish, wish, replace(wish, idempotency_key="another")):
        assert (await delivered(owner, one))[0]
    assert await texts_of(owner) == ["Locker 17, blue door."]
    assert (await delivered(owner, turn(owner, "Locker 18, red door.")))[0]
    assert len(await texts_of(owner)) == 1  # nobody asked for it


def test_pauses_double_up_to_a_bound() -> None:
    pauses = [pause_after(failures, 30.0) for failures in (1, 2, 3, 4, 5, 6, 7, 10_000)]
    assert pauses == [30, 60, 120, 240, 480, 900, 900, 900]


async def test_after_the_end_nothing_is_tried(tmp_path: Path) -> None:
    nobody = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
    gateway = gateway_of(nobody, tmp_path)
    await gateway.close(timeout_s=0)
    before = asyncio.all_tasks()
    await gateway.agent_end(conversation(TEA), CTX)
    assert waiting(tmp_path) == 1
    assert asyncio.all_tasks() == before
