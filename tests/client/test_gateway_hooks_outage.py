"""The hooks of the gateway while a relayer or a disk fails, or a lock is held: turns go on.

Not here: when an operation is not worth a try (`test_gateway_outage.py`).
"""

import asyncio
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memrelay.config import trust_store_path
from memrelay.gateway import Gateway, Roster
from memrelay.trust_store import TrustState
from tests.client.gateway_scene import (
    CTX,
    PATIENT,
    TEA,
    Network,
    agent_settings,
    conversation,
    founded,
    texts_of,
    until,
    write_profile,
)
from tests.client.hooks_scene import ASKED, FAILED, asked, remember
from tests.processes import RunningRelayer


def reason_in(record: logging.LogRecord) -> object:
    """The second of what a line of the log was made with."""
    assert isinstance(record.args, tuple)
    return record.args[1]


class TestOutage:
    async def test_turns_go_on_with_one_warning(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """capability 0.17: recall failure degrades silently with one warning."""
        caplog.set_level(logging.INFO, "memrelay.gateway")
        owner = await founded(shared_relayer.url)
        await remember(owner, TEA)
        settings = replace(PATIENT, outage_pause_s=0)
        network = Network(shared_relayer.url)
        await network.up()
        async with Gateway(Roster.single(replace(owner, url=network.url)), settings) as gateway:
            assert "prependContext" in await gateway.before_prompt_build(ASKED, CTX)
            await network.down()
            for _ in range(5):
                answer = await gateway.before_prompt_build(ASKED, CTX)
                assert FAILED in answer["appendSystemContext"]
                assert "prependContext" not in answer
            [line] = caplog.records
            assert line.levelno == logging.WARNING
            assert owner.masked_key in line.getMessage()
            await network.up()
            assert "prependContext" in await gateway.before_prompt_build(ASKED, CTX)
            assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        await network.down()
        assert "tea" not in caplog.text
        assert owner.private_key not in caplog.text

    async def test_a_relayer_that_hangs_is_asked_twice_and_not_again_for_a_while(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        now_s = [0.0]
        settings = replace(PATIENT, recall_deadline_s=1.0, outage_pause_s=10)
        async with Network(shared_relayer.url) as network:
            network.silent = True
            owner = replace(await founded(shared_relayer.url), url=network.url)
            roster = Roster.single(owner)
            async with Gateway(roster, settings, monotonic=lambda: now_s[0]) as gateway:
                for connections in (1, 2, 2, 2):
                    answer = await gateway.before_prompt_build(ASKED, CTX)
                    assert FAILED in answer["appendSystemContext"]
                    assert network.connections_seen == connections
                now_s[0] = 11.0
                for _ in range(2):
                    await gateway.before_prompt_build(ASKED, CTX)
                    assert network.connections_seen == 3
        # Its own deadline ended the recall, not that of a request.
        assert [reason_in(record) for record in caplog.records if record.args] == ["TimeoutError"]

    async def test_many_late_answers_at_once_do_not_stop_the_next_turn(
        self, shared_relayer: RunningRelayer
    ) -> None:
        owner = await founded(shared_relayer.url)
        await remember(owner, TEA)
        hurried = replace(PATIENT, recall_deadline_s=0.3)
        async with Network(shared_relayer.url) as network:
            network.silent = True
            roster = Roster.single(replace(owner, url=network.url))
            async with Gateway(roster, PATIENT) as gateway:
                late = gateway.with_settings(hurried)
                await asyncio.gather(*(late.before_prompt_build(ASKED, CTX) for _ in range(20)))
                network.silent = False
                network.cut()
                assert "prependContext" in await gateway.before_prompt_build(ASKED, CTX)

    async def test_who_has_the_same_key_need_not_try_either(
        self, shared_relayer: RunningRelayer
    ) -> None:
        async with Network(shared_relayer.url) as network:
            network.breaks = 100
            owner = replace(await founded(shared_relayer.url), url=network.url)
            async with Gateway(Roster.single(owner), PATIENT) as gateway:
                for agent in ("main", "coder", "researcher"):
                    answer = await gateway.before_prompt_build(ASKED, {"agentId": agent})
                    assert FAILED in answer["appendSystemContext"]
            assert network.connections_seen == 1

    async def test_a_disk_that_fails_costs_no_turn(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await founded(shared_relayer.url)
        await remember(owner, TEA)
        nowhere = Path("/proc/memrelay/profile.seen.json")  # where nobody makes folders
        async with Gateway(Roster.single(replace(owner, seen_path=nowhere)), PATIENT) as gateway:
            for _ in range(2):
                assert "prependContext" in await gateway.before_prompt_build(ASKED, CTX)
            await gateway.agent_end(conversation("My sister is called Berta Lind."), CTX)
            assert await gateway.flush(30)
        assert len(await texts_of(owner)) == 2
        assert [record.getMessage() for record in caplog.records] == [
            "what was verified cannot be kept on disk; it counts until the end"
        ]

    async def test_a_recall_is_never_tried_twice(self, shared_relayer: RunningRelayer) -> None:
        async with Network(shared_relayer.url) as network:
            network.breaks = 100
            owner = replace(await founded(shared_relayer.url), url=network.url)
            answer = await asked(owner)
            assert FAILED in answer["appendSystemContext"]
            assert network.connections_seen == 1

    async def test_a_key_without_the_namespace_is_told_once(
        self, shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
    ) -> None:
        coder = await agent_settings(await founded(shared_relayer.url), "coder")
        borrowed = {"sessionKey": "agent:researcher:main", "sessionId": "x"}
        settings = replace(PATIENT, outage_pause_s=0)
        async with Gateway(Roster.single(coder), settings) as gateway:
            for _ in range(3):
                answer = await gateway.before_prompt_build(ASKED, borrowed)
                assert FAILED in answer["appendSystemContext"]
            answer = await gateway.before_prompt_build(ASKED, CTX)
            assert FAILED not in answer["appendSystemContext"]
        assert [reason_in(record) for record in caplog.records if record.args] == ["NotGranted"]


LOCKED = """
import fcntl, os, select, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
ready, _, _ = select.select([sys.stdin], [], [], 15)
sys.exit(0 if ready else "nobody told me to let go")
"""


async def test_no_turn_waits_while_another_process_saves_what_was_seen(
    shared_relayer: RunningRelayer, tmp_path: Path
) -> None:
    profile = tmp_path / "profile.json"
    write_profile(profile, await founded(shared_relayer.url))
    roster = Roster.load(profile, environ={})
    seen = trust_store_path(profile, roster.clients()[0].settings.account_id)
    lock = seen.with_name(f".{seen.name}.lock")
    command = [sys.executable, "-c", LOCKED, str(lock)]
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert holder.stdin is not None
    assert holder.stdout is not None
    await holder.stdout.readline()
    async with Gateway(roster, PATIENT) as gateway:
        turn = asyncio.create_task(gateway.before_prompt_build(ASKED, CTX))
        await until(lambda: roster.clients()[0]._session.trust_store.value != TrustState())
        holder.stdin.write(b"\n")  # nobody could if the loop waited for the lock
        await holder.stdin.drain()
        assert await holder.wait() == 0
        await turn
    assert seen.exists()
