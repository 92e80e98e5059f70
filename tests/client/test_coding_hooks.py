"""Hooks of coding agents: real processes that are given recorded input, and a real relayer."""

import asyncio
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memrelay import MemoryClient, Settings, SyncMemoryClient
from memrelay.cli import main
from memrelay.coding.memory import choose_projects, hooks_folder
from memrelay.coding.outage import Outage
from memrelay.config import read_profile
from memrelay.gateway.profiles import LiveProfile
from memrelay.mcp.tools import tools_of
from memrelay.secure_files import write_private
from tests.client.coding_scene import Session, wait_until_kept, wait_until_sent
from tests.client.gateway_process import WAIT_S_MAX, Machine, machine_of
from tests.processes import RunningRelayer

FACT = "I prefer pnpm over npm in all my projects."
QUESTION = "Which package manager do I prefer?"
CHARS_MAX = 10_000  # a host gives a longer text to a file


@pytest.fixture
def machine(shared_relayer: RunningRelayer, tmp_path: Path) -> Iterator[Machine]:
    with machine_of(tmp_path, shared_relayer) as machine:
        # The tests ask what is recalled, not how fast: other work may keep the relayer busy.
        (machine.profiles / "gateway.toml").write_text("recall_deadline_s = 15.0\n")
        yield machine


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_a_fact_of_one_session_is_recalled_in_the_next(machine: Machine, host: str) -> None:
    first = Session(machine, host)
    assert first.run("session-start", source="startup").stdout == b""
    assert first.recalled(f"{FACT} Please set the tests up.") == ""
    first.stop("Done: I set the tests up.")
    assert first.run("session-end", reason="other").stdout == b""
    wait_until_kept(machine, "anna", "pnpm")
    block = Session(machine, host, name="another").recalled(QUESTION)
    assert "pnpm over npm" in block.partition("<memwal-memories>")[2]
    assert Session(machine, host, agent="bob").recalled(QUESTION) == ""
    assert machine.texts("anna") == [FACT]


def test_code_and_output_are_no_memory_and_decisions_are(machine: Machine) -> None:
    session = Session(machine)
    session.prompt(
        f"{FACT}\n```toml\nmy_name = 'is in a file'\n```\n$ make test\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/app.py", line 3, in run\nWe decided to release on 4 May 2027.'
    )
    session.stop("I prefer the file as it was.\n```\nI like code.\n```")
    wait_until_kept(machine, "anna", "release on 4 May 2027")
    wait_until_sent(machine)
    kept = "\n".join(text or "" for text in machine.texts("anna"))
    assert "pnpm" in kept
    assert not [word for word in ("my_name", "make test", "app.py", "like code") if word in kept]


@pytest.mark.parametrize(
    "notice",
    ["<task-notification>\n<task-id>a1</task-id>\n<summary>I prefer bun.</summary>",
     "<task-notification><summary>Done</summary></task-notification>\nI prefer bun."],
)  # fmt: skip
def test_a_prompt_that_nobody_typed_counts_for_nothing(machine: Machine, notice: str) -> None:
    session = Session(machine)
    session.prompt(FACT)
    typed = session.turn
    assert session.prompt(notice) == {}
    session.stop("I prefer bun, says the sub-agent.")  # of the notice's turn
    session.turn = typed
    session.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    wait_until_sent(machine)
    assert machine.texts("anna") == [FACT]


def test_a_prompt_within_a_sub_agent_counts_for_nothing(machine: Machine) -> None:
    session = Session(machine, "codex")
    assert session.prompt(FACT, agent_id="a1", agent_type="explorer") == {}
    session.stop("Noted.")
    session.run("session-end", reason="other")
    assert not list((machine.profiles / "hooks" / "prompts").glob("*"))


def test_context_that_gemini_puts_before_a_prompt_is_not_the_users(machine: Machine) -> None:
    session = Session(machine, "gemini")
    session.prompt(f"<hook_context>I prefer yarn.</hook_context>\n\n{FACT}")
    session.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    assert machine.texts("anna") == [FACT]


@pytest.mark.parametrize("ends", ["session-end", "stop"])
def test_what_was_said_in_an_interrupted_turn_is_kept(machine: Machine, ends: str) -> None:
    session = Session(machine)
    session.prompt(FACT)
    session.prompt("We decided to move the office to Graz in May 2027.")
    if ends == "stop":
        session.stop("Noted.")
    else:
        session.run("session-end", reason="prompt_input_exit")
    wait_until_kept(machine, "anna", "Graz")
    assert sorted(machine.texts("anna"), key=str)[0] == FACT


@pytest.mark.parametrize("by", ["tool", "shell"])
def test_of_a_turn_that_erases_nothing_is_kept(machine: Machine, by: str) -> None:
    profile = machine.profiles / "agents" / "anna.json"
    settings = Settings.load(profile, environ={})
    with SyncMemoryClient.from_settings(settings) as client:
        memory_id = client.remember("My salary is 100,000 euros.").id
    session = Session(machine)
    session.prompt("Please forget that my salary is 100,000 euros.")
    if by == "shell":
        assert machine.memrelay("forget", memory_id, "--agent", "anna").returncode == 0
    else:
        live = LiveProfile.load(profile, lambda: settings, connect=MemoryClient.from_settings)
        forget = next(tool for tool in tools_of(live) if tool.name == "memory_forget")

        async def erase() -> None:
            await forget.fn(memory_id)
            await live.close()

        asyncio.run(erase())
    session.stop("It is erased.")
    session.prompt(FACT)
    session.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    wait_until_sent(machine)
    assert machine.texts("anna") == [FACT]


def test_sessions_at_once_stay_apart(machine: Machine) -> None:
    one, other = Session(machine), Session(machine, name="other")
    one.prompt(FACT)
    other.prompt("We decided to move the office to Graz in May 2027.")
    one.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    wait_until_sent(machine)
    assert machine.texts("anna") == [FACT]
    other.stop("Noted.")
    wait_until_kept(machine, "anna", "Graz")


def test_what_waits_is_sealed(machine: Machine) -> None:
    Session(machine).prompt(FACT)
    waiting = list((machine.profiles / "hooks" / "prompts").iterdir())
    assert len(waiting) == 1
    files = [path.read_bytes() for path in machine.folder.rglob("*") if path.is_file()]
    assert not [data for data in files if b"pnpm" in data]


def test_what_is_recalled_stays_below_what_a_host_passes_on(machine: Machine) -> None:
    (machine.profiles / "gateway.toml").write_text(
        "recall_deadline_s = 15.0\ninjection_tokens_max = 0\nrecall_results_max = 20\n"
    )
    profile = machine.profiles / "agents" / "anna.json"
    with SyncMemoryClient.from_settings(Settings.load(profile, environ={})) as client:
        client.remember_many(
            [
                f"The package manager number {n} is preferred: {'ä long word ' * 120}"
                for n in range(20)
            ]
        )
    block = Session(machine).recalled(QUESTION)
    assert CHARS_MAX // 2 < len(block) < CHARS_MAX


def test_a_project_that_was_chosen_has_its_own_namespace(machine: Machine) -> None:
    shop, other = machine.folder / "shop", machine.folder / "other"
    (shop / ".git").mkdir(parents=True)
    other.mkdir()
    (shop / ".git" / "config").write_text(
        '[remote "origin"]\n\turl = git@github.com:Acme/shop.git\n'
    )
    project = "project:github.com/acme/shop"
    anna = read_profile(machine.profiles / "agents" / "anna.json", missing_ok=False)
    with SyncMemoryClient.from_settings(machine.owner) as owner:
        identity = Settings.load(machine.profiles / "agents" / "anna.json", environ={}).identity
        owner.add_key(namespaces=[project], label="anna", identity=identity)
    folder = hooks_folder(None, machine.environment)
    choose_projects(folder, "anna", [project])
    inside = Session(machine, folder=str(shop))
    inside.prompt("We decided that the shop talks to customers in Italian.")
    inside.stop("Noted.")
    outside = Session(machine, name="outside", folder=str(other))
    outside.prompt(FACT)
    outside.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    wait_until_sent(machine)
    assert machine.texts("anna") == [FACT]
    assert anna["namespace"] == "anna"
    language = "In which language does the shop talk to customers?"
    assert "Italian" in Session(machine, name="s3", folder=str(shop)).recalled(language)
    assert "pnpm" in Session(machine, name="s4", folder=str(shop)).recalled(QUESTION)
    assert "Italian" not in Session(machine, name="s5", folder=str(other)).recalled(language)


# What must not happen to somebody's agent.


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"5", b"{", b"\xff\xfe", b"{}", b'{"prompt": 5, "session_id": []}',
     b'{"prompt": "\\ud83c", "session_id": "\\ud83c"}', b"[" * 100_000],
    ids=["empty", "null", "list", "number", "cut", "bytes", "object", "types", "half", "deep"],
)  # fmt: skip
def test_odd_input_ends_well_and_says_nothing(
    machine: Machine,
    data: bytes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host in ("claude", "gemini"):
        for event in ("prompt", "stop", "compact", "session-end", "no-such-event"):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            argv = ["hook", event, "--host", host, "--agent", "anna"]
            assert main(argv, machine.environment) == 0
            assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [("--host", "claude"), ("--host", "cursor", "--agent", "anna"), ("--agent", "anna"),
     ("--host", "claude", "--agent", "an na"), ("--host", "claude", "--agent", "anna", "--x")],
)  # fmt: skip
def test_wrong_arguments_stop_no_prompt(machine: Machine, arguments: tuple[str, ...]) -> None:
    done = Session(machine).run_raw("prompt", b'{"prompt": "zqsecret"}', *arguments)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"zqsecret" not in done.stderr


def test_a_profile_that_is_missing_is_told_once(machine: Machine) -> None:
    session = Session(machine, agent="nobody")
    told = [session.prompt(QUESTION) for _ in range(3)]
    assert "`memrelay claude status`" in told[0]["systemMessage"]
    assert "nothing of them is kept" in told[0]["systemMessage"]
    assert told[1:] == [{}, {}]
    session.stop("Noted.")
    (machine.profiles / "agents" / "anna.json").chmod(0o644)
    assert "memrelay claude status" in Session(machine).prompt(QUESTION)["systemMessage"]


def test_a_folder_that_cannot_be_written_costs_no_memories(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Outage(tmp_path / "file" / "anna.away.json").note_success()


@contextmanager
def hanging() -> Iterator[tuple[str, list[float]]]:
    """Something that takes connections and never answers, and when it took each."""
    taken = list[float]()
    held = list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return
                taken.append(time.monotonic())

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", taken
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


def point_at(machine: Machine, url: str) -> None:
    path = machine.profiles / "agents" / "anna.json"
    write_private(path, read_profile(path, missing_ok=False) | {"url": url})


def senders(machine: Machine) -> list[int]:
    """The processes of this machine that send what waits."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            environ = (process / "environ").read_bytes()
        except OSError:
            continue
        if b"deliver" in words and str(machine.folder).encode() in environ:
            found.append(int(process.name))
    return found


def wait_for_sender(machine: Machine) -> int:
    until = time.monotonic() + WAIT_S_MAX
    while not (found := senders(machine)):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found[0]


def wait_until_nobody_sends(machine: Machine) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while senders(machine):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_is_sent_leaves_the_host_and_takes_no_key_of_it_along(machine: Machine) -> None:
    secrets = {"ANTHROPIC_API_KEY": "zq-key-1", "OPENAI_API_KEY": "zq-key-2", "ZQ": "zq-key-3"}
    with hanging() as (url, _):
        point_at(machine, url)
        session = Session(machine, environ=secrets)
        session.run("session-start", source="startup")
        sender = wait_for_sender(machine)
        place = Path(f"/proc/{sender}")
        try:
            assert b"zq-key" not in (place / "environ").read_bytes()
            assert {os.readlink(place / "fd" / str(n)) for n in range(3)} == {"/dev/null"}
            assert os.getsid(sender) == sender
            assert os.readlink(place / "cwd") == "/"
        finally:
            os.kill(sender, signal.SIGKILL)


def test_a_relayer_that_hangs_is_told_once_and_left_alone(machine: Machine) -> None:
    (machine.profiles / "gateway.toml").write_text("recall_deadline_s = 0.5\n")
    with hanging() as (url, taken):
        point_at(machine, url)
        session = Session(machine)
        first = session.prompt(QUESTION)
        assert "the relayer is away" in first["systemMessage"]
        assert "hookSpecificOutput" not in first
        os.kill(wait_for_sender(machine), signal.SIGKILL)
        asked = len(taken)
        assert [session.prompt(QUESTION) for _ in range(3)] == [{}, {}, {}]
        session.stop("I see.")
        assert len(taken) == asked
        assert senders(machine) == []


def test_what_is_said_meanwhile_waits_and_arrives(
    machine: Machine, shared_relayer: RunningRelayer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    point_at(machine, url)  # nobody listens there any more
    session = Session(machine)
    assert "systemMessage" in session.prompt(FACT)
    session.stop("Noted.")
    assert len(list((machine.profiles / "spool").glob("*.turn"))) == 1
    wait_until_nobody_sends(machine)  # it notes that the relayer is away, too
    point_at(machine, shared_relayer.url)
    (machine.profiles / "hooks" / "anna.away.json").unlink()  # as if its pause was over
    Session(machine, name="next").run("session-start", source="startup")
    wait_until_kept(machine, "anna", "pnpm")
    assert Session(machine, name="last").prompt(QUESTION).keys() == {"hookSpecificOutput"}


def test_an_owners_key_in_the_environment_is_not_used(machine: Machine) -> None:
    owner = {
        "MEMRELAY_URL": machine.owner.url,
        "MEMRELAY_ACCOUNT_ID": machine.owner.account_id,
        "MEMRELAY_PRIVATE_KEY": machine.owner.private_key,
        "MEMRELAY_NAMESPACE": "default",
    }
    session = Session(machine, environ=owner)
    session.prompt(FACT)
    session.stop("Noted.")
    wait_until_kept(machine, "anna", "pnpm")
    with SyncMemoryClient.from_settings(machine.owner) as client:
        assert client.list(namespace="default").memories == ()
