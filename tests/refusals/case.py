"""A named request that has to be refused, and how the bytes of such requests are made.

Not here: the cases (a module a group), the relayer and the accounts they are sent to (`world.py`).
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests import reference as ref

if TYPE_CHECKING:
    from tests.refusals.world import World

CANARY = "CANARY"  # no answer may hold it
HTTP = "(http)"  # refused by the HTTP parser, in fixed words
NO_ANSWER = "(none)"  # what came was no whole request, so the connection ends


class Cut(bytes):
    """Bytes behind which the client hangs up."""


@dataclass(frozen=True)
class Script:
    """Requests that have to pass, and then those that must not."""

    passed: Sequence[bytes]
    refused: Sequence[bytes]


Builder = Callable[["World"], bytes | Sequence[bytes] | Script]


@dataclass(frozen=True)
class Case:
    """One defect: every request that `build` makes has it, and is answered the same way."""

    name: str
    route: str
    build: Builder = field(repr=False)
    status: int
    code: str
    says: str = ""  # what the message tells the caller about the place


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A request whose signature is right for what stands here (SPEC §5)."""

    signer: ref.Signer
    method: str = "POST"
    target: str = "/v1/recall"
    body: bytes = b""
    timestamp: str = field(default_factory=lambda: str(int(time.time())))
    nonce: str = field(default_factory=lambda: str(uuid.uuid4()))
    account: str = ""

    @property
    def text(self) -> str:
        """What is signed."""
        digest = hashlib.sha256(self.body).hexdigest()
        parts = (self.timestamp, self.method, self.target, digest, self.nonce, self.account)
        return ".".join(parts)

    @property
    def headers(self) -> dict[str, str]:
        """The five headers."""
        return {
            "x-public-key": self.signer.hex,
            "x-signature": self.signer.sign(self.text.encode()).hex(),
            "x-timestamp": self.timestamp,
            "x-nonce": self.nonce,
            "x-account-id": self.account,
        }

    def sent(
        self,
        *,
        method: str | None = None,
        target: str | None = None,
        body: bytes | None = None,
        lines: Sequence[bytes] = (),
        without: Sequence[str] = (),
        **changes: str,
    ) -> bytes:
        """The bytes of the request, with what is named here changed behind the signature's back.

        `changes` are signing headers by their last words, `lines` whole header lines.
        """
        sent = self.body if body is None else body
        headers = self.headers | {f"x-{k.replace('_', '-')}": v for k, v in changes.items()}
        named = [f"{k}: {v}".encode("latin-1") for k, v in headers.items() if k not in without]
        return message(method or self.method, target or self.target, sent, [*named, *lines])


def message(
    method: str, target: str, body: bytes = b"", lines: Sequence[bytes] = (), *, bare: bool = False
) -> bytes:
    """An HTTP/1.1 request; `bare` leaves out what describes the body."""
    described = [] if bare else [b"content-length: %d" % len(body)]
    if body and not bare and not any(li.lower().startswith(b"content-type") for li in lines):
        described.append(b"content-type: application/json")
    head = [f"{method} {target} HTTP/1.1".encode("latin-1"), b"host: 127.0.0.1"]
    ends = [b"connection: close", b"", b""]
    return b"\r\n".join([*head, *lines, *described, *ends]) + body
