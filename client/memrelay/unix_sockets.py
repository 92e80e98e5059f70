"""URLs of relayers that listen on a Unix socket of this machine: `unix:///FOLDER/relayer.sock`.

It does not own what is asked there (`client.py`), or starting such a relayer (`local_relayer.py`).
"""

import os
import sys
from pathlib import Path
from urllib.parse import quote, unquote

from memrelay.errors import ConfigError

SCHEME = "unix://"
BASE_URL = "http://localhost"  # what is asked through a socket names no other host
_PATH_BYTES_MAX = 100  # the shortest limit among systems is 103


def socket_url(path: Path) -> str:
    """Return the URL of a relayer that listens on a socket."""
    return SCHEME + quote(str(path.absolute()))


def parse_socket(url: str) -> Path | None:
    """Return the path of the socket that a URL names, None if it names none.

    Raises:
        ConfigError: no system takes the path, or this one has no such sockets.
    """
    if not url.startswith(SCHEME):
        return None
    path = Path(unquote(url.removeprefix(SCHEME)))
    if sys.platform == "win32":
        raise ConfigError("This system has no Unix sockets; name a relayer by http or https.")
    if not path.is_absolute() or "\0" in str(path):
        raise ConfigError("A relayer's socket is named by its whole path: unix:///PATH.")
    size = len(os.fsencode(path))
    if size > _PATH_BYTES_MAX:
        raise ConfigError(
            f"{path} is too long for a socket: {size} bytes, {_PATH_BYTES_MAX} at most."
            " Choose a shorter data folder with --data-dir."
        )
    return path


def check_socket_folder(socket: Path) -> None:
    """Return if nobody but this user can put a socket there.

    Raises:
        ConfigError: others can.
    """
    folder = socket.parent
    try:
        status = folder.stat()
    except OSError:
        return  # nobody listens there; whoever connects learns why
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise ConfigError(f"{folder} belongs to another user: who listens there is not known.")
    if status.st_mode & 0o022:
        raise ConfigError(f"Others may write {folder}; run `chmod go-w {folder}`.")
