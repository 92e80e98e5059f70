"""What is tortured: a database, relayers, a blob store, and the endpoints that they ask.

Not here: what is done to it (`faults.py`), who uses it meanwhile (`work.py`).

- Everything listens on 127.0.0.1 or a socket in a private folder.
- Only processes that were started here are ever signalled, each by its own id.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relayer.postgres.embedded import EmbeddedPostgres
from tests import embeddings_server
from tests.embeddings_server import EmbeddingsServer
from tests.openai_server import OpenAIServer, openai_server
from tests.processes import RunningRelayer, lasting_port
from tests.torture import clocked
from tests.torture.far import FarStore, far_store

START_S_MAX = 90.0
REQUEST_S = 10  # a relayer's deadline of one request
DISK_BYTES = 768 << 20
PAUSE_S = 0.3


class Embedder(EmbeddingsServer):
    """The endpoint, which also ends whoever asks it for a poisonous text."""

    poison: str | None = None
    poisoned: Callable[[], None] = staticmethod(lambda: None)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # asyncio would print it at the end
            await super()._connected(reader, writer)

    def _fault(self, document: dict[str, Any], texts: list[str]) -> str | None:
        del self.requests[:-1], self.bodies[:-1]  # a long run must not fill the memory
        if self.poison is not None and any(self.poison in text for text in texts):
            self.poisoned()
            return "disconnect"
        return super()._fault(document, texts)


@dataclass
class Relayer:
    """One relayer on a port of its own, started again whenever somebody asks."""

    port: int
    data_dir: Path
    environment: dict[str, str]
    process: "subprocess.Popen[str] | None" = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def start(self) -> None:
        """Start it, as often as it takes: a database may be on its way up."""
        deadline = time.monotonic() + START_S_MAX
        while not await self._started():
            assert time.monotonic() < deadline, f"no start; {self._log().read_text()[-2000:]}"
            await asyncio.sleep(PAUSE_S)

    async def _started(self) -> bool:
        if self.alive:
            return True
        self.starts += 1
        self.process = self._launched()
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        if "ready at" in line:
            return True
        await asyncio.to_thread(self.ended)
        return False

    def _launched(self) -> "subprocess.Popen[str]":
        with self._log().open("a") as errors:
            return subprocess.Popen(
                [*_PROGRAM, "serve", "--data-dir", str(self.data_dir), "--port", str(self.port)],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self.process is not None
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.signal(signal.SIGKILL)
        self.ended()

    def ended(self) -> None:
        """Wait for its end, which must be near."""
        if self.process is not None:
            self.process.wait(timeout=60)
            assert self.process.stdout is not None
            self.process.stdout.close()

    def command(self, *arguments: str) -> dict[str, Any]:
        """The JSON that a `relayer` command prints, run beside the server."""
        assert self.process is not None
        beside = RunningRelayer(
            self.process, self.url, self.data_dir, self._log(), self.environment
        )
        return beside.command(*arguments)

    def _log(self) -> Path:
        return self.data_dir / "stderr.log"


_PROGRAM = [sys.executable, "-W", "error", "-m", clocked.__name__]


@dataclass
class Ground:
    """All of it. `postgres` is None where the relayer runs an embedded server by itself."""

    folder: Path
    relayers: list[Relayer]
    embedder: Embedder
    model: OpenAIServer
    postgres: EmbeddedPostgres | None
    disk: Path | None  # a small one of its own, where mounting is allowed
    far: FarStore | None = None  # in place of a blob folder
    altered: set[str] = field(default_factory=set)  # ids of memories whose blobs are
    frozen: list[int] = field(default_factory=list)
    kills: int = 0

    @property
    def clock_file(self) -> Path:
        return self.folder / "clock"

    @property
    def blobs(self) -> Path | None:
        """The blob folder; None where blobs are elsewhere."""
        if self.postgres is None or self.far is not None:
            return None
        return self.folder / "disk" / "blobs"

    @property
    def cluster(self) -> Path:
        data_dir = self.relayers[0].data_dir if self.postgres is None else self.folder / "disk"
        return data_dir / "postgres" / "cluster"

    def postgres_pids(self) -> list[int]:
        """The database server's process and its children; nothing when it is down."""
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            pid = int((self.cluster / "postmaster.pid").read_text().splitlines()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command[1:3] == [b"-D", os.fsencode(self.cluster)]:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                return [pid, *map(int, children)]
        return []

    def kill_postgres(self) -> None:
        """SIGKILL to the server; its children notice and end by themselves."""
        for pid in self.postgres_pids()[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze_postgres(self) -> None:
        """Hold the server and all its children."""
        self.frozen = self.postgres_pids()
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw_postgres(self) -> None:
        """Let them go on, also those whose server was killed meanwhile."""
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = []

    async def stop_postgres(self) -> None:
        assert self.postgres is not None
        await self.postgres.stop()

    async def start_postgres(self) -> None:
        """Bring the server up, whatever became of it."""
        assert self.postgres is not None
        await self.postgres.stop()
        await self.postgres.start()

    async def start_relayers(self) -> None:
        await asyncio.gather(*(relayer.start() for relayer in self.relayers))

    async def database_url(self) -> str:
        """How to look into the database; an embedded one must be there."""
        if self.postgres is not None:
            return self.postgres.dsn
        user = EmbeddedPostgres(data_dir=self.relayers[0].data_dir)
        await user.start()
        url = user.dsn
        await user.stop()
        return url


@asynccontextmanager
async def ground_on(
    folder: Path, *, embedded: bool = False, bucket: bool = False
) -> AsyncIterator[Ground]:
    """Two relayers on one database and one blob folder or bucket, or one that is all by itself."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)  # the database server drops root
    with contextlib.ExitStack() as stack:
        disk = None if embedded else stack.enter_context(_small_disk(folder / "disk"))
        model = stack.enter_context(openai_server(api_key=embeddings_server.KEY))
        async with contextlib.AsyncExitStack() as waiting:
            embedder = await waiting.enter_async_context(Embedder())
            postgres = None
            if not embedded:
                postgres = EmbeddedPostgres(data_dir=folder / "disk")
                await waiting.enter_async_context(postgres)
            far = await waiting.enter_async_context(far_store(folder / "far")) if bucket else None
            ground = Ground(folder, [], embedder, model, postgres, disk, far)
            ground.relayers += [_relayer(ground, n) for n in range(1 if embedded else 2)]
            try:
                # One after the other: the first one makes the key and the tables.
                for relayer in ground.relayers:
                    await relayer.start()
                yield ground
            finally:
                ground.thaw_postgres()
                for relayer in ground.relayers:
                    relayer.signal(signal.SIGCONT)
                    relayer.signal(signal.SIGTERM)
                for relayer in ground.relayers:
                    await asyncio.to_thread(relayer.ended)


def _relayer(ground: Ground, number: int) -> Relayer:
    data_dir = ground.folder / f"relayer-{number}"
    data_dir.mkdir(mode=0o711)
    own = {
        "RELAYER_KEY_FILE": str(ground.folder / "relayer-0" / "relayer.key"),
        "RELAYER_DATABASE_URL": ground.postgres.dsn if ground.postgres is not None else "",
        **_blob_store(ground),
        "RELAYER_EMBEDDER": "openai",
        "RELAYER_EMBEDDING_MODEL": embeddings_server.MODEL,
        "RELAYER_EMBEDDING_DIM": str(embeddings_server.DIM),
        "RELAYER_EMBEDDING_BASE_URLS": ground.embedder.url,
        "RELAYER_EMBEDDING_TIMEOUT_S": "3",
        "RELAYER_LLM_MODEL": ground.model.chat_model,
        "RELAYER_LLM_TIMEOUT_S": "4",
        "RELAYER_REQUEST_TIMEOUT_S": str(REQUEST_S),
        "OPENAI_BASE_URL": ground.model.base_url,
        "OPENAI_API_KEY": embeddings_server.KEY,
        clocked.FILE: str(ground.clock_file),
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "OPENAI_"))}
    return Relayer(lasting_port(), data_dir, inherited | own)


def _blob_store(ground: Ground) -> dict[str, str]:
    if ground.far is not None:
        return ground.far.environment()
    return {"RELAYER_BLOB_STORE": f"file:{ground.blobs}" if ground.blobs else "postgres"}


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk that can be filled, mounted at `folder`; None and a plain folder if that is denied."""
    folder.mkdir(mode=0o711)
    options = f"size={DISK_BYTES},mode=711"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
