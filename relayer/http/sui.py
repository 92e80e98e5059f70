"""The answers of a blockchain that MemWal's clients need: a package and a signed session.

Not here: MemWal's routes (`memwal.py`). Pure: bytes in, bytes out.

- The session header carries an ephemeral *private* key: nothing of it is logged, stored or echoed.
"""

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal, NotRequired, TypedDict

from nacl import bindings

from relayer.sealed.keys import PublicKey
from relayer.sealed.primitives import CryptoError, verify_signature

PACKAGE_ID: Final = "0x" + hashlib.blake2b(b"memrelay", digest_size=32).hexdigest()
SESSION_CHARACTERS_MAX: Final = 4 * 1024
_DIGEST: Final = "1" * 32
_OBJECT_ID: Final = re.compile(r"0x[0-9a-fA-F]{1,64}")
_SUI_KEY: Final = re.compile(r"suiprivkey1[0-9a-z]{50,70}")
_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_TTL_MINUTES: Final = 5
_SKEW_MS: Final = 300_000


class RpcError(TypedDict):
    """The reason why a call has no result."""

    code: int
    message: str


class JsonRpcAnswer(TypedDict):
    """A JSON-RPC 2.0 answer: the result of a call, or an error."""

    jsonrpc: Literal["2.0"]
    id: Any
    result: NotRequired[Any]
    error: NotRequired[RpcError]


def json_rpc(request: Any) -> JsonRpcAnswer:
    """Return the JSON-RPC answer that says "this package object has version 1"."""
    if not isinstance(request, dict):
        return _rpc_error(None, -32600, "invalid request")
    call_id, params = request.get("id"), request.get("params")
    first = params[0] if isinstance(params, list) and params else None
    match request.get("method"):
        case "sui_getObject" if isinstance(first, str) and _OBJECT_ID.fullmatch(first):
            return _rpc_result(call_id, {"data": _package(first)})
        case "sui_multiGetObjects" if isinstance(first, list) and len(first) <= 50:
            ids = [i for i in first if isinstance(i, str) and _OBJECT_ID.fullmatch(i)]
            return _rpc_result(call_id, [{"data": _package(i)} for i in ids])
        case _:
            return _rpc_error(call_id, -32601, "method not found")


def _package(object_id: str) -> dict[str, str]:
    return {
        "objectId": object_id,
        "version": "1",
        "digest": _DIGEST,
        "type": "package",
        "owner": "Immutable",
    }


def _rpc_result(call_id: Any, result: Any) -> JsonRpcAnswer:
    return {"jsonrpc": "2.0", "id": call_id, "result": result}


def _rpc_error(call_id: Any, code: int, message: str) -> JsonRpcAnswer:
    return {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}


def grpc_web_objects(body: bytes) -> bytes:
    """Return the base64 gRPC-web answer of `BatchGetObjects`: whatever is asked is a package."""
    try:
        asked = base64.b64decode(body, validate=True).decode("latin-1")
    except ValueError:
        asked = ""
    ids = [found[0] for found in islice(_OBJECT_ID.finditer(asked), 50)] or [PACKAGE_ID]
    results = b"".join(_field(1, _field(1, _grpc_object(i))) for i in ids)
    trailer = b"grpc-status: 0\r\n"
    return base64.b64encode(_frame(0x00, results) + _frame(0x80, trailer))


def _grpc_object(object_id: str) -> bytes:
    version = b"\x18\x01"  # field 3, varint 1
    return (
        _field(2, object_id.encode())
        + version
        + _field(4, _DIGEST.encode())
        + _field(6, b"package")
    )


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _uleb128(len(value)) + value


def _frame(flag: int, message: bytes) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def _uleb128(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def verify_session(header: str, public_key: PublicKey, now_ms: int) -> None:
    """Return when an `x-seal-session` header is a live session signed by the request's own key.

    Raises:
        CryptoError: malformed, expired, of another key or package, or badly signed.
    """
    session = _session(header)
    created_ms, ttl = session.get("creationTimeMs"), session.get("ttlMin")
    if not isinstance(created_ms, int) or isinstance(created_ms, bool) or ttl != _TTL_MINUTES:
        raise CryptoError("malformed session")
    if not created_ms - _SKEW_MS <= now_ms <= created_ms + _TTL_MINUTES * 60_000 + _SKEW_MS:
        raise CryptoError("expired session")
    if session.get("packageId") != PACKAGE_ID:
        raise CryptoError("session of another package")
    address = "0x" + hashlib.blake2b(b"\0" + public_key, digest_size=32).hexdigest()
    signed = _b64(session.get("personalMessageSignature"))
    if session.get("address") != address or len(signed) != 97 or signed[0] != 0:
        raise CryptoError("session of another key")
    if signed[65:] != public_key:
        raise CryptoError("session of another key")
    message = _personal_message(_session_public_key(session.get("sessionKey")), created_ms)
    verify_signature(public_key, message, signed[1:65])


def _session(header: str) -> dict[str, Any]:
    if len(header) > SESSION_CHARACTERS_MAX:
        raise CryptoError("malformed session")
    try:
        session = json.loads(_b64(header))
    except (ValueError, RecursionError):
        raise CryptoError("malformed session") from None
    if not isinstance(session, dict):
        raise CryptoError("malformed session")
    return session


def _b64(value: object) -> bytes:
    if not isinstance(value, str):
        raise CryptoError("malformed session")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise CryptoError("malformed session") from None


def _personal_message(session_public_key: bytes, created_ms: int) -> bytes:
    """Return the digest that a Sui wallet signs: blake2b-256 of intent, length and text."""
    created = datetime.fromtimestamp(created_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = (
        f"Accessing keys of package {PACKAGE_ID} for {_TTL_MINUTES} mins from {created} UTC, "
        f"session key {base64.b64encode(session_public_key).decode()}"
    ).encode()
    return hashlib.blake2b(b"\x03\x00\x00" + _uleb128(len(text)) + text, digest_size=32).digest()


def _session_public_key(value: object) -> bytes:
    """Return the public key of a session's ephemeral Ed25519 key, named by its private one."""
    if not isinstance(value, str) or not _SUI_KEY.fullmatch(value):
        raise CryptoError("malformed session")
    raw = _bech32_bytes(value.removeprefix("suiprivkey1"))
    if len(raw) != 33 or raw[0] != 0:
        raise CryptoError("malformed session")
    return bindings.crypto_sign_seed_keypair(raw[1:])[0]


def _bech32_bytes(data: str) -> bytes:
    """Return the bytes before a bech32 checksum, which the signature makes redundant."""
    try:
        values = [_BECH32.index(c) for c in data[:-6]]
    except ValueError:
        raise CryptoError("malformed session") from None
    bits = int("".join(f"{v:05b}" for v in values) or "0", 2)
    extra = len(values) * 5 % 8
    return (bits >> extra).to_bytes(len(values) * 5 // 8, "big")
