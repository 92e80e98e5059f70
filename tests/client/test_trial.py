"""`memrelay try`, with the real relayer that it starts: what is shown, and that nothing stays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from memrelay.commands import temporary_relayer
from memrelay.commands.temporary_relayer import PREFIX, remove_abandoned
from memrelay.importing import sampling
from memrelay.local_relayer import SOCKET, LocalRelayer
from relayer.embedding.published import ENGLISH
from tests.client.conversations_scene import chatgpt, zipped
from tests.client.import_scene import write
from tests.client.shell_scene import Machine
from tests.processes import postgres_of

NOTES = """\
# Notes
- Anna drinks green tea in the morning.
- The staging server moved to Frankfurt.
- The key of the shop is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH.
- We tidy the cellar on Sunday.
"""
# The folder in memory is one that all processes of this machine share.
PROGRAM = """
import signal, sys
from pathlib import Path
from memrelay.commands import temporary_relayer
temporary_relayer._MEMORY = Path(sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)
from memrelay.cli import main
sys.exit(main(sys.argv[1:], {}))
"""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch, model_dir: Path) -> Iterator[Path]:
    """The folder in which temporary relayers get theirs; short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="mr-"))
    monkeypatch.setattr(temporary_relayer, "_MEMORY", folder)
    cache = folder.with_name(f"{folder.name}-cache")
    (cache / "memrelay").mkdir(parents=True)
    (cache / "memrelay" / ENGLISH.name).symlink_to(model_dir)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(cache)


@pytest.fixture
def newcomer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    """A user's shell without a profile."""
    return Machine(tmp_path / "none" / "profile.json", capsys)


def find_processes(folder: Path) -> list[str]:
    """Return the command lines of the processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/{PREFIX}" in line:
            found.append(line)
    return found


def assert_nothing_is_left(base: Path, machine: Machine) -> None:
    assert list(base.iterdir()) == []
    assert find_processes(base) == []
    assert not machine.profile.parent.exists()


class TestShown:
    def test_of_notes(self, base: Path, newcomer: Machine, tmp_path: Path) -> None:
        write(tmp_path / "notes" / "a.md", NOTES)
        write(tmp_path / "notes" / "other.json", '{"no": "memory"}')
        shown = newcomer("try", str(tmp_path / "notes"))
        assert [(one["file"], one["format"], one["stored"]) for one in shown["files"]] == [
            ("a.md", "markdown", 4)
        ]
        assert (shown["memories"], shown["kinds"]) == (4, {"fact": 4})
        assert shown["redacted"] == 1
        assert shown["left_out"]["other_files"] == 1
        asked = {one["text"]: one for one in shown["questions"]}
        assert len(asked) == 3, "each question finds the memory that it was made of"
        assert asked["Anna drinks green tea in the morning."]["question"] == (
            "Anna drinks green morning"
        )
        assert all(one["relevance"] > 50 for one in shown["questions"])
        assert not shown["by_words_only"]
        path = tmp_path / "notes"
        assert shown["keep"] == (f"memrelay try {path} --keep --profile {newcomer.profile}")
        assert_nothing_is_left(base, newcomer)

    def test_of_a_chat_export_for_people(
        self, base: Path, newcomer: Machine, tmp_path: Path
    ) -> None:
        export = zipped(tmp_path / "export.zip", chatgpt(tmp_path / "export"))
        lines = newcomer.lines("try", str(export))
        assert lines[0] == "read      1 file: 1 conversation"
        assert any(line.startswith("found     ") for line in lines)
        assert any("found by rules: no language model is set" in line for line in lines)
        assert "kept      nothing: the relayer has ended, and its folder is gone" in lines
        assert "sk-proj" not in "\n".join(lines)
        assert_nothing_is_left(base, newcomer)

    def test_what_is_beyond_its_bounds_is_counted(
        self, base: Path, newcomer: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "MEMORIES_MAX", 2)
        write(tmp_path / "notes" / "a.md", NOTES)
        for number in range(6):
            (tmp_path / "notes" / f"{number}.md").write_bytes(b"\xff\xfe")
        newcomer.profile.parent.mkdir()
        newcomer.profile.write_text("{}")
        lines = newcomer.lines("try", str(tmp_path / "notes"))
        assert "found     2 memories: fact 2" in lines
        left_out = "2 further entries, for it would take long; 6 that could not be read or stored"
        assert f"left out  {left_out}" in lines
        assert newcomer.err.count("not UTF-8 text") == 5
        assert "--json says where and why" in "".join(lines), "for the sixth is not told here"
        assert lines[-1].startswith("keep it   memrelay import "), "there is a profile already"


class TestEnding:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
    def test_a_signal_in_the_start_leaves_nothing(
        self, base: Path, newcomer: Machine, tmp_path: Path, number: signal.Signals
    ) -> None:
        process, folder = self.start(base, newcomer, tmp_path)
        while not LocalRelayer(folder / SOCKET).is_held():
            time.sleep(0.01)
        process.send_signal(number)
        err = self.wait_for_end(process)
        assert err.endswith("memrelay: Interrupted; the temporary relayer is being ended.\n")
        assert_nothing_is_left(base, newcomer)

    def test_signals_amid_storing_leave_nothing(
        self, base: Path, newcomer: Machine, tmp_path: Path
    ) -> None:
        process, folder = self.start(base, newcomer, tmp_path)
        while not LocalRelayer(folder / SOCKET).answers():
            time.sleep(0.01)
        assert postgres_of(folder) is not None
        assert folder.stat().st_mode & 0o066 == 0
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # somebody who does not want to wait
        self.wait_for_end(process)
        assert_nothing_is_left(base, newcomer)

    def test_a_relayer_that_does_not_start_leaves_nothing(
        self, base: Path, newcomer: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        notes = write(tmp_path / "notes.md", NOTES)
        newcomer.lines("try", str(notes), code=EXIT_FAILED)
        assert "did not start: The embedding model" in newcomer.err
        assert "`relayer model fetch`" in newcomer.err
        assert str(base) not in newcomer.err, "nobody can read a log that is gone"
        assert_nothing_is_left(base, newcomer)

    def start(
        self, base: Path, machine: Machine, tmp_path: Path
    ) -> "tuple[subprocess.Popen[str], Path]":
        """Start the command on many notes; return it once it has its folder."""
        notes = "\n".join(f"- Shelf {number} of the cellar is full." for number in range(400))
        path = write(tmp_path / "notes.md", notes)
        argv = ["try", str(path), "--profile", str(machine.profile)]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(base), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (folders := list(base.glob(f"{PREFIX}*"))):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        return process, folders[0]

    def wait_for_end(self, process: "subprocess.Popen[str]") -> str:
        """Return what the interrupted command said on standard error."""
        out, err = process.communicate()
        assert process.returncode == EXIT_INTERRUPTED, err
        assert out == ""
        return err

    def test_what_a_killed_command_left_goes_with_the_next(self, base: Path) -> None:
        old, new = base / f"{PREFIX}old", base / f"{PREFIX}new"
        for folder in (old, new):
            (folder / "postgres").mkdir(parents=True)
        os.utime(old, (0, 0))
        remove_abandoned()
        assert list(base.iterdir()) == [new], "the new one's relayer may be about to start"


class TestWithoutARelayer:
    """Nothing is started where there is nothing to store."""

    def test_an_empty_folder(self, base: Path, newcomer: Machine, tmp_path: Path) -> None:
        (tmp_path / "notes").mkdir()
        newcomer.lines("try", str(tmp_path / "notes"), code=EXIT_USAGE)
        assert "holds no file that could be imported" in newcomer.err

    def test_a_missing_path(self, base: Path, newcomer: Machine, tmp_path: Path) -> None:
        newcomer.lines("try", str(tmp_path / "nowhere"), code=EXIT_USAGE)
        assert f"There is no file or folder {tmp_path}/nowhere." in newcomer.err

    def test_a_file_without_a_memory(self, base: Path, newcomer: Machine, tmp_path: Path) -> None:
        notes = write(tmp_path / "notes.md", "# A heading alone\n")
        shown = newcomer("try", str(notes), code=EXIT_FAILED)
        assert (shown["memories"], shown["questions"]) == (0, [])
        assert "Nothing was found that a memory would keep" in newcomer.err
        assert "temporary relayer" not in newcomer.err

    def test_without_a_path_it_tells_what_is_here(
        self, newcomer: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = tmp_path / "home"
        write(home / ".openclaw" / "workspace" / "MEMORY.md", "- Anna drinks tea.\n")
        write(home / ".hermes" / "memories" / "MEMORY.md", "Anna drinks tea.\n")
        zipped(home / "Downloads.zip", chatgpt(tmp_path / "export"))
        (home / "Downloads").mkdir()
        (home / "Downloads.zip").rename(home / "Downloads" / "chat.zip")
        write(tmp_path / "here" / "plan.md", "- Anna drinks tea.\n")
        monkeypatch.chdir(tmp_path / "here")
        for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        found = {one["path"]: one for one in newcomer("try")["places"]}
        assert {path: one["formats"] for path, one in found.items()} == {
            str(home / ".openclaw" / "workspace"): {"openclaw": 1},
            str(home / ".hermes"): {"hermes": 1},
            str(home / "Downloads" / "chat.zip"): {"chatgpt": 1},
            str(tmp_path / "here"): {"markdown": 1},
        }
        assert found[str(home / ".hermes")]["command"] == f"memrelay try {home / '.hermes'}"
        newcomer.lines("try")
        assert f"Type `memrelay try {home / '.openclaw' / 'workspace'}`" in newcomer.err

    def test_where_nothing_is_here_it_says_so(
        self, newcomer: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert newcomer.lines("try") == ["No agent's files, exports or notes were found here."]
        assert "Type `memrelay try FOLDER`" in newcomer.err
