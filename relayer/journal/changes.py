"""One change of an account, as everything sees it that takes part in it.

Not here: how one begins and ends (`tenants/ledger.py`), what it does (`memories/`, `states.py`),
the format of receipts (`sealed.receipts`).

- A change has one time. All that it stores and signs says that one.
"""

from datetime import datetime

from relayer.database.accounts import Heads
from relayer.database.pool import Connection
from relayer.journal.receipts import Act
from relayer.sealed.keys import AccountId, PublicKey


class AccountChange:
    """A change of an account, under its lock until the transaction of `connection` ends.

    Attributes:
        actor: whose change it is, as its receipts say.
        op: what its receipts say was done, unless who signs one says otherwise.
        time: when it is made: behind all changes before.
        heads: where the account's sequences stand by now; for `States` and `Eraser`, which sign.
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
        now: datetime,
    ) -> None:
        self.connection = connection
        self.account = account
        self.actor = actor
        self.op = op
        self.time = heads.time(now)
        self.has_objects = False
        self.heads = heads

    def act(self, op: str | None = None) -> Act:
        """Who does what and when."""
        return Act(self.account, self.actor, op or self.op, self.time)
