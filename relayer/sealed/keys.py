"""Identities, account ids, roots, namespace keys and namespace names. Source: SPEC §3.

Not here: who holds which key (`grants`) and how keys travel (`unlock`).
"""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NewType

from nacl import bindings

from relayer.normalization import normalize
from relayer.sealed.primitives import (
    KEY_BYTES,
    CryptoError,
    Secret,
    blake2b_256,
    exchange_public_key,
    kdf,
    u32,
)

PublicKey = NewType("PublicKey", bytes)
Namespace = NewType("Namespace", str)

NAMESPACE_CHARACTERS_MAX: Final = 128
# No character of a normal form is spelt with more than four, so no valid name is longer.
_NAMESPACE_SPELT_MAX: Final = 4 * NAMESPACE_CHARACTERS_MAX
EPOCH_MAX: Final = 2**32 - 1
NUMBER_MIN: Final = -(2**63)
_NUMBER_BYTES: Final = 8
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})
_BIDI_CONTROLS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
# Ignorable by default, other controls of formats, and blanks that are no white space.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Scripts, from Arabic on, whose letters change their form by a joiner between them.
_WRITTEN_WITH_JOINERS: Final = re.compile(
    "[\u0600-\u109f\u1780-\u1cff\ua800-\uabff\U00010a00-\U00010fff\U00011000-\U00011fff"
    "\U0001e900-\U0001e95f]"
)
_JOINERS: Final = "\u200c\u200d"


class AccountId(bytes):
    """The 32 bytes that name an account; where a number is asked for, it is their first eight.

    The database has the number in its rows, and the whole id once: a driver takes the value as what
    a statement's parameter is.
    """

    __slots__ = ()

    def __int__(self) -> int:
        return int.from_bytes(self[:_NUMBER_BYTES], signed=True)


@dataclass(frozen=True)
class Identity:
    """An Ed25519 key pair with its X25519 halves."""

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES:
            raise CryptoError("a seed is 32 bytes")
        object.__setattr__(self, "seed", Secret(self.seed))

    @cached_property
    def _pair(self) -> tuple[bytes, bytes]:
        return bindings.crypto_sign_seed_keypair(self.seed)

    @property
    def public_key(self) -> PublicKey:
        """Return the 32-byte Ed25519 public key."""
        return PublicKey(self._pair[0])

    @cached_property
    def exchange_public_key(self) -> bytes:
        """Return the X25519 public key."""
        return exchange_public_key(self.public_key)

    @cached_property
    def exchange_private_key(self) -> bytes:
        """Return the X25519 private key."""
        return bindings.crypto_sign_ed25519_sk_to_curve25519(self._pair[1])

    def sign(self, message: bytes) -> bytes:
        """Return a 64-byte Ed25519 signature."""
        return bindings.crypto_sign(message, self._pair[1])[:64]


@dataclass(frozen=True)
class NamespaceKey:
    """The key of one namespace in one epoch, with the subkeys derived from it."""

    namespace: Namespace
    epoch: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 1 <= self.epoch <= EPOCH_MAX:
            raise CryptoError("bad namespace key")
        object.__setattr__(self, "key", Secret(self.key))

    @cached_property
    def key_id(self) -> bytes:
        """Return the public id: names namespace and epoch, and commits to the key."""
        return kdf(self.key, "key-id")

    @cached_property
    def seal(self) -> bytes:
        """Return the subkey of envelopes."""
        return kdf(self.key, "seal")

    @cached_property
    def index(self) -> bytes:
        """Return the subkey of tokens."""
        return kdf(self.key, "index")

    @cached_property
    def vector(self) -> bytes:
        """Return the subkey of turns."""
        return kdf(self.key, "vector")

    @cached_property
    def index_record(self) -> bytes:
        """Return the subkey of sealed index records."""
        return kdf(self.key, "index-record")

    @cached_property
    def fingerprint(self) -> bytes:
        """Return the subkey of fingerprints."""
        return kdf(self.key, "fingerprint")

    @cached_property
    def idempotency(self) -> bytes:
        """Return the subkey of idempotency marks."""
        return kdf(self.key, "idempotency")


@dataclass(frozen=True)
class Root:
    """An account's secret of one epoch; every namespace key of that epoch follows from it."""

    epoch: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 1 <= self.epoch <= EPOCH_MAX:
            raise CryptoError("bad root")
        object.__setattr__(self, "key", Secret(self.key))

    @cached_property
    def root_id(self) -> bytes:
        """Return the public id of the root."""
        return kdf(self.key, "root-id")

    def namespace_key(self, account: AccountId, namespace: Namespace) -> NamespaceKey:
        """Return the key of `namespace` in this epoch."""
        key = kdf(self.key, "namespace", account, u32(self.epoch), namespace.encode())
        return NamespaceKey(namespace, self.epoch, key)


def account_id(founder: PublicKey) -> AccountId:
    """Return the account a key founds: self-certifying, so every chain of trust ends at a hash."""
    return AccountId(blake2b_256(b"\0" + founder))


def account_text(account: AccountId) -> str:
    """Return `0x` and 64 lower-case hex digits."""
    return "0x" + account.hex()


_ACCOUNT: Final = re.compile(r"0x[0-9a-f]{64}")
_HEX_KEY: Final = re.compile(r"[0-9a-f]{64}")


def parse_account(text: str) -> AccountId:
    """Return the 32 bytes behind `account_text`.

    Raises:
        CryptoError: any other spelling.
    """
    if not _ACCOUNT.fullmatch(text):
        raise CryptoError("an account id is 0x and 64 lower-case hex digits")
    return AccountId(bytes.fromhex(text[2:]))


def parse_public_key(text: str) -> PublicKey:
    """Return the 32 bytes of a lower-case hex public key.

    Raises:
        CryptoError: any other spelling.
    """
    if not _HEX_KEY.fullmatch(text):
        raise CryptoError("a key is 64 lower-case hex digits")
    return PublicKey(bytes.fromhex(text))


def parse_namespace(name: str) -> Namespace:
    """Return the normalised name, the same in every client and server. Source: SPEC §3.

    Only U+0020 is stripped: `str.strip` and JavaScript's `trim` disagree on what white space is.

    Raises:
        CryptoError: empty, longer than 128 code points, or with refused characters.
    """
    namespace = _normalise(name)
    if any(not _joins(namespace, found.start()) for found in _UNSEEN.finditer(namespace)):
        raise CryptoError("a namespace has no characters that nobody sees")
    return namespace


def _joins(name: str, at: int) -> bool:
    """Return whether a joiner stands there between letters that are written with one."""
    beside = name[at - 1 : at] + name[at + 1 : at + 2]
    return (
        name[at] in _JOINERS
        and len(beside) == 2
        and all(map(_WRITTEN_WITH_JOINERS.fullmatch, beside))
        and all(unicodedata.category(c)[0] in "LM" for c in beside)
    )


def _normalise(name: str) -> Namespace:
    name = name.strip(" ")
    if len(name) > _NAMESPACE_SPELT_MAX:
        raise CryptoError("a namespace has 1 to 128 characters")
    name = normalize("NFC", name).strip(" ")
    if not 1 <= len(name) <= NAMESPACE_CHARACTERS_MAX:
        raise CryptoError("a namespace has 1 to 128 characters")
    if not _REFUSED_CATEGORIES.isdisjoint(map(unicodedata.category, name)):
        raise CryptoError("a namespace has no control or unassigned characters")
    if _BIDI_CONTROLS.search(name):
        raise CryptoError("a namespace has no bidirectional controls")
    if any(unicodedata.category(c) == "Zs" for c in (name[0], name[-1])):
        raise CryptoError("a namespace does not begin or end with white space")
    return Namespace(name)


def settled_namespace(name: str) -> Namespace:
    """Return a name that is in its normalised form, as everything signed or sealed holds it.

    It may have characters that nobody sees, which names had before they were refused.

    Raises:
        CryptoError: it is not, or no name at all.
    """
    if (namespace := _normalise(name)) != name:
        raise CryptoError("a namespace is named in its normalised form")
    return namespace
