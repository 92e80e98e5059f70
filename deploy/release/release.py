"""Makes a release of one commit: wheels, their pins, a bill of materials, a signed manifest.

    make release KEY=FILE

It uploads nothing. Whoever holds the accounts runs it, looks at the folder, and uploads that.

- Only what is committed is built, in an exported copy with fixed modes and the commit's time, so
  that the same commit gives the same bytes.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bill_of_materials import make_bill, parse_pins
from manifest import ReleaseError, describe, read_key, write_manifest

ROOT: Final = Path(__file__).parents[2]
PINS: Final = "deploy/requirements/runtime.txt"
PACKAGES: Final = {"memrelay_relayer": ".", "memrelay": "client"}  # wheel's name → its project


@dataclass(frozen=True)
class Commit:
    """The commit that is released: its full id, and its time in seconds."""

    id: str
    time_s: int


def main() -> None:
    """Make the release, and say what to do with it."""
    parser = argparse.ArgumentParser(prog="release", description="Make a release of a commit.")
    parser.add_argument("--key", type=Path, required=True, help="file with the signing key")
    parser.add_argument("--out", type=Path, default=ROOT / "dist/release", help="a new folder")
    parser.add_argument("--commit", default="HEAD", help="what to release (HEAD)")
    parser.add_argument("--console", action="store_true", help="with the console; needs npm")
    args = parser.parse_args()
    try:
        key = read_key(args.key)
        if args.out.exists():
            raise ReleaseError(f"{args.out} is there already; name a new folder with --out")
        commit = find_commit(args.commit)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=args.out.parent) as scratch:
            folder = Path(scratch) / "release"
            folder.mkdir()
            version = fill(folder, Path(scratch), commit, with_console=args.console)
            files = list(folder.iterdir())
            write_manifest(folder, key, version=version, commit=commit.id, files=files)
            folder.rename(args.out)
    except (ReleaseError, ValueError) as error:
        sys.exit(f"release: {error}")
    print(f"release {version} of commit {commit.id} is in {args.out}; its public key is")
    print(bytes(key.verify_key).hex())
    print("check it, then upload it: deploy/release/README.md")


def find_commit(name: str) -> Commit:
    """Return a commit by whatever git calls it.

    Raises:
        ReleaseError: there is none, or this is no repository.
    """
    shown = _run(
        "git", "-C", str(ROOT), "show", "--no-patch", "--format=%H %ct", f"{name}^{{commit}}"
    )
    commit, time_s = shown.decode().split()
    if _run("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"):
        print("release: what is not committed is not in it", file=sys.stderr)
    return Commit(commit, int(time_s))


def fill(folder: Path, scratch: Path, commit: Commit, *, with_console: bool) -> str:
    """Put all files but the manifest into `folder`, and return the version."""
    checkout = scratch / "checkout"
    export(commit, checkout)
    if with_console:
        build_console(checkout)
    wheels = {name: build(checkout / project, folder, commit) for name, project in PACKAGES.items()}
    versions = {wheel.name.split("-")[1] for wheel in wheels.values()}
    if len(versions) != 1:
        raise ReleaseError(f"the two packages have two versions: {', '.join(sorted(versions))}")
    [version] = versions
    requirements = folder / f"memrelay-{version}-requirements.txt"
    shutil.copyfile(checkout / PINS, requirements)
    bill = make_bill(
        version=version,
        commit=commit.id,
        committed_at_s=commit.time_s,
        wheels={
            name.replace("_", "-"): describe(wheel)["sha256"] for name, wheel in wheels.items()
        },
        pins=parse_pins(requirements.read_text()),
        requirements_name=requirements.name,
    )
    (folder / f"memrelay-{version}.cdx.json").write_text(bill)
    sums = [f"{describe(path)['sha256']}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return version


def export(commit: Commit, folder: Path) -> None:
    """Write a commit's files into a new folder, with modes that no umask changes."""
    archive = _run("git", "-C", str(ROOT), "archive", "--format=tar", commit.id)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # Python before 3.11.4 has no filters, and takes no argument of that name.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        for member in tar:
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.extract(member, folder)


def build_console(checkout: Path) -> None:
    """Build what both wheels have of the console, from packages that are pinned by their hashes.

    Raises:
        ReleaseError: Node is not there, or its packages could not be fetched.
    """
    if shutil.which("npm") is None:
        raise ReleaseError("the console needs Node 20 or later and npm")
    console = checkout / "client/console"
    options = ("--silent", "--no-fund", "--no-audit", "--ignore-scripts")
    _run("npm", "ci", *options, "--prefix", str(console))
    _run("node", str(console / "build.mjs"))


def build(project: Path, folder: Path, commit: Commit) -> Path:
    """Build a project's wheel into `folder` with the tools of this environment."""
    before = set(folder.iterdir())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    _run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
        *("--outdir", str(folder), str(project)),
        environment=kept | {"SOURCE_DATE_EPOCH": str(commit.time_s)},
    )
    [wheel] = set(folder.iterdir()) - before
    return wheel


def _run(*command: str, environment: dict[str, str] | None = None) -> bytes:
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        told = re.sub(r"\s+", " ", done.stderr.decode("utf-8", "replace"))[-500:].strip()
        raise ReleaseError(f"{' '.join(command[:4])} failed: {told}")
    return done.stdout


if __name__ == "__main__":
    os.umask(0o022)
    main()
