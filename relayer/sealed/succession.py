"""The keys that one relayer has had, each naming the next. Source: SPEC §4, §16.

Not here: where the own ones are kept (`identity.py`) and how a key is replaced (`succession.py`).

- A `relayer-next` object is worth as much as the key that signed it: who holds an older key of a
  relayer can name another heir, so a client follows only from the key that it has pinned.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from relayer.sealed.keys import Identity, PublicKey, parse_public_key
from relayer.sealed.objects import claimed, integer_member, open_object, sign_object, text_member
from relayer.sealed.primitives import CryptoError

SUCCESSIONS_MAX: Final = 64
_NEXT: Final = frozenset(["relayer", "next", "created"])


@dataclass(frozen=True)
class Named:
    """The statement in which one key of a relayer names the next."""

    relayer: PublicKey
    next: PublicKey
    signed: bytes


def name_next(relayer: Identity, following: PublicKey, *, created_ms: int) -> bytes:
    """Return the signed `relayer-next` object."""
    return sign_object(
        relayer,
        "relayer-next",
        {
            "relayer": relayer.public_key.hex(),
            "next": following.hex(),
            "created": created_ms,
        },
    )


def open_next(signed: bytes) -> Named:
    """Open a `relayer-next` object, verified under the key that it names as its own.

    Raises:
        CryptoError: bad signature or members.
    """
    relayer = parse_public_key(claimed(signed, "relayer"))
    m = open_object(signed, "relayer-next", relayer, _NEXT)
    integer_member(m["created"], low=0)
    return Named(relayer, parse_public_key(text_member(m["next"])), signed)


def keys_of(objects: Iterable[bytes], last: PublicKey) -> tuple[PublicKey, ...]:
    """Return every key of a relayer, oldest first; the objects must lead to `last` without a gap.

    Raises:
        CryptoError: they do not, or are too many.
    """
    named = [open_next(signed) for signed in objects]
    keys = (*(n.relayer for n in named), last)
    if len(named) > SUCCESSIONS_MAX or len(set(keys)) != len(keys):
        raise CryptoError("a succession of keys is too long or comes back")
    if any(n.next != following for n, following in zip(named, keys[1:], strict=True)):
        raise CryptoError("a succession of keys has a gap")
    return keys
