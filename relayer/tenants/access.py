"""The identity and rights of who is asking: the live grants of one key, once a request.

Not here: chains of grants and how they grow (`accounts.py`), request checks (`http/checks.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from relayer.database.index_steps import IndexMark
from relayer.errors import Misdirected, NotAllowed
from relayer.preferences import DEFAULTS, AccountSettings
from relayer.sealed.grants import Grant, Role
from relayer.sealed.keys import AccountId, Namespace, PublicKey

OUTDATED: Final = "The account has newer keys: fetch /v1/grants and retry."
STRENGTH: Final = {"reader": 1, "writer": 2, "owner": 3}


@dataclass(frozen=True)
class Access:
    """The key that is asking, and its live grants: made once a request, never stored.

    `time` is the one time of the request: all that it looks for and makes goes by that.
    """

    account: AccountId
    key: PublicKey
    grants: tuple[Grant, ...]
    custody: Literal["managed", "sealed"]
    serial: int
    time: datetime
    settings: AccountSettings = DEFAULTS
    index_mark: IndexMark | None = None  # as the request found it
    index_choices: int | None = None  # the same of how often the account chose an index

    def strength(self, namespace: Namespace | None) -> int:
        """Return 0 none, 1 reader, 2 writer, 3 owner, in a namespace or (None) in the account."""
        return max(
            (STRENGTH.get(g.role, 0) for g in self.grants if _covers(g, namespace)), default=0
        )

    def may_write(self, namespace: Namespace | None) -> bool:
        """Return true if the key may write in a namespace, or (None) in the whole account."""
        return self.strength(namespace) >= STRENGTH["writer"]

    @property
    def is_asked(self) -> bool:
        """Return true if a key asks, whose right counts; else accepted work goes on."""
        return self.serial > 0

    def ends_ms(self, namespace: Namespace, latest_ms: int) -> int:
        """Return when the key's strongest right in the namespace ends, at most `latest_ms`."""
        strongest = self.strength(namespace)
        ends = [
            latest_ms if grant.expires_ms is None else min(grant.expires_ms, latest_ms)
            for grant in self.grants
            if _covers(grant, namespace) and STRENGTH.get(grant.role) == strongest
        ]
        return max(ends, default=0)

    def require(self, namespace: Namespace, role: Role) -> None:
        """Return when the key may act as `role` in the namespace.

        Raises:
            NotAllowed: it may not.
        """
        if self.strength(namespace) < STRENGTH[role]:
            raise NotAllowed(f"This key is not a {role} of that namespace.")

    def require_owner(self) -> None:
        """Return when the key owns the account.

        Raises:
            NotAllowed: it does not.
        """
        if not self.is_owner:
            raise NotAllowed("Only an owner of the account may do that.")

    @property
    def is_owner(self) -> bool:
        """Return true if the key owns the account."""
        return self.strength(None) == STRENGTH["owner"]

    @property
    def namespaces(self) -> list[Namespace] | None:
        """Return the namespaces it may read, None for all."""
        if any(g.whole_account for g in self.grants):
            return None
        return sorted({e.namespace for g in self.grants for e in g.scope if e.namespace})


def unasked(
    account: AccountId, key: PublicKey, time: datetime, settings: AccountSettings = DEFAULTS
) -> Access:
    """Return the access of background work, which follows from what was accepted.

    It needs no right.
    """
    return Access(account, key, (), custody="sealed", serial=0, time=time, settings=settings)


def _covers(grant: Grant, namespace: Namespace | None) -> bool:
    return grant.whole_account or any(e.namespace == namespace for e in grant.scope)


def check_newest(newest: int, epochs: Iterable[int]) -> None:
    """Return when new things are sealed under the account's newest epoch, as they must be.

    Raises:
        Misdirected: they are not; whoever fetches its grants again finds that epoch.
    """
    if any(epoch < newest for epoch in epochs):
        raise Misdirected(OUTDATED, code="epoch.outdated")
