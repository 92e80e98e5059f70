"""Strict JSON, signed objects of every kind, and the proof of joining an account.

It does not own what the other kinds mean (`grants.py`, `ledger.py`, `statement.py`, `receipts.py`).

- A signed object is kept as the bytes it came in and never serialised again.
- Nothing of a payload is used before its signature verified, save the member that names the
  signer where the caller has no other way to know whose signature to expect.

Source: SPEC.md §2, §4, §4.2.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nacl import bindings
from nacl.exceptions import BadSignatureError

from memrelay.errors import Invalid
from memrelay.sealed.keys import (
    Identity,
    account_text,
    exact,
    public_key_bytes,
)

SIGNATURE_BYTES = 64
OBJECT_BYTES_MAX = 64 * 1024
JSON_DEPTH_MAX = 6
INTEGER_MAX = 2**53 - 1

# The members of each payload beside `v`, which is always 1.
MEMBERS: Mapping[str, frozenset[str]] = {
    kind: frozenset(members.split())
    for kind, members in {
        "grant": "account grant serial issuer recipient role scope created expires box",
        "revoke": "account serial issuer recipient created",
        "join": "account issuer recipient relayer",
        "relayer": "relayer issued unlock_keys",
        "relayer-next": "relayer next created",
        "receipt": "relayer account seq prev time op actor namespace epoch items serial",
        "state": "relayer account memory revision seq time expires_at state",
        "namespace": "relayer account namespace epoch key_id",
        "archive": "archive account created signer relayer boxes",
        "checkpoint": "relayer account seq head grant_serial time",
    }.items()
}

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

JsonObject = dict[str, Any]


def to_base64(data: bytes) -> str:
    """Return padded standard base64."""
    return base64.b64encode(data).decode()


def from_base64(text: object, what: str) -> bytes:
    """Return the bytes of canonical padded base64.

    Raises:
        Invalid: `base64`, when `text` is anything else.
    """
    try:
        data = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        data = None
    if data is None or to_base64(data) != text:
        raise Invalid("base64", f"A {what} is padded base64.")
    return data


def uuid_text(value: object) -> str:
    """Return `value` if it is a lower-case UUID with hyphens."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise Invalid("uuid", "An id is a lower-case UUID with hyphens.")
    return value


def integer(value: object, *, least: int = 0) -> int:
    """Return `value` if it is a whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Invalid("integer", f"A whole number from {least} is expected.")
    return value


def text_of(value: object) -> str:
    """Return `value` if it is text."""
    if not isinstance(value, str):
        raise Invalid("text", "Text is expected.")
    return value


def list_of(value: object) -> list[Any]:
    """Return `value` if it is a list."""
    if not isinstance(value, list):
        raise Invalid("list", "A list is expected.")
    return value


def write_json(value: Mapping[str, Any]) -> bytes:
    """Return compact UTF-8 JSON in the order of the mapping."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def read_json(data: bytes, members: Iterable[str]) -> JsonObject:
    """Return the object of strict JSON that has exactly these members.

    Raises:
        Invalid: `json`, for any departure from the strict form; `members`, for another set.
    """
    value = _strict(data)
    if set(value) != set(members):
        raise Invalid("members", "The object lacks a member or has one too many.")
    return value


def _strict(data: bytes) -> JsonObject:
    if len(data) > OBJECT_BYTES_MAX:
        raise Invalid("json", "The object is longer than 64 KiB.")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            parse_int=_small_integer,
        )
    except (ValueError, RecursionError) as error:
        raise Invalid("json", "The object is not strict JSON.") from error
    if not isinstance(value, dict):
        raise Invalid("json", "Strict JSON has an object at the top.")
    _check_nesting(value, 1)
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate member")
    return value


def _refuse_number(literal: str) -> float:
    raise ValueError("not a whole number")


def _small_integer(literal: str) -> int:
    # The length comes first: converting a number of 60,000 digits is slow or refused by Python.
    if len(literal) > 17 or abs(int(literal)) > INTEGER_MAX:
        raise ValueError("integer out of range")
    return int(literal)


def _check_nesting(value: object, depth: int) -> None:
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise Invalid("json", "Text in strict JSON is UTF-8.")
        return
    if not isinstance(value, (dict, list)):
        return
    if depth > JSON_DEPTH_MAX:
        raise Invalid("json", "The object is nested too deeply.")
    for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
        _check_nesting(part, depth + 1)


def sign_object(kind: str, payload: Mapping[str, Any], signer: Identity) -> bytes:
    """Return payload and signature; `v` is added in front.

    Raises:
        Invalid: `json`, when the payload is longer than 64 KiB.
    """
    data = write_json({"v": 1, **payload})
    _read(kind, data)
    return data + signer.sign(_make_signed_text(kind, data))


def _read(kind: str, payload: bytes) -> JsonObject:
    return read_json(payload, MEMBERS[kind] | {"v"})


def read_object(kind: str, data: bytes, *, signer: bytes | str) -> JsonObject:
    """Return the payload of a signed object.

    `signer` is the public key, or the name of the payload's own member that holds it: then the
    caller must establish by other means that this key may sign.

    Raises:
        Invalid: `signature`, or what `read_json` raises; `version`, when `v` is not 1.
    """
    payload, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if isinstance(signer, str):
        claimed = _read(kind, payload)
        signer = public_key_bytes(claimed[signer])
    verify_signature(kind, payload, signature, signer)
    value = _read(kind, payload)
    version = value.pop("v")
    if version != 1 or isinstance(version, bool):
        raise Invalid("version", "The object has a version this client does not know.")
    return value


def read_claimed_member(data: bytes, name: str) -> object:
    """Return a member of a signed object that is *not verified yet*: only to choose a key by.

    Raises:
        Invalid: `json`, when it is not strict JSON; `members`, when it lacks the member.
    """
    value = _strict(data[:-SIGNATURE_BYTES])
    if name not in value:
        raise Invalid("members", "The object lacks a member.")
    return value[name]


def verify_signature(kind: str, payload: bytes, signature: bytes, signer: bytes) -> None:
    """Check the signature of a payload of this kind.

    Raises:
        Invalid: `signature`.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise Invalid("signature", "A signed object is longer than its signature.")
    exact(signer, 32, "public key")
    try:
        bindings.crypto_sign_open(signature + _make_signed_text(kind, payload), signer)
    except BadSignatureError as error:
        raise Invalid("signature", "A signature does not verify.") from error


def _make_signed_text(kind: str, payload: bytes) -> bytes:
    return b"memrelay/" + kind.encode() + b"/v1\0" + payload


def sign_join(
    recipient: Identity, *, account: bytes | None, issuer: bytes | None, relayer: bytes
) -> bytes:
    """Return the proof that the holder of `recipient` wants to join an account at a relayer.

    Without an account or issuer it agrees to any.
    """
    payload = join_payload(recipient.public_key, account=account, issuer=issuer, relayer=relayer)
    return sign_object("join", payload, recipient)


def join_payload(
    recipient: bytes, *, account: bytes | None, issuer: bytes | None, relayer: bytes
) -> JsonObject:
    """Return the members of a proof of joining, in the order in which they are signed."""
    return {
        "account": None if account is None else account_text(account),
        "issuer": None if issuer is None else issuer.hex(),
        "recipient": recipient.hex(),
        "relayer": relayer.hex(),
    }
