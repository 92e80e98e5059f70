"""Sealing of what only the relayer may read: secrets of webhooks. Source: SPEC §18.

Not here: what is sealed (`relayer.events.webhooks`). Nothing of an account's memories is sealed so.
"""

import os
from typing import Final

from relayer.sealed.keys import Identity
from relayer.sealed.primitives import AEAD_NONCE_BYTES, CryptoError, aead_open, aead_seal, kdf, lp

_LABEL: Final = "at-rest"


def seal_at_rest(relayer: Identity, plaintext: bytes, *context: bytes) -> bytes:
    """Return nonce and ciphertext, which open under this identity and for this context only."""
    nonce = os.urandom(AEAD_NONCE_BYTES)
    key = kdf(relayer.seed, _LABEL)
    return nonce + aead_seal(key, plaintext, associated=b"".join(map(lp, context)), nonce=nonce)


def open_at_rest(relayer: Identity, sealed: bytes, *context: bytes) -> bytes:
    """Open what was sealed.

    Raises:
        CryptoError: under another identity, for another context, or altered.
    """
    if len(sealed) < AEAD_NONCE_BYTES:
        raise CryptoError("too short")
    nonce, ciphertext = sealed[:AEAD_NONCE_BYTES], sealed[AEAD_NONCE_BYTES:]
    key = kdf(relayer.seed, _LABEL)
    return aead_open(key, ciphertext, associated=b"".join(map(lp, context)), nonce=nonce)
