"""Pictures of counts, drawn by the real library.

`make test-frameworks` runs this file with it.
"""

import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

from memrelay.cli import EXIT_USAGE
from memrelay.commands.pictures import Panel, save_picture
from tests.client.shell_scene import Machine

SECRET, LATER = "Anna prefers green tea.", "We moved to Porto."


def texts(path: Path) -> list[str]:
    """Return the texts of a picture, which no XML parser may refuse."""
    root = ElementTree.fromstring(path.read_bytes())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.fixture
def filled(run: Machine) -> Machine:
    run.remember(SECRET, "--kind", "preference", "--event-time", "2026-05-04T12:00:00Z")
    run.remember(LATER, "--kind", "event", "--event-time", "2026-05-08T12:00:00Z")
    return run


def test_counts_are_drawn_for_their_owner_alone(filled: Machine, tmp_path: Path) -> None:
    file = tmp_path / "charts" / "stats.svg"
    value = filled("stats", "--svg", str(file))
    assert f"The picture is in {file}." in filled.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = texts(file)
    assert {"preference", "event", "default", value["writers"][0]["name"]} <= set(shown)
    assert "2 memories in recall, 0 out of it" in shown
    filled("stats", "--svg", str(file))
    assert [one.name for one in file.parent.iterdir()] == ["stats.svg"]


def test_a_timeline_has_kinds_and_no_texts(filled: Machine, tmp_path: Path) -> None:
    file = tmp_path / "time.SVG"
    filled.lines("timeline", "--svg", str(file))
    shown = texts(file)
    assert {"preference", "event", "2026-05-04", "2026-05-05", "2026-05-08"} <= set(shown)
    picture = file.read_text()
    assert not any(word in picture for word in ("Anna", "Porto"))


def test_nothing_found_is_a_picture_of_nothing(run: Machine, tmp_path: Path) -> None:
    for command in ("stats", "timeline"):
        file = tmp_path / f"{command}.svg"
        run(command, "--svg", str(file))
        assert texts(file)


def test_events_far_apart_are_drawn_beside_each_other(filled: Machine, tmp_path: Path) -> None:
    for year in ("1950", "2090"):
        filled.remember(f"The year {year}.", "--event-time", f"{year}-06-01T00:00:00Z")
    for by in ("day", "week", "month"):
        filled.lines("timeline", "--by", by, "--svg", str(tmp_path / "time.svg"))
        shown = texts(tmp_path / "time.svg")
        assert f"Memories by {by} (a {by} without one is left out)" in shown


@pytest.mark.parametrize(
    "name", ["$\\frac{1}{$", "<b>&--> ", "茶の好み", "a\x00\x1b[1m\n\tb", "_x", "x" * 500]
)
def test_any_name_is_drawn_as_it_is(tmp_path: Path, name: str) -> None:
    file = tmp_path / "p.svg"
    panel = Panel(name, [name], {name: [1], "other": [2]}, is_by_time=True)
    save_picture(file, name, [panel, Panel(name, [name, "b"], {name: [3, 4]})])
    shown = "".join(texts(file))
    assert "\x1b" not in shown
    assert " ".join(name.replace("\x00", "�").replace("\x1b", "�").split())[:30] in shown


def test_own_settings_of_the_library_change_nothing(filled: Machine, tmp_path: Path) -> None:
    import matplotlib

    file = tmp_path / "stats.svg"
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "#ab12cd"}):
        filled("stats", "--svg", str(file))
        assert matplotlib.rcParams["text.usetex"] is True
    assert "#ab12cd" not in file.read_text()
    assert "default" in texts(file)


def test_a_file_that_cannot_be_written_is_said(filled: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    filled("stats", "--svg", str(tmp_path / "file" / "p.svg"), code=EXIT_USAGE)
    assert "cannot be written" in filled.err
