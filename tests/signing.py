"""Signed requests as any client would make them, and ways to make them wrong.

Independent of the client package on purpose: what is tested is the server's reading of SPEC §5.
"""

import hashlib
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol

import httpx
from litestar.types import ASGIApp

from relayer.sealed.keys import Identity, account_text
from relayer.upkeep.provision import NewKey
from tests.described import DescribedTransport

BASE_URL = "http://127.0.0.1:8000"


@dataclass(kw_only=True)
class Signer(httpx.Auth):
    """Signs each request; `headers` are added or, where None, left out after signing."""

    requires_request_body = True
    identity: Identity
    account: str = ""
    prefix: str = ""
    skew_s: int = 0
    headers: dict[str, str | None] = field(default_factory=dict)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        target = request.url.raw_path.decode("ascii").removeprefix(self.prefix)
        signed = signed_headers(
            self.identity,
            request.method,
            target,
            request.content,
            account=self.account,
            timestamp_s=int(time.time()) + self.skew_s,
        )
        for name, value in (signed | self.headers).items():
            if value is None:
                request.headers.pop(name, None)
            else:
                request.headers[name] = value
        yield request


class SigningKey(Protocol):
    """An identity of the relayer's own kind or of the client's."""

    @property
    def public_key(self) -> bytes: ...

    def sign(self, data: bytes, /) -> bytes: ...


def signed_headers(
    identity: SigningKey,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    account: str = "",
    timestamp_s: int | None = None,
    nonce: str | None = None,
) -> dict[str, str]:
    """The headers of one signed request. Source: SPEC §5."""
    timestamp = int(time.time()) if timestamp_s is None else timestamp_s
    nonce = nonce or str(uuid.uuid4())
    digest = hashlib.sha256(body).hexdigest()
    text = f"{timestamp}.{method}.{target}.{digest}.{nonce}.{account}"
    return {
        "x-public-key": identity.public_key.hex(),
        "x-signature": identity.sign(text.encode()).hex(),
        "x-timestamp": str(timestamp),
        "x-nonce": nonce,
        "x-account-id": account,
    }


def client_of(app: ASGIApp, auth: httpx.Auth | None = None) -> httpx.AsyncClient:
    """A client of an application in this process, as if it came from the same machine; what it is
    answered is as the OpenAPI document says."""
    return httpx.AsyncClient(
        transport=DescribedTransport(app), base_url=BASE_URL, auth=auth, timeout=30
    )


def signer_of(key: NewKey) -> Signer:
    """A signer for a provisioned key."""
    return Signer(identity=key.identity, account=account_text(key.account))


def well_formed() -> dict[str, str]:
    """Headers of a request that somebody may have signed: the signature is found wrong later."""
    return {
        "x-public-key": "ab" * 32,
        "x-signature": "cd" * 64,
        "x-timestamp": str(int(time.time())),
        "x-nonce": str(uuid.uuid4()),
    }
