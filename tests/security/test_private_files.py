"""Files and sockets on a machine that others use, too: nobody but their owner gets at them.

Not here: what stands in the files (`test_secrecy.py`), how the embedded server keeps its folder
(`postgres/`).

- Everything runs with umask 0: what is private then is private by itself.
"""

import os
import pwd
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memrelay.gateway.endpoint import Endpoint
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.sealed.keys import Identity
from tests.client.agents_scene import Machine
from tests.processes import RunningRelayer, client, create_account, postgres_of, running_relayer

ROOT = os.geteuid() == 0
CLOSED = 0o077  # what group and others may not have


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    """A relayer with an embedded database and a folder of blobs, and something in both."""
    folder = tmp_path_factory.mktemp("served")
    before = os.umask(0)
    folder.chmod(0o755)
    blobs = {"RELAYER_BLOB_STORE": f"file:{folder / 'blobs'}"}
    with running_relayer(folder / "data", model_dir, RELAYER_EMBEDDER="none", **blobs) as relayer:
        account = create_account(relayer, "managed")
        with client(account, relayer.url) as memory:
            memory.remember("The key is under the mat.")
        yield relayer
    os.umask(before)


def open_to_others(top: Path, allowed: dict[Path, int]) -> list[str]:
    """What is below a folder, itself too, that its group or others may use beyond `allowed`."""
    found = []
    for path in (top, *top.rglob("*")):
        with suppress(FileNotFoundError):  # a running server removes files
            mode = stat.S_IMODE(path.lstat().st_mode)
            if not path.is_symlink() and mode & CLOSED & ~allowed.get(path, 0):
                found.append(f"{path.relative_to(top)} {mode:o}")
    return found


def test_what_a_relayer_writes_is_its_own(served: RunningRelayer) -> None:
    """Only root's two folders let the database's own account walk through."""
    data = served.data_dir
    walked = {data: 0o011, data / "postgres": 0o010} if ROOT else {}
    test_log = {served.log: CLOSED}
    assert (data / "relayer.key").exists()
    assert (data / "relayer.json").exists()
    assert open_to_others(data, walked | test_log) == []
    blobs = data.parent / "blobs"
    assert any(path.is_file() for path in blobs.rglob("*"))
    assert open_to_others(blobs, {}) == []


def test_a_data_folder_is_made_for_its_owner(tmp_path: Path, model_dir: Path) -> None:
    folder = tmp_path / "new" / "data"
    env = {**os.environ, "RELAYER_MODEL_DIR": str(model_dir)}
    command = [sys.executable, "-m", "relayer", "account", "create", "--data-dir", str(folder)]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    allowed = {folder: 0o011, folder / "postgres": 0o010} if ROOT else {}
    assert open_to_others(folder, allowed) == []


def test_what_a_client_writes_is_its_own(
    served: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Profiles, agents' keys, what was seen, archives, a spool and the gateway's endpoint."""
    home = tmp_path / "home"
    machine = Machine(home, served.url, capsys)
    machine.run("init", served.url)
    machine.run("agents", "provision", "researcher")
    machine.run("remember", "The key is under the mat.")
    archive = home / "all.archive"
    machine.run("export", str(archive))
    key = SpoolKey.of(Identity(bytes(range(32))))
    spool = Spool(home / "spool", bytes_max=2**20, turns_max=9)
    spool.put(key, b"{}")
    spool.close()
    Endpoint(port=1, token="t" * 43, proof="p" * 43).write(home / "gateway.json")
    written = [path for path in home.rglob("*") if path.is_file()]
    assert len(written) >= 6
    assert [p for p in written if stat.S_IMODE(p.stat().st_mode) != 0o600] == []
    private = [home / "memrelay", home / "memrelay/agents", home / "spool"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in private} == {0o700}


def as_nobody(reach: Callable[[], list[str]]) -> list[str]:
    """What a function says when another user of the machine calls it; root can play that user."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            nobody = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
            os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
            os.write(writing, "\n".join(reach()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writing, f"could not try: {error!r}".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as said:
        found = said.read().splitlines()
    os.waitpid(child, 0)
    return found


def test_another_user_of_the_machine_reaches_nothing(served: RunningRelayer) -> None:
    """capability 0.41: neither files, nor the database's socket, nor the process."""
    data, server = served.data_dir, postgres_of(served.data_dir)
    assert server is not None
    listening = (data / "postgres/cluster/postmaster.pid").read_text().splitlines()
    sockets, port, address = Path(listening[4]), listening[3], listening[5]
    assert address == "", "it listens at no address"
    if not ROOT:  # then nobody can be played: what would stop that user is looked at instead
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        rules = (data / "postgres/cluster/pg_hba.conf").read_text().splitlines()
        ways = {rule.split()[-1] for rule in rules if rule and not rule.startswith("#")}
        assert ways <= {"scram-sha-256", "reject"}
        return
    names = ("relayer.key", "relayer.json", "postgres/passwords.json", "postgres/postgres.log")
    processes = [served.process.pid, server]

    def reach() -> list[str]:
        found = []
        for path in [data, data / "postgres", sockets, data.parent / "blobs"]:
            with suppress(PermissionError):
                found.append(f"listed {path}: {os.listdir(path)}")
        for path in [data / name for name in names]:
            with suppress(PermissionError):
                found.append(f"read {path}: {path.read_bytes()!r}")
        for pid in processes:
            for name in ("environ", "mem", "maps", "fd"):
                with suppress(PermissionError):
                    place = Path(f"/proc/{pid}/{name}")
                    found.append(f"{place} {os.listdir(place) if name == 'fd' else place.open()}")
        with suppress(PermissionError), socket.socket(socket.AF_UNIX) as plain:
            plain.connect(str(sockets / f".s.PGSQL.{port}"))
            found.append("the database's socket")
        for host in ("127.0.0.1", "::1"):
            with suppress(OSError):
                socket.create_connection((host, int(port)), timeout=5).close()
                found.append(f"the database at {host}")
        return found

    assert as_nobody(reach) == []
    assert as_nobody(lambda: [str(os.geteuid())]) == [str(pwd.getpwnam("nobody").pw_uid)]
    readable = as_nobody(lambda: [Path(f"/proc/{os.getppid()}/status").read_text()[:4]])
    assert readable == ["Name"], "somebody else did try"
