"""The project of a folder, and the namespace that it may have: by its git remote, or its path.

It does not own grants (`agents/`) or which projects were chosen (`choice.py`). Git is not asked:
its files are read.

- The same remote is the same project on every machine, however its address is written.
- An address is kept without a user's name and password.
"""

import os
import re
from hashlib import blake2s
from pathlib import Path
from typing import Final

from memrelay.sealed.keys import normalise_namespace

PREFIX: Final = "project:"
_CONFIG_BYTES_MAX: Final = 256 * 1024
_SECTION: Final = re.compile(r'\s*\[\s*remote\s+"origin"\s*\]', re.IGNORECASE)
_URL: Final = re.compile(r"\s*url\s*=\s*(?P<url>\S+)", re.IGNORECASE)
# `https://user@host:port/path`, `ssh://…`, and `user@host:path` as git takes it, too.
_ADDRESS: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,20}://)?(?:[^/@\s]{1,400}@)?(?P<host>[\w.-]{2,253})(?::\d{1,5}(?=/))?"
    r"[:/]/{0,2}(?P<path>[^?#\s]{1,400})",
    re.IGNORECASE,
)
_NAME_CHARS_MAX: Final = 200


def project_of(folder: str | Path) -> str | None:
    """Return the namespace of the project that a folder is in; None for no folder at all."""
    try:
        place = Path(folder).resolve(strict=True)
        if not place.is_dir():
            return None
        root = find_root(place)
        address = _remote_of(root) if root else None
    except OSError:
        return None
    return normalise_namespace(PREFIX + (address or _folder_name(root or place)))


def find_root(folder: Path) -> Path | None:
    """Return the folder of the git repository that a folder is in, or None."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def _remote_of(root: Path) -> str | None:
    """Return the address of the remote `origin`, in one spelling; None without any."""
    lines = _read_config(root).splitlines()
    inside = False
    for line in lines:
        if line.lstrip().startswith("["):
            inside = _SECTION.match(line) is not None
        elif inside and (found := _URL.match(line)):
            return _spell(found["url"])
    return None


def _read_config(root: Path) -> str:
    git = root / ".git"
    if git.is_file():  # of a worktree, or a submodule
        told = git.read_text(errors="replace")[:4096].strip().removeprefix("gitdir:").strip()
        git = root / told
        common = git / "commondir"
        if common.is_file():
            git = git / common.read_text(errors="replace")[:4096].strip()
    try:
        with (git / "config").open("rb") as file:
            return file.read(_CONFIG_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _spell(url: str) -> str | None:
    address = _ADDRESS.fullmatch(url)
    if address is None or url.startswith(("/", ".", "file:")):
        return None
    path = address["path"].strip("/").removesuffix(".git")
    spelled = f"{address['host']}/{path}".lower()
    name = "".join(char if char.isalnum() or char in "./_-" else "-" for char in spelled)
    return name if len(name) <= _NAME_CHARS_MAX else _with_digest(name[-60:], name)


def _folder_name(folder: Path) -> str:
    name = re.sub(r"[^\w.-]+", "-", folder.name.lower())[:60].strip("-") or "folder"
    return _with_digest(name, os.fspath(folder))


def _with_digest(name: str, whole: str) -> str:
    digest = blake2s(whole.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return f"{name}-{digest}"
