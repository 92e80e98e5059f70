"""A thousand agents: keys given, all replaced, a hundred ended, by the real commands.

Not here: that interrupted commands go on, and who sees what (`tests/client/test_agents_many.py`).

- One rotation is killed after a third and typed again; both count. Then each key is looked at: each
  agent has one that counts, those that ended none, and nothing was granted twice.
- The processor's time is that of the commands and of the relayer, without PostgreSQL.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.figures import Bounds, Figure, Report
from bench.running import Process, Scale, Site

AGENTS: Final = 1_000
ENDED: Final = 100
TOGETHER: Final = Bounds(must=60.0, aim=30.0)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    count, ended = (6, 2) if scale.quick else (AGENTS, ENDED)
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-") as name:
        async with site.relayer() as process:
            return await _Trial(Path(name), process, count, ended).measure()


class _Trial:
    """An owner's home, and commands that are timed."""

    def __init__(self, home: Path, process: Process, count: int, ended: int) -> None:
        self._environ = {**os.environ, "XDG_CONFIG_HOME": str(home)}
        self._folder = home / "memrelay" / "agents"
        self._process = process
        self._names = [f"agent-{number:04}" for number in range(count)]
        self._ended = self._names[:ended]
        self._file = home / "names.txt"
        self._file.write_text("\n".join(self._names) + "\n")

    async def measure(self) -> Report:
        """Time the commands, and check what they left."""
        await self._run("init", self._process.url)
        cpu_s, began = self._processor_s(), time.perf_counter()
        names = ("--names", str(self._file))
        provision = await self._timed("agents", "provision", *names, "--shared", "team")
        rotate = await self._rotate_killed("agents", "rotate", *names)
        revoke = await self._timed("agents", "revoke", *self._ended)
        together, used = time.perf_counter() - began, self._processor_s() - cpu_s
        await self._check()
        count, ended = len(self._names), len(self._ended)
        return Report(
            [
                Figure(name="together", value=together, unit="s", bounds=TOGETHER),
                Figure(name="processor, together", value=used, unit="s"),
                Figure(name=f"{count} agents provisioned", value=provision, unit="s"),
                Figure(name=f"{count} rotated, killed once", value=rotate, unit="s"),
                Figure(name=f"{ended} revoked", value=revoke, unit="s"),
            ]
        )

    async def _rotate_killed(self, *argv: str) -> float:
        began = time.perf_counter()
        before = self._keys()
        process = await self._start(*argv)
        while len(self._keys().items() - before.items()) < len(self._names) // 3:
            assert process.returncode is None, "the rotation ended before it was killed"
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        half = self._keys().items() - before.items()
        await self._run(*argv)
        after = self._keys()
        # The one under way may have had its profile already, and its old key's end to come.
        assert len(half - after.items()) == 0, "somebody was rotated twice"
        assert not before.items() & after.items(), "somebody was not rotated"
        return time.perf_counter() - began

    def _keys(self) -> dict[str, str]:
        """The private keys of the profiles here, by agent."""
        paths = [self._folder / f"{name}.json" for name in self._names]
        return {p.stem: json.loads(p.read_bytes())["private_key"] for p in paths if p.exists()}

    async def _check(self) -> None:
        """Check that each agent has one key that counts, those that ended none."""
        agents = json.loads(await self._run("agents", "list", "--json"))["agents"]
        active = sorted(agent["name"] for agent in agents if agent["state"] == "active")
        assert active == self._names[len(self._ended) :], "each has one key, the ended none"
        keys = json.loads(await self._run("keys", "list", "--json"))["keys"]
        assert len(keys) == 1 + 2 * len(self._names), "a key was made twice"

    async def _timed(self, *argv: str) -> float:
        began = time.perf_counter()
        await self._run(*argv)
        return time.perf_counter() - began

    async def _start(self, *argv: str, **streams: Any) -> asyncio.subprocess.Process:
        streams = streams or {"stdout": asyncio.subprocess.DEVNULL}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memrelay", *argv, env=self._environ, **streams
        )

    async def _run(self, *argv: str) -> bytes:
        process = await self._start(*argv, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{argv[:2]} ended with {process.returncode}")
        return out

    def _processor_s(self) -> float:
        """The processor's time of the commands that ended and of the relayer."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        relayer = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        times = os.times()
        return relayer + times.children_user + times.children_system
