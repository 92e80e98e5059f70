"""How a supervisor treats its workers, whatever they do, by a worker program that does as told.

Not here: real workers (`test_workers.py`).
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from relayer.sealed.unlock import UnlockKey
from relayer.serve import bind
from relayer.settings import Limits, Settings
from relayer.workers import supervisor
from relayer.workers.lines import PRESENT, read_keys
from relayer.workers.supervisor import Crew
from tests.life import WAIT_S_MAX
from tests.processes import is_there
from tests.services import FakeClock

# Says "ready" unless the folder holds HANG or FAIL, and writes down what it hears after that.
WORKER = """
import os, pathlib, socket, sys, time
folder, own, parent = pathlib.Path(sys.argv[1]), os.getpid(), os.getppid()
line = socket.socket(fileno=int(sys.argv[2]))
told = line.makefile("rb")
told.readline()
with open(folder / "begun", "a") as begun:
    begun.write(f"{own}\\n")
while (folder / "HANG").exists() and os.getppid() == parent:
    time.sleep(0.01)
if (folder / "FAIL").exists():
    sys.exit(1)
line.sendall(b"ready\\n")
for one in told:
    if one == b"leave\\n":
        break
    with open(folder / f"heard-{own}", "ab") as heard:
        heard.write(one)
"""


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for what the crew does meanwhile."""
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while not holds():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(what)


@dataclass
class Stage:
    """A crew, and what its workers are told to do and have written down."""

    crew: Crew
    clock: FakeClock
    folder: Path
    caplog: pytest.LogCaptureFixture

    def tell(self, word: str) -> None:
        (self.folder / word).touch()

    def tell_no_more(self, word: str) -> None:
        (self.folder / word).unlink()

    def begun(self) -> list[int]:
        """The process ids of all that have begun so far, in order."""
        path = self.folder / "begun"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def heard(self, pid: int) -> list[list[UnlockKey]]:
        """The unlock keys that one heard of, each time."""
        path = self.folder / f"heard-{pid}"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = (line for line in lines if line.endswith(b"\n") and not line.startswith(PRESENT))
        return [read_keys(line) for line in whole]

    def said(self, event: str) -> list[logging.LogRecord]:
        """The log's lines of an event."""
        return [r for r in self.caplog.records if getattr(r, "event", "") == event]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """The crew keeps its places filled meanwhile."""
        working = asyncio.create_task(self.crew.work())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.wait({working})
            await self.crew.end()


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Stage]:
    """A crew of two that has not begun, and hardly pauses."""
    caplog.set_level(logging.INFO, "relayer.workers")
    monkeypatch.setattr(supervisor, "PROGRAM", ("-c", WORKER, str(tmp_path)))
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    settings = Settings(data_dir=tmp_path, workers=2, port=0)
    with bind(settings) as sockets:
        clock = FakeClock()
        yield Stage(Crew(settings, sockets, clock), clock, tmp_path, caplog)


async def test_a_key_that_was_made_for_a_successor_is_told_to_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "KEYS_S", 0.5)
    await stage.crew.begin()
    killed, other = stage.begun()
    stage.clock.advance(Limits.unlock_key_life_s - 1)  # from now on a key overlaps with the next
    os.kill(killed, signal.SIGKILL)
    async with stage.at_work():
        await eventually(lambda: any(len(keys) == 2 for keys in stage.heard(other)), "it is told")
        await eventually(lambda: len(stage.begun()) == 3, "there is a successor")
        successor = stage.begun()[-1]
        last = [k.kid for k in stage.heard(other)[-1]]
        await eventually(lambda: _heard_last(stage, successor) == last, "all have the same keys")


def _heard_last(stage: Stage, pid: int) -> list[bytes]:
    return [key.kid for keys in stage.heard(pid)[-1:] for key in keys]


async def test_pauses_grow_while_no_successor_begins(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the one that ended had lived for long."""
    monkeypatch.setattr(supervisor, "STEADY_S", -1.0)
    monkeypatch.setattr(supervisor, "PAUSE_S_MAX", 0.05)
    await stage.crew.begin()
    stage.tell("FAIL")
    async with stage.at_work():
        os.kill(stage.begun()[0], signal.SIGKILL)
        await eventually(lambda: len(stage.said("workers.pause")) >= 5, "it is tried again")
        stage.tell_no_more("FAIL")
        await eventually(lambda: len(stage.said("workers.began")) == 3, "the place is filled")
    pauses = [vars(record)["pause_s"] for record in stage.said("workers.pause")]
    assert pauses[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]
    assert len(stage.said("workers.ended")) == 1, "those that never began are no workers"


async def test_a_successor_that_hangs_is_in_nobodys_way(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.crew.begin()
    before = stage.begun()
    async with stage.at_work():
        stage.tell("HANG")
        with monkeypatch.context() as short:
            short.setattr(supervisor, "START_S", 0.5)
            stage.crew.renew()
            await eventually(lambda: bool(stage.said("workers.not_renewed")), "it is told")
        assert all(map(is_there, before)), "the old ones stay"
        assert not any(map(is_there, stage.begun()[2:])), "what hangs is killed"
        stage.tell_no_more("HANG")
        stage.crew.renew()
        await eventually(lambda: bool(stage.said("workers.renewed")), "asked again, it is done")
        assert not any(map(is_there, before))


async def test_who_began_before_the_release_was_changed_is_replaced(stage: Stage) -> None:
    """It may be of the old release, however late it becomes ready."""
    await stage.crew.begin()
    stage.tell("HANG")
    async with stage.at_work():
        os.kill(stage.begun()[0], signal.SIGKILL)
        await eventually(lambda: len(stage.begun()) == 3, "a successor begins")
        stage.crew.renew()
        old = stage.begun()
        stage.tell_no_more("HANG")
        await eventually(lambda: bool(stage.said("workers.renewed")), "all are replaced")
        assert not any(map(is_there, old))
        assert len(stage.begun()) == 5


async def test_who_gets_the_number_of_one_that_ended_has_not_ended(stage: Stage) -> None:
    """Else what it counts would be taken away under it."""
    ended = stage.crew._uncounted = set(range(os.getpid(), os.getpid() + 2**16))
    await stage.crew.begin()
    still_ended = ended.intersection(stage.begun())
    ended.clear()
    await stage.crew.end()
    assert still_ended == set()
