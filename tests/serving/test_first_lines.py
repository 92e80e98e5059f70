"""What `relayer serve` says before it answers, when it does, and afterwards.

Not here: that it answers, and how it ends (`test_serve.py`).
"""

import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from relayer import __version__
from relayer.commands import serving
from relayer.settings import Settings
from tests.processes import QUIET, running_relayer

TOKEN = "a token of some length"
FAR = "https://memory.example.org/team"


def test_the_start_is_said_first_and_the_notes_last(tmp_path: Path, model_dir: Path) -> None:
    """Of a new folder that a database is made, of another not."""
    data = tmp_path / "data"
    first = f"relayer {__version__} is starting with its data in {data}."
    made = " It makes a database there first; that takes some seconds."
    for line in (first + made, first):
        with running_relayer(data, model_dir, **QUIET) as relayer:
            begun = relayer.log.read_text()
            assert begun.splitlines()[0] == line
            assert httpx.get(relayer.url).status_code == 404  # answered behind what `ready` says
        noted = relayer.log.read_text()[len(begun) :]
        assert noted.count("NOTE: ") + begun.count("NOTE: ") == 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_notes_are_said_once_and_only_where_they_hold(
    tmp_path: Path, model_dir: Path, workers: str
) -> None:
    model = {
        "RELAYER_LLM_MODEL": "some-model",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_API_KEY": "none",
    }
    for given, said in (({}, 1), (model | {"RELAYER_PUBLIC_URL": FAR}, 0)):
        with running_relayer(
            tmp_path, model_dir, **QUIET, RELAYER_WORKERS=workers, **given
        ) as relayer:
            pass
        log = relayer.log.read_text()
        opened = "NOTE: Every program on this machine can create accounts and read /metrics without"
        assert log.count(opened) == said
        assert log.count("NOTE: No language model is set") == said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "open http://127.0.0.1:8 in a browser, or type: memrelay init http://127.0.0.1:8"),
        (
            {"public_url": f"{FAR}/", "registration_token": TOKEN},
            f"open {FAR} in a browser, or type: MEMRELAY_TOKEN=TOKEN memrelay init {FAR}",
        ),
        ({"public_url": FAR, "registration": "open"}, f"type: memrelay init {FAR}"),
        ({"public_url": FAR}, "type: relayer account create"),
        ({"registration": "closed", "registration_token": TOKEN}, "type: relayer account create"),
        (
            {"registration": "closed", "data_dir": Path("/a folder")},
            "type: relayer account create --data-dir '/a folder'",
        ),
        (
            {"registration": "token", "registration_token": TOKEN},
            "type: MEMRELAY_TOKEN=TOKEN memrelay init http://127.0.0.1:8",
        ),
    ],
)
def test_the_ready_line_says_what_to_type(given: dict[str, object], told: str) -> None:
    line = serving.ready_line(Settings(**given), "http://127.0.0.1:8")  # type: ignore[arg-type]
    assert line.startswith(f"relayer {__version__} ready at http://127.0.0.1:8 - open ")
    assert line.endswith(told)
    assert TOKEN not in line


def test_programs_beside_this_one_are_named_with_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make serve`, which nobody has put into the path."""
    folder = tmp_path / "a venv"
    folder.mkdir()
    (folder / "memrelay").touch(mode=0o700)
    monkeypatch.setattr("sys.argv", [str(folder / "relayer")])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    line = serving.ready_line(Settings(), "http://127.0.0.1:8")
    typed = shlex.split(line.rpartition("type: ")[2])
    assert typed == [str(folder / "memrelay"), "init", "http://127.0.0.1:8"]
    monkeypatch.setenv("PATH", str(folder))
    assert serving.ready_line(Settings(), "x").endswith("type: memrelay init x")


def test_setting_up_warns_in_no_box() -> None:
    """make prints what it would run; setuptools would warn once for each of two packages."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "setup"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    [installing] = [line for line in done.stdout.splitlines() if "-e client" in line]
    assert installing.startswith('PYTHONWARNINGS="ignore:Editable installation." ')
    assert "now type: make demo, or make serve" in done.stdout.splitlines()[-1]
