"""Limits of a new grant or revocation: it must be of use, and must not contradict others.

Not here: what makes a grant valid (`sealed.grants`): what was accepted before stays so, whatever it
says, here and when it moves to another relayer. So an owner can take what contradicts this away.
"""

import json
import uuid
from collections.abc import Set
from typing import Final

from nacl import bindings

from relayer.clock import MOMENT_MS_MAX
from relayer.sealed.grants import Chain, Grant, Revocation, ScopeEntry
from relayer.sealed.keys import account_id, account_text, parse_namespace
from relayer.sealed.primitives import CryptoError, exchange_public_key

STORED_EPOCH_MAX: Final = 2**31 - 2  # columns hold the next one, too, which "below" may have to be
KEY_CHARACTERS: Final = 44  # of 32 bytes in base64


def check_bounds(item: Grant | Revocation) -> None:
    """Return when a grant or revocation that is new here keeps to what this relayer works with.

    What was accepted before stays valid, whatever it says.

    Raises:
        CryptoError: it has a time beyond those that a clock shows, or an epoch beyond those that
            columns hold; or it withdraws what is no usable key, of which no client reads a word.
    """
    exchange_public_key(item.recipient)
    expires_ms = item.expires_ms if isinstance(item, Grant) else None
    if max(item.created_ms, expires_ms or 0) > MOMENT_MS_MAX:
        raise CryptoError("a time is out of range")
    epochs = [entry.epoch for entry in item.scope] if isinstance(item, Grant) else [0]
    if max(epochs) > STORED_EPOCH_MAX:
        raise CryptoError("an epoch is out of range")


def check_names(grant: Grant) -> None:
    """Return when a grant names namespaces by names that may be chosen.

    Raises:
        CryptoError: one has characters that nobody sees.
    """
    for entry in grant.scope:
        if entry.namespace is not None:
            parse_namespace(entry.namespace)


def check_scope(grant: Grant, chain: Chain, now_ms: int, *, is_rotation: bool = False) -> None:
    """Return when a grant names no other root of an epoch, or key of a namespace, than others do.

    Those are the live grants of an account. A rotation names roots alone: of a namespace it gives
    what its roots say, so a wrong key is put right.

    Raises:
        CryptoError: it does.
    """
    for entry in grant.scope:
        if is_rotation and entry.namespace is not None:
            continue
        if _is_contradicted(entry, chain, now_ms):
            what = "root" if entry.namespace is None else f"key of '{entry.namespace}'"
            raise CryptoError(f"another {what} was granted in epoch {entry.epoch}")


def _is_contradicted(entry: ScopeEntry, chain: Chain, now_ms: int) -> bool:
    """Return true if live grants name this key's place, and none of them this key."""
    naming = chain.naming.get((entry.namespace, entry.epoch), ())
    others = False
    for known, key_id in reversed(naming):  # of thousands, the newest count most likely
        if chain.is_live(known, now_ms):
            if key_id == entry.key_id:
                return False
            others = True
    return others


def check_use(grant: Grant, uuids: Set[uuid.UUID], now_ms: int) -> None:
    """Return when a grant gives what it says, and has none of these UUIDs.

    Raises:
        CryptoError: its time is over, its UUID is another grant's, its box cannot hold its keys, or
            it would make the founder less than an owner in the newest epochs.
    """
    if account_id(grant.recipient) == grant.account and grant.role != "owner":
        raise CryptoError("the founder is an owner")
    if grant.expired(now_ms):
        raise CryptoError("its time is over")
    if grant.grant in uuids:
        raise CryptoError("its UUID is another grant's")
    shortest = _box_bytes_min(grant)
    if not shortest <= len(grant.box) <= 2 * shortest:
        raise CryptoError("its box has not the length of its keys")


def _box_bytes_min(grant: Grant) -> int:
    """Return the bytes of a grant's box if its contents are written in the shortest way."""
    inside = {
        "account": account_text(grant.account),
        "grant": str(grant.grant),
        "serial": grant.serial,
        "issuer": grant.issuer.hex(),
        "recipient": grant.recipient.hex(),
        "keys": ["0" * KEY_CHARACTERS] * len(grant.scope),
    }
    written = json.dumps(inside, separators=(",", ":"))
    return int(bindings.crypto_box_SEALBYTES) + len(written)
