"""Reads a relayer's statements about itself: its identity, its unlock keys, its successor.

It does not own which relayer is pinned (`session.py`).

Source: SPEC.md §4, §6.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.keys import hash_256, hex_bytes, mask_key, public_key_bytes
from memrelay.sealed.objects import integer, list_of, read_claimed_member, read_object

STATEMENT_AGE_MS_MAX = 600_000
SUCCESSIONS_MAX = 64
UNLOCK_KEYS_MAX = 8


@dataclass(frozen=True, slots=True)
class UnlockKey:
    """One X25519 key that a relayer process holds in memory."""

    key: bytes
    not_after_ms: int

    @property
    def kid(self) -> bytes:
        """The 8 bytes by which an unlock header names this key."""
        return hash_256(self.key)[:8]


@dataclass(frozen=True, slots=True)
class Statement:
    """The signed statement of a relayer about itself."""

    relayer: bytes
    issued_ms: int
    unlock_keys: tuple[UnlockKey, ...]

    def is_fresh(self, now_ms: int) -> bool:
        """Return whether the statement may still be relied on."""
        return abs(now_ms - self.issued_ms) <= STATEMENT_AGE_MS_MAX

    def live_keys(self, now_ms: int) -> tuple[bytes, ...]:
        """Return the unlock keys of this moment, at most eight, the longest-lived first."""
        live = [entry for entry in self.unlock_keys if entry.not_after_ms > now_ms]
        live.sort(key=lambda entry: -entry.not_after_ms)
        return tuple(entry.key for entry in live[:UNLOCK_KEYS_MAX])


def read_signer(data: bytes) -> bytes:
    """Return the key that an unverified statement names as its own.

    Raises:
        UntrustedRelayer: it names none.
    """
    try:
        return public_key_bytes(read_claimed_member(data, "relayer"))
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"The relayer's statement: {error}") from error


def read_statement(data: bytes, *, pinned: bytes | None, now_ms: int) -> Statement:
    """Return a relayer's statement, verified under the pinned key, or its own at first contact.

    Raises:
        UntrustedRelayer: `pin`, when another relayer signed; `stale`, when older than 10 minutes;
            otherwise the failed check.
    """
    try:
        value = read_object("relayer", data, signer="relayer")
        relayer = public_key_bytes(value["relayer"])
        keys = tuple(_unlock_key(entry) for entry in list_of(value["unlock_keys"]))
        statement = Statement(relayer, integer(value["issued"]), keys)
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"The relayer's statement: {error}") from error
    if pinned is not None and statement.relayer != pinned:
        found, known = mask_key(statement.relayer.hex()), mask_key(pinned.hex())
        raise UntrustedRelayer(
            "pin", f"Another relayer answers than the pinned one: its key is {found}, not {known}."
        )
    if not statement.is_fresh(now_ms):
        raise UntrustedRelayer(
            "stale", "The relayer's statement is more than 10 minutes off this machine's clock."
        )
    return statement


def _unlock_key(entry: object) -> UnlockKey:
    if not isinstance(entry, dict) or set(entry) != {"kid", "key", "not_after"}:
        raise Invalid("members", "An unlock key has the members kid, key and not_after.")
    key = UnlockKey(hex_bytes(entry["key"], 32, "unlock key"), integer(entry["not_after"]))
    if entry["kid"] != key.kid.hex():
        raise Invalid("kid", "An unlock key does not have the id that it goes by.")
    return key


def read_succession(objects: Iterable[bytes], *, last: bytes) -> tuple[bytes, ...]:
    """Return every key that a relayer has had, oldest first, up to `last`.

    Each is vouched for by the one before it. The oldest may be anybody's: what counts is whether
    the pinned key is among them.

    Raises:
        UntrustedRelayer: `succession`, when they do not lead to `last`; otherwise the failed check.
    """
    named = list(objects)
    if len(named) > SUCCESSIONS_MAX:
        raise UntrustedRelayer("succession", "The relayer's earlier keys are too many.")
    pairs = [read_named(data) for data in named]
    keys = (*(key for key, _ in pairs), last)
    linked = all(named == key for (_, named), key in zip(pairs, keys[1:], strict=True))
    if not linked or len(set(keys)) != len(keys):
        raise UntrustedRelayer("succession", "The relayer's earlier keys do not lead to its own.")
    return keys


def read_named(data: bytes) -> tuple[bytes, bytes]:
    """Return the key that signed a `relayer-next` object, and the one that it names.

    Raises:
        UntrustedRelayer: the failed check.
    """
    try:
        value = read_object("relayer-next", data, signer="relayer")
        integer(value["created"])
        return public_key_bytes(value["relayer"]), public_key_bytes(value["next"])
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"The relayer's successor: {error}") from error
