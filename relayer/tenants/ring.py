"""The key ring: lent namespace keys that background work may use for a while.

Not here: who lends a key and what it is checked against (`custody.py`). In memory only, bounded,
forgets on time; one account's keys are forgotten together as soon as any key of it is revoked.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.sealed.grants import Chain
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey

ACCOUNTS_MAX: Final = 10_000
KEYS_MAX: Final = 1_000  # of one account


@dataclass
class _Lent:
    """One account's keys: (namespace, epoch) → key, and its ends in Unix milliseconds.

    The first end is that of any lender, the second that of an owner.
    """

    revocation: int
    keys: OrderedDict[tuple[Namespace, int], tuple[NamespaceKey, int, int]] = field(
        default_factory=OrderedDict, repr=False
    )

    def hold(self, key: NamespaceKey, until_ms: int, now_ms: int, *, owned: bool) -> None:
        """Keep a key, in place of another one unless an owner lends that."""
        entry = (key.namespace, key.epoch)
        known, earlier_ms, owner_ms = self.keys.get(entry, (key, 0, 0))
        if known.key_id != key.key_id:
            if owner_ms > now_ms and not owned:
                return
            earlier_ms = owner_ms = 0
        owner_ms = max(owner_ms, until_ms if owned else 0)
        self.keys[entry] = (key, max(until_ms, earlier_ms), owner_ms)
        self.keys.move_to_end(entry)

    def forget_expired(self, now_ms: int) -> None:
        """Drop each key whose time is over."""
        for entry in [e for e, (_, until_ms, _) in self.keys.items() if until_ms <= now_ms]:
            del self.keys[entry]

    def owned(self, now_ms: int) -> set[tuple[Namespace, int]]:
        """Return those of them that an owner lends."""
        return {entry for entry, (_, _, owner_ms) in self.keys.items() if owner_ms > now_ms}


class KeyRing:
    """Keeps lent keys until their time, or the next revocation of their account."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[AccountId, _Lent] = OrderedDict()

    def hold(
        self,
        chain: Chain,
        keys: Sequence[tuple[NamespaceKey, int]],
        now_ms: int,
        *,
        owned: bool = False,
    ) -> bool:
        """Keep each key until its time; whether any is new. `owned`: an owner lends them."""
        keys = [(key, until_ms) for key, until_ms in keys if until_ms > now_ms]
        if not keys:
            return False
        lent = self._live(chain, now_ms) or _Lent(_last_revocation(chain))
        known = lent.owned(now_ms) if owned else set(lent.keys)
        for key, until_ms in keys:
            lent.hold(key, until_ms, now_ms, owned=owned)
        while len(lent.keys) > KEYS_MAX:
            lent.keys.popitem(last=False)
        self._accounts[chain.account] = lent
        self._accounts.move_to_end(chain.account)
        if len(self._accounts) > ACCOUNTS_MAX:
            self._accounts.popitem(last=False)
        return not known.issuperset((key.namespace, key.epoch) for key, _ in keys)

    def held(self, chain: Chain, now_ms: int, *, owned: bool = False) -> list[NamespaceKey]:
        """Return the keys of an account that are still lent, by anybody or by an owner."""
        if (lent := self._live(chain, now_ms)) is None:
            return []
        wanted = lent.owned(now_ms) if owned else lent.keys
        return [key for entry, (key, _, _) in lent.keys.items() if entry in wanted]

    def _live(self, chain: Chain, now_ms: int) -> _Lent | None:
        lent = self._accounts.pop(chain.account, None)
        if lent is None or lent.revocation != _last_revocation(chain):
            return None
        lent.forget_expired(now_ms)
        if not lent.keys:
            return None
        self._accounts[chain.account] = lent
        return lent

    def forget_expired(self, now_ms: int) -> None:
        """Drop what nobody asks for any more but whose time is over."""
        for account, lent in list(self._accounts.items()):
            lent.forget_expired(now_ms)
            if not lent.keys:
                del self._accounts[account]


def _last_revocation(chain: Chain) -> int:
    return max(chain.revoked_at.values(), default=0)
