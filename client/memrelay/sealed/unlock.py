"""The unlock header: namespace keys on their way to a relayer's memory, and nowhere else.

It does not own which keys a request needs (`session.py`). Reading a header is the relayer's part.

- A root never goes into a header.
- The boxes are made from the sender's key, so nobody else can plant keys in a request.

Source: SPEC.md §6.
"""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.keys import (
    Identity,
    NamespaceKey,
    account_text,
    exact,
    hash_256,
)
from memrelay.sealed.objects import to_base64, write_json

HEADER_CHARS_MAX = 6 * 1024
BOXES_MAX = 8
KEYS_MAX = 64
REUSE_MS_MAX = 240_000

_VERSION = b"\x01"
_KID_BYTES, _NONCE_BYTES = 8, 24


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
