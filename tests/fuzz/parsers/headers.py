"""The headers of a request: the signing ones, and MemWal's session.

Not here: the unlock header (`sealed.py`).
"""

import base64
import hashlib
import json
from collections.abc import Iterator

from relayer.clock import from_ms
from relayer.errors import NotAuthenticated, UpgradeRequired
from relayer.http import checks, sui
from relayer.sealed.keys import Identity
from relayer.sealed.primitives import CryptoError
from tests.fuzz.loop import Parser
from tests.signing import signed_headers

IDENTITY = Identity(bytes(range(32)))
NOW_S = 1_780_000_000
TARGET = "/v1/recall?namespace=team"
SIGNING = ("x-public-key", "x-signature", "x-timestamp", "x-nonce", "x-account-id")
WORDS = (
    *(b"x-nonce: ", b"x-public-key: ", b"x-signature: ", b"x-timestamp: ", b"x-account-id: "),
    *(b"X-Nonce: ", b"x-seal-session: ", b"0x", b"\n", b"00000000-0000-4000-8000-000000000000"),
)


def _headers(data: bytes) -> None:
    """Lines of names and values, then an empty one and the body."""
    head, _, body = data.partition(b"\n\n")
    pairs = [(name, value) for name, _, value in (li.partition(b": ") for li in head.split(b"\n"))]
    try:
        request = checks.parse_headers(pairs)
        checks.check_clock(request, from_ms(1000 * NOW_S))
        checks.check_signature(request, request.message("POST", TARGET, body))
    except (NotAuthenticated, UpgradeRequired):
        return
    # Nobody reads another request here: each header stands there once, and is what was signed.
    names = [name.lower() for name, _ in pairs]
    assert all(names.count(name.encode()) <= 1 for name in SIGNING)
    signed = signed_headers(
        IDENTITY,
        "POST",
        TARGET,
        body,
        account="" if request.account is None else "0x" + request.account.hex(),
        timestamp_s=request.timestamp_s,
        nonce=request.nonce_text,
    )
    assert signed["x-signature"] == request.signature.hex()


def _header_seeds() -> Iterator[bytes]:
    for account in ("", "0x" + "ab" * 32):
        for body in (b"", b'{"query":"tea"}'):
            signed = signed_headers(
                IDENTITY, "POST", TARGET, body, account=account, timestamp_s=NOW_S,
                nonce="4f8c2e1a-9b7d-4c3e-8f6a-0123456789ab",
            )  # fmt: skip
            lines = "\n".join(f"{name}: {value}" for name, value in signed.items())
            yield lines.encode() + b"\n\n" + body


PARSER = Parser((checks,), _header_seeds, _headers, WORDS)


def _session(data: bytes) -> None:
    """A session's JSON, in base64 as it is sent, or behind a zero byte to be put into it."""
    header = base64.b64encode(data[1:]) if data[:1] == b"\x00" else data
    try:
        sui.verify_session(header.decode("latin-1"), IDENTITY.public_key, 1000 * NOW_S)
    except CryptoError:
        return
    raise AssertionError("a session that nobody signed was believed")


def _session_seeds() -> Iterator[bytes]:
    signature = base64.b64encode(bytes(65) + IDENTITY.public_key).decode()
    session = {
        "creationTimeMs": 1000 * NOW_S,
        "ttlMin": 5,
        "packageId": sui.PACKAGE_ID,
        "address": "0x" + hashlib.blake2b(b"\0" + IDENTITY.public_key, digest_size=32).hexdigest(),
        "personalMessageSignature": signature,
        "sessionKey": "suiprivkey1" + "q" * 60,
    }
    yield b"\x00" + json.dumps(session).encode()
    yield (
        b"\x00"
        + json.dumps(session | {"sessionKey": base64.b64encode(bytes(33)).decode()}).encode()
    )
    yield base64.b64encode(json.dumps(session).encode())


SESSION = Parser((sui,), _session_seeds, _session, (b"suiprivkey1", b'"ttlMin":', b"null", b"true"))
