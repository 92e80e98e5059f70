"""One change of an account, as everything sees it that takes part in it.

Not here: how one begins and ends (`tenants/ledger.py`), what it does (`memories/`, `states.py`),
the format of receipts (`sealed.receipts`).

- A change has one time. All that it stores and signs says that one.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from relayer.database.accounts import Heads
from relayer.database.pool import Connection
from relayer.journal.receipts import Act, Subject, chained
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey


class AccountChange:
    """A change of an account, under its lock until the transaction of `connection` ends.

    Attributes:
        actor: whose change it is, as its receipts say.
        op: what `sign` says was done; states and erasures have operations of their own.
        time: when it is made: behind all changes before.
        heads: where the account's sequences and its chain of receipts stand by now.
        has_objects: whether it put any object into the journal, which has to be published then.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        account: AccountId,
        actor: PublicKey,
        op: str,
        heads: Heads,
        identity: Identity,
        now: datetime,
    ) -> None:
        self.connection = connection
        self.account = account
        self.actor = actor
        self.op = op
        self.time = heads.time(now)
        self.has_objects = False
        self.heads = heads
        self._identity = identity

    def act(self, op: str | None = None) -> Act:
        """Who does what and when."""
        return Act(self.account, self.actor, op or self.op, self.time)

    def sign(
        self, subjects: Iterable[Subject], names: Mapping[int, Namespace]
    ) -> list[tuple[int, bytes]]:
        """One receipt (seq, signed) per namespace and epoch, over what was done there.

        The caller stores them, and `heads.receipt_head` beside them.
        """
        receipts, self.heads = chained(self._identity, self.act(), self.heads, subjects, names)
        return receipts
