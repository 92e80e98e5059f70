"""A release's manifest: which files it has, of which commit, signed with Ed25519.

Not here: making these files (`release.py`), the command that checks a release (`verify.py`).

- The signature covers the manifest's bytes as they are, so that other tools can check it, too.
- A folder that is checked is somebody else's: each name is a plain one, and every size is bounded.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.json.sig"
FORMAT: Final = "memrelay-release/1"
_MANIFEST_BYTES_MAX: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEY_FILE_BYTES_MAX: Final = 256


class ReleaseError(Exception):
    """A release cannot be made, or is not what was signed; the message says why."""


def read_key(path: Path) -> SigningKey:
    """Return the signing key of a file with 64 hex digits, which only its owner may read.

    Raises:
        ReleaseError: it cannot be read, others may read it, or it holds something else.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise ReleaseError(f"others may read {path}; type: chmod 600 {path}")
        with path.open("rb") as file:
            text = file.read(_KEY_FILE_BYTES_MAX).decode().strip()
        return SigningKey(_parse_hex(text))
    except OSError as error:
        raise ReleaseError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ReleaseError(f"{path} does not hold a key, 64 hex digits") from None


def read_public_key(text: str) -> VerifyKey:
    """Return the key of 64 hex digits.

    Raises:
        ReleaseError: they are none.
    """
    try:
        return VerifyKey(_parse_hex(text.strip()))
    except ValueError:
        raise ReleaseError("a public key is 64 hex digits") from None


def _parse_hex(text: str) -> bytes:
    if re.fullmatch(r"[0-9a-fA-F]{64}", text) is None:
        raise ValueError
    return bytes.fromhex(text)


def describe(path: Path) -> dict[str, Any]:
    """Return a file's name, size in bytes and SHA-256, as the manifest has them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def write_manifest(
    folder: Path, key: SigningKey, *, version: str, commit: str, files: Iterable[Path]
) -> None:
    """Write the manifest of these files into `folder`, and its signature."""
    manifest = {
        "format": FORMAT,
        "version": version,
        "commit": commit,
        "files": [describe(path) for path in sorted(files)],
    }
    data = (json.dumps(manifest, indent=1) + "\n").encode()
    (folder / MANIFEST).write_bytes(data)
    (folder / SIGNATURE).write_bytes(key.sign(data).signature)


def check_release(folder: Path, key: VerifyKey) -> dict[str, Any]:
    """Return the manifest of a release that is whole and signed by `key`.

    Raises:
        ReleaseError: the signature does not hold, or a file is missing, altered or not listed.
    """
    manifest = _read_manifest(folder, key)
    listed = {entry["name"]: entry for entry in manifest["files"]}
    try:
        present = {path.name for path in folder.iterdir()} - {MANIFEST, SIGNATURE}
        if missing := sorted(set(listed) - present):
            raise ReleaseError(f"missing: {', '.join(missing)}")
        if unlisted := sorted(present - set(listed)):
            raise ReleaseError(f"not in the manifest: {', '.join(unlisted)}")
        for name, entry in sorted(listed.items()):
            path = folder / name
            if path.is_symlink() or not path.is_file() or describe(path) != entry:
                raise ReleaseError(f"{name} is not the file that was signed")
    except OSError as error:
        raise ReleaseError(f"cannot read {error.filename}: {error.strerror}") from None
    return manifest


def _read_manifest(folder: Path, key: VerifyKey) -> dict[str, Any]:
    data = _read_bounded(folder / MANIFEST)
    signature = _read_bounded(folder / SIGNATURE)
    try:
        key.verify(data, signature)
    except (BadSignatureError, ValueError):
        raise ReleaseError("the manifest is not signed by this key") from None
    manifest: dict[str, Any] = json.loads(data)  # what the holder of the key has written
    if manifest["format"] != FORMAT:
        raise ReleaseError("the manifest is of another format: take that release's verify.py")
    if not all(_NAME.fullmatch(entry["name"]) for entry in manifest["files"]):
        raise ReleaseError("the manifest names a file outside its folder")
    return manifest


def _read_bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        raise ReleaseError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _MANIFEST_BYTES_MAX:
        raise ReleaseError(f"{path} is too long")
    return data
