"""Signed requests: the five headers that prove who asks, for which account, when, and for what.

It does not own retries or unlock keys (`session.py`).

- Every send has a new nonce and time, so a request that is sent again is signed again.
- The signature covers the path as the relayer sees it: without the prefix of a public URL.

Source: SPEC.md §5.
"""

import hashlib
import time
from collections.abc import Callable, Generator
from uuid import uuid4

from memrelay.errors import ConfigError
from memrelay.sealed.keys import Identity
from memrelay.transport import httpx


def make_signed_text(
    *, timestamp_s: int, method: str, target: str, body: bytes, nonce: str, account_id: str
) -> bytes:
    """Return the text that a request's signature covers; `target` is the path and query."""
    digest = hashlib.sha256(body).hexdigest()
    return f"{timestamp_s}.{method}.{target}.{digest}.{nonce}.{account_id}".encode()


class RequestSigner(httpx.Auth):
    """Signs httpx requests with one identity, for one account (empty: the one the key is in).

    `path_prefix` is the path of the relayer's public URL.
    """

    requires_request_body = True

    def __init__(
        self,
        identity: Identity,
        *,
        account_id: str = "",
        path_prefix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._account_id = account_id
        self._path_prefix = path_prefix.rstrip("/")
        self._clock = clock

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign a request and send it once."""
        request.headers.update(self.headers(request.method, request.url, request.content))
        yield request

    def headers(self, method: str, url: httpx.URL, body: bytes) -> dict[str, str]:
        """Return the headers that sign a request, for one send.

        Raises:
            ConfigError: it leaves the path of the relayer's URL.
        """
        timestamp_s, nonce = int(self._clock()), str(uuid4())
        text = make_signed_text(
            timestamp_s=timestamp_s,
            method=method,
            target=self._target(url),
            body=body,
            nonce=nonce,
            account_id=self._account_id,
        )
        headers = {
            "x-public-key": self._identity.public_key.hex(),
            "x-signature": self._identity.sign(text).hex(),
            "x-timestamp": str(timestamp_s),
            "x-nonce": nonce,
        }
        if self._account_id:
            headers["x-account-id"] = self._account_id
        return headers

    def _target(self, url: httpx.URL) -> str:
        path, mark, query = url.raw_path.decode("ascii").partition("?")
        target = path + mark + query if query else path  # no server tells `/a?` from `/a`
        if not self._path_prefix:
            return target
        if not target.startswith(self._path_prefix + "/"):
            raise ConfigError("A request leaves the path of the relayer's URL.")
        return target[len(self._path_prefix) :]
