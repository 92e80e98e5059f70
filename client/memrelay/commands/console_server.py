"""Serves the console's files on this machine, and passes its page's requests on to the relayer.

It does not own the files (`client/console/`), or which relayer that is (`console.py`).

- The page comes from the installed package, so no operator of a relayer can alter it. It asks this
  server alone, under the same policy as at a relayer: nothing else has to allow anything.
- What passes is signed and sealed by the page; this process holds no key and keeps nothing of it.
- Other sites that a browser shows get nothing: the name asked for has to be this machine's, and a
  request has to come from the page.
"""

import errno
import hashlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from memrelay.config import certificates_for, check_url, explain_connection_settings, is_loopback
from memrelay.errors import ConfigError, MemrelayError, TransportError
from memrelay.exchange import is_refused, make_transport_error
from memrelay.local_relayer import LocalRelayer
from memrelay.transport import httpx, refuse_cookies, socket_transport
from memrelay.unix_sockets import check_socket_folder, parse_socket

FOLDER: Final = Path(__file__).parents[1] / "console-files"
PAGE: Final = "index.html"
# As the relayer has it (SPEC.md §11); `tests/client/test_console.py` holds the two together.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
BODY_BYTES_MAX: Final = 8 * 2**20  # as the longest that a relayer takes
_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": POLICY,
}
_SENT_ON: Final = frozenset(
    "accept content-type last-event-id x-account-id x-memrelay-unlock x-nonce x-public-key"
    " x-request-id x-signature x-timestamp".split()
)
_SENT_BACK: Final = frozenset(
    "allow content-type ratelimit-limit ratelimit-remaining ratelimit-reset retry-after"
    " x-auth-error x-request-id".split()
)
_ROUTES: Final = "/v1/"
_FAMILIES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_TAKEN: Final = (errno.EADDRINUSE, errno.EACCES)
_WAKE_S: Final = 60.0
_READ_S: Final = 60.0


@dataclass(frozen=True)
class Files:
    """The built files by their names, and what names them all: the page's own SHA-256, in hex."""

    by_name: Mapping[str, bytes]
    sha256: str


def read_files(folder: Path | None = None) -> Files:
    """Return the files of the installed console.

    Raises:
        ConfigError: this installation was made without them.
    """
    folder = folder or FOLDER
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    by_name = {path.name: path.read_bytes() for path in found if path.suffix in _MEDIA_TYPES}
    if PAGE not in by_name:
        raise ConfigError(
            "The console is not built here: it needs Node 20 or later and npm. In a checkout, type"
            " `make console`; for an installed memrelay, `make console wheels`, and install again."
        )
    return Files(by_name, hashlib.sha256(by_name[PAGE]).hexdigest())


class Forwarding:
    """A relayer to which requests are passed on as they are."""

    def __init__(self, url: str, *, allow_insecure: bool = False) -> None:
        """Take a relayer's URL; one on a socket that starts on demand is started when asked.

        Raises:
            ConfigError: the URL is malformed, or plain http beyond this machine.
        """
        parsed = check_url(url, allow_insecure=allow_insecure)
        path = parse_socket(url)
        if path is not None:
            check_socket_folder(path)
        self._local = None if path is None else LocalRelayer(path)
        self._waking = threading.Lock()
        self._url = parsed
        self._prefix = parsed.raw_path.rstrip(b"/")
        with explain_connection_settings():
            self._http = httpx.Client(
                transport=socket_transport(path),
                verify=certificates_for(parsed),
                trust_env=not is_loopback(parsed.host),
                timeout=httpx.Timeout(_READ_S, connect=5.0),
            )
        refuse_cookies(self._http)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @contextmanager
    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Iterator[httpx.Response]:
        """Yield the answer to a request, whose target is sent byte by byte as it was signed.

        Raises:
            TransportError: the relayer was not reached; NotStarted: nor could it be started.
        """
        request = self._http.build_request(
            method,
            self._url,
            headers={"accept-encoding": "identity", **headers},
            content=body or None,
            extensions={"target": self._prefix + target.encode("latin-1")},
        )
        try:
            answer = self._send_awake(request)
        except httpx.HTTPError as error:
            raise make_transport_error(error, "The relayer") from error
        try:
            yield answer
        finally:
            answer.close()

    def _send_awake(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            if self._local is None or not is_refused(error):
                raise
            with self._waking:
                self._local.start(timeout_s=_WAKE_S)
        return self._http.send(request, stream=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: "_Listener"
    protocol_version = "HTTP/1.1"
    timeout = 120.0  # seconds of silence

    def version_string(self) -> str:
        return "memrelay"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the browser went away
            self.close_connection = True

    def do_GET(self) -> None:
        if not self._is_of_this_machine():
            return self._refuse(HTTPStatus.FORBIDDEN, "This name is not this machine's.")
        path = self.path.partition("?")[0]
        if path.startswith(_ROUTES):
            return self._forward()
        if path in {"/", "/console/"}:
            return self._answer(HTTPStatus.PERMANENT_REDIRECT, {"location": "/console"})
        name = PAGE if path == "/console" else path.removeprefix("/console/")
        body = self.server.files.by_name.get(name)
        if body is None or (name == PAGE and path != "/console"):
            return self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        media_type = _MEDIA_TYPES[Path(name).suffix]
        return self._answer(HTTPStatus.OK, {"content-type": media_type}, body)

    def do_POST(self) -> None:
        if not self._is_of_this_machine():
            return self._refuse(HTTPStatus.FORBIDDEN, "This name is not this machine's.")
        if not self.path.startswith(_ROUTES):
            return self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        return self._forward()

    do_PATCH = do_PUT = do_DELETE = do_POST

    def _is_of_this_machine(self) -> bool:
        host = self.headers.get("host", "")
        return host in self.server.hosts

    def _is_of_the_page(self) -> bool:
        site, origin = self.headers.get("sec-fetch-site"), self.headers.get("origin")
        if origin is not None and origin != f"http://{self.headers.get('host')}":
            return False
        return site in {None, "same-origin"}

    def _forward(self) -> None:
        if not self._is_of_the_page():
            return self._refuse(HTTPStatus.FORBIDDEN, "Only the console asks here.")
        size = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not (size.isascii() and size.isdecimal()):
            return self._refuse(HTTPStatus.LENGTH_REQUIRED, "Say how long the body is.")
        if len(size) > 9 or int(size) > BODY_BYTES_MAX:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too long.")
        body = self.rfile.read(int(size))
        sent = {name: value for name, value in self.headers.items() if name.lower() in _SENT_ON}
        try:
            with self.server.forwarding.send(self.command, self.path, sent, body) as answer:
                self._send_back(answer)
        except TransportError as error:
            self._refuse(HTTPStatus.BAD_GATEWAY, str(error))
        except MemrelayError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _send_back(self, answer: httpx.Response) -> None:
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() in _SENT_BACK:
                self.send_header(name, value)
        self._send_own_headers()
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in answer.iter_raw():
            if part:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # a body may not have been read
        self._answer(status, {"content-type": "text/plain; charset=utf-8"}, f"{message}\n".encode())

    def _answer(self, status: HTTPStatus, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        self._send_own_headers()
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_own_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("connection", "close")


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, family: socket.AddressFamily, place: tuple[str, int], forwarding: Forwarding
    ) -> None:
        self.address_family = family
        self.forwarding = forwarding
        self.files = Files({}, "")
        self.hosts: frozenset[str] = frozenset()
        super().__init__(place, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke."""


@contextmanager
def serve(files: Files, forwarding: Forwarding, port: int) -> Iterator[int]:
    """Serve on both loopback addresses of a port (0: any) within the context; yield the port.

    Both, since `localhost` may mean either, and on one that is free somebody else could listen.

    Raises:
        ConfigError: another program listens there.
    """
    with ExitStack() as stack:
        listeners: list[_Listener] = []
        for family, address in _FAMILIES:
            listener = _listen(family, address, port, forwarding)
            if listener is None:
                continue
            stack.callback(listener.server_close)
            listeners.append(listener)
            port = listener.server_address[1]
        names = ("localhost", "127.0.0.1", "[::1]")
        for listener in listeners:
            listener.files = files
            listener.hosts = frozenset(f"{name}:{port}" for name in names)
            thread = threading.Thread(target=listener.serve_forever, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown)
        yield port


def _listen(
    family: socket.AddressFamily, address: str, port: int, forwarding: Forwarding
) -> _Listener | None:
    """Return what listens at an address, None if this machine has no such addresses."""
    try:
        return _Listener(family, (address, port), forwarding)
    except OSError as error:
        if family == socket.AF_INET6 and error.errno not in _TAKEN:
            return None
        raise ConfigError(
            f"The console cannot listen on port {port}: {error.strerror}. Choose another one with"
            " --port."
        ) from error
    except OverflowError:
        raise ConfigError("A port is from 0 to 65535.") from None
