"""The files of an export: whose they are, what they are called, and what they never replace."""

import os
import stat

import pytest

from memrelay.cli import EXIT_USAGE, main
from memrelay.exporting import folder_name, write_pages
from tests.client.export_scene import accounts, files, profile, run

__all__ = ["accounts", "profile"]  # fixtures


def test_exported_files_are_for_this_user_only(profile, tmp_path, capsys):
    folder = tmp_path / "new" / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    file = tmp_path / "lines" / "all.jsonl"
    run(capsys, "export", "--format", "jsonl", "--out", str(file), "--profile", profile)
    paths = [folder, file, file.parent, *folder.rglob("*")]
    assert folder / ".memrelay-export" in paths
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}
    hidden = {path.name for path in paths if path.name.startswith(".")}
    assert hidden == {".memrelay-export"}


def test_a_file_that_is_no_page_is_not_replaced(profile, tmp_path, capsys):
    note = tmp_path / "notes" / "default" / "2026-05-04.md"
    note.parent.mkdir(parents=True)
    note.write_text("- a note of the user's own\n")
    argv = ["export", "--out", str(tmp_path / "notes"), "--profile", profile]
    assert main(argv, {}) == EXIT_USAGE
    assert "choose another folder" in capsys.readouterr().err
    assert note.read_text() == "- a note of the user's own\n"


def test_a_folder_belongs_to_one_account(profile, accounts, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    before = files(folder)
    argv = ["export", "--out", str(folder), "--profile", accounts("second")]
    assert main(argv, {}) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "pages of another account" in err
    assert files(folder) == before


def test_pages_of_nobody_knows_whom_are_not_touched(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    argv = ["export", "--out", str(folder), "--profile", profile]
    run(capsys, *argv)
    (folder / ".memrelay-export").unlink()
    before = files(folder)
    assert main(argv, {}) == EXIT_USAGE
    assert "choose another folder" in capsys.readouterr().err
    assert files(folder) == before


def test_lines_replace_files_only(profile, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    argv = ["export", "--format", "jsonl", "--profile", profile, "--out"]
    for name in ("folder", "pipe", "to-pipe"):
        assert main([*argv, str(tmp_path / name)], {}) == EXIT_USAGE
        assert "is no file" in capsys.readouterr().err
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "to-pipe").is_symlink()


def test_lines_go_where_a_link_leads(profile, tmp_path, capsys):
    target = tmp_path / "elsewhere" / "all.jsonl"
    target.parent.mkdir()
    target.write_text("of yesterday")
    (tmp_path / "link").symlink_to(target)
    argv = ("export", "--format", "jsonl", "--profile", profile, "--out", str(tmp_path / "link"))
    assert main([*argv], {}) == EXIT_USAGE
    assert target.read_text() == "of yesterday"
    capsys.readouterr()
    assert run(capsys, *argv, "--force")["memories"] == 3
    assert (tmp_path / "link").is_symlink()
    assert len(target.read_text().splitlines()) == 3


def test_other_files_beside_pages_are_no_memories(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    run(capsys, "export", "--out", str(folder), "--profile", profile)
    (folder / "README.md").write_text("- Who reads this folder, and why.\n")
    (folder / "default" / "2026-05-03.md").write_text("- a note of the user's own\n")
    result = run(capsys, "import", str(folder), "--profile", profile)
    assert (result["stored"], result["known"], result["left_out"]) == (0, 3, 2)


def test_a_page_that_an_editor_marked_is_a_page(profile, tmp_path, capsys):
    folder = tmp_path / "memories"
    argv = ("export", "--out", str(folder), "--profile", profile)
    run(capsys, *argv)
    before = files(folder)
    page = folder / "default" / "2026-05-04.md"
    page.write_bytes(b"\xef\xbb\xbf" + page.read_bytes())
    assert run(capsys, "import", str(folder), "--profile", profile)["known"] == 3
    run(capsys, *argv)
    assert files(folder) == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path, profile, capsys):
    (tmp_path / "file").write_text("in the way")
    argv = ["export", "--out", str(tmp_path / "file"), "--profile", profile]
    assert main(argv, {}) == EXIT_USAGE
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a/b", "A", "con\\x", "%41", "ß:ä", "A" * 128, "\U0001f375" * 128, "ä~" * 64],
)
def test_a_namespace_is_one_folder_whatever_its_name(tmp_path, name):
    assert folder_name(name) not in {"", ".", ".."}
    assert set(folder_name(name)).isdisjoint("/\\:.")
    assert len(folder_name(name).encode()) <= 255
    assert folder_name(name) != folder_name(f"{name[:-1]}y")
    assert folder_name(name) != folder_name(name.swapcase()) or name.swapcase() == name
    record = {"id": "0" * 36, "created_at": "2026-05-04T00:00:00.000Z", "text": "a"}
    assert write_pages(tmp_path / "out", name, [record]) == (1, 0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [folder_name(name)]
    assert write_pages(tmp_path / "out", name, []) == (0, 1)
    assert list((tmp_path / "out").iterdir()) == []
