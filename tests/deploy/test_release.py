"""A release of a commit: it verifies, is made again byte by byte, and no change passes.

Not here: what the wheels hold and do (`project/test_wheels.py`).
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from relayer import __version__

ROOT = Path(__file__).parents[2]
PINS = ROOT / "deploy/requirements/release.txt"
IDENTITY = ("-c", "user.name=Anna", "-c", "user.email=anna@example.org")
SEED = "7" * 64

pytestmark = pytest.mark.long


def call(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHON", "SOURCE_"))}
    return subprocess.run(
        command,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def checkout(folder: Path, mode: int) -> Path:
    """A repository of one commit with these files, which have other modes than elsewhere."""
    left_out = shutil.ignore_patterns(".*", "build", "dist", "data", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=left_out)
    for path in folder.rglob("*.py"):
        path.chmod(mode)
    dates = {f"GIT_{who}_DATE": "2026-11-28T12:00:00Z" for who in ("AUTHOR", "COMMITTER")}
    git = ("git", "-C", folder, *IDENTITY)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        done = call(*git, *words, **dates)
        assert done.returncode == 0, done.stderr
    return folder


class Maker:
    """Makes releases of checkouts, in an environment with the pinned tools and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.create(folder / "env")
        self.python = folder / "env/bin/python"
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "-q")
        done = call(*pip, "--no-compile", "--require-hashes", "-r", PINS)
        assert done.returncode == 0, done.stderr
        self.key = folder / "release.key"
        self.key.write_text(f"{SEED}\n")
        self.key.chmod(0o600)

    def make(self, source: Path, out: Path, key: Path | None = None) -> str:
        """Make a release, and return what is said on standard error if it cannot be."""
        program = source / "deploy/release/release.py"
        done = call(self.python, program, "--key", key or self.key, "--out", out)
        assert (done.returncode == 0) == out.exists(), done.stderr
        return done.stderr

    def verify(self, folder: Path, public_key: str) -> "subprocess.CompletedProcess[str]":
        """What the command that checks a release says of one."""
        program = ROOT / "deploy/release/verify.py"
        return call(self.python, program, folder, "--public-key", public_key)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("maker"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("first") / "checkout", 0o644)


@pytest.fixture(scope="module")
def made(maker: Maker, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release."""
    out = tmp_path_factory.mktemp("out") / "release"
    assert maker.make(source, out) == ""
    return out


@pytest.fixture(scope="module")
def public_key(maker: Maker) -> str:
    program = (
        "import sys; from nacl.signing import SigningKey\n"
        "print(bytes(SigningKey(bytes.fromhex(sys.argv[1])).verify_key).hex())"
    )
    return call(maker.python, "-c", program, SEED).stdout.strip()


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A release that may be altered."""
    return shutil.copytree(made, tmp_path / "release")


def test_it_verifies(maker: Maker, made: Path, public_key: str) -> None:
    done = maker.verify(made, public_key)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"release {__version__} of commit [0-9a-f]{{40}}: 5 files, all well\n", done.stdout
    )
    assert {path.name for path in made.iterdir()} == {
        *("manifest.json", "manifest.json.sig", "SHA256SUMS"),
        f"memrelay-{__version__}.cdx.json",
        f"memrelay-{__version__}-requirements.txt",
        f"memrelay-{__version__}-py3-none-any.whl",
        f"memrelay_relayer-{__version__}-py3-none-any.whl",
    }


def test_others_tools_verify_it_as_the_page_says(
    made: Path, public_key: str, tmp_path: Path
) -> None:
    page = (ROOT / "deploy/release/README.md").read_text()
    lines = re.findall(r"^    (printf .*|openssl pkeyutl .*|sha256sum .*)$", page, re.MULTILINE)
    assert len(lines) == 3
    program = "\n".join(lines).replace("HEX", public_key)
    program = program.replace("release.pem", str(tmp_path / "release.pem"))
    program = program.replace("xxd -r -p", f"{sys.executable} -c '{UNHEX}'")
    done = subprocess.run(
        ["sh", "-ec", program], cwd=made, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Signature Verified Successfully\n")
    assert done.stdout.count(": OK\n") == 4


UNHEX = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))"  # xxd may be missing


def test_the_same_commit_gives_the_same_bytes(maker: Maker, made: Path, tmp_path: Path) -> None:
    """From another folder, whose files have other modes and times."""
    again = tmp_path / "again"
    maker.make(checkout(tmp_path / "elsewhere", 0o600), again)
    for path in made.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


def test_what_is_not_committed_is_not_in_it(maker: Maker, made: Path, tmp_path: Path) -> None:
    altered = checkout(tmp_path / "altered", 0o644)
    (altered / "relayer/errors.py").write_text("nothing")
    said = maker.make(altered, tmp_path / "release")
    assert said == "release: what is not committed is not in it\n"
    wheel = f"memrelay_relayer-{__version__}-py3-none-any.whl"
    assert (tmp_path / "release" / wheel).read_bytes() == (made / wheel).read_bytes()


def test_the_bill_of_materials_has_every_pin_with_its_hashes(made: Path) -> None:
    bill = json.loads((made / f"memrelay-{__version__}.cdx.json").read_text())
    pins = (ROOT / "deploy/requirements/runtime.txt").read_text()
    wanted = set(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==(\S+)", pins, re.MULTILINE))
    found = {one["name"]: one for one in bill["components"]}
    ours = {"memrelay", "memrelay-relayer"}
    assert {(n, one["version"]) for n, one in found.items() if n not in ours} == wanted
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    hashes = [
        digest["content"]
        for one in found.values()
        for place in one.get("externalReferences", ())
        for digest in place["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", pins))
    for name in ours:
        wheel = made / f"{name.replace('-', '_')}-{__version__}-py3-none-any.whl"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert [one["content"] for one in found[name]["hashes"]] == [digest]
    needs = {one["ref"].partition("@")[0]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert {one.partition("@")[0] for one in needs["memrelay"]} == {"httpx", "pynacl"}
    assert {one.partition("@")[0] for one in needs["memrelay-release"]} == ours
    assert "litestar" in {one.partition("@")[0] for one in needs["memrelay-relayer"]}
    reached, new = set(), {"memrelay-release"}
    while new:
        reached |= new
        new = {one.partition("@")[0] for name in new for one in needs[name]} - reached
    assert set(found) <= reached


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def list_another(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0]["name"] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_no_byte_can_be_altered(maker: Maker, copy: Path, public_key: str) -> None:
    for path in sorted(copy.iterdir()):
        before = path.read_bytes()
        alter(path)
        done = maker.verify(copy, public_key)
        assert (done.returncode, done.stdout) == (1, ""), path.name
        assert done.stderr.startswith("verify: ")
        path.write_bytes(before)
    assert maker.verify(copy, public_key).returncode == 0


def test_no_file_can_be_taken_away_or_put_beside(maker: Maker, copy: Path, public_key: str) -> None:
    wheel = copy / f"memrelay-{__version__}-py3-none-any.whl"
    (copy / "more.whl").write_bytes(b"")
    done = maker.verify(copy, public_key)
    assert (done.returncode, done.stderr) == (1, "verify: not in the manifest: more.whl\n")
    (copy / "more.whl").unlink()
    wheel.rename(copy.parent / "aside")
    done = maker.verify(copy, public_key)
    assert (done.returncode, done.stderr) == (1, f"verify: missing: {wheel.name}\n")
    wheel.symlink_to(copy.parent / "aside")
    assert maker.verify(copy, public_key).returncode == 1
    (copy / "manifest.json").unlink()
    done = maker.verify(copy, public_key)
    assert (done.returncode, "manifest.json: No such file" in done.stderr) == (1, True)


def test_only_the_holder_of_the_key_signs(
    maker: Maker, source: Path, copy: Path, public_key: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.key"
    other.write_text("8" * 64)
    other.chmod(0o600)
    maker.make(source, tmp_path / "others", other)
    told = "verify: the manifest is not signed by this key\n"
    assert maker.verify(tmp_path / "others", public_key).stderr == told
    shutil.copy(tmp_path / "others/manifest.json.sig", copy)
    assert maker.verify(copy, public_key).stderr == told
    list_another(copy, "../aside")
    assert maker.verify(copy, public_key).stderr == told
    (copy / "manifest.json.sig").write_bytes(b"")
    assert maker.verify(copy, public_key).stderr == told
    assert maker.verify(copy, "no key").returncode == 2


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (SEED, 0o644, "release: others may read "),
        ("7" * 63, 0o600, "does not hold a key, 64 hex digits"),
        ("", 0o600, "does not hold a key, 64 hex digits"),
        ("\udcff", 0o600, "does not hold a key, 64 hex digits"),
    ],
    ids=["readable", "short", "empty", "no text"],
)
def test_a_key_file_that_is_none_is_refused(
    maker: Maker, source: Path, tmp_path: Path, text: str, mode: int, told: str
) -> None:
    key = tmp_path / "key"
    key.write_bytes(text.encode("utf-8", "surrogateescape"))
    key.chmod(mode)
    said = maker.make(source, tmp_path / "release", key)
    assert told in said
    assert text not in said or not text
    assert list(tmp_path.iterdir()) == [key]


def test_an_earlier_release_is_left_alone(maker: Maker, source: Path, copy: Path) -> None:
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    program = source / "deploy/release/release.py"
    done = call(maker.python, program, "--key", maker.key, "--out", copy)
    assert (done.returncode, "is there already" in done.stderr) == (1, True)
    assert before == {path.name: path.read_bytes() for path in copy.iterdir()}
