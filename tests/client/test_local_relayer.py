"""A relayer of one's own, which commands start when they need it, with real processes."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.config import Settings
from memrelay.errors import ConfigError, NotStarted, TimedOut
from memrelay.local_relayer import LOG, LOG_BYTES_MAX, SOCKET
from memrelay.secure_files import lock_file
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.local_scene import LocalMachine, local_home
from tests.conftest import database_copy
from tests.processes import is_there, running_relayer

STARTING = "memrelay: The local relayer is starting"
SECRET = "of-the-caller-alone"


@pytest_asyncio.fixture(scope="module")
async def settings(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[dict[str, str]]:
    """What the relayer of these tests is given."""
    async with database_copy(postgres, template) as copy:
        yield {
            "RELAYER_DATABASE_URL": copy.url,
            "RELAYER_EMBEDDER": "none",
            "PYTHONWARNINGS": "error",
        }


@pytest.fixture(scope="module")
def home(settings: dict[str, str]) -> Iterator[Path]:
    """A user's folder with a profile, and a relayer's data that the tests here share."""
    with local_home(**settings) as folder:
        profile, data = str(folder / "profile.json"), str(folder / "data")
        assert main(["init", "--local", "--data-dir", data, "--profile", profile], {}) == EXIT_OK
        yield folder


@pytest.fixture
def shell(
    home: Path, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> Iterator[LocalMachine]:
    machine = LocalMachine(home, capsys)
    yield machine
    machine.set_environment(**settings)


@pytest.fixture
def running(shell: LocalMachine) -> LocalMachine:
    """A user's shell, with a relayer that runs."""
    shell.texts()
    return shell


@pytest.fixture
def stopped(shell: LocalMachine) -> LocalMachine:
    """A user's shell, with a relayer that does not run."""
    shell("local", "stop")
    return shell


@pytest.fixture
def newcomer(capsys: pytest.CaptureFixture[str]) -> Iterator[LocalMachine]:
    """A user's shell, without a profile and data."""
    with local_home(RELAYER_EMBEDDER="none") as folder:
        yield LocalMachine(folder, capsys)


def until(state: str, machine: LocalMachine) -> None:
    while machine("local", "status")["state"] != state:
        time.sleep(0.05)


def remember_in_process(machine: LocalMachine, text: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "memrelay", "remember", text, "--profile", str(machine.profile)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask_as_hook(machine: LocalMachine) -> dict[str, str]:
    """What a coding agent's hook answers to a prompt; an empty object for nothing."""
    form = {"session_id": "s", "cwd": "/", "prompt": "Which seat do I prefer?"}
    options = ["--host", "claude", "--agent", "anna", "--profile", str(machine.profile)]
    done = subprocess.run(
        [sys.executable, "-m", "memrelay", "hook", "prompt", *options],
        input=json.dumps(form),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout or "{}"))


class TestStarting:
    def test_a_newcomer_needs_one_command(self, newcomer: LocalMachine) -> None:
        """With a database of its own, which the first start makes."""
        newcomer.init()
        assert newcomer.err.splitlines() == [f"{STARTING}, with its data in {newcomer.folder}."]
        newcomer.remember("Anna prefers tea.")
        newcomer("local", "stop")
        assert newcomer.texts() == ["Anna prefers tea."]

    def test_a_command_starts_it_once_and_says_so_in_one_line(self, stopped: LocalMachine) -> None:
        before = stopped.starts()
        stopped.remember("Anna prefers tea.")
        assert stopped.err.splitlines() == [f"{STARTING}, with its data in {stopped.folder}."]
        pid = stopped.pid()
        assert "Anna prefers tea." in stopped.texts()
        assert stopped.err == ""
        assert (stopped.pid(), stopped.starts()) == (pid, before + 1)

    def test_it_inherits_neither_secrets_nor_files_nor_the_terminal(
        self, stopped: LocalMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MEMRELAY_PRIVATE_KEY", SECRET)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        monkeypatch.chdir(stopped.home)
        held = os.open(stopped.profile, os.O_RDONLY)
        os.set_inheritable(held, True)
        try:
            stopped.texts()
        finally:
            os.close(held)
        process = Path(f"/proc/{stopped.pid()}")
        assert SECRET.encode() not in (process / "environ").read_bytes()
        opened = {os.readlink(name) for name in (process / "fd").iterdir() if name.is_symlink()}
        assert str(stopped.folder / "local.lock") in opened
        assert str(stopped.profile) not in opened
        assert os.readlink(process / "cwd") == "/"
        assert os.getsid(stopped.pid()) != os.getsid(0)
        parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
        assert int(parent) != os.getpid()

    @pytest.mark.parametrize("name", [LOG, SOCKET, "local.json", "local.lock", "relayer.key"])
    def test_only_this_user_may_read_what_it_leaves(self, running: LocalMachine, name: str) -> None:
        assert stat.S_IMODE((running.folder / name).stat().st_mode) == 0o600

    def test_commands_at_once_start_one(self, stopped: LocalMachine) -> None:
        before = stopped.starts()
        texts = [f"Anna has {number} cats." for number in range(3)]
        processes = [remember_in_process(stopped, text) for text in texts]
        said = [process.communicate()[1] for process in processes]
        assert [process.returncode for process in processes] == [0] * 3, said
        assert set(texts) <= set(stopped.texts())
        assert stopped.starts() == before + 1

    def test_whoever_is_killed_meanwhile_leaves_one_that_others_find(
        self, stopped: LocalMachine
    ) -> None:
        before = stopped.starts()
        process = remember_in_process(stopped, "Anna prefers tea.")
        assert process.stderr is not None
        assert process.stderr.readline().startswith(STARTING)
        process.kill()
        process.communicate()
        stopped.texts()
        assert stopped.starts() == before + 1

    def test_a_long_log_is_put_aside(self, stopped: LocalMachine) -> None:
        (stopped.folder / LOG).write_text("x" * (LOG_BYTES_MAX + 1))
        stopped.texts()
        assert stopped.starts() == 1
        assert (stopped.folder / f"{LOG}.old").stat().st_size == LOG_BYTES_MAX + 1


class TestClients:
    def test_one_that_awaits_starts_it_without_a_second_attempt(
        self, stopped: LocalMachine
    ) -> None:
        async def ask() -> int:
            settings = Settings.load(stopped.profile, environ={})
            async with MemoryClient.from_settings(settings, attempts_max=1) as client:
                return len(await client.namespaces())

        assert asyncio.run(ask()) >= 0
        assert stopped.pid()

    def test_a_hook_that_waits_no_longer_leaves_it_for_the_next(
        self, stopped: LocalMachine
    ) -> None:
        before = stopped.starts()

        async def ask() -> None:
            settings = Settings.load(stopped.profile, environ={})
            async with MemoryClient.from_settings(settings, attempts_max=1) as client:
                asking = asyncio.create_task(client.recall("tea"))
                while not stopped.relayer.is_held():  # far shorter than any start takes
                    await asyncio.sleep(0.01)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking

        asyncio.run(ask())
        until("running", stopped)
        while stopped.starts() == before:  # it says so after it has begun to listen
            time.sleep(0.05)
        assert stopped.starts() == before + 1

    def test_a_person_is_told_of_a_start_and_not_of_a_failure(self, running: LocalMachine) -> None:
        running("agents", "provision", "anna")
        running("local", "stop")
        away = running.home / "hooks" / "anna.away.json"
        with lock_file(running.folder / "local.lock"):  # as whoever starts it does
            told = ask_as_hook(running)
            assert "the local relayer is starting" in told["systemMessage"]
            assert "doctor" not in told["systemMessage"]
        while away.exists():  # until the hook's other process has found it running
            time.sleep(0.05)
        assert "systemMessage" not in ask_as_hook(running)

    @pytest.mark.parametrize("awaits", [False, True])
    def test_a_stream_of_events_starts_it(self, stopped: LocalMachine, awaits: bool) -> None:
        async def listen() -> list[str]:
            async with MemoryClient.from_profile(stopped.profile) as client:
                return [event.type async for event in client.events(after=0, follow=False)]

        if awaits:
            told = asyncio.run(listen())
        else:
            with SyncMemoryClient.from_profile(stopped.profile) as client:
                told = [event.type for event in client.events(after=0, follow=False)]
        assert "key.granted" in told

    def test_an_agent_uses_the_same_one(self, running: LocalMachine) -> None:
        running("agents", "provision", "coder")
        before = running.starts()
        running("local", "stop")
        running.remember("The build needs Python.", "--agent", "coder")
        assert running.starts() == before + 1


class TestEnding:
    def test_stop_ends_it_and_the_next_command_starts_it(self, running: LocalMachine) -> None:
        pid = running.pid()
        assert running("local", "stop")["stopped"] is True
        assert not is_there(pid)
        assert running("local", "status")["state"] == "stopped"
        assert running("local", "stop")["stopped"] is False
        running.texts()
        assert running("local", "status") == {
            "state": "running",
            "pid": running.pid(),
            "data_dir": str(running.folder),
            "url": f"unix://{running.folder}/{SOCKET}",
            "log": str(running.folder / LOG),
        }

    def test_stop_ends_one_that_only_begins(self, stopped: LocalMachine) -> None:
        with pytest.raises(NotStarted, match="still starting"):
            stopped.relayer.start(timeout_s=0)
        assert stopped("local", "status")["state"] == "busy"
        assert stopped("local", "stop")["stopped"] is True
        assert stopped("local", "status")["state"] == "stopped"

    def test_it_ends_by_itself_when_nobody_asks(
        self, stopped: LocalMachine, settings: dict[str, str]
    ) -> None:
        stopped.set_environment(**settings, RELAYER_IDLE_EXIT_S="0.2")
        stopped.remember("Anna waits for nobody.")
        until("stopped", stopped)
        assert not (stopped.folder / SOCKET).exists()
        stopped.set_environment(**settings)
        assert "Anna waits for nobody." in stopped.texts()

    def test_a_killed_one_is_started_again(self, running: LocalMachine) -> None:
        running.remember("Anna outlives it.")
        pid = running.pid()
        os.kill(pid, signal.SIGKILL)
        until("stopped", running)
        assert (running.folder / SOCKET).exists()
        assert "Anna outlives it." in running.texts()
        assert running.pid() != pid

    def test_a_number_that_a_killed_one_left_is_nobodys(self, stopped: LocalMachine) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            stopped.announce(other.pid)
            assert stopped("local", "status")["pid"] is None
            assert stopped("local", "stop")["stopped"] is False
            assert other.poll() is None
            other.communicate(b"\n")


class TestRefusals:
    """Each says what happened and what to type."""

    def test_a_start_that_fails_says_the_last_line_of_its_log(
        self, stopped: LocalMachine, settings: dict[str, str]
    ) -> None:
        stopped.set_environment(**settings, RELAYER_REQUEST_TIMEOUT_S="0")
        stopped.lines("list", code=EXIT_FAILED)
        error = stopped.err.splitlines()[-1]
        assert "did not start: RELAYER_REQUEST_TIMEOUT_S must be at least 1." in error
        assert f"doctor --data-dir {stopped.folder}`" in error
        assert str(stopped.folder / LOG) in error
        found = {each["check"]: each for each in stopped("doctor", code=EXIT_FAILED)["findings"]}
        assert "RELAYER_REQUEST_TIMEOUT_S must be at least 1" in found["relayer"]["detail"]
        assert found["relayer"]["command"].endswith(f"doctor --data-dir {stopped.folder}")

    def test_data_of_another_version(self, newcomer: LocalMachine) -> None:
        cluster = newcomer.folder / "postgres" / "cluster"
        cluster.mkdir(parents=True, mode=0o700)
        (cluster / "PG_VERSION").write_text("9\n")
        newcomer.lines("init", "--local", "--data-dir", str(newcomer.folder), code=EXIT_FAILED)
        assert "was made by PostgreSQL 9" in newcomer.err
        assert not newcomer.profile.exists()

    def test_an_environment_that_is_none(self, stopped: LocalMachine) -> None:
        (stopped.folder / "relayer.env").write_text("RELAYER_EMBEDDER none\n")
        stopped.lines("list", code=EXIT_USAGE)
        assert "relayer.env, line 1, is no NAME=VALUE." in stopped.err

    def test_a_folder_that_was_moved(self, running: LocalMachine) -> None:
        running("agents", "provision", "tester")
        running("local", "stop")
        moved, first = running.home / "elsewhere", running.folder
        first.rename(moved)
        running.lines("list", code=EXIT_FAILED)
        assert f"The data folder {first} is gone" in running.err
        assert "`memrelay local use FOLDER`" in running.err
        assert running("local", "status")["state"] == "missing"
        found = {each["check"]: each for each in running("doctor", code=EXIT_FAILED)["findings"]}
        command = f"memrelay local use FOLDER --profile {running.profile}"
        assert found["relayer"]["command"] == command
        changed = running("local", "use", str(moved))["profiles"]
        assert {str(running.profile), str(running.home / "agents/tester.json")} <= set(changed)
        running.remember("The build needs Python.", "--agent", "tester")
        running("local", "stop")
        moved.rename(first)
        running("local", "use", str(first))

    def test_a_folder_without_data_is_not_used(self, shell: LocalMachine) -> None:
        shell.lines("local", "use", str(shell.home), code=EXIT_USAGE)
        assert f"`memrelay init --local --data-dir {shell.home}`" in shell.err

    def test_a_file_in_the_sockets_place(self, stopped: LocalMachine) -> None:
        (stopped.folder / SOCKET).write_text("")
        stopped.lines("list", code=EXIT_FAILED)
        assert f"{stopped.folder / SOCKET} is no socket; move it away" in stopped.err
        (stopped.folder / SOCKET).unlink()

    def test_a_program_that_is_no_relayer(self, stopped: LocalMachine) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(stopped.folder / SOCKET))
            other.listen()
            settings = Settings.load(stopped.profile, environ={})
            client = SyncMemoryClient.from_settings(settings, deadline_s=0.3)
            with client, pytest.raises(TimedOut, match="did not answer in time"):
                client.list()
        (stopped.folder / SOCKET).unlink()

    def test_a_folder_that_cannot_be_written(self, stopped: LocalMachine) -> None:
        (stopped.folder / "local.lock").unlink()
        (stopped.folder / "local.lock").mkdir()
        stopped.lines("list", code=EXIT_USAGE)
        assert f"{stopped.folder}/local.lock cannot be written: Is a directory." in stopped.err
        assert "type `memrelay local use FOLDER`" in stopped.err
        (stopped.folder / "local.lock").rmdir()

    def test_one_that_somebody_serves_by_hand(
        self, stopped: LocalMachine, settings: dict[str, str], model_dir: Path
    ) -> None:
        url = settings["RELAYER_DATABASE_URL"]
        with running_relayer(stopped.folder, model_dir, database_url=url):
            stopped.lines("list", code=EXIT_FAILED)
        assert f"Another relayer serves {stopped.folder}, and not at its socket" in stopped.err

    def test_no_program(self, stopped: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
        (stopped.folder / "local.json").write_text('{"relayer": "/nowhere/relayer"}')
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/nowhere/python")
            patched.setattr(sys, "argv", ["/nowhere/memrelay"])
            patched.setenv("PATH", "/nowhere")
            stopped.lines("list", code=EXIT_USAGE)
        assert "`relayer` is not installed beside `memrelay`" in stopped.err
        assert "pip install" in stopped.err

    def test_a_folder_that_others_may_write(self, shell: LocalMachine) -> None:
        shell.folder.chmod(0o770)
        shell.lines("list", code=EXIT_USAGE)
        assert f"run `chmod go-w {shell.folder}`" in shell.err
        shell.folder.chmod(0o700)

    def test_a_path_that_no_socket_has(self, shell: LocalMachine) -> None:
        deep = shell.home / ("d" * 100)
        other = shell.with_profile("other.json")
        other.lines("init", "--local", "--data-dir", str(deep), code=EXIT_USAGE)
        assert "too long for a socket" in other.err
        assert not deep.exists()

    def test_init_names_one_relayer(self, shell: LocalMachine) -> None:
        other = shell.with_profile("other.json")
        other.lines("init", "http://127.0.0.1:1", "--local", code=EXIT_USAGE)
        assert "not both" in other.err
        other.lines("init", "http://127.0.0.1:1", "--data-dir", "x", code=EXIT_USAGE)
        assert "--data-dir is for --local" in other.err

    def test_a_socket_of_a_relayer_that_somebody_else_looks_after(
        self, stopped: LocalMachine
    ) -> None:
        (stopped.folder / "local.json").rename(stopped.folder / "aside.json")
        stopped.lines("list", code=EXIT_FAILED)
        (stopped.folder / "aside.json").rename(stopped.folder / "local.json")
        assert "nobody listens at its socket" in stopped.err

    def test_stop_is_for_the_local_one(self, shell: LocalMachine) -> None:
        other = shell.with_profile("remote.json")
        other.profile.write_text('{"url": "https://memory.example.org"}')
        other.profile.chmod(0o600)
        other.lines("local", "stop", code=EXIT_USAGE)
        assert "which memrelay does not start" in other.err
        none = shell.with_profile("none.json")
        none.lines("local", "status", code=EXIT_USAGE)
        assert "`memrelay init --local`" in none.err

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("unix://relative/path", "whole path"),
            ("unix:///a%00b", "whole path"),
            ("unix:///" + "x" * 200, "too long"),
        ],
    )
    def test_a_url_of_no_socket(self, url: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            Settings(url=url, account_id="0x" + "00" * 32, private_key="00" * 32)


def test_doctor_starts_it_and_finds_nothing_wrong(stopped: LocalMachine) -> None:
    found = {each["check"]: each for each in stopped("doctor")["findings"]}
    model = f"echo RELAYER_LLM_MODEL=NAME >>{stopped.folder}/relayer.env && chmod 600 "
    assert found["facts"]["command"].startswith(model), "no terminal serves it"
    assert found["relayer"]["state"] == "ok"
    assert found["relayer"]["detail"] == f"unix://{stopped.folder}/{SOCKET} answers: ok"
