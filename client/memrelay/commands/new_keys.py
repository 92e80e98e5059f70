"""New keys in files before a relayer hears of them, and what becomes of these if it does not.

It does not own what is in a profile (`config.py`), or what a key is granted (`keys.py`).

- A file with a key goes only if the key certainly means nothing to anybody.
- One process at a time makes a profile: of two, the second finds the first one's.
"""

import getpass
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memrelay.commands.streams import warn
from memrelay.errors import ConfigError, MemrelayError, NotGranted, ServerError, TransportError
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.spool import Spool
from memrelay.models import NewKey
from memrelay.plurals import format_count
from memrelay.sealed.keys import Identity
from memrelay.secure_files import lock_file
from memrelay.sync_client import SyncMemoryClient

_LABEL_CHARS_MAX = 64  # a relayer takes more


def default_label() -> str:
    """Return the name of a new key for which none is given: who made it, and on which machine.

    It has an @, which no agent's name has: the label of an agent's key is the agent.
    """
    user = ""
    with suppress(OSError, KeyError, ImportError):  # nobody has to be in a list of users
        user = getpass.getuser()
    label = f"{user}@{platform.node().partition('.')[0]}"
    return "".join(char for char in label if char.isprintable())[:_LABEL_CHARS_MAX]


@contextmanager
def new_profile(path: Path, *, replaces: bool | None) -> Iterator[Path]:
    """Hold a profile that is to be made; yield where it is written first, for `put_in_place`.

    `replaces` is None where a command has no --force.

    Raises:
        ConfigError: it is there already and nobody said that it may be replaced.
    """
    if path.suffix == ".toml":
        raise ConfigError("A new profile is written as JSON; choose another name.")
    with lock_file(path.with_name(f".{path.name}.lock")):
        if path.exists() and not replaces:
            forced = "; --force replaces it and keeps the old one beside it"
            hint = "" if replaces is None else forced
            raise ConfigError(f"{path} exists{hint}.")
        pending = path.with_name(f"{path.name}.new")
        keep_old(pending)
        yield pending


def put_in_place(pending: Path, path: Path) -> None:
    """Make what was written first the profile; one that is replaced stays beside it."""
    keep_old(path)
    os.replace(pending, path)


def keep_old(path: Path) -> None:
    """Move a file that is about to be replaced to a free name beside it; none need be there."""
    if path.exists():
        old = path.with_name(f"{path.name}.old")
        number = 1
        while old.exists():
            number += 1
            old = path.with_name(f"{path.name}.old{number}")
        os.replace(path, old)


@contextmanager
def request_with_key_in(file: Path) -> Iterator[None]:
    """Ask a relayer for something for the key in a file.

    Raises:
        MemrelayError: it was refused, and the file is gone; or nobody knows, and it says so.
    """
    try:
        yield
    except MemrelayError as error:
        if _never_happened(error):
            file.unlink()
            raise
        raise MemrelayError(
            f"{error} The new key may be granted by now; it is kept in {file}."
        ) from error


def grant_key(client: SyncMemoryClient, file: Path, identity: Identity, **wish: Any) -> NewKey:
    """Have the key in a file granted what is wished.

    Raises:
        MemrelayError: as of `request_with_key_in`.
    """
    with request_with_key_in(file):
        return client.add_key(identity=identity, **wish)


def hand_over(folders: Iterable[Path], old: Identity, new: Identity) -> None:
    """Seal for a new key what gateways captured and could not deliver with the old one.

    Raises:
        ConfigError: a folder cannot be used or written.
    """
    bounds, count = GatewaySettings(), 0
    for folder in filter(Path.is_dir, folders):
        spool = Spool(folder, bytes_max=bounds.spool_bytes_max, turns_max=bounds.spool_turns_max)
        count += spool.reseal(old, new)
    if count:
        turns = format_count(count, "captured turn")
        warn(f"sealed for the new key: {turns} that waited for the old one")


def _never_happened(error: MemrelayError) -> bool:
    refused = isinstance(error, ServerError) and 400 <= error.status < 500
    unsent = isinstance(error, TransportError) and not error.sent
    return refused or unsent or isinstance(error, ConfigError | NotGranted)
