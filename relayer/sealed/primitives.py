"""The few primitives everything else is built from, with why each is safe here.

Not here: key hierarchy (`keys`), formats (`envelope`, `objects`, `unlock`).

- Every length is checked before libsodium sees a byte: it answers short input with TypeError or
  ValueError, and callers must be able to rely on `CryptoError` alone.
- `hashlib.blake2b` rather than `nacl.hash`: no silent defaults, and several times faster.
"""

import hashlib
import os
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, SupportsIndex

from nacl import bindings
from nacl.exceptions import CryptoError as NaclCryptoError

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
AEAD_NONCE_BYTES: Final = 24
AEAD_TAG_BYTES: Final = 16
_PREFIX: Final = b"memrelay/v1/"


class CryptoError(Exception):
    """Something did not verify, open or parse. The message names the rule, never the content."""


class Secret(bytes):
    """A key's bytes: shown, formatted and printed as nothing, never pickled or copied deeply.

    `dataclasses.asdict`, a debugger's locals and a log line get "…"; only `.hex()` and arithmetic
    on bytes, which nobody does by accident, show a key.
    """

    def __repr__(self) -> str:
        return "…"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a key is not copied out of its process")


def lp(part: bytes) -> bytes:
    """Return length-prefixed bytes: u32 big-endian length, then the part. Source: SPEC §2."""
    return len(part).to_bytes(4, "big") + part


def u32(value: int) -> bytes:
    """Return an unsigned 32-bit big-endian integer."""
    return value.to_bytes(4, "big")


def mac(size: int, key: bytes, label: str, *parts: bytes) -> bytes:
    """Return MAC(size, key, label, parts…): keyed BLAKE2b of exactly `size` bytes. Source: SPEC §2.

    The length prefixes make the list of parts unambiguous, so no two calls with different
    arguments hash the same bytes.
    """
    return _keyed_hash(size, key, label, parts).digest()


def macs(
    size: int,
    key: bytes,
    label: str,
    *parts: bytes,
    each: Iterable[bytes],
    behind: Sequence[bytes] = (),
) -> list[bytes]:
    """Return `mac` of `parts`, one of `each`, and `behind`; the common part is hashed once."""
    common, found = _keyed_hash(size, key, label, parts), []
    rest = b"".join(map(lp, behind))
    for one in each:
        digest = common.copy()
        digest.update(lp(one) + rest)
        found.append(digest.digest())
    return found


def _keyed_hash(size: int, key: bytes, label: str, parts: Iterable[bytes]) -> hashlib.blake2b:
    if len(key) != KEY_BYTES:
        raise CryptoError("a key is 32 bytes")
    digest = hashlib.blake2b(lp(_PREFIX + label.encode()), digest_size=size, key=key)
    for part in parts:
        digest.update(lp(part))
    return digest


def kdf(key: bytes, label: str, *parts: bytes) -> bytes:
    """Return KDF(key, label, parts…): a 32-byte MAC. Source: SPEC §2."""
    return mac(32, key, label, *parts)


def blake2b_128(data: bytes) -> bytes:
    """Return unkeyed BLAKE2b-128."""
    return hashlib.blake2b(data, digest_size=16).digest()


def blake2b_256(data: bytes) -> bytes:
    """Return unkeyed BLAKE2b with a 32-byte digest."""
    return hashlib.blake2b(data, digest_size=32).digest()


def aead_seal(key: bytes, plaintext: bytes, *, associated: bytes, nonce: bytes) -> bytes:
    """Return XChaCha20-Poly1305-IETF ciphertext and tag; random 24-byte nonces do not collide."""
    if len(key) != KEY_BYTES or len(nonce) != AEAD_NONCE_BYTES:
        raise CryptoError("bad key or nonce length")
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, associated, nonce, key)


def aead_open(key: bytes, ciphertext: bytes, *, associated: bytes, nonce: bytes) -> bytes:
    """Return the plaintext of `aead_seal`.

    Raises:
        CryptoError: wrong key, altered bytes or wrong associated data.
    """
    if len(key) != KEY_BYTES or len(nonce) != AEAD_NONCE_BYTES or len(ciphertext) < AEAD_TAG_BYTES:
        raise CryptoError("bad key, nonce or ciphertext length")
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            ciphertext, associated, nonce, key
        )
    except NaclCryptoError:
        raise CryptoError("decryption failed") from None


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> None:
    """Return when the Ed25519 signature is good.

    libsodium itself refuses S ≥ L, small-order keys and non-canonical encodings.

    Raises:
        CryptoError: anything else.
    """
    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise CryptoError("bad key or signature length")
    try:
        bindings.crypto_sign_open(signature + message, public_key)
    except NaclCryptoError:
        raise CryptoError("bad signature") from None


def exchange_public_key(public_key: bytes) -> bytes:
    """Return the X25519 half of an Ed25519 public key, by libsodium's conversion.

    A mixed-order point verifies signatures and still fails here, so every key that registers
    passes through this function first.

    Raises:
        CryptoError: not a point of the main subgroup, or not canonical.
    """
    if len(public_key) != KEY_BYTES:
        raise CryptoError("bad key length")
    try:
        return bindings.crypto_sign_ed25519_pk_to_curve25519(public_key)
    except (NaclCryptoError, RuntimeError):
        raise CryptoError("the public key is not on the main subgroup") from None


def random_key() -> bytes:
    """Return 32 fresh random bytes."""
    return os.urandom(KEY_BYTES)


def to_base64(data: bytes) -> str:
    """Return Base64 with padding."""
    return b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Return the bytes of canonical, padded base64.

    Raises:
        CryptoError: anything that does not encode back to the same text.
    """
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        raise CryptoError("bad base64") from None
    if to_base64(data) != text:
        raise CryptoError("base64 is not canonical")
    return data


def to_base64url(data: bytes) -> str:
    """Return Base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Return the bytes of canonical, unpadded base64url.

    Raises:
        CryptoError: anything that does not encode back to the same text.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raise CryptoError("bad base64url") from None
    if to_base64url(data) != text:
        raise CryptoError("base64url is not canonical")
    return data
