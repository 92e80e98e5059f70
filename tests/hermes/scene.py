"""Users with a Hermes home that has our provider, and its agents in processes of their own.

It does not own what is played (`provider.py`, `forgetting.py`). `HERMES_PYTHON` is the interpreter
with Hermes.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.hermes.home import Configuration, save_settings, write_plugin
from memrelay.secure_files import write_private

HERE = Path(__file__).parent
WAIT_S = 120
FACT = "I prefer window seats on long flights."
MOVE = "I decided to move to Graz in the spring of 2027."
DOCTOR = "My doctor is called Amelia Rosenthal in Hamburg."
ID = re.compile(r"\bid ([0-9a-f-]{36})\b")  # as the tools show it
AWAY = "http://127.0.0.1:9"


@dataclass
class Agent:
    """The memory manager of one of Hermes' agents, in a process of its own."""

    process: "subprocess.Popen[str]"
    log: Path

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the manager, or of the provider, and return what it returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"call": name, "args": args, "kwargs": kwargs}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def tool(self, name: str, **arguments: Any) -> dict[str, str]:
        """What a tool answers the model."""
        answer: dict[str, str] = json.loads(self.call("handle_tool_call", name, arguments))
        return answer

    def turn(self, said: str, answered: str = "Noted.", session: str = "") -> str:
        """A whole turn as Hermes plays it; return what was recalled before it."""
        self.call("on_turn_start", 1, said)
        recalled: str = self.call("prefetch_all", said)
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": answered}]
        self.call("sync_all", said, answered, session_id=session, messages=messages)
        self.call("queue_prefetch_all", said, session_id=session)
        return recalled

    def stop(self) -> None:
        """End as Hermes does: what it has put off is done, and what was captured delivered."""
        assert self.call("flush_pending", WAIT_S)
        self.call("shutdown_all")

    def warnings(self) -> list[str]:
        """The warnings that were logged so far, errors among them."""
        return [
            line
            for line in self.log.read_text().splitlines()
            if line.startswith(("WARNING", "ERROR"))
        ]


@dataclass
class Scene:
    """A user with an account, a profile, and Hermes."""

    folder: Path
    settings: Settings

    @property
    def profile(self) -> Path:
        return self.folder / "config" / "memrelay" / "profile.json"

    @property
    def home(self) -> Path:
        return self.folder / "hermes"

    @property
    def spool(self) -> Path:
        return self.profile.with_name("spool")

    def waiting(self) -> list[CapturedTurn]:
        """The captured turns that wait, oldest first."""
        spool, key = self._spool()
        kept = [spool.get(key, name) for name in spool.names(key)]
        return [CapturedTurn.from_bytes(data) for data in kept if data is not None]

    def keep(self, text: str) -> None:
        """Let a captured turn wait, as a process that ended left it."""
        turn = CapturedTurn(
            agent="main",
            namespace="default",
            text=text,
            source="hermes:earlier",
            occurred_at="2026-11-21T09:30:00Z",
            idempotency_key="0" * 32,
        )
        spool, key = self._spool()
        spool.put(key, turn.to_bytes())

    def _spool(self) -> tuple[Spool, SpoolKey]:
        spool = Spool(self.spool, bytes_max=1 << 20, turns_max=100)
        return spool, SpoolKey.of(self.settings.identity)

    def environment(self, home: Path | None = None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        programs = Path(os.environ["HERMES_PYTHON"]).parent
        return kept | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "HERMES_HOME": str(home or self.home),
        }

    def use(self, url: str) -> None:
        """Reach the relayer at another address from now on."""
        write_private(self.profile, self.settings.profile() | {"url": url})

    def memrelay(self, *arguments: str, home: Path | None = None) -> str:
        """What a command prints on both streams; it must succeed."""
        return _run([sys.executable, "-m", "memrelay", *arguments], self.environment(home))

    def hermes(self, *arguments: str) -> str:
        """What a command of Hermes prints."""
        return _run([self.program, *arguments], self.environment())

    @property
    def program(self) -> str:
        return str(Path(os.environ["HERMES_PYTHON"]).with_name("hermes"))

    def typed(self, dialogue: Iterable[tuple[str, str]], *arguments: str) -> str:
        """What a command of Hermes shows on a terminal where each text is answered by typing."""
        here, there = os.openpty()
        environment = self.environment() | {"TERM": "xterm", "LINES": "40", "COLUMNS": "120"}
        process = subprocess.Popen(
            [self.program, *arguments], env=environment, stdin=there, stdout=there, stderr=there
        )
        os.close(there)
        shown = b""
        try:
            for text, answer in dialogue:
                while text.encode() not in shown:
                    shown += os.read(here, 4096)
                shown = b""
                os.write(here, answer.encode())
            while data := _read(here):
                shown += data
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.wait()
            os.close(here)
        return shown.decode(errors="replace")

    def play(self, *arguments: str) -> str:
        """What a real Hermes agent replies in one turn, and its log."""
        command = [os.environ["HERMES_PYTHON"], str(HERE / "turn.py"), *arguments]
        return _run(command, self.environment())

    def install(self, *arguments: str, name: str = "") -> Path:
        """Make our provider the memory of the user's Hermes, or of a profile of it."""
        home = self.home / "profiles" / name if name else self.home
        home.mkdir(parents=True, exist_ok=True)
        if arguments:
            self.memrelay("hermes", "install", *arguments, home=home)
        else:  # the same, without the time that the command takes to ask Hermes
            write_plugin(home)
            # A busy machine takes longer than the second that a turn may wait for.
            patient = {"recallDeadlineS": 15}
            save_settings(home, {"profile": str(self.profile), "settings": patient})
            Configuration(home).install()
        return home

    def client(self, settings: Settings | None = None) -> SyncMemoryClient:
        return SyncMemoryClient.from_settings(settings or self.settings)

    def texts(self, namespace: str = "default") -> list[str]:
        """What is remembered in a namespace, newest first."""
        with self.client() as client:
            return [str(memory.text) for memory in client.list(namespace=namespace).memories]

    @contextmanager
    def agent(self, session: str, home: Path | None = None, **kwargs: Any) -> Iterator[Agent]:
        """A new agent of Hermes in a new process; `kwargs` are what Hermes tells its provider."""
        with self.unstarted(home) as agent:
            assert agent.call("start", session, **kwargs)
            yield agent

    @contextmanager
    def unstarted(self, home: Path | None = None) -> Iterator[Agent]:
        log = self.folder / f"agent-{len(list(self.folder.glob('agent-*')))}.log"
        process = subprocess.Popen(
            [os.environ["HERMES_PYTHON"], "-W", "error", str(HERE / "driver.py"), str(log)],
            env=self.environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Agent(process, log)
            process.stdin.close()
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def scene_of(folder: Path, url: str) -> Scene:
    """A new account's owner, with a profile."""
    new = SyncMemoryClient.create_account(url)
    settings = Settings(url=url, account_id=new.account_id, private_key=new.private_key)
    scene = Scene(folder, settings)
    write_private(scene.profile, settings.profile())
    return scene


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody is at the other end any more
        return b""


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WAIT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
