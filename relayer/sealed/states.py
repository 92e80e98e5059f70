"""The signed object that says what holds of a memory beside what it says. Source: SPEC §4, §13.

Not here: when one is due (`relayer.journal.states`). The last one of a memory counts.
"""

import uuid
from dataclasses import dataclass
from typing import Any, Final

from relayer.sealed.keys import (
    AccountId,
    Identity,
    PublicKey,
    account_text,
    parse_account,
)
from relayer.sealed.objects import (
    integer_member,
    open_object,
    sign_object,
    signer_among,
    text_member,
    uuid_member,
)
from relayer.sealed.primitives import CryptoError

_MEMBERS: Final = frozenset("relayer account memory revision seq time expires_at state".split())
_STATE: Final = frozenset("pinned review stale superseded_at superseded_by".split())
_OPTIONAL: Final = frozenset(("merged", "default_life"))  # false where they are absent


@dataclass(frozen=True)
class SignedState:
    """The contents of a `state` object; `seq` is its receipt's, times are Unix milliseconds.

    Attributes:
        merged: whether what supersedes it is what it was merged into.
        expires_ms: when its revision is to expire, as given.
        has_default_life: that comes of the kind, and nobody asked for it.
    """

    account: AccountId
    memory: uuid.UUID
    revision: int
    seq: int
    time_ms: int
    pinned: bool
    review: str | None
    stale: bool
    superseded_ms: int | None
    superseded_by: uuid.UUID | None
    merged: bool
    expires_ms: int | None
    has_default_life: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Return the order of states, by which the last is told.

        A database that was set back gives numbers again.
        """
        return self.time_ms, self.seq


def sign_state(relayer: Identity, said: SignedState) -> bytes:
    """Return the signed object."""
    by = said.superseded_by
    state = {
        "pinned": said.pinned,
        "review": said.review,
        "stale": said.stale,
        "superseded_at": said.superseded_ms,
        "superseded_by": None if by is None else str(by),
        "merged": said.merged,
    }
    if said.has_default_life:
        state["default_life"] = True
    members = {
        "relayer": relayer.public_key.hex(),
        "account": account_text(said.account),
        "memory": str(said.memory),
        "revision": said.revision,
        "seq": said.seq,
        "time": said.time_ms,
        "expires_at": said.expires_ms,
        "state": state,
    }
    return sign_object(relayer, "state", members)


def open_state(signed: bytes, *relayers: PublicKey) -> SignedState:
    """Open a `state` object, signed by any key that the relayer has had.

    Raises:
        CryptoError: bad signature or members, or another relayer's.
    """
    m = open_object(signed, "state", signer_among(signed, relayers), _MEMBERS)
    state: Any = m["state"]
    if not isinstance(state, dict) or not _STATE <= state.keys() <= _STATE | _OPTIONAL:
        raise CryptoError("a malformed state")
    merged, has_default_life = (state.get(name, False) for name in ("merged", "default_life"))
    facts = (state["pinned"], state["stale"], merged, has_default_life)
    if not all(isinstance(said, bool) for said in facts):
        raise CryptoError("a member has the wrong type")
    review, at, by = state["review"], state["superseded_at"], state["superseded_by"]
    expires = m["expires_at"]
    return SignedState(
        account=parse_account(text_member(m["account"])),
        memory=uuid_member(m["memory"]),
        revision=integer_member(m["revision"], low=1),
        seq=integer_member(m["seq"], low=1),
        time_ms=integer_member(m["time"], low=0),
        pinned=state["pinned"],
        review=None if review is None else text_member(review),
        stale=state["stale"],
        superseded_ms=None if at is None else integer_member(at, low=0),
        superseded_by=None if by is None else uuid_member(by),
        merged=merged,
        expires_ms=None if expires is None else integer_member(expires, low=0),
        has_default_life=has_default_life,
    )
