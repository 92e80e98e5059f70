"""What an agent erased is not captured again, and what else was said is, to a real relayer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from memrelay import MemoryClient, Settings
from memrelay.gateway import Context, Gateway, Roster, capture
from memrelay.gateway.capture import Captures
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.outage import Outages
from memrelay.gateway.spool import SpoolKey
from tests.client.gateway_scene import (
    ANNA,
    CTX,
    PATIENT,
    TEA,
    Network,
    conversation,
    founded,
    refusal,
    texts_of,
)
from tests.client.spool_scene import spool_in
from tests.processes import RunningRelayer

BY_KEY = replace(ANNA, session_id=None)
OTHER = replace(ANNA, session_id="zero")  # under the same key
DOCTOR = "My doctor is called Amelia Rosenthal in Hamburg."
MOVED = "The staging server moved to Frankfurt yesterday."
NO_ROW = json.dumps({"code": "memory.unrestored", "message": "Try again later."})


def gateway_of(settings: Settings, spool: Path) -> Gateway:
    return Gateway(Roster.single(settings), PATIENT, source="openclaw", spool_path=spool)


async def remembered(settings: Settings, text: str = DOCTOR) -> str:
    async with MemoryClient.from_settings(settings) as client:
        stored = await client.remember(text)
        await client.wait([stored.id])
    return stored.id


class Wait:
    """Turns of an agent's sessions that wait in a folder."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._key = settings, SpoolKey.of(settings.identity)
        self.spool = spool_in(folder)

    def turn(self, context: Context, text: str = DOCTOR) -> CapturedTurn:
        binding = Roster.single(self._settings).bind(context)
        assert binding is not None
        return CapturedTurn.of(
            binding,
            text=f"1. user: {text}",
            session=context.session_names[0],
            source="openclaw",
            occurred_at=datetime.now(UTC),
            names=context.session_names,
        )

    def keep(self, context: Context, text: str = DOCTOR, *, earlier_release: bool = False) -> None:
        members = asdict(self.turn(context, text))
        if earlier_release:
            del members["names"]
        self.spool.put(self._key, json.dumps(members).encode())

    @property
    def count(self) -> int:
        return len(self.spool.names(self._key))


@asynccontextmanager
async def losing(
    url: str,
    answer: bytes | None,
    *,
    carried_out: bool,
    after: asyncio.Event | None = None,
) -> AsyncIterator[str]:
    """A way to a relayer on which the answer to a deletion is another one, or is lost.

    That is so at once, or only `after` something.
    """
    target = urlsplit(url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(target.hostname, target.port)
        lost = False

        async def back() -> None:
            while (data := await there[0].read(65536)) and not lost:
                writer.write(data)

        answering = asyncio.create_task(back())
        try:
            while data := await reader.read(65536):
                lost = data.startswith(b"DELETE ")
                if carried_out or not lost:
                    there[1].write(data)
                if lost:
                    if carried_out:
                        await answering  # which ends with the relayer's answer
                    if after is not None:
                        await after.wait()
                    writer.write(answer or b"")
                    await writer.drain()
                    break
        finally:
            answering.cancel()
            there[1].close()
            writer.close()

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class TestWaiting:
    @pytest.mark.parametrize(
        ("tool", "hook"), [(ANNA, ANNA), (BY_KEY, ANNA), (ANNA, BY_KEY), (BY_KEY, BY_KEY)]
    )
    async def test_what_waits_is_dropped_by_any_name_of_its_session(
        self, shared_relayer: RunningRelayer, tmp_path: Path, tool: Context, hook: Context
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        gateway, waiting = gateway_of(owner, tmp_path), Wait(owner, tmp_path)
        waiting.keep(hook)
        waiting.keep(Context(session_key="agent:main:second", session_id="second"), MOVED)
        answer = await gateway.call_tool("memory_forget", {"id": memory_id}, tool)
        assert not answer.is_error
        async with gateway:
            assert await gateway.flush(30)
        assert await texts_of(owner) == [MOVED]

    async def test_what_an_earlier_release_kept_is_dropped_and_other_sessions_are_not(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        gateway, waiting = gateway_of(owner, tmp_path), Wait(owner, tmp_path)
        waiting.keep(ANNA, earlier_release=True)
        waiting.keep(OTHER, MOVED)
        waiting.keep(OTHER, TEA, earlier_release=True)
        assert not (await gateway.call_tool("memory_forget", {"id": memory_id}, ANNA)).is_error
        assert waiting.count == 2
        async with gateway:
            assert await gateway.flush(30)
        assert set(await texts_of(owner)) == {MOVED, TEA}

    async def test_a_turn_that_is_dropped_is_not_sent_once_more(
        self, shared_relayer: RunningRelayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed, go_on = asyncio.Event(), asyncio.Event()

        async def pause(_: float) -> None:
            failed.set()
            await go_on.wait()

        paused = SimpleNamespace(**vars(asyncio) | {"sleep": pause})
        monkeypatch.setattr(capture, "asyncio", paused)
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        async with Network(shared_relayer.url) as network:
            there = replace(owner, url=network.url)
            async with gateway_of(there, tmp_path) as gateway:
                network.answer = refusal(502, "")
                await gateway.agent_end(conversation(DOCTOR), CTX)
                await asyncio.wait_for(failed.wait(), 120)
                network.answer = b""
                await gateway.call_tool("memory_forget", {"id": memory_id}, ANNA)
                go_on.set()
                assert await gateway.flush(30)
        assert await texts_of(owner) == []

    async def test_until_it_is_known_whether_a_memory_was_erased_what_waits_goes_on_waiting(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        waiting, erasures = Wait(owner, tmp_path), Erasures()
        captures = Captures(waiting.spool, Outages(), retry_s=0, erasures=erasures)
        waiting.keep(ANNA)
        late = waiting.turn(ANNA, MOVED)
        take_back = erasures.note(ANNA, datetime.now(UTC))
        await asyncio.sleep(0.01)  # times are kept in milliseconds
        waiting.keep(ANNA, TEA)  # said later
        async with MemoryClient.from_settings(owner) as client:
            await captures.add(client, late)  # as the last of several parts
            captures.wake(client)
            assert not await captures.flush()
            assert (waiting.count, await texts_of(owner)) == (1, [TEA])
            take_back()
            captures.wake(client)
            assert await captures.flush()
            await captures.close()
        assert set(await texts_of(owner)) == {DOCTOR, TEA}

    async def test_what_waits_is_dropped_also_where_the_gateway_is_closed_meanwhile(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        waiting, closed = Wait(owner, tmp_path), asyncio.Event()
        waiting.keep(ANNA)
        async with losing(shared_relayer.url, None, carried_out=True, after=closed) as url:
            gateway = gateway_of(replace(owner, url=url), tmp_path)
            call = gateway.call_tool("memory_forget", {"id": memory_id}, ANNA)
            calling = asyncio.create_task(call)
            async with MemoryClient.from_settings(owner) as client:
                while (await client.list()).memories:
                    await asyncio.sleep(0.02)
            await gateway.close(0)
            assert (await calling).is_error
            closed.set()
        assert waiting.count == 0


class TestRefused:
    async def test_what_nobody_may_erase_is_no_reason_to_drop_what_waits(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        answer = refusal(503, NO_ROW, "application/json")
        Wait(owner, tmp_path).keep(ANNA, MOVED)
        async with losing(shared_relayer.url, answer, carried_out=False) as url:
            gateway = gateway_of(replace(owner, url=url), tmp_path)
            answered = await gateway.call_tool("memory_forget", {"id": memory_id}, ANNA)
            assert answered.is_error
            await gateway.agent_end(conversation(TEA), CTX)
            assert await gateway.flush(30)
            await gateway.close()
        assert set(await texts_of(owner)) == {DOCTOR, MOVED, TEA}

    @pytest.mark.parametrize("answer", [None, refusal(504, "")])
    async def test_what_may_have_been_erased_is_not_captured_again(
        self, shared_relayer: RunningRelayer, tmp_path: Path, answer: bytes | None
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remembered(owner)
        Wait(owner, tmp_path).keep(ANNA)
        async with losing(shared_relayer.url, answer, carried_out=True) as url:
            gateway = gateway_of(replace(owner, url=url), tmp_path)
            answered = await gateway.call_tool("memory_forget", {"id": memory_id}, ANNA)
            assert answered.is_error
            await gateway.agent_end(conversation(DOCTOR), CTX)
            assert await gateway.flush(30)
            await gateway.close()
        assert await texts_of(owner) == []


async def test_a_late_answer_of_an_earlier_run_is_not_captured(
    shared_relayer: RunningRelayer, tmp_path: Path
) -> None:
    owner = await founded(shared_relayer.url)
    memory_id = await remembered(owner)
    first, second, third = ({**CTX, "runId": name} for name in "abc")
    settings = replace(PATIENT, debounce_s=60)
    roster = Roster.single(owner)
    async with Gateway(roster, settings, source="openclaw", spool_path=tmp_path) as gateway:
        await gateway.llm_input({"prompt": DOCTOR}, first)
        await gateway.llm_input({"prompt": "Forget my doctor."}, second)
        await gateway.call_tool("memory_forget", {"id": memory_id}, Context.from_json(second))
        await gateway.llm_output({"assistantTexts": ["Forgotten."]}, second)
        await gateway.llm_output({"assistantTexts": ["I have noted your doctor."]}, first)
        await gateway.llm_input({"prompt": TEA}, third)
        await gateway.llm_output({"assistantTexts": ["Noted."]}, third)
        assert await gateway.flush(30)
    assert await texts_of(owner) == [TEA]
