"""Finds where a running gateway listens, and asks it something from this machine.

It does not own what the gateway answers (`serve.py`).

- The endpoint file, which only this user can read, holds the address and the token. A gateway
  writes it when it begins to listen and removes it when it ends.
- Both sides show that they know the file: a caller the token, the gateway the proof. After a
  gateway was killed, somebody else may listen on its port.
- JSON-RPC 2.0, one object a line: a web page cannot be made to speak it.
"""

import json
import os
import socket as sockets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from memrelay.config import expand_home, profile_path
from memrelay.errors import ConfigError, TransportError
from memrelay.secure_files import make_private_folder, read_private, write_private

LOOPBACK = "127.0.0.1"
LINE_BYTES_MAX = 2 * 1024 * 1024
_SOCKET_PATH_BYTES_MAX = 100  # the shortest limit among systems is 103


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An address of this machine, a socket's path or a port, and what both sides show there."""

    token: str = field(repr=False)
    proof: str = field(repr=False)
    socket: str | None = None
    port: int | None = None

    @classmethod
    def read(cls, path: Path) -> "Endpoint | None":
        """Return what an endpoint file says; None when there is none.

        Raises:
            ConfigError: it is damaged, or others may read it.
        """
        data = read_private(path)
        if data is None:
            return None
        try:
            values = json.loads(data)
            return cls(**{item.name: values[item.name] for item in fields(cls)})
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigError(f"{path} is damaged; remove it.") from None

    def write(self, path: Path) -> None:
        """Write the endpoint file."""
        write_private(path, asdict(self))

    def answers(self) -> bool:
        """Return whether anybody listens there."""
        try:
            self._connect(1.0).close()
        except OSError:
            return False
        return True

    def ask(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = 5.0
    ) -> Any:
        """Return what a running gateway answers.

        Raises:
            TransportError: nobody answers, or not in time.
            ConfigError: the gateway refuses; its reason is the message.
        """
        hello = {"token": self.token}
        try:
            with self._connect(timeout_s) as line, line.makefile("rwb") as file:
                for number, (name, given) in enumerate((("hello", hello), (method, params or {}))):
                    request = {"jsonrpc": "2.0", "id": number, "method": name, "params": given}
                    file.write(json.dumps(request).encode() + b"\n")
                    file.flush()
                    answer = json.loads(file.readline(LINE_BYTES_MAX))
                    if "error" in answer:
                        raise ConfigError(answer["error"]["message"])
                    if name == "hello" and answer["result"]["proof"] != self.proof:
                        raise TransportError("Something else listens where the gateway did.")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TransportError("The gateway does not answer.") from error
        return answer["result"]

    def _connect(self, timeout_s: float) -> sockets.socket:
        if self.socket is None:
            return sockets.create_connection((LOOPBACK, self.port or 0), timeout_s)
        line = sockets.socket(sockets.AF_UNIX)
        line.settimeout(timeout_s)
        try:
            line.connect(self.socket)
        except BaseException:
            line.close()
            raise
        return line


def endpoint_path(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the path of the endpoint file, beside the profile."""
    return profile_path(profile, environ).with_name("gateway.json")


def default_socket(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return where the gateway listens unless it is told: the user's runtime folder, if any.

    Raises:
        ConfigError: the path is too long for a socket.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "memrelay" if runtime else endpoint_path(profile, environ).parent
    return prepare_socket(folder / "gateway.sock")


def prepare_socket(path: Path) -> Path:
    """Return the path of a socket, in a folder made for this user alone.

    Raises:
        ConfigError: others may enter the folder, or the path is too long for a socket.
    """
    path = expand_home(path).absolute()
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise ConfigError(f"{path} is too long for a socket: name another --socket, or use --port.")
    try:
        make_private_folder(path.parent)
        status = path.parent.stat()
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be used: {error.strerror}.") from error
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(f"Others may enter {path.parent}; run `chmod 700 {path.parent}`.")
    return path
