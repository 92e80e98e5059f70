"""Signed objects: strict JSON and a signature over its very bytes. Source: SPEC §4.

Not here: what the members mean (`grants`, `receipts`).

- Nothing of a payload counts before its signature holds: what is read of it earlier only finds the
  key to verify it with.
- Payload bytes are stored and forwarded as they came, never serialised again.
"""

import json
import re
import uuid
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NoReturn

from relayer.sealed.keys import Identity, PublicKey, parse_public_key
from relayer.sealed.primitives import SIGNATURE_BYTES, CryptoError, verify_signature

PAYLOAD_BYTES_MAX: Final = 64 * 1024
_DEPTH_MAX: Final = 6
INTEGER_MAX: Final = 2**53 - 1
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # to the end, if it has none
_OPENING: Final = b"[{"
_CLOSING: Final = b"]}"
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _OPENING + _CLOSING)
_STEPS: Final = dict.fromkeys(_OPENING, 1) | dict.fromkeys(_CLOSING, -1)


def signed_message(kind: str, payload: bytes) -> bytes:
    """Return the bytes to sign; a request begins with a digit, so it can be no signed object."""
    return b"memrelay/" + kind.encode() + b"/v1\0" + payload


def sign_object(identity: Identity, kind: str, members: dict[str, Any]) -> bytes:
    """Return `payload ‖ signature` for members given without `v`."""
    payload = json.dumps({"v": 1, **members}, separators=(",", ":"), ensure_ascii=False).encode()
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise CryptoError("the object is too large")
    return payload + identity.sign(signed_message(kind, payload))


def open_object(
    signed: bytes, kind: str, signer: PublicKey, members: frozenset[str]
) -> dict[str, Any]:
    """Return the members of a signed object, `v` checked and removed.

    Raises:
        CryptoError: bad signature, not strict JSON, other members than `members`.
    """
    _verify(signed, kind, signer)
    return strict_object(signed[:-SIGNATURE_BYTES], members)


def open_claimed(
    signed: bytes, claims: dict[str, Any], kind: str, members: frozenset[str]
) -> tuple[PublicKey, dict[str, Any]]:
    """Return the issuer that an object names and is signed by, and the object's members.

    They are as `open_object` has them.

    `claims` is what `claims_of` read of the same object, so that it is parsed once only.

    Raises:
        CryptoError: bad signature, other members than `members`.
    """
    issuer = parse_public_key(_read_claim(claims, "issuer"))
    _verify(signed, kind, issuer)
    return issuer, _exactly(claims, members)


def _verify(signed: bytes, kind: str, signer: PublicKey) -> None:
    if not SIGNATURE_BYTES < len(signed) <= PAYLOAD_BYTES_MAX + SIGNATURE_BYTES:
        raise CryptoError("bad object length")
    payload, signature = signed[:-SIGNATURE_BYTES], signed[-SIGNATURE_BYTES:]
    verify_signature(signer, signed_message(kind, payload), signature)


def claims_of(signed: bytes) -> dict[str, Any]:
    """Return the members of a still *unverified* object, `v` too: only for telling what it may be.

    Raises:
        CryptoError: not strict JSON.
    """
    return strict_json(signed[:-SIGNATURE_BYTES])


def claimed(signed: bytes, member: str) -> str:
    """Return a text member of a still *unverified* object, to find the key to verify it with.

    Raises:
        CryptoError: not JSON or no such text member.
    """
    return _read_claim(claims_of(signed), member)


def _read_claim(claims: dict[str, Any], member: str) -> str:
    value = claims.get(member)
    if not isinstance(value, str):
        raise CryptoError("malformed object")
    return value


def signer_among(signed: bytes, relayers: Sequence[PublicKey]) -> PublicKey:
    """Return the one of these keys that an object, still *unverified*, says it is signed by.

    Raises:
        CryptoError: none of them.
    """
    relayer = parse_public_key(claimed(signed, "relayer"))
    if relayer not in relayers:
        raise CryptoError("another relayer's object")
    return relayer


def strict_object(payload: bytes, members: frozenset[str]) -> dict[str, Any]:
    """Return strict JSON of version 1 with exactly these members, `v` removed.

    Raises:
        CryptoError: anything else.
    """
    return _exactly(strict_json(payload), members)


def _exactly(parsed: dict[str, Any], members: frozenset[str]) -> dict[str, Any]:
    rest = dict(parsed)
    version = rest.pop("v", None)
    if version != 1 or isinstance(version, bool):
        raise CryptoError("unknown version")
    if rest.keys() != members:
        raise CryptoError("missing or unknown members")
    return rest


def strict_json(payload: bytes) -> dict[str, Any]:
    """Return a JSON object under the rules of SPEC §2.

    Raises:
        CryptoError: duplicate keys, floats, NaN, large integers, depth, size, not UTF-8 or escapes
            that UTF-8 cannot hold.
    """
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise CryptoError("too large")
    if _bracket_depth(payload) > _DEPTH_MAX:
        raise CryptoError("nested too deeply")
    try:
        parsed = json.loads(
            payload.decode(),
            object_pairs_hook=_unique,
            parse_float=_refuse,
            parse_constant=_refuse,
            parse_int=_integer,
        )
        # An escaped lone surrogate parses, and would fail later wherever text becomes bytes.
        json.dumps(parsed, ensure_ascii=False).encode()
    except ValueError:
        raise CryptoError("not strict JSON") from None
    if not isinstance(parsed, dict):
        raise CryptoError("not an object")
    return parsed


def text_member(value: Any) -> str:
    """Return a member that is text.

    Raises:
        CryptoError: it is not.
    """
    if not isinstance(value, str):
        raise CryptoError("a member has the wrong type")
    return value


def integer_member(value: Any, *, low: int, high: int = INTEGER_MAX) -> int:
    """Return a member that is a whole number from `low` to `high`.

    Raises:
        CryptoError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise CryptoError("a member is out of range")
    return value


def uuid_member(value: Any) -> uuid.UUID:
    """Return a member that is a lower-case UUID with hyphens.

    Raises:
        CryptoError: it is not.
    """
    text = text_member(value)
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        raise CryptoError("bad UUID") from None
    if str(parsed) != text:
        raise CryptoError("a UUID is lower-case with hyphens")
    return parsed


def _bracket_depth(payload: bytes) -> int:
    """Return the nesting depth, measured before parsing so that a bomb never reaches the parser."""
    brackets = _TEXT.sub(b"", payload).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _refuse(_: str) -> NoReturn:
    raise ValueError("not an integer")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(value := int(text)) > INTEGER_MAX:
        raise ValueError("integer out of range")
    return value
