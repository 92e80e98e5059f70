"""What a relayer says about itself: its identity, its unlock keys, its successor.

It does not own which relayer is pinned (`session.py`).

Source: SPEC.md §4, §6.
"""

from dataclasses import dataclass

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.keys import hash_256, hex_bytes, public_key_bytes
from memrelay.sealed.objects import integer, list_of, read_object

STATEMENT_AGE_MS_MAX = 600_000
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
    """What a relayer says about itself, signed."""

    relayer: bytes
    issued_ms: int
    unlock_keys: tuple[UnlockKey, ...]

    def fresh(self, now_ms: int) -> bool:
        """Return whether the statement may still be relied on."""
        return abs(now_ms - self.issued_ms) <= STATEMENT_AGE_MS_MAX

    def live_keys(self, now_ms: int) -> tuple[bytes, ...]:
        """Return the unlock keys of this moment, at most eight, the longest-lived first."""
        live = [entry for entry in self.unlock_keys if entry.not_after_ms > now_ms]
        live.sort(key=lambda entry: -entry.not_after_ms)
        return tuple(entry.key for entry in live[:UNLOCK_KEYS_MAX])


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
        raise UntrustedRelayer("pin", "The relayer has another key than the pinned one.")
    if not statement.fresh(now_ms):
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


def read_successor(data: bytes, *, pinned: bytes) -> bytes:
    """Return the key that the pinned relayer names as its successor.

    Raises:
        UntrustedRelayer: the failed check.
    """
    try:
        value = read_object("relayer-next", data, signer=pinned)
        if value["relayer"] != pinned.hex():
            raise Invalid("relayer", "The object names another relayer.")
        integer(value["created"])
        return public_key_bytes(value["next"])
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"The relayer's successor: {error}") from error
