"""The sealed form of one memory, and the names of stored bytes. Source: SPEC §7.

Not here: where blobs are kept (`blobs/store.py`) and what a record means (`memories/memory.py`).
"""

import os
import struct
import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple

from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.primitives import (
    AEAD_NONCE_BYTES,
    CryptoError,
    aead_open,
    aead_seal,
    blake2b_256,
    from_base64url,
    to_base64url,
)

MEMORY: Final = 1
EPISODE: Final = 2
SUMMARY: Final = 3
HEADER_BYTES: Final = 124
ENVELOPE_BYTES_MIN: Final = 396
STEP_BYTES_MIN: Final = 256  # between two lengths of padded records, at least
_VERSION: Final = 1
_SUITE: Final = 1
_HEADER: Final = struct.Struct(">BBBBIQ32s16sI32s24s")
assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Address:
    """The identity that an envelope and its row must agree on."""

    type: int
    account: AccountId
    memory: uuid.UUID
    revision: int


class _Fields(NamedTuple):
    """The members of the first 124 bytes, as they stand there."""

    version: int
    suite: int
    type: int
    zero: int
    epoch: int
    created_ms: int
    account: bytes
    memory: bytes
    revision: int
    key_id: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """The public first 124 bytes of an envelope."""

    address: Address
    epoch: int
    created_ms: int
    key_id: bytes
    nonce: bytes


def blob_id(stored: bytes) -> str:
    """Return the name of stored bytes: anyone can check it without a key."""
    return to_base64url(blake2b_256(stored))


def blob_hash(name: str) -> bytes:
    """Return the 32 bytes behind a blob id.

    Raises:
        CryptoError: not a blob id.
    """
    digest = from_base64url(name)
    if len(digest) != 32:
        raise CryptoError("bad blob id")
    return digest


def pad(record: bytes, step_min: int = STEP_BYTES_MIN) -> bytes:
    """Return `u32 length ‖ record ‖ zeros`: a step or more, a tenth of padding beyond 2.5 KB."""
    length = 4 + len(record)
    k = length.bit_length() - 1
    step = max(step_min, 2 ** (k - k.bit_length()))
    size = -(-length // step) * step
    return len(record).to_bytes(4, "big") + record + bytes(size - length)


def unpad(padded: bytes, step_min: int = STEP_BYTES_MIN) -> bytes:
    """Return the record inside.

    Raises:
        CryptoError: a length beyond the end, padding of another size, or padding that is not zero.
    """
    length = int.from_bytes(padded[:4], "big")
    record = padded[4 : 4 + length]
    if len(record) != length or pad(record, step_min) != padded:
        raise CryptoError("bad padding")
    return record


def seal(
    key: NamespaceKey,
    address: Address,
    record: bytes,
    *,
    created_ms: int,
    nonce: bytes | None = None,
) -> bytes:
    """Return the envelope of a record. `nonce` is given by test vectors only; else it is random."""
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
        nonce or os.urandom(AEAD_NONCE_BYTES),
    )
    return header + aead_seal(key.seal, pad(record), associated=header, nonce=header[100:])


def read_header(envelope: bytes) -> Header:
    """Return the header, form checked, nothing authenticated.

    Raises:
        CryptoError: too short, another version or suite.
    """
    f = _fields(envelope)
    address = Address(f.type, AccountId(f.account), uuid.UUID(bytes=f.memory), f.revision)
    return Header(address, f.epoch, f.created_ms, f.key_id, f.nonce)


def _fields(envelope: bytes) -> _Fields:
    if len(envelope) < ENVELOPE_BYTES_MIN:
        raise CryptoError("too short for an envelope")
    fields = _Fields._make(_HEADER.unpack_from(envelope))
    if (fields.version, fields.suite, fields.zero) != (_VERSION, _SUITE, 0):
        raise CryptoError("unknown version or suite")
    return fields


def open_envelope(key: NamespaceKey, address: Address, envelope: bytes) -> bytes:
    """Return the record of an envelope that must be exactly the one the row speaks of.

    Raises:
        CryptoError: another type, account, memory, revision, epoch or key; altered bytes.
    """
    header = _fields(envelope)
    said = (header.type, header.account, header.memory, header.revision)
    if said != (address.type, address.account, address.memory.bytes, address.revision):
        raise CryptoError("the envelope belongs to another row")
    if header.epoch != key.epoch or header.key_id != key.key_id:
        raise CryptoError("the envelope belongs to another key")
    return unpad(
        aead_open(
            key.seal,
            envelope[HEADER_BYTES:],
            associated=envelope[:HEADER_BYTES],
            nonce=header.nonce,
        )
    )
