"""The health of the relayer of a data folder, for whoever supervises it.

Not here: what is wrong if it does not (`upkeep/doctor.py`), or when it is healthy (`routes/`).

- `python -m relayer.health` says it by its exit code, and imports next to nothing: a container asks
  every half minute.
"""

import contextlib
import json
import os
import socket
import sys
import urllib.request
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

from relayer.run_file import find_url, split_socket_url

TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 64 * 2**10


def ask(data_dir: Path) -> dict[str, Any]:
    """Ask the relayer that serves this folder for `GET /health`, and return its answer.

    Raises:
        OSError: none serves it, or it does not answer well; the message says which.
    """
    url = find_url(data_dir)
    if url is None:
        raise OSError(f"no relayer serves {data_dir.absolute()}")
    try:
        told = json.loads(_read(url))
    except (ValueError, HTTPException, HTTPError):
        told = None
    except OSError as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise OSError(f"the relayer at {url} does not answer: {reason}") from None
    if not isinstance(told, dict) or told.get("status") != "ok":
        raise OSError(f"what answers at {url} is no healthy relayer")
    return told


def _read(url: str) -> bytes:
    """Read `/health` at a relayer's URL, be it one of a Unix socket."""
    base, path = split_socket_url(url)
    if path is not None:
        with contextlib.closing(_SocketConnection(path)) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().read(_ANSWER_BYTES_MAX)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{base}/health", timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read(_ANSWER_BYTES_MAX)
        return body


class _SocketConnection(HTTPConnection):
    """HTTP by a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def main() -> None:
    """Exit with 0 if the relayer of `RELAYER_DATA_DIR` answers, else with 1."""
    try:
        ask(Path(os.environ.get("RELAYER_DATA_DIR") or "data"))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
