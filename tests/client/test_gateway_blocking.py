"""The blocking gateway: the same hooks from threads that know no event loop."""

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memrelay.errors import ConfigError
from memrelay.gateway import BlockingGateway, Injection, Message, Roster
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.spool import SpoolKey
from tests.client.gateway_scene import (
    ANNA,
    NOWHERE,
    PATIENT,
    TEA,
    founded_blocking,
    texts_of_blocking,
)
from tests.client.spool_scene import spool_in, turns
from tests.processes import RunningRelayer

SPOOL_KEY = SpoolKey.of(NOWHERE.identity)
ASKED = "Do I prefer green tea or coffee in the morning?"


def test_a_turn_from_one_thread_is_recalled_in_another(
    shared_relayer: RunningRelayer,
) -> None:
    owner = founded_blocking(shared_relayer.url)
    with BlockingGateway.start(Roster.single(owner), PATIENT, source="test") as gateway:
        gateway.capture([Message("user", TEA)], ANNA)
        assert gateway.flush(30)
        with ThreadPoolExecutor(4) as pool:
            injections = list(pool.map(lambda _: gateway.recall(ASKED, ANNA), range(8)))
        assert all("green tea" in (one.prepend_context or "") for one in injections)
        found = gateway.call_tool("memory_search", {"query": ASKED}, ANNA)
        assert found.details["count"] == 1
        assert gateway.tools[0].name == "memory_search"
    assert texts_of_blocking(owner) == [TEA]


def test_closing_delivers_what_waits(shared_relayer: RunningRelayer) -> None:
    owner = founded_blocking(shared_relayer.url)
    gateway = BlockingGateway.start(Roster.single(owner), PATIENT)
    gateway.capture([Message("user", TEA)], ANNA)
    gateway.close(timeout_s=30)
    assert texts_of_blocking(owner) == [TEA]


def test_a_closed_gateway_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    gateway = BlockingGateway.start(Roster.single(NOWHERE), PATIENT)
    gateway.close(timeout_s=0)
    gateway.close()
    assert gateway.recall(ASKED, ANNA) == Injection()
    gateway.capture([Message("user", TEA)], ANNA)
    assert gateway.call_tool("memory_search", {"query": "tea"}, ANNA).is_error
    assert not gateway.flush(1)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "tea" not in caplog.text


def test_its_thread_ends_with_it() -> None:
    before = set(threading.enumerate())
    gateway = BlockingGateway.start(Roster.single(NOWHERE), PATIENT)
    [thread] = set(threading.enumerate()) - before
    assert thread.daemon
    gateway.close(timeout_s=0)
    assert not thread.is_alive()


def test_an_unusable_spool_is_told_and_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("")
    before = set(threading.enumerate())
    roster = Roster.single(NOWHERE)
    with pytest.raises(ConfigError, match="spool"):
        BlockingGateway.start(roster, PATIENT, spool_path=tmp_path / "spool")
    assert set(threading.enumerate()) == before


def test_what_could_not_be_delivered_stays_on_disk(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with BlockingGateway.start(Roster.single(NOWHERE), PATIENT, spool_path=spool) as gateway:
        gateway.capture([Message("user", TEA)], ANNA)
        assert not gateway.flush(5)
    assert len(list(spool.glob("*.turn"))) == 1


HANDED_OVER = """
import sys
from pathlib import Path
from tests.client.gateway_scene import ANNA, NOWHERE, PATIENT, TEA
from memrelay.gateway import BlockingGateway, Message, Roster

gateway = BlockingGateway.start(Roster.single(NOWHERE), PATIENT, spool_path=Path(sys.argv[1]))
for number in range(3):
    gateway.capture([Message("user", f"{TEA} {number}")], ANNA)
"""


def handed_over(spool: Path, more: str = "") -> bytes:
    """What a process says on its standard error that hands turns over and ends."""
    command = [sys.executable, "-c", HANDED_OVER + more, str(spool)]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stderr


def test_what_was_handed_over_is_on_disk_when_its_process_ends(tmp_path: Path) -> None:
    handed_over(tmp_path / "spool")
    assert len(list((tmp_path / "spool").glob("*.turn"))) == 3


FORKED = """
import os
child = os.fork()
gateway.capture([Message("user", f"{TEA} {child == 0}")], ANNA)
assert gateway.call_tool("memory_search", {"query": "tea"}, ANNA).text.startswith("The memory ca")
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_has_a_gateway_of_its_own(tmp_path: Path) -> None:
    assert b"gave no answer" not in handed_over(tmp_path / "spool", FORKED)
    spool = spool_in(tmp_path / "spool")
    kept = [CapturedTurn.from_bytes(turn or b"") for turn in turns(spool, SPOOL_KEY)]
    assert sorted(turn.text.rpartition(" ")[2] for turn in kept) == ["0", "1", "2", "False", "True"]


SHORT_OF_FILES = """
import os, resource
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    gateway.capture([Message("user", f"{TEA} lost")], ANNA)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    gateway.capture([Message("user", f"{TEA} child")], ANNA)
"""


def test_a_forked_process_begins_once_it_can(tmp_path: Path) -> None:
    assert handed_over(tmp_path / "spool", SHORT_OF_FILES).count(b"was not captured") == 1
    spool = spool_in(tmp_path / "spool")
    kept = [CapturedTurn.from_bytes(turn or b"") for turn in turns(spool, SPOOL_KEY)]
    assert sorted(turn.text.rpartition(" ")[2] for turn in kept) == ["0", "1", "2", "child"]


IMPORTS = """
import dataclasses, sys
from pathlib import Path
from tests.client.gateway_scene import ANNA, NOWHERE, PATIENT, TEA
from memrelay.gateway import BlockingGateway, Message, Roster

roster = Roster.single(dataclasses.replace(NOWHERE, url=sys.argv[1]))
gateway = BlockingGateway.start(roster, PATIENT, spool_path=Path(sys.argv[2]))
loaded = set(sys.modules)
gateway.capture([Message("user", TEA)], ANNA)
assert gateway.call_tool("memory_search", {"query": "tea"}, ANNA).text.startswith("The memory ca")
assert not gateway.flush(1.0)
assert set(sys.modules) == loaded, sorted(set(sys.modules) - loaded)
"""


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://localhost:9", "https://localhost:9"])
def test_nothing_is_imported_once_it_has_begun(tmp_path: Path, url: str) -> None:
    """A module that another thread imports at a fork is locked in the child for ever."""
    command = [sys.executable, "-c", IMPORTS, url, str(tmp_path / "spool")]
    subprocess.run(command, check=True, timeout=60)


LOCKED = """
import os, threading
from memrelay.gateway import blocking

def imports():
    import sniffio

elsewhere = Path(sys.argv[1]).parent
endless = "import __main__, time; __main__.begun.set(); time.sleep(3_600)"
(elsewhere / "sniffio.py").write_text(endless)
sys.path.insert(0, str(elsewhere))
sys.modules.pop("sniffio", None)
blocking._BEGIN_S, begun = 0.5, threading.Event()
threading.Thread(target=imports, daemon=True).start()
begun.wait()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    gateway.capture([Message("user", f"{TEA} lost")], ANNA)
os._exit(0)
"""


def test_a_forked_process_waits_for_no_loop_that_cannot_begin(tmp_path: Path) -> None:
    """Another of its parent's threads was importing what a request needs: half of it may be there,
    or it is locked. Neither is an error of the agent's, or holds it up."""
    handed_over(tmp_path / "spool", LOCKED)


def test_a_forked_process_ends_without_its_parents_gateway(tmp_path: Path) -> None:
    said = handed_over(tmp_path / "spool", "import os\nos.fork()\n")
    assert b"gave no answer" not in said
