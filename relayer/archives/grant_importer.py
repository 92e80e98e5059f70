"""Grants that an owner brings from another relayer: the chain goes on as it went there.

Not here: what else comes (`importer.py`), the rules of a chain (`sealed.grants`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from relayer.clock import Clock, to_ms
from relayer.database import reseal as reseal_rows
from relayer.database.pool import Connection
from relayer.errors import BadRequest, Conflict
from relayer.portable import MovedGrant
from relayer.sealed.grants import Chain, Grant, Revocation, oldest_epoch, parse_any
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.granting import Granting
from relayer.tenants.new_grants import check_bounds
from relayer.tenants.rotation import Needs


@dataclass(frozen=True)
class _Part:
    """New grants (with their labels, and what they rest on) that are accepted together, the chain
    behind them, and the oldest epoch that they leave alive."""

    chain: Chain
    oldest: int = 0
    fresh: list[tuple[Grant | Revocation, str, bytes | None]] = field(default_factory=list)


class GrantImporter:
    """Takes in grants that were accepted elsewhere."""

    def __init__(
        self, *, needs: Needs, accounts: Accounts, granting: Granting, clock: Clock
    ) -> None:
        self._needs = needs
        self._accounts = accounts
        self._granting = granting
        self._clock = clock

    async def take_in(self, access: Access, grants: Sequence[MovedGrant]) -> list[bytes]:
        """Continue the chain as it went on elsewhere; the receipts."""
        if not grants:
            return []
        chain = await self._accounts.chain(access.account)
        try:
            parts = await self._split_by_epoch(chain, grants)
        except CryptoError as error:
            raise BadRequest(f"A grant was refused: {error}.", code="grant.invalid") from None
        receipts: list[bytes] = []
        alive = chain.oldest_alive(to_ms(self._clock()))
        for part in parts:
            if part.fresh:
                over = range(alive, part.oldest)
                if over and await self._needs(access.account, over):
                    raise Conflict(
                        "Something that may need an epoch that is over elsewhere is not restored"
                        " yet since the database was lost: recall there with its key, have it"
                        " sealed anew here, then import again.",
                        code="epoch.in_use",
                    )
                receipts += await self._granting.accept_moved(
                    part.chain,
                    part.fresh,
                    actor=access.key,
                    also=partial(_check_over, account=access.account, oldest=part.oldest),
                )
        return receipts

    async def _split_by_epoch(self, before: Chain, grants: Sequence[MovedGrant]) -> list[_Part]:
        """Return the new ones of these grants, in parts that each begin where an epoch is over.

        Raises:
            CryptoError: a rule of grants is broken.
            Conflict: another one has the place of one of them.
            QuotaExceeded: the account has no room for them.
        """
        chain, now_ms = before.copy(), to_ms(self._clock())
        parts = [_Part(chain)]
        for grant in grants:
            await asyncio.sleep(0)  # others have their turn
            item = parse_any(grant.object)
            if item.serial <= before.serial:
                if before.items[item.serial - 1].signed != grant.object:
                    raise Conflict("The grants went another way here.", code="grant.forked")
                continue
            if grant.succession is not None:
                chain.learn(grant.succession)
            if isinstance(item, Grant) and chain.leaves_out(item, now_ms):
                oldest = oldest_epoch([item])
                if oldest > parts[-1].oldest:
                    chain = chain.copy()
                    parts.append(_Part(chain, oldest))
            self._granting.check_room(chain, item)
            chain.add(item)
            check_bounds(item)
            if item.recipient == self._accounts.relayer and isinstance(item, Grant):
                self._granting.check_custodian(item)
            parts[-1].fresh.append((item, grant.label, grant.succession))
        return parts


async def _check_over(connection: Connection, *, account: AccountId, oldest: int) -> None:
    """Return when nothing here needs an epoch before this one; 0 where none is over.

    Raises:
        Conflict: something does; it has to be sealed anew here first.
    """
    if oldest and await reseal_rows.anything_below(connection, account=account, epoch=oldest):
        raise Conflict(
            "Something here is sealed under an epoch that is over elsewhere: have it"
            " sealed anew here, then import again.",
            code="epoch.in_use",
        )
