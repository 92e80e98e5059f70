"""Files of other programs: changed at once, remembered, and put back byte for byte."""

import json
import os
import stat
from pathlib import Path

import pytest

from memrelay.errors import ConfigError
from memrelay.installing import config_files
from memrelay.installing.config_files import Change, ConfigFile, Installations
from memrelay.installing.errors import NotEditable

SERVER = Change(path=("mcpServers", "memrelay"), value={"command": "/new"}, is_own=True)
HOOK = Change(path=("hooks", "Stop"), value={"command": "/new hook"}, is_element=True)
THEIRS = b'{\r\n\t// mine\r\n\t"a": 1,\r\n}\r\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "settings.json"


@pytest.fixture
def servers(tmp_path):
    return Installations(tmp_path / "profile", "mcp")


@pytest.fixture
def hooks(tmp_path):
    return Installations(tmp_path / "profile", "hooks")


def put(path: Path, data: bytes, mode: int = 0o640) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def opened(path: Path) -> ConfigFile:
    return ConfigFile(path, "json")


def value_of(path: Path):
    return opened(path).document.value


def test_a_file_is_changed_backed_up_and_put_back_with_its_mode(path, servers):
    put(path, THEIRS)
    backup = servers.install(opened(path), [SERVER])
    assert backup is not None
    assert backup.read_bytes() == THEIRS
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert value_of(path) == {"a": 1, "mcpServers": {"memrelay": {"command": "/new"}}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert servers.find_missing(opened(path), [SERVER]) == []
    before = path.read_bytes()
    assert servers.install(opened(path), [SERVER]) is None
    assert path.read_bytes() == before
    assert servers.uninstall(opened(path))
    assert path.read_bytes() == THEIRS
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == [path.name]
    assert servers.list_installed() == []
    assert not servers.uninstall(opened(path))


def test_a_file_that_was_not_there_is_made_for_its_user_alone_and_goes_again(path, servers):
    assert servers.install(opened(path), [SERVER]) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().endswith(b"}\n")
    assert servers.uninstall(opened(path))
    assert not path.exists()


def test_a_project_file_gets_the_mode_that_others_get(path, servers):
    umask = os.umask(0o022)
    try:
        servers.install(ConfigFile(path, "json", is_private=False), [SERVER])
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_a_symbolic_link_stays_one(path, servers, tmp_path):
    put(tmp_path / "home" / "dotfiles.json", THEIRS)
    path.symlink_to("dotfiles.json")
    servers.install(opened(path), [SERVER])
    assert path.is_symlink()
    assert "mcpServers" in value_of(tmp_path / "home" / "dotfiles.json")
    servers.uninstall(opened(path))
    assert path.is_symlink()
    assert path.read_bytes() == THEIRS


def test_what_the_user_changed_since_stays(path, servers):
    put(path, THEIRS)
    servers.install(opened(path), [SERVER])
    put(path, path.read_bytes().replace(b'"a": 1', b'"a": 2').replace(b"/new", b"/changed"))
    assert servers.uninstall(opened(path))
    assert path.read_bytes() == THEIRS.replace(b"1", b"2")


def test_what_stood_in_its_place_comes_back(path, servers):
    theirs = b'{"mcpServers": {"memrelay": {"command": "/mine"}}}'
    put(path, theirs)
    servers.install(opened(path), [SERVER])
    put(path, path.read_bytes() + b"\n")
    servers.uninstall(opened(path))
    assert value_of(path) == json.loads(theirs)


def test_another_command_replaces_the_one_before_and_leads_back_all_the_same(path, servers):
    put(path, THEIRS)
    servers.install(opened(path), [SERVER])
    newer = Change(path=SERVER.path, value={"command": "/newer"}, is_own=True)
    assert servers.find_missing(opened(path), [newer]) == [newer]
    servers.install(opened(path), [newer])
    assert value_of(path)["mcpServers"] == {"memrelay": {"command": "/newer"}}
    servers.uninstall(opened(path))
    assert path.read_bytes() == THEIRS


def test_a_backup_never_brings_our_own_entry_back(path, servers):
    put(path, THEIRS)
    servers.install(opened(path), [SERVER])
    put(path, path.read_bytes().replace(b'"a": 1', b'"a": 2'))
    newer = Change(path=SERVER.path, value={"command": "/newer"}, is_own=True)
    servers.install(opened(path), [newer])
    servers.uninstall(opened(path))
    assert path.read_bytes() == THEIRS.replace(b"1", b"2")


def test_elements_are_added_once_replaced_and_taken_out(path, hooks):
    theirs = b'{"hooks": {"Stop": [{"command": "theirs"}]}}'
    put(path, theirs)
    hooks.install(opened(path), [HOOK])
    hooks.install(opened(path), [HOOK])
    assert value_of(path)["hooks"]["Stop"] == [{"command": "theirs"}, HOOK.value]
    newer = Change(path=HOOK.path, value={"command": "/newer"}, is_element=True)
    other = Change(path=("hooks", "Start"), value={"command": "/start"}, is_element=True)
    hooks.install(opened(path), [newer, other])
    assert value_of(path)["hooks"]["Stop"] == [{"command": "theirs"}, newer.value]
    assert value_of(path)["hooks"]["Start"] == [other.value]
    hooks.install(opened(path), [newer])
    assert "Start" not in value_of(path)["hooks"]
    put(path, path.read_bytes() + b"\n")
    hooks.uninstall(opened(path))
    assert path.read_bytes() == theirs + b"\n"


def test_an_element_that_the_user_had_already_stays(path, hooks):
    put(path, b'{"hooks": {"Stop": [{"command": "/new hook"}]}}')
    hooks.install(opened(path), [HOOK, Change(path=("b",), value=1)])
    put(path, path.read_bytes() + b"\n")
    hooks.uninstall(opened(path))
    assert path.read_bytes() == b'{"hooks": {"Stop": [{"command": "/new hook"}]}}\n'


@pytest.mark.parametrize("first", ["mcp", "hooks"])
def test_two_purposes_share_a_file_and_go_in_either_order(path, tmp_path, first):
    put(path, THEIRS)
    purposes = {name: Installations(tmp_path / "profile", name) for name in ("mcp", "hooks")}
    purposes["mcp"].install(opened(path), [SERVER])
    purposes["hooks"].install(opened(path), [HOOK])
    for name in (first, *({"mcp", "hooks"} - {first})):
        purposes[name].uninstall(opened(path))
    assert path.read_bytes() == THEIRS
    assert os.listdir(path.parent) == [path.name]


def test_a_crash_before_the_file_is_written_leads_back(path, servers, monkeypatch):
    put(path, THEIRS)
    with monkeypatch.context() as patched:
        patched.setattr(ConfigFile, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            servers.install(opened(path), [SERVER])
    assert path.read_bytes() == THEIRS
    assert not servers.uninstall(opened(path))
    assert path.read_bytes() == THEIRS
    assert servers.list_installed() == []


def test_a_file_that_changed_while_it_was_edited_is_left_alone(path, servers):
    put(path, THEIRS)
    file = opened(path)
    put(path, b"{}")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        servers.install(file, [SERVER])
    assert path.read_bytes() == b"{}"


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe{\x00}\x00", b"[]", b"{} x"])
def test_a_file_that_does_not_parse_is_left_alone(path, data):
    put(path, data)
    with pytest.raises(NotEditable, match="is left alone"):
        opened(path)
    assert path.read_bytes() == data


def test_what_is_no_file_is_left_alone(path):
    path.mkdir(parents=True)
    with pytest.raises(NotEditable, match="is no file"):
        opened(path)


def test_a_circle_of_links_is_left_alone(path):
    path.parent.mkdir()
    path.symlink_to(path.name)
    with pytest.raises(NotEditable, match="cannot be read"):
        opened(path)


def test_a_file_that_is_too_large_is_left_alone(path, monkeypatch):
    monkeypatch.setattr(config_files, "_BYTES_MAX", 10)
    put(path, b'{"a": "0123456789"}')
    with pytest.raises(NotEditable, match="too large"):
        opened(path)


def test_somebody_elses_file_is_left_alone(path, monkeypatch):
    put(path, THEIRS)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(NotEditable, match="another user"):
        opened(path)


def test_a_damaged_record_is_named(path, servers, tmp_path):
    put(path, THEIRS)
    servers.install(opened(path), [SERVER])
    record = tmp_path / "profile" / "installed.json"
    record.write_text("{")
    with pytest.raises(ConfigError, match=r"installed\.json is damaged"):
        servers.uninstall(opened(path))
    assert b"mcpServers" in path.read_bytes()
