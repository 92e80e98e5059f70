"""The unlock header: namespace keys lent to the relayer for one request. Source: SPEC §6.

Not here: which keys a sender may lend, and the ring that keeps them for jobs
(`tenants/custody.py`).

- Boxed from the sender's own key: a proxy cannot plant a key of its own, because the sender's
  public key is the one whose signature the request carries.
- The keys that open it live in memory only, so recorded headers and a stolen disk open nothing.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Final

from nacl import bindings
from nacl.exceptions import CryptoError as NaclCryptoError

from relayer.sealed.keys import (
    EPOCH_MAX,
    AccountId,
    NamespaceKey,
    PublicKey,
    account_text,
    settled_namespace,
)
from relayer.sealed.objects import integer_member, strict_object, text_member
from relayer.sealed.primitives import (
    AEAD_NONCE_BYTES,
    AEAD_TAG_BYTES,
    CryptoError,
    Secret,
    aead_open,
    blake2b_256,
    exchange_public_key,
    from_base64,
    from_base64url,
)

HEADER_CHARACTERS_MAX: Final = 6 * 1024
BOXES_MAX: Final = 8
KEYS_MAX: Final = 64
HOLD_S_MAX: Final = 300
SKEW_MS_MAX: Final = 300_000
_BOX_BYTES: Final = 8 + 24 + 48
_MEMBERS: Final = frozenset(["relayer", "account", "sender", "iat", "hold", "keys"])


class UnknownUnlockKey(CryptoError):
    """No box is for a key this process holds: the client's statement is out of date."""


@dataclass(frozen=True)
class UnlockKey:
    """One X25519 key pair of this process."""

    private_key: bytes = field(repr=False)
    public_key: bytes
    not_after_ms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "private_key", Secret(self.private_key))

    @property
    def kid(self) -> bytes:
        """Return the 8 bytes a header names it by."""
        return blake2b_256(self.public_key)[:8]


@dataclass(frozen=True)
class Unlock:
    """An opened and checked header."""

    keys: tuple[NamespaceKey, ...]
    issued_ms: int
    hold_s: int


def generate_unlock_key(*, not_after_ms: int) -> UnlockKey:
    """Return a fresh key pair."""
    private_key = os.urandom(32)
    return UnlockKey(private_key, bindings.crypto_scalarmult_base(private_key), not_after_ms)


def open_unlock(
    header: str,
    *,
    unlock_keys: dict[bytes, UnlockKey],
    relayer: PublicKey,
    account: AccountId,
    sender: PublicKey,
    now_ms: int,
) -> Unlock:
    """Return the keys of a header; check all of SPEC §6 but the sender's grants.

    Raises:
        UnknownUnlockKey: well formed, for keys this process does not hold.
        CryptoError: anything else.
    """
    raw, boxes = _split(header)
    end = 2 + _BOX_BYTES * len(boxes)
    mine = [(unlock_keys[kid], box) for kid, box in boxes if kid in unlock_keys]
    if not mine:
        raise UnknownUnlockKey("the unlock key is unknown")
    content_key = _open_box(*mine[0], sender)
    nonce = raw[end : end + AEAD_NONCE_BYTES]
    payload = aead_open(
        content_key, raw[end + AEAD_NONCE_BYTES :], associated=raw[:end], nonce=nonce
    )
    m = strict_object(payload, _MEMBERS)
    expected = (relayer.hex(), account_text(account), sender.hex())
    if (m["relayer"], m["account"], m["sender"]) != expected:
        raise CryptoError("the unlock is for another relayer, account or sender")
    issued_ms = integer_member(m["iat"], low=0)
    hold_s = integer_member(m["hold"], low=0, high=HOLD_S_MAX)
    if abs(now_ms - issued_ms) > SKEW_MS_MAX:
        raise CryptoError("the unlock is stale")
    return Unlock(_parse_keys(m["keys"]), issued_ms, hold_s)


def _split(header: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the raw header and its (kid, nonce ‖ box) pairs, form checked."""
    if len(header) > HEADER_CHARACTERS_MAX:
        raise CryptoError("the unlock is too large")
    raw = from_base64url(header)
    if len(raw) < 2 or raw[0] != 1 or not 1 <= raw[1] <= BOXES_MAX:
        raise CryptoError("unknown unlock version or number of boxes")
    end = 2 + _BOX_BYTES * raw[1]
    if len(raw) < end + AEAD_NONCE_BYTES + AEAD_TAG_BYTES:
        raise CryptoError("the unlock is truncated")
    parts = [raw[at : at + _BOX_BYTES] for at in range(2, end, _BOX_BYTES)]
    return raw, [(part[:8], part[8:]) for part in parts]


def _open_box(key: UnlockKey, nonce_and_box: bytes, sender: PublicKey) -> bytes:
    shared = bindings.crypto_box_beforenm(exchange_public_key(sender), key.private_key)
    try:
        return bindings.crypto_box_open_easy_afternm(nonce_and_box[24:], nonce_and_box[:24], shared)
    except NaclCryptoError:
        raise CryptoError("the unlock box does not open") from None


def _parse_keys(value: Any) -> tuple[NamespaceKey, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= KEYS_MAX:
        raise CryptoError("bad number of unlocked keys")
    keys = tuple(_parse_key(item) for item in value)
    if len({(k.namespace, k.epoch) for k in keys}) != len(keys):
        raise CryptoError("a key is unlocked twice")
    return keys


def _parse_key(item: Any) -> NamespaceKey:
    if not isinstance(item, dict) or item.keys() != {"ns", "epoch", "key"}:
        raise CryptoError("bad unlocked key")
    namespace = settled_namespace(text_member(item["ns"]))
    epoch = integer_member(item["epoch"], low=1, high=EPOCH_MAX)
    return NamespaceKey(namespace, epoch, from_base64(text_member(item["key"])))
