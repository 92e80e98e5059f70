"""Opening many small ciphertexts of one key at once, into one buffer.

Not here: sealing, and opening a single one (`primitives`), what is inside (`index_record`).

- PyNaCl's own functions take three times as long for half a kilobyte: each checks its arguments,
  allocates a buffer and copies it. Here lengths are checked for all of them, and libsodium writes
  where the plaintexts are to lie. So this module reaches for PyNaCl's inner one.
- libsodium runs without the interpreter's lock, so that others work meanwhile.
"""

from typing import Final

import nacl.bindings  # noqa: F401  # makes libsodium ready
import numpy as np
import numpy.typing as npt
from nacl._sodium import ffi, lib

from relayer.sealed.primitives import AEAD_NONCE_BYTES, AEAD_TAG_BYTES, KEY_BYTES, CryptoError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Buffer = bytes | bytearray

OVERHEAD_BYTES: Final = AEAD_NONCE_BYTES + AEAD_TAG_BYTES
_LENGTH_BYTES: Final = 4  # in front of what is padded
_WORD_BYTES: Final = 8


def open_all(
    key: bytes, sealed: bytes, begins: Ints, sizes: Ints, associated: Bytes
) -> tuple[bytearray, Ints, Bools]:
    """Open (n,) sealed texts that lie in `sealed`: a nonce, a ciphertext and its tag each.

    Args:
        begins, sizes: bytes where each begins, and how many it has.
        associated: (n, bytes) data that it was sealed with.

    Returns:
        The plaintexts one behind another, where each begins (n + 1,), and which opened: in the
        place of any other are zeros.

    Raises:
        CryptoError: a bad length, or one that is not within `sealed`.
    """
    plain_sizes = sizes - OVERHEAD_BYTES
    if len(key) != KEY_BYTES or not len(begins) == len(sizes) == len(associated):
        raise CryptoError("bad key or numbers of ciphertexts")
    if (plain_sizes < 0).any() or (begins < 0).any() or (begins + sizes > len(sealed)).any():
        raise CryptoError("bad ciphertext length")
    at = np.concatenate([np.zeros(1, np.int64), plain_sizes.cumsum()])
    plain = bytearray(int(at[-1]))
    opened = np.ones(len(sizes), bool)
    associated = np.ascontiguousarray(associated)
    each, null, decrypt = (
        associated.shape[1],
        ffi.NULL,
        lib.crypto_aead_xchacha20poly1305_ietf_decrypt,
    )
    with (
        ffi.from_buffer(key) as its_key,
        ffi.from_buffer(sealed) as its_sealed,
        ffi.from_buffer(plain) as its_plain,
        ffi.from_buffer(associated) as its_associated,
    ):
        places = zip(at.tolist(), begins.tolist(), sizes.tolist(), strict=False)
        for number, (to, begin, size) in enumerate(places):
            failed = decrypt(
                its_plain + to,
                null,
                null,
                its_sealed + begin + AEAD_NONCE_BYTES,
                size - AEAD_NONCE_BYTES,
                its_associated + number * each,
                each,
                its_sealed + begin,
                its_key,
            )
            if failed:
                opened[number] = False
    return plain, at, opened


def unpad_all(plain: Buffer, at: Ints, padded: Ints, step_min: int) -> tuple[Ints, Ints, Bools]:
    """Return where each (n,) text that `envelope.pad` padded begins, its bytes, and which are such.

    Args:
        at, padded: where each begins and how many bytes it has, in whole steps of some words: they
            lie one behind another.
    """
    length = bytes_at(plain, at, _LENGTH_BYTES).view(">u4")[:, 0].astype(np.int64)
    whole = _LENGTH_BYTES + length
    k = np.frexp(whole)[1] - 1  # its bits, but for the first
    steps = np.maximum(step_min, 2 ** (k - np.frexp(k)[1]).clip(0).astype(np.int64))
    fits = -(-whole // steps) * steps == padded
    ends = at + np.where(fits, whole, padded)
    return at + _LENGTH_BYTES, length, fits & _has_zeros(plain, ends, at + padded)


def _has_zeros(plain: Buffer, begins: Ints, ends: Ints) -> Bools:
    """Return which of these parts, each before the next, are nothing but zeros to a word's end."""
    if not len(begins):
        return np.zeros(0, bool)
    # One word more, so that a part may begin behind the last.
    words = np.zeros(len(plain) // _WORD_BYTES + 1, "<u8")
    words[:-1] = np.frombuffer(plain, "<u8")
    over = begins % _WORD_BYTES
    rest = words[begins // _WORD_BYTES] >> (8 * over).astype(np.uint64)
    is_first_zero = (over == 0) | (rest == 0)
    edges = np.stack([-(-begins // _WORD_BYTES), ends // _WORD_BYTES], axis=1)
    found = np.bitwise_or.reduceat(words, edges.ravel())[::2]
    return np.asarray(is_first_zero & ((edges[:, 0] == edges[:, 1]) | (found == 0)))


def bytes_at(data: Buffer, begins: Ints, size: int) -> Bytes:
    """Return (n, size) bytes from each of these places on, all of them within the data."""
    if not (len(begins) and size):
        return np.zeros((len(begins), size), np.uint8)
    windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return windows[begins].view(np.uint8).reshape(-1, size)


def count_up(counts: Ints) -> Ints:
    """Return 0, 1, 2 … for each of these counts, one behind another."""
    return np.arange(int(counts.sum())) - (counts.cumsum() - counts).repeat(counts)
