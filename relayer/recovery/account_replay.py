"""Repeating in one account what its journal says and its database has forgotten.

Not here: which accounts, and when (`replay.py`), telling what was forgotten (`examiner.py`).
Source: SPEC §17.4.

- First what holds of memories, then grants and revocations, then erasures, with receipts of the
  relayer's own. What else was stored since comes back as of a rebuilt account, and is not collected
  before.
- Grants and revocations come in the order of their serials, each verified against those before it.
  A chain that cannot be continued to its end is not believed at all: its account answers nobody.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relayer.clock import from_ms
from relayer.database import accounts as account_rows
from relayer.database import outbox as outbox_rows
from relayer.database import queue
from relayer.database import replay as rows
from relayer.database import states as state_rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotFound
from relayer.journal.states import STATE, Change, change_states
from relayer.memories.eraser import RECEIPT_ITEMS_MAX, Eraser
from relayer.recovery.chain_replay import Step, continue_chain
from relayer.recovery.examiner import Examiner
from relayer.recovery.orphan_rows import merged_with
from relayer.sealed.envelope import blob_hash
from relayer.sealed.grants import Chain
from relayer.sealed.keys import AccountId
from relayer.sealed.named import NamedKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Receipt
from relayer.sealed.states import SignedState
from relayer.tenants.closing import CLOSE, Closing
from relayer.tenants.granting import Granting
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces


@dataclass(frozen=True)
class Erasures:
    """Repeats erasures: of memories, and of whole accounts."""

    eraser: Eraser
    closing: Closing

    async def repeat(self, receipts: Iterable[Receipt]) -> bool:
        """Repeat erasures; whether the account is still there afterwards.

        Raises:
            RelayerError: one could not be repeated; what it names must not be shown meanwhile.
        """
        for receipt in receipts:
            try:
                if receipt.op == CLOSE:
                    await self.closing.close_account(receipt.account, receipt.actor)
                    return False
                await self.eraser.repeat(receipt)
            except NotFound:
                return False
        return True


class AccountReplay:
    """Brings one account at a time up to what its journal says."""

    def __init__(
        self,
        *,
        database: Database,
        examiner: Examiner,
        ledger: Ledger,
        granting: Granting,
        namespaces: Namespaces,
        erasures: Erasures,
    ) -> None:
        self._database = database
        self._examiner = examiner
        self._ledger = ledger
        self._granting = granting
        self._namespaces = namespaces
        self.erasures = erasures

    async def catch_up(self, account: AccountId) -> int:
        """Bring an account up to its journal; the serial that its chain has to reach.

        Raises:
            Corrupted: something cannot be read, which may be a revocation or an erasure.
        """
        history: list[bytes] = []
        erasures: list[Receipt] = []
        names: list[NamedKey] = []
        states: dict[str, SignedState] = {}
        serial = 0
        async for page in self._examiner.pages(account):
            found = await self._examiner.examine(account, page)
            if found.unread or found.altered:
                raise Corrupted("Objects that no row refers to cannot be read, or are altered.")
            history += found.history
            erasures += found.unknown
            names += found.names
            states |= found.states
            serial = max(serial, found.serial)
        # Before any other receipts: whether a state is of since, only its number tells. What comes
        # behind it may be interrupted.
        await self._repeat_states(account, states)
        due = max(serial, await self._continue(account, history))
        if await self.erasures.repeat(erasures):
            relayer = self._ledger.unasked(account)
            for named in names:
                place = (named.namespace, named.epoch)
                await self._namespaces.create(relayer, *place, named.key_id, by=None)
            async with self._database.transaction() as connection:
                await rows.set_incomplete(connection, account)
                await queue.enqueue(connection, queue.RESTORE, account, [])
        return due

    async def _repeat_states(self, account: AccountId, states: Mapping[str, SignedState]) -> None:
        """Let hold of memories that are here what was said of them last, with receipts of its own.

        All of it or nothing. The objects of before are of no use then; others wait for their
        memories (`restore.py`).
        """
        said = sorted(states.items(), key=lambda one: one[1].order)
        newest = {state.memory: state for _, state in said}
        with suppress(NotFound):  # it was closed
            async with self._ledger.change(self._ledger.unasked(account), op=STATE) as change:
                connection, now = change.connection, change.time
                found = await state_rows.lock_states(
                    connection, account=account, memory_ids=sorted(newest)
                )
                if not found:
                    return
                changes = {i: _change(newest[i], row["revision"]) for i, row in found.items()}
                back = [i for i, row in found.items() if _comes_back(row, changes[i])]
                staying = sorted(changes.keys() - set(back))
                for at in range(0, len(staying), RECEIPT_ITEMS_MAX):
                    part = {i: changes[i] for i in staying[at : at + RECEIPT_ITEMS_MAX]}
                    await change_states(change, part)
                for memory_id in sorted(back, key=lambda i: newest[i].order):
                    # What says the same here said something else by then: its edit is yet to come
                    # back.
                    await state_rows.give_up_words(connection, account=account, memory_id=memory_id)
                    await change_states(change, {memory_id: changes[memory_id]})
                links = [link for i in found for link in merged_with(i, newest[i], ())]
                await state_rows.link(connection, account=account, links=links, now=now)
                old = [blob_hash(name) for name, state in said if state.memory in found]
                await outbox_rows.intend(connection, account=account, blob_ids=old, due_at=now)

    async def _continue(self, account: AccountId, history: Sequence[bytes]) -> int:
        """Add what the journal has of the chain of grants; the serial that it has to reach.

        Raises:
            Conflict: another replica does the same; it comes as far.
        """
        chain, steps, due = await self.continuation(account, history)
        if steps:
            await self._granting.accept_moved(chain, steps, actor=self._ledger.relayer)
        return due

    async def continuation(
        self, account: AccountId, history: Sequence[bytes]
    ) -> tuple[Chain, Sequence[Step], int]:
        """Return the chain of grants as these objects continue it, what they add, and its due end.

        The last is the serial that it has to reach; nothing and 0 where what is stored does not
        hold, and answers nobody anyway.
        """
        chain = Chain(account)
        stored = await account_rows.grants_after(self._database, account, 0)
        try:
            return chain, *continue_chain(chain, stored, history)
        except CryptoError:
            return chain, [], 0


def _comes_back(row: Row, change: Change) -> bool:
    return bool(row["superseded_at"]) and not change["superseded_at"]


def _change(said: SignedState, revision: int) -> Change:
    change = Change(
        pinned=said.pinned,
        review=said.review,
        stale=said.stale and said.revision == revision,
        superseded_at=from_ms(said.superseded_ms),
        superseded_by=said.superseded_by,
        merged=said.merged,
    )
    if said.revision != revision:
        return change
    return change | Change(
        expires_at=from_ms(said.expires_ms), has_default_life=said.has_default_life
    )
