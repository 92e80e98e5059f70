"""The unlock header: namespace keys on their way to a relayer's memory, and nowhere else.

It does not own which keys a request needs (`session.py`). Reading a header is the relayer's part;
it is here so that this package alone can check every step of the format.

- A root never goes into a header.
- The boxes are made from the sender's key, so nobody else can plant keys in a request.

Source: SPEC.md §6.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.keys import (
    Identity,
    NamespaceKey,
    account_bytes,
    account_text,
    check_epoch,
    exact,
    exchange_public,
    hash_256,
    hex_bytes,
    normalise_namespace,
)
from memrelay.sealed.objects import from_base64, integer, read_json, text_of, to_base64, write_json

HEADER_CHARS_MAX = 6 * 1024
BOXES_MAX = 8
KEYS_MAX = 64
HOLD_S_MAX = 300
SKEW_MS_MAX = 300_000
REUSE_MS_MAX = 240_000

_VERSION = b"\x01"
_KID_BYTES, _NONCE_BYTES, _BOX_BYTES, _TAG_BYTES = 8, 24, 48, 16
_ENTRY_BYTES = _KID_BYTES + _NONCE_BYTES + _BOX_BYTES
_MEMBERS = ("v", "relayer", "account", "sender", "iat", "hold", "keys")


@dataclass(frozen=True, slots=True)
class Unlock:
    """The payload of a header; `keys` are of the sender's namespaces."""

    relayer: bytes
    account: bytes
    sender: bytes
    issued_ms: int
    hold_s: int
    keys: tuple[NamespaceKey, ...]


def build_unlock(
    sender: Identity,
    unlock: Unlock,
    unlock_keys: Sequence[bytes],
    *,
    content_key: bytes | None = None,
    box_nonces: Sequence[bytes] | None = None,
    nonce: bytes | None = None,
) -> str:
    """Return the header that gives `unlock` to the holders of `unlock_keys`.

    The last three arguments are random unless a test vector fixes them.

    Raises:
        Invalid: `size`, when there are too many keys for one header; `unlock_key` for a bad one.
    """
    if not 1 <= len(unlock_keys) <= BOXES_MAX or not 1 <= len(unlock.keys) <= KEYS_MAX:
        raise Invalid("size", "A header has 1 to 8 boxes and 1 to 64 keys.")
    content_key = exact(content_key or os.urandom(32), 32, "content key")
    nonces = list(box_nonces or (os.urandom(_NONCE_BYTES) for _ in unlock_keys))
    head = _VERSION + bytes([len(unlock_keys)])
    for public, box_nonce in zip(unlock_keys, nonces, strict=True):
        head += _box(sender, public, box_nonce, content_key)
    nonce = exact(nonce or os.urandom(_NONCE_BYTES), _NONCE_BYTES, "nonce")
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        _payload(unlock), head, nonce, content_key
    )
    header = base64.urlsafe_b64encode(head + nonce + sealed).decode().rstrip("=")
    if len(header) > HEADER_CHARS_MAX:
        raise Invalid("size", "The request needs the keys of too many namespaces at once.")
    return header


def _box(sender: Identity, public: bytes, nonce: bytes, content_key: bytes) -> bytes:
    exact(public, 32, "unlock key")
    try:
        shared = bindings.crypto_box_beforenm(public, sender.exchange_secret)
    except (CryptoError, RuntimeError) as error:
        raise Invalid("unlock_key", "The relayer's unlock key is not usable.") from error
    nonce = exact(nonce, _NONCE_BYTES, "nonce")
    box = bindings.crypto_box_easy_afternm(content_key, nonce, shared)
    return hash_256(public)[:_KID_BYTES] + nonce + box


def _payload(unlock: Unlock) -> bytes:
    keys = [{"ns": key.name, "epoch": key.epoch, "key": to_base64(key.key)} for key in unlock.keys]
    return write_json(
        {
            "v": 1,
            "relayer": unlock.relayer.hex(),
            "account": account_text(unlock.account),
            "sender": unlock.sender.hex(),
            "iat": unlock.issued_ms,
            "hold": unlock.hold_s,
            "keys": keys,
        }
    )


def open_unlock(
    header: str,
    *,
    unlock_secrets: Mapping[bytes, bytes],
    relayer: bytes,
    account: bytes,
    sender: bytes,
    now_ms: int,
) -> Unlock:
    """Return what a header holds, as a relayer with these secrets (X25519, by kid) sees it.

    Raises:
        Invalid: `unlock_key_unknown`, when no box is for a known kid, else `unlock_rejected`.
    """
    try:
        data, boxes = _parse(header)
        known = [entry for entry in boxes if entry[:_KID_BYTES] in unlock_secrets]
        if not known:
            raise Invalid("unlock_key_unknown", "No box is for a live unlock key.")
        content_key = _open_box(known[0], unlock_secrets, sender)
        unlock = _open_payload(data, 2 + _ENTRY_BYTES * len(boxes), content_key)
        if (unlock.relayer, unlock.account, unlock.sender) != (relayer, account, sender):
            raise Invalid("sender", "The header is for another relayer, account or sender.")
        if abs(now_ms - unlock.issued_ms) > SKEW_MS_MAX:
            raise Invalid("stale", "The header is too old or from the future.")
    except Invalid as error:
        if error.code == "unlock_key_unknown":
            raise
        raise Invalid("unlock_rejected", str(error)) from error
    return unlock


def _parse(header: str) -> tuple[bytes, list[bytes]]:
    if len(header) > HEADER_CHARS_MAX or not header.isascii() or "=" in header:
        raise Invalid("size", "The header is too long or not base64url.")
    try:
        padded = header + "=" * (-len(header) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("base64", "The header is not base64url.") from error
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != header:
        raise Invalid("base64", "The header is not canonical base64url.")
    count = data[1] if len(data) >= 2 else 0
    if data[:1] != _VERSION or not 1 <= count <= BOXES_MAX:
        raise Invalid("version", "The header has another version, or no or too many boxes.")
    if len(data) < 2 + _ENTRY_BYTES * count + _NONCE_BYTES + _TAG_BYTES:
        raise Invalid("size", "The header is cut short.")
    starts = (2 + _ENTRY_BYTES * position for position in range(count))
    return data, [data[start : start + _ENTRY_BYTES] for start in starts]


def _open_box(entry: bytes, secrets: Mapping[bytes, bytes], sender: bytes) -> bytes:
    kid, nonce = entry[:_KID_BYTES], entry[_KID_BYTES : _KID_BYTES + _NONCE_BYTES]
    secret = exact(secrets[kid], 32, "unlock secret")
    try:
        shared = bindings.crypto_box_beforenm(exchange_public(sender), secret)
        return bindings.crypto_box_open_easy_afternm(entry[-_BOX_BYTES:], nonce, shared)
    except (CryptoError, RuntimeError) as error:
        raise Invalid("box", "The header's box does not open.") from error


def _open_payload(data: bytes, at: int, content_key: bytes) -> Unlock:
    nonce, sealed = data[at : at + _NONCE_BYTES], data[at + _NONCE_BYTES :]
    try:
        payload = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, data[:at], nonce, content_key
        )
    except (CryptoError, RuntimeError) as error:
        raise Invalid("aead", "The header's payload does not open.") from error
    value = read_json(payload, _MEMBERS)
    keys, hold_s = value["keys"], integer(value["hold"])
    if integer(value["v"]) != 1 or hold_s > HOLD_S_MAX:
        raise Invalid("hold", "The header has another version or holds its keys too long.")
    if not isinstance(keys, list) or not 1 <= len(keys) <= KEYS_MAX:
        raise Invalid("keys", "A header has 1 to 64 keys.")
    opened = tuple(_read_key(entry) for entry in keys)
    if len({(key.name, key.epoch) for key in opened}) != len(opened):
        raise Invalid("keys", "A header has one key for a namespace and epoch.")
    return Unlock(
        relayer=hex_bytes(value["relayer"], 32, "public key"),
        account=account_bytes(value["account"]),
        sender=hex_bytes(value["sender"], 32, "public key"),
        issued_ms=integer(value["iat"]),
        hold_s=hold_s,
        keys=opened,
    )


def _read_key(entry: object) -> NamespaceKey:
    if not isinstance(entry, dict) or set(entry) != {"ns", "epoch", "key"}:
        raise Invalid("members", "A key has the members ns, epoch and key.")
    name = text_of(entry["ns"])
    if normalise_namespace(name) != name:
        raise Invalid("namespace", "A header names namespaces in their normal form.")
    return NamespaceKey(from_base64(entry["key"], "key"), check_epoch(entry["epoch"]), name)
