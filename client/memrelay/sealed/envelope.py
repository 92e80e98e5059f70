"""Envelopes as a client reads them: their header, the record inside, its padding, their name.

It does not own keys (`keys.py`). Sealing is the relayer's part, but for what two relayers' edits
come to (`replication/`).

- Everything that places an envelope (account, memory, revision, epoch, key) is bound into it, so a
  swapped row or an old revision fails to open.

Source: SPEC.md §7.
"""

import base64
import os
import struct
from dataclasses import dataclass
from uuid import UUID

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.keys import NamespaceKey, exact, hash_256

ENVELOPE_BYTES_MIN = 396
MEMORY, EPISODE, SUMMARY = 1, 2, 3

_VERSION, _SUITE = 1, 1
_HEADER = struct.Struct(">BBBBIQ32s16sI32s24s")
_STEP_BYTES_MIN = 256
_NONCE_BYTES = 24


@dataclass(frozen=True, slots=True)
class Address:
    """The address that an envelope is bound to beside its key: type, account and row."""

    type: int
    account: bytes
    memory: UUID
    revision: int


def pad(record: bytes) -> bytes:
    """Return `u32 length ‖ record ‖ zeros`, at most about a tenth longer than the record."""
    length = 4 + len(record)
    power = length.bit_length() - 1
    step = max(_STEP_BYTES_MIN, 1 << (power - power.bit_length()))
    size = -(-length // step) * step
    return (struct.pack(">I", len(record)) + record).ljust(size, b"\0")


def unpad(plaintext: bytes) -> bytes:
    """Return the record inside a padded plaintext.

    Raises:
        Invalid: `padding`, when the length is too great, or the padding is not the zeros due to it.
    """
    length = int.from_bytes(plaintext[:4], "big")
    record = plaintext[4 : 4 + length]
    if len(record) != length or pad(record) != plaintext:
        raise Invalid("padding", "An envelope's padding is damaged.")
    return record


def seal_envelope(
    address: Address,
    key: NamespaceKey,
    record: bytes,
    *,
    created_ms: int,
    nonce: bytes | None = None,
) -> bytes:
    """Return the envelope of a record; the nonce is random unless a test vector fixes it.

    Raises:
        Invalid: `place`, when there is no such type or revision.
    """
    nonce = exact(nonce or os.urandom(_NONCE_BYTES), _NONCE_BYTES, "nonce")
    exact(address.account, 32, "account id")
    if address.type not in {MEMORY, EPISODE, SUMMARY} or not 1 <= address.revision < 2**32:
        raise Invalid("place", "An envelope has a type from 1 to 3 and a revision from 1.")
    header = _HEADER.pack(
        _VERSION,
        _SUITE,
        address.type,
        0,
        key.epoch,
        created_ms,
        address.account,
        address.memory.bytes,
        address.revision,
        key.key_id,
        nonce,
    )
    return header + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        pad(record), header, nonce, key.subkey("seal")
    )


def open_envelope(address: Address, key: NamespaceKey, envelope: bytes) -> bytes:
    """Return the record of an envelope that stands at this address.

    Raises:
        Invalid: `length`, `version`, `type`, `account`, `memory`, `revision`, `epoch`, `key_id`,
            `aead` or `padding`: the first check that failed.
    """
    if len(envelope) < ENVELOPE_BYTES_MIN:
        raise Invalid("length", "An envelope has at least 396 bytes.")
    version, suite, kind, zero, epoch, _, account, memory, revision, key_id, nonce = (
        _HEADER.unpack_from(envelope)
    )
    checks = {
        "version": (version, suite, zero) == (_VERSION, _SUITE, 0),
        "type": kind == address.type,
        "account": account == address.account,
        "memory": memory == address.memory.bytes,
        "revision": revision == address.revision,
        "epoch": epoch == key.epoch,
        "key_id": key_id == key.key_id,
    }
    for code, passed in checks.items():
        if not passed:
            raise Invalid(code, f"An envelope has another {code} than its row.")
    header, sealed = envelope[: _HEADER.size], envelope[_HEADER.size :]
    try:
        plaintext = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, header, nonce, key.subkey("seal")
        )
    except (CryptoError, RuntimeError) as error:
        raise Invalid("aead", "An envelope does not open.") from error
    return unpad(plaintext)


@dataclass(frozen=True, slots=True)
class Header:
    """The part of an envelope that anybody can read; its key alone can tell whether it is true."""

    address: Address
    epoch: int
    created_ms: int
    key_id: bytes


def read_header(envelope: bytes) -> Header:
    """Return the header of an envelope.

    Raises:
        Invalid: `length` or `version`.
    """
    if len(envelope) < ENVELOPE_BYTES_MIN:
        raise Invalid("length", "An envelope has at least 396 bytes.")
    version, suite, kind, zero, epoch, created_ms, account, memory, revision, key_id, _ = (
        _HEADER.unpack_from(envelope)
    )
    if (version, suite, zero) != (_VERSION, _SUITE, 0):
        raise Invalid("version", "An envelope of a version this client does not know.")
    address = Address(kind, account, UUID(bytes=memory), revision)
    return Header(address, epoch, created_ms, key_id)


def blob_id(stored: bytes) -> str:
    """Return the name of stored bytes: their hash in unpadded base64url."""
    return base64.urlsafe_b64encode(hash_256(stored)).decode().rstrip("=")
