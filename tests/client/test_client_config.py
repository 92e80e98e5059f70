"""Settings, profiles and what a client has seen."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_USAGE, main
from memrelay.config import Settings, check_url, is_loopback, profile_path, read_profile
from memrelay.errors import ConfigError
from memrelay.secure_files import lock_file, write_private
from memrelay.trust_store import TrustState, TrustStore
from tests.optional import unwrap

KEY = "07" * 32
ACCOUNT = "0x" + "ab" * 32
PROFILE: dict[str, Any] = {
    "url": "https://memory.example",
    "account_id": ACCOUNT,
    "private_key": KEY,
}


def profile(path, **changes):
    write_private(path, {**PROFILE, **changes})
    return path


def test_the_environment_alone_is_enough(tmp_path):
    environ = {
        "MEMRELAY_URL": "http://127.0.0.1:8080",
        "MEMRELAY_ACCOUNT_ID": ACCOUNT,
        "MEMRELAY_PRIVATE_KEY": KEY,
        "MEMRELAY_NAMESPACE": "team",
        "XDG_CONFIG_HOME": str(tmp_path / "home"),
    }
    settings = Settings.load(environ=environ)
    assert Settings.load(environ=environ | {"MEMRELAY_PROFILE": ""}) == settings
    assert (settings.url, settings.namespace) == ("http://127.0.0.1:8080", "team")
    assert (settings.custody, settings.relayer_key) == ("auto", None)
    assert settings.seen_path is not None, "a pin and a serial must outlive the process"
    assert settings.seen_path.is_relative_to(tmp_path / "home")
    nowhere = Settings.load(environ=environ | {"XDG_CONFIG_HOME": "/proc/self"})
    assert nowhere.seen_path is None, "a home that cannot be written is no reason to fail"


def test_the_environment_wins_over_the_profile_and_arguments_over_both(tmp_path):
    path = profile(tmp_path / "p.json", namespace="mine")
    assert Settings.load(path, environ={}).namespace == "mine"
    environ = {"MEMRELAY_NAMESPACE": "theirs"}
    assert Settings.load(path, environ=environ).namespace == "theirs"
    assert Settings.load(path, environ=environ, namespace="ours").namespace == "ours"


def test_a_profile_may_be_toml(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("\n".join(f'{name} = "{value}"' for name, value in PROFILE.items()))
    path.chmod(0o600)
    assert Settings.load(path, environ={}).url == PROFILE["url"]


def test_what_was_seen_is_kept_beside_the_profile(tmp_path):
    seen = Settings.load(profile(tmp_path / "p.json"), environ={}).seen_path
    assert seen is not None
    assert seen.parent == tmp_path
    assert seen.name == "p.abababababababab.seen.json"


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"MEMRELAY_PROFILE": "/a/b.json", "XDG_CONFIG_HOME": "/x"}, "/a/b.json"),
        ({"XDG_CONFIG_HOME": "/x"}, "/x/memrelay/profile.json"),
    ],
)
def test_where_a_profile_is_looked_for(environ, path):
    assert str(profile_path(None, environ)) == path
    assert str(profile_path("/c.json", environ)) == "/c.json"


@pytest.mark.parametrize("path", ["~nobody-of-that-name/p.json", "/"])
def test_a_profile_that_can_be_nowhere_is_refused(path):
    with pytest.raises(ConfigError):
        profile_path(path, {})
    assert main(["recall", "x", "--profile", path], {}) == EXIT_USAGE


@pytest.mark.parametrize("host", ["..", "a" * 64, "a..b"])
def test_a_host_that_no_name_is_for_is_refused(host):
    with pytest.raises(ConfigError, match="malformed"):
        check_url(f"https://{host}")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601, 0o777])
def test_a_profile_that_others_may_touch_is_refused(tmp_path, mode):
    path = profile(tmp_path / "p.json")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        Settings.load(path, environ={})


def test_a_profile_that_was_named_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="no profile"):
        Settings.load(tmp_path / "none.json", environ={})
    with pytest.raises(ConfigError, match="no profile"):
        Settings.load(environ={"MEMRELAY_PROFILE": str(tmp_path / "none.json")})


def test_a_folder_is_no_profile(tmp_path):
    with pytest.raises(ConfigError):
        read_profile(tmp_path, missing_ok=True)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"url": "x", "acount_id": "y"}', "[" * 60_000, '{"url":' * 8_000]
)
def test_malformed_profiles_are_refused_without_being_quoted(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_text(text + KEY if text == "{" else text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        Settings.load(path, environ={})
    assert KEY not in str(caught.value)


def test_a_profile_that_is_too_large_is_called_so(tmp_path):
    path = profile(tmp_path / "p.json")
    path.write_text(path.read_text().ljust(64 * 1024))
    assert Settings.load(path, environ={}).url == PROFILE["url"]
    path.write_text(path.read_text() + " ")
    with pytest.raises(ConfigError, match="is too large: at most 65536 bytes"):
        Settings.load(path, environ={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", 5),
        ("account_id", ["x"]),
        ("private_key", 7),
        ("namespace", None),
        ("namespace", 5),
        ("custody", {}),
        ("relayer_key", 5),
        ("allow_insecure", []),
        ("allow_insecure", {}),
    ],
)
def test_members_of_another_type_are_refused(tmp_path, name, value):
    """The gateway goes on without such a profile; any other error would end it."""
    with pytest.raises(ConfigError):
        Settings.load(profile(tmp_path / "p.json", **{name: value}), environ={})


@pytest.mark.parametrize("missing", ["url", "account_id", "private_key"])
def test_what_is_missing_is_named(tmp_path, missing):
    values = {name: value for name, value in PROFILE.items() if name != missing}
    write_private(tmp_path / "p.json", values)
    with pytest.raises(ConfigError, match="MEMRELAY_"):
        Settings.load(tmp_path / "p.json", environ={})


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "ftp://host"},
        {"url": "host"},
        {"url": "http://memory.example"},
        {"url": "http://127.0.0.1.example"},
        {"url": "https://user:pass@host"},
        {"url": "https://host/?a=1"},
        {"url": "https://host/#x"},
        {"account_id": "ab" * 32},
        {"private_key": "xyz"},
        {"private_key": "07" * 31},
        {"namespace": "\u00a0"},
        {"relayer_key": "00" * 32},
        {"custody": "none"},
    ],
)
def test_wrong_values_are_refused(changes):
    with pytest.raises(ConfigError) as caught:
        Settings(**{**PROFILE, **changes})
    assert KEY not in str(caught.value)


def test_plain_http_is_for_this_machine_or_when_allowed():
    for url in ("http://localhost:1", "http://127.0.0.9", "http://[::1]:8080/prefix"):
        assert Settings(**{**PROFILE, "url": url}).url == url
    assert Settings(**{**PROFILE, "url": "http://memory.example"}, allow_insecure=True)
    assert not is_loopback("example.localhost.example")


def test_settings_hide_the_private_key():
    """capability 0.41: at most a masked preview is ever shown."""
    settings = Settings(**PROFILE)
    assert KEY not in repr(settings)
    public = settings.identity.public_key.hex()
    assert settings.masked_key == f"{public[:4]}…{public[-4:]}"


def test_private_files_are_replaced_at_once_and_stay_private(tmp_path):
    path = tmp_path / "new" / "p.json"
    write_private(path, {"a": 1})
    write_private(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["p.json"]


def test_every_folder_that_is_made_is_the_users_alone(tmp_path):
    path = tmp_path / "one" / "two" / "three" / "p.json"
    tmp_path.chmod(0o755)
    write_private(path, {})
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in path.parents[:4]]
    assert modes == [0o700, 0o700, 0o700, 0o755], "and those that were there stay as they are"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_private(tmp_path / "file" / "p.json", {})


def test_what_was_seen_only_rises(tmp_path):
    path = tmp_path / "seen.json"
    one, two = TrustStore(path), TrustStore(path)
    one.value = TrustState(relayer_key="ab" * 32, grant_serial=5, receipt_seq=3, receipt_head="aa")
    one.save()
    two.value = TrustState(grant_serial=4, epoch=2, sealed=True, receipt_seq=4, receipt_head="bb")
    two.save()
    seen = TrustStore(path).value
    assert (seen.relayer_key, seen.grant_serial, seen.epoch, seen.sealed) == ("ab" * 32, 5, 2, True)
    assert (seen.receipt_seq, seen.receipt_head) == (4, "bb")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "wrong",
    [
        {"grant_serial": "5"},
        {"receipt_serial": "5"},
        {"epoch": None},
        {"sealed": 1},
        {"receipt_head": 7},
        {"checked_head": "zz"},
        {"relayer_key": [1]},
        {"relayer_key": "ab"},
        {"succession": ["no base64"]},
        {"succession": [5]},
        {"succession": 5},
    ],
)
def test_a_damaged_file_of_what_was_seen_is_named(tmp_path, wrong):
    path = tmp_path / "seen.json"
    write_private(path, asdict(TrustState()) | wrong)
    with pytest.raises(ConfigError, match=r"seen\.json is damaged"):
        TrustStore(path)


def test_what_was_seen_of_another_relayer_is_not_asked_of_this_one(tmp_path):
    path = tmp_path / "seen.json"
    known = TrustState(relayer_key="ab" * 32, grant_serial=5, epoch=2, receipt_seq=3, checked_seq=3)
    for key, seq in (("ab" * 32, 3), ("cd" * 32, 0)):
        file = TrustStore(path)
        file.value = known
        file.save()
        file.pin(key, before=None)
        assert TrustStore(path).value.checked_seq == file.value.receipt_seq == seq
        assert (TrustStore(path).value.grant_serial, file.value.epoch) == (5, 2)


def test_serials_of_before_hold_until_another_relayer_is_pinned(tmp_path):
    """Files of earlier versions hold one serial, of grants or of a relayer's receipts."""
    path = tmp_path / "seen.json"
    old = asdict(TrustState(relayer_key="ab" * 32, grant_serial=5, epoch=2))
    del old["receipt_serial"]
    write_private(path, old)
    file = TrustStore(path)
    assert (file.value.grant_serial, file.value.receipt_serial) == (0, 5)
    file.pin("ab" * 32, before=None)
    assert TrustStore(path).value.receipt_serial == 5
    file.pin("cd" * 32, before=None)
    assert TrustStore(path).value == TrustState(epoch=2)


COUNTING = """
import sys
from dataclasses import asdict
from dataclasses import replace
from pathlib import Path
from memrelay.trust_store import TrustStore

path, member = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(200):
    file = TrustStore(path)  # which knows only what the file says
    if getattr(file.value, member) != number:
        sys.exit(f"{member} fell back")
    file.value = replace(file.value, **{member: number + 1})
    file.save()
"""


def test_what_was_seen_only_rises_when_processes_share_the_file(tmp_path):
    path = tmp_path / "seen.json"
    members = ("grant_serial", "epoch")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTING, str(path), member],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for member in members
    ]
    for process in processes:
        unwrap(process.stdout).readline()
    for process in processes:
        unwrap(process.stdin).write(b"\n")
        unwrap(process.stdin).flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    seen = TrustStore(path).value
    assert (seen.grant_serial, seen.epoch) == (200, 200)


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        lock_file(tmp_path / "file" / "lock"),
    ):
        pass


HEADLESS = json.dumps(asdict(TrustState(receipt_seq=3, receipt_head="x")))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"relayer_key": null}', "7", HEADLESS])
def test_damaged_memory_of_what_was_seen_is_no_fresh_start(tmp_path, text):
    path = tmp_path / "seen.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="damaged"):
        TrustStore(path)


CONNECTING = [
    ("ALL_PROXY", "socks5://user:secret@127.0.0.1:9", "SOCKS"),
    ("HTTPS_PROXY", "gopher://user:secret@127.0.0.1:9", "no http"),
    ("https_proxy", "http://user:secret@[::1", "no http"),
    ("SSL_CERT_FILE", "/nowhere/secret.pem", "/nowhere/secret.pem"),
    ("SSL_CERT_FILE", "/etc/passwd", "/etc/passwd"),
]


@pytest.mark.parametrize(("variable", "value", "told"), CONNECTING)
def test_what_the_environment_says_of_connections_is_named_where_it_is_of_no_use(
    tmp_path, monkeypatch, capsys, variable, value, told
):
    path = profile(tmp_path / "p.json")
    monkeypatch.setitem(sys.modules, "socksio", None)  # as without the extra of httpx
    for name in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    for client in (MemoryClient, SyncMemoryClient):
        with pytest.raises(ConfigError, match=variable):
            client.from_profile(path)
    assert main(["status", "--profile", str(path)], {}) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert main(["doctor", "--profile", str(path)], {}) == EXIT_FAILED
    examined = capsys.readouterr().out
    for text in (line, examined):
        assert variable in text
        assert told in text
        assert "user:secret" not in text
    assert "grep" in examined


def test_a_profile_and_then_its_name_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has its key. The system's own call, looked at as it is made."""
    path, seen, fsync = tmp_path / "profile", [], os.fsync

    def looked_at(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append(("folder" if is_folder else "bytes", path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", looked_at)
    write_private(path, {"private_key": "00" * 32})
    assert seen == [("bytes", False), ("folder", True)]
