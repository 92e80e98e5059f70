"""The process that sends what waits, after the hook that began it has ended.

It does not own how turns are sent (`gateway/capture.py`).

- It leaves the hook's process group and holds none of its streams: a host ends the group, and one
  waits for the streams.
- Its environment is a list of names: the host's holds the agent's API key.
- One process sends at a time. It goes on until nothing is left, or nothing moves.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from memrelay.coding.memory import CodingMemory
from memrelay.errors import ConfigError, MemrelayError
from memrelay.gateway.outage import reason_of
from memrelay.secure_files import lock_file

_DEADLINE_S: Final = 15.0
_PASS_S: Final = 60.0
_TURN_S: Final = 5.0  # that another process may need for its last look
_WARM_UP: Final = "What was said before?"  # any question does: it opens the keys
_PASSED_ON: Final = (
    "HOME USER LOGNAME PATH TMPDIR TEMP TMP LANG TZ SYSTEMROOT SSL_CERT_FILE SSL_CERT_DIR "
    "XDG_CONFIG_HOME XDG_RUNTIME_DIR HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy "
    "https_proxy all_proxy no_proxy MEMRELAY_PROFILE"
).split()


def begin_delivery(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Begin a process `memrelay hook deliver` of its own, which outlives this one."""
    subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-P", "-m", "memrelay", "hook", "deliver", *arguments],
        env={name: environ[name] for name in _PASSED_ON if name in environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=os.sep,
    )


def deliver(memory: CodingMemory) -> None:
    """Send what waits, and note whether memory works; return when nothing more can be done."""
    with ExitStack() as stack:
        until_s = time.monotonic() + _TURN_S
        while True:
            try:
                lock = memory.folder / f".{memory.agent}.lock"
                stack.enter_context(lock_file(lock, otherwise="Another process sends."))
                break
            except ConfigError:
                if time.monotonic() > until_s:
                    return  # that one looks once more before it ends
                time.sleep(0.1)
        try:
            memory.recall(_WARM_UP, "", deadline_s=_DEADLINE_S)
        except MemrelayError as error:
            memory.outage.note_failure(reason_of(error))
            return
        memory.outage.note_success()
        if memory.waiting_count:
            import asyncio  # noqa: PLC0415 - the hook that begins this process does without

            asyncio.run(_send(memory))


async def _send(memory: CodingMemory) -> None:
    from memrelay.gateway.hooks import Gateway  # noqa: PLC0415 - for what waits only
    from memrelay.gateway.roster import Roster  # noqa: PLC0415
    from memrelay.gateway.spool import SpoolKey  # noqa: PLC0415

    key = SpoolKey.of(memory.settings.identity)
    roster = Roster.single(memory.settings)
    async with Gateway(roster, memory.thresholds, spool_path=memory.spool_path) as gateway:
        while waiting := memory.spool.names(key):
            await gateway.flush(_PASS_S)
            if memory.spool.names(key) == waiting:
                return  # it is refused, or the relayer went away
