"""Keys, ids and names of a memrelay account, and every keyed hash made with them.

It does not own encryption (`envelope.py`), signed objects (`objects.py`) or who may hold which key
(`grants.py`).

- Keys hide themselves however they are printed, and are not pickled; only `.hex()` shows one.
- Every length is checked before libsodium sees the bytes.

Source: SPEC.md §2, §3, §8.
"""

import hashlib
import hmac
import os
import re
import struct
import unicodedata
from dataclasses import dataclass
from typing import NoReturn, SupportsIndex

from nacl import bindings

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.forms import normalize

KEY_BYTES = 32
NAMESPACE_CHARS_MAX = 128
# No character of a normal form is spelt with more than four, so no valid name is longer.
_NAMESPACE_SPELT_MAX = 4 * NAMESPACE_CHARS_MAX
EPOCH_MAX = 2**32 - 1

_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
# Ignorable by default, other controls of formats, and blanks that are no white space.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Scripts, from Arabic on, whose letters change their form by a joiner between them.
_WRITTEN_WITH_JOINERS = re.compile(
    "[\u0600-\u109f\u1780-\u1cff\ua800-\uabff\U00010a00-\U00010fff\U00011000-\U00011fff"
    "\U0001e900-\U0001e95f]"
)
_JOINERS = "\u200c\u200d"


class Secret(bytes):
    """A key's bytes, which `repr`, `str` and `format` do not show and `pickle` refuses."""

    def __repr__(self) -> str:
        return "…"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("A key is not pickled or copied.")


def hash_256(data: bytes) -> bytes:
    """Return BLAKE2b-256 of `data`, unkeyed."""
    return hashlib.blake2b(data, digest_size=32).digest()


def mac(size: int, key: bytes, label: str, *parts: bytes) -> bytes:
    """Return the `size`-byte keyed hash of `parts` under a label.

    The size is a parameter of the hash: a longer digest cut short is another value.
    """
    state = hashlib.blake2b(digest_size=size, key=exact(key, KEY_BYTES, "key"))
    for part in (b"memrelay/v1/" + label.encode(), *parts):
        state.update(struct.pack(">I", len(part)))
        state.update(part)
    return state.digest()


def kdf(key: bytes, label: str, *parts: bytes) -> bytes:
    """Return the 32-byte key derived from `key` for a label and its parts."""
    return mac(32, key, label, *parts)


def exact(data: bytes, size: int, what: str) -> bytes:
    """Return `data` if it has `size` bytes.

    Raises:
        Invalid: `length`, when it has not.
    """
    if not isinstance(data, bytes) or len(data) != size:
        raise Invalid("length", f"A {what} has {size} bytes.")
    return data


def hex_bytes(text: object, size: int, what: str) -> bytes:
    """Return the bytes of exactly `size` bytes of lower-case hex.

    Raises:
        Invalid: `hex`, when `text` is anything else.
    """
    if not isinstance(text, str) or len(text) != 2 * size or set(text) - set("0123456789abcdef"):
        raise Invalid("hex", f"A {what} is {2 * size} lower-case hexadecimal digits.")
    return bytes.fromhex(text)


def mask_key(text: str) -> str:
    """Return the first four and last four characters of a key's text."""
    return f"{text[:4]}…{text[-4:]}" if len(text) > 12 else "…"


def exchange_public(public_key: bytes) -> bytes:
    """Return the X25519 key of an Ed25519 public key.

    Raises:
        Invalid: `public_key`, for small-order, mixed-order and malformed keys.
    """
    exact(public_key, KEY_BYTES, "public key")
    try:
        return bindings.crypto_sign_ed25519_pk_to_curve25519(public_key)
    except RuntimeError as error:
        raise Invalid("public_key", "A public key is not a usable curve point.") from error


def public_key_bytes(text: object) -> bytes:
    """Return a public key from hex, refusing one that cannot be an exchange key as well."""
    key = hex_bytes(text, KEY_BYTES, "public key")
    exchange_public(key)
    return key


def account_id_of(founder: bytes) -> bytes:
    """Return the account id that belongs to a founder's public key."""
    return hash_256(b"\0" + exact(founder, KEY_BYTES, "public key"))


def account_text(account: bytes) -> str:
    """Return an account id as `0x` and 64 hex digits."""
    return "0x" + exact(account, 32, "account id").hex()


def account_bytes(text: object) -> bytes:
    """Return an account id from its text form."""
    digits = text[2:] if isinstance(text, str) and text.startswith("0x") else None
    try:
        return hex_bytes(digits, 32, "account id")
    except Invalid:
        told = "An account id is 0x and 64 lower-case hexadecimal digits."
        raise Invalid("account", told) from None


class Identity:
    """An Ed25519 identity, made from a 32-byte seed, and the exchange key that follows from it."""

    __slots__ = ("_seed", "_signing", "exchange_secret", "public_key")

    def __init__(self, seed: bytes) -> None:
        self._seed = Secret(exact(seed, KEY_BYTES, "private key"))
        self.public_key, signing = bindings.crypto_sign_seed_keypair(seed)
        self._signing = Secret(signing)
        self.exchange_secret = Secret(bindings.crypto_sign_ed25519_sk_to_curve25519(signing))

    @classmethod
    def generate(cls) -> "Identity":
        """Return a new random identity."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def from_hex(cls, text: str) -> "Identity":
        """Return the identity of a hex seed.

        Raises:
            ConfigError: `text` is not 64 hex digits; the message does not repeat it.
        """
        try:
            return cls(hex_bytes(text.strip().lower(), KEY_BYTES, "private key"))
        except Invalid as error:
            raise ConfigError(str(error)) from None

    @property
    def exchange_public(self) -> bytes:
        """The X25519 public key."""
        return bindings.crypto_scalarmult_base(self.exchange_secret)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte detached signature of `message`."""
        return bindings.crypto_sign(message, self._signing)[:64]

    def derived(self, label: str) -> bytes:
        """Return a 32-byte key for a use on this machine alone; it tells nothing of the seed."""
        return kdf(self._seed, f"local/{label}")

    def seed_hex(self) -> str:
        """Return the private key itself: for a profile or a single print-out, never for a log."""
        return self._seed.hex()

    def __repr__(self) -> str:
        return f"Identity({mask_key(self.public_key.hex())})"


@dataclass(frozen=True, slots=True, repr=False)
class Root:
    """The root of one epoch of an account; every namespace key of that epoch follows from it."""

    key: bytes
    epoch: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", Secret(exact(self.key, KEY_BYTES, "root")))
        check_epoch(self.epoch)

    @classmethod
    def generate(cls, epoch: int = 1) -> "Root":
        """Return a new random root."""
        return cls(os.urandom(KEY_BYTES), epoch)

    @property
    def root_id(self) -> bytes:
        """The public name of this root."""
        return kdf(self.key, "root-id")

    def namespace_key(self, account: bytes, name: str) -> "NamespaceKey":
        """Return the key of a namespace, given its normalised name."""
        parts = (exact(account, 32, "account id"), struct.pack(">I", self.epoch), name.encode())
        return NamespaceKey(kdf(self.key, "namespace", *parts), self.epoch, name)

    def __repr__(self) -> str:
        return f"Root(epoch={self.epoch}, key=…)"


@dataclass(frozen=True, slots=True, repr=False)
class NamespaceKey:
    """The key of one namespace in one epoch."""

    key: bytes
    epoch: int
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", Secret(exact(self.key, KEY_BYTES, "namespace key")))
        check_epoch(self.epoch)

    @property
    def key_id(self) -> bytes:
        """The public name of this key; it commits to the key."""
        return kdf(self.key, "key-id")

    def subkey(self, label: str) -> bytes:
        """Return a subkey by its label, of which SPEC §3 has the list."""
        return kdf(self.key, label)

    def __repr__(self) -> str:
        return f"NamespaceKey({self.name!r}, epoch={self.epoch}, key=…)"


def check_epoch(epoch: int) -> int:
    """Return `epoch` if it is a u32 from 1."""
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 1 <= epoch <= EPOCH_MAX:
        raise Invalid("epoch", "An epoch is a whole number from 1.")
    return epoch


def same(left: bytes, right: bytes) -> bool:
    """Return whether two secrets or ids are equal, in constant time."""
    return hmac.compare_digest(left, right)


def normalise_namespace(name: str) -> str:
    """Return the form of a namespace name that everything but the request body uses.

    Raises:
        Invalid: `namespace`, when the name is empty, too long or holds a refused character.
    """
    text = _normalise(name)
    for found in _UNSEEN.finditer(text):
        if not _is_joiner(text, found.start()):
            code = f"U+{ord(found[0]):04X}"
            raise Invalid("namespace", f"A namespace name holds {code}, which nobody sees.")
    return text


def settle_namespace(name: str) -> str:
    """Return a name as something signed holds it: normalised, by the rules that always were.

    Raises:
        Invalid: `namespace`, when it is not.
    """
    if _normalise(name) != name:
        raise Invalid("namespace", "A namespace is named in its normal form.")
    return name


def _is_joiner(text: str, at: int) -> bool:
    """Return whether a joiner stands there between letters that are written with one."""
    beside = text[at - 1 : at] + text[at + 1 : at + 2]
    return (
        text[at] in _JOINERS
        and len(beside) == 2
        and all(map(_WRITTEN_WITH_JOINERS.fullmatch, beside))
        and all(unicodedata.category(char)[0] in "LM" for char in beside)
    )


def _normalise(name: str) -> str:
    text = name.strip(" ")
    if len(text) > _NAMESPACE_SPELT_MAX:
        raise Invalid("namespace", "A namespace name has 1 to 128 characters.")
    text = normalize("NFC", text).strip(" ")
    if not 1 <= len(text) <= NAMESPACE_CHARS_MAX:
        raise Invalid("namespace", "A namespace name has 1 to 128 characters.")
    if any(unicodedata.category(char) in _REFUSED_CATEGORIES for char in text):
        raise Invalid("namespace", "A namespace name holds no control characters.")
    if _BIDI_CONTROLS.intersection(text):
        raise Invalid("namespace", "A namespace name holds no text direction controls.")
    if "Zs" in {unicodedata.category(text[0]), unicodedata.category(text[-1])}:
        raise Invalid("namespace", "A namespace name neither begins nor ends with white space.")
    return text
