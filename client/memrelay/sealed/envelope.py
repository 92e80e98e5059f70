"""The envelope around a record, its padding and name, and the turn of a vector.

It does not own keys (`keys.py`) or the unlock header (`unlock.py`).

- Nonces are random; equal records never give equal envelopes.
- Everything that places an envelope (account, memory, revision, epoch, key) is bound into it, so a
  swapped row or an old revision fails to open.

Source: SPEC.md §7, §9.
"""

import base64
import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.keys import NamespaceKey, exact, hash_256, kdf

ENVELOPE_BYTES_MIN = 396
DIMENSION_MAX = 4000
MEMORY, EPISODE, SUMMARY = 1, 2, 3

_VERSION, _SUITE = 1, 1
_HEADER = struct.Struct(">BBBBIQ32s16sI32s24s")
_NONCE_BYTES = 24
_STEP_BYTES_MIN = 256
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """What an envelope is bound to beside its key: the type, the account and the row."""

    type: int
    account: bytes
    memory: UUID
    revision: int


def padded(record: bytes) -> bytes:
    """Return `u32 length ‖ record ‖ zeros`, at most about a tenth longer than the record."""
    length = 4 + len(record)
    power = length.bit_length() - 1
    step = max(_STEP_BYTES_MIN, 1 << (power - power.bit_length()))
    size = -(-length // step) * step
    return (struct.pack(">I", len(record)) + record).ljust(size, b"\0")


def unpadded(plaintext: bytes) -> bytes:
    """Return the record inside a padded plaintext.

    Raises:
        Invalid: `padding`, when the length is too great, or the padding is not the zeros due to it.
    """
    length = int.from_bytes(plaintext[:4], "big")
    record = plaintext[4 : 4 + length]
    if len(record) != length or padded(record) != plaintext:
        raise Invalid("padding", "An envelope's padding is damaged.")
    return record


def seal(
    place: Place, key: NamespaceKey, record: bytes, *, created_ms: int, nonce: bytes | None = None
) -> bytes:
    """Return the envelope of a record; the nonce is random unless a test vector fixes it."""
    nonce = exact(nonce or os.urandom(_NONCE_BYTES), _NONCE_BYTES, "nonce")
    exact(place.account, 32, "account id")
    if place.type not in {MEMORY, EPISODE, SUMMARY} or not 1 <= place.revision < 2**32:
        raise Invalid("place", "An envelope has a type from 1 to 3 and a revision from 1.")
    header = _HEADER.pack(
        _VERSION,
        _SUITE,
        place.type,
        0,
        key.epoch,
        created_ms,
        place.account,
        place.memory.bytes,
        place.revision,
        key.key_id,
        nonce,
    )
    return header + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        padded(record), header, nonce, key.subkey("seal")
    )


def open_envelope(place: Place, key: NamespaceKey, envelope: bytes) -> bytes:
    """Return the record of an envelope that stands where `place` says.

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
        "type": kind == place.type,
        "account": account == place.account,
        "memory": memory == place.memory.bytes,
        "revision": revision == place.revision,
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
    return unpadded(plaintext)


@dataclass(frozen=True, slots=True)
class Header:
    """What an envelope says of itself to anybody; its key alone can tell whether it is true."""

    place: Place
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
    place = Place(kind, account, UUID(bytes=memory), revision)
    return Header(place, epoch, created_ms, key_id)


def blob_id(stored: bytes) -> str:
    """Return the name of stored bytes: their hash in unpadded base64url."""
    return base64.urlsafe_b64encode(hash_256(stored)).decode().rstrip("=")


def turn(key: NamespaceKey, model: str, vector: Sequence[float]) -> list[float]:
    """Return a vector scaled to unit length and turned by the namespace's secret rotation.

    Raises:
        Invalid: `vector`, when it is empty, longer than 4,000, zero or not finite.
    """
    size = len(vector)
    if not 1 <= size <= DIMENSION_MAX:
        raise Invalid("vector", "A vector has 1 to 4,000 numbers.")
    norm = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(norm) or norm == 0.0:
        raise Invalid("vector", "A vector is finite and not zero.")
    seed = kdf(key.subkey("vector"), "turn", model.encode(), struct.pack(">I", size))
    stream = bindings.randombytes_buf_deterministic(8 * _ROUNDS * size, seed)
    words = struct.unpack(f">{_ROUNDS * size}Q", stream)
    turned = [value / norm for value in vector]
    for start in range(0, _ROUNDS * size, size):
        turned = _round(turned, words[start : start + size])
    return turned


def _round(vector: list[float], words: Sequence[int]) -> list[float]:
    size = len(vector)
    block = 1 << (size.bit_length() - 1)  # the largest power of two that fits
    order = sorted(range(size), key=lambda index: words[index] >> 1)
    mixed = [-vector[i] if words[n] & 1 else vector[i] for n, i in enumerate(order)]
    for at in sorted({0, size - block}):
        mixed[at : at + block] = _walsh_hadamard(mixed[at : at + block])
    return mixed


def _walsh_hadamard(block: list[float]) -> list[float]:
    half = 1
    while half < len(block):
        for start in range(0, len(block), 2 * half):
            for low in range(start, start + half):
                left, right = block[low], block[low + half]
                block[low], block[low + half] = left + right, left - right
        half *= 2
    scale = 1.0 / math.sqrt(len(block))
    return [value * scale for value in block]
