"""`memrelay try --keep`: the trial ends in a memory of the user's own, and can be undone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, main
from memrelay.commands import trial
from memrelay.importing import sampling
from tests.client.import_scene import write
from tests.client.local_scene import LocalMachine, local_home

NOTES = """\
# Notes
- Anna drinks green tea in the morning.
- The staging server moved to Frankfurt.
- We tidy the cellar on Sunday.
"""


@pytest.fixture
def newcomer(capsys: pytest.CaptureFixture[str]) -> Iterator[LocalMachine]:
    """A user's shell without a profile; of the relayer there are settings, and no data."""
    with local_home(RELAYER_EMBEDDER="none") as folder:
        yield LocalMachine(folder, capsys)


def type_line(line: str) -> None:
    """Run a line as the user's shell does."""
    programs = Path(sys.executable).parent
    subprocess.run(
        ["/bin/sh", "-c", line],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
    )


class TestKept:
    def test_in_a_memory_that_commands_find_and_that_can_be_undone(
        self, newcomer: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "MEMORIES_MAX", 2)
        notes = write(tmp_path / "a notes.md", NOTES)
        keep = ("try", str(notes), "--keep", "--data-dir", str(newcomer.folder))
        shown = newcomer(*keep)
        assert (shown["memories"], shown["keep"]) == (2, None)
        kept = shown["kept"]
        assert kept["namespace"] == "default"
        assert (kept["data_dir"], kept["profile"]) == (
            str(newcomer.folder),
            str(newcomer.profile),
        )
        assert newcomer("status")["account"]["account_id"] == kept["account_id"]
        assert len(newcomer.texts()) == 2
        assert shown["more"] == f"memrelay import '{notes}' --profile {newcomer.profile}"
        type_line(shown["more"])
        assert "We tidy the cellar on Sunday." in newcomer.texts()
        assert len(newcomer.texts()) == 3, "what was kept is known again"

        newcomer.lines(*keep, code=EXIT_USAGE)
        assert f"You have a memory already: {newcomer.profile} is its profile." in newcomer.err
        assert f"type `{shown['more']}`" in newcomer.err

        type_line(kept["undo"])
        assert not newcomer.folder.exists()
        assert not [*newcomer.profile.parent.glob("*profile*")], "nothing of it is left"

    def test_beside_the_memory_of_another_profile(
        self, newcomer: LocalMachine, tmp_path: Path
    ) -> None:
        newcomer.init()
        newcomer.remember("Ben drinks coffee.")
        other = newcomer.with_profile("other.json")
        notes = write(tmp_path / "notes.md", NOTES)
        lines = other.lines("try", str(notes), "--keep", "--data-dir", str(other.folder))
        assert "kept      all that was found, in your own memory (namespace default)" in lines
        assert len(other.texts()) == 3
        undo = lines[-1].removeprefix("undo      ")
        assert undo.startswith("memrelay close "), "the other memory is in the same folder"
        type_line(undo.replace(" && ", " --yes && "))
        assert not other.profile.exists()
        assert newcomer.texts() == ["Ben drinks coffee."]

    def test_what_was_stored_stays_when_it_is_interrupted(
        self, newcomer: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(trial, "try_recalls", interrupt)
        notes = write(tmp_path / "notes.md", NOTES)
        newcomer.lines(
            "try", str(notes), "--keep", "--data-dir", str(newcomer.folder), code=EXIT_INTERRUPTED
        )
        assert "Interrupted; some of it is kept. Type `memrelay import " in newcomer.err
        assert len(newcomer.texts()) == 3


class TestRefused:
    """Nothing is read or started where nothing may be kept."""

    def test_where_the_environment_names_a_memory(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        notes = write(tmp_path / "notes.md", NOTES)
        profile = tmp_path / "none.json"
        environ = {"MEMRELAY_URL": "http://127.0.0.1:1", "MEMRELAY_PROFILE": str(profile)}
        assert main(["try", str(notes), "--keep"], environ) == EXIT_USAGE
        told = capsys.readouterr().err
        assert "MEMRELAY_URL names a memory already." in told
        assert f"type `memrelay import {notes}`" in told
        assert not profile.exists()

    def test_without_a_path(self, newcomer: LocalMachine) -> None:
        newcomer.lines("try", "--keep", code=EXIT_USAGE)
        assert "`memrelay try PATH --keep`" in newcomer.err

    def test_a_folder_for_data_that_nothing_is_kept_in(
        self, newcomer: LocalMachine, tmp_path: Path
    ) -> None:
        notes = write(tmp_path / "notes.md", NOTES)
        newcomer.lines("try", str(notes), "--data-dir", str(newcomer.folder), code=EXIT_USAGE)
        assert "--data-dir is for --keep" in newcomer.err

    def test_a_file_without_a_memory(self, newcomer: LocalMachine, tmp_path: Path) -> None:
        notes = write(tmp_path / "notes.md", "# A heading alone\n")
        keep = ("--keep", "--data-dir", str(newcomer.folder))
        shown = newcomer("try", str(notes), *keep, code=EXIT_FAILED)
        assert shown["kept"] is None
        assert not newcomer.profile.exists()
