"""The console's built files: a page that shows people their memory, and what the page loads.

Not here: what they do (`client/console/`), which requests are for them (`pages.py`).

- They are the same for everybody and hold nothing of any account: the page asks the same routes as
  every client, with a key that stays in the browser.
- The page pins its script and its style by their hashes. Their names hold a hash, too, so a cache
  may keep them; the page itself is asked for each time.
- A relayer that was set up without Node has none of them, and says so.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from litestar.types import Scope

from relayer.http.requests import header

FOLDER: Final = Path(__file__).parent / "console-files"
PAGE: Final = "index.html"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_MEDIA_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_HEADERS: Final = {
    b"content-security-policy": POLICY.encode(),
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"publickey-credentials-get=(self), publickey-credentials-create=(self),"
    b" camera=(), geolocation=(), microphone=()",
}
_ASK_EACH_TIME: Final = b"no-cache"
_KEEP: Final = b"public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Answer:
    """A file as it is answered; `own` stands in place of the headers that every answer has."""

    status: int
    headers: list[tuple[bytes, bytes]]
    own: Mapping[bytes, bytes]
    body: bytes


@dataclass(frozen=True)
class _File:
    body: bytes
    packed: bytes
    media_type: bytes
    etag: str
    caching: bytes


class Console:
    """The files of a folder, read when the first of them is asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or FOLDER

    def answer(self, name: str, scope: Scope) -> Answer | None:
        """Return a file as a request takes it, None if there is none of that name."""
        file = self._files.get(name)
        if file is None:
            return None
        own = _HEADERS | {b"cache-control": file.caching}
        headers = [(b"etag", file.etag.encode()), (b"vary", b"accept, accept-encoding")]
        if file.etag in _listed(header(scope, b"if-none-match")):
            return Answer(304, headers, own, b"")
        is_packed = "gzip" in _listed(header(scope, b"accept-encoding"))
        body = file.packed if is_packed else file.body
        headers += [(b"content-encoding", b"gzip")] if is_packed else []
        headers += [
            (b"content-type", file.media_type),
            (b"content-length", b"%d" % len(body)),
        ]
        return Answer(200, headers, own, body)

    @cached_property
    def _files(self) -> dict[str, _File]:
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return {path.name: _read(path) for path in found if path.suffix in _MEDIA_TYPES}


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(
        body=body,
        packed=gzip.compress(body, mtime=0),
        media_type=_MEDIA_TYPES[path.suffix],
        etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        caching=_ASK_EACH_TIME if path.name == PAGE else _KEEP,
    )


def _listed(value: str | None) -> set[str]:
    """Return what a header lists, without weights: `W/` before a tag, `;q=` behind a coding."""
    parts = (value or "").split(",")
    refused = {";q=0", ";q=0.0", ";q=0.00", ";q=0.000"}
    tidy = (part.strip().replace(" ", "").removeprefix("W/") for part in parts)
    return {part.partition(";")[0] for part in tidy if part[part.find(";") :] not in refused}
