"""Sealed index records: binding one to another revision without looking into it.

It does not own what is inside, which only relayers read.

Source: SPEC.md §8.1.
"""

import os
import struct
from uuid import UUID

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.envelope import Address
from memrelay.sealed.keys import NamespaceKey, mac

_VERSION = b"\1"
_NONCE_BYTES = 24


def rebind_record(key: NamespaceKey, sealed: bytes, before: Address, after: Address) -> bytes:
    """Return the record of one revision for another one that says the same, under the same key.

    Raises:
        Invalid: `aead`, when it does not open for the first.
    """
    at = len(_VERSION) + _NONCE_BYTES
    try:
        plain = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed[at:],
            _make_associated_data(before),
            sealed[len(_VERSION) : at],
            key.subkey("index-record"),
        )
    except (CryptoError, ValueError, RuntimeError) as error:
        raise Invalid("aead", "A sealed index record does not open.") from error
    nonce = os.urandom(_NONCE_BYTES)
    record = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        plain, _make_associated_data(after), nonce, key.subkey("index-record")
    )
    return _VERSION + nonce + record


def rebind_source(key: NamespaceKey, masked: int | None, before: UUID, after: UUID) -> int | None:
    """Return the masked token of a source as it stands in the row of another memory."""
    if masked is None:
        return None
    return masked ^ _mask(key, before) ^ _mask(key, after)


def _mask(key: NamespaceKey, memory: UUID) -> int:
    digest = mac(8, key.subkey("index"), "source-mask", memory.bytes)
    return int.from_bytes(digest, "big", signed=True)


def _make_associated_data(address: Address) -> bytes:
    return _VERSION + address.account + address.memory.bytes + struct.pack(">I", address.revision)
