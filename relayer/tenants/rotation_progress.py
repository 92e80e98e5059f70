"""The progress of an account to its newest epoch.

Not here: accepting a rotation (`rotation.py`), sealing anew (`memories/reseal.py`).

- What cannot follow is looked for where it is asked for: nothing of it is stored, or remembered.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from relayer.blobs.store import BlobStore
from relayer.database import reseal as rows
from relayer.database.memories import OPAQUE
from relayer.database.pool import Database, Row
from relayer.database.rebuild import is_incomplete
from relayer.errors import Corrupted, NotAllowed, Unavailable
from relayer.record import UnknownVersion, decode
from relayer.sealed import envelope
from relayer.sealed.grants import Chain
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.custody import Custody, Keys

Problem = Literal["missing", "later"]
Outlook = Problem | Literal["moves"]
BLOCKED_MAX: Final = 20  # looked at in an answer, which a client asks for every second or two
LOOK_AT_ONCE: Final = 4  # of these; each may have a mebibyte


@dataclass(frozen=True)
class NamespaceProgress:
    """The progress of one namespace, in memories, their earlier revisions and episodes."""

    name: str
    total: int
    remaining: int
    waiting_for_keys: int

    @property
    def done(self) -> int:
        """Count those that need no more work."""
        return self.total - self.remaining


@dataclass(frozen=True)
class Blocked:
    """A memory or episode that cannot be sealed anew for now.

    Attributes:
        problem: its bytes are `missing`, or its record is of a `later` release.
    """

    id: uuid.UUID
    namespace: str
    problem: Problem


@dataclass(frozen=True)
class Progress:
    """The progress of an account to its newest epoch.

    Attributes:
        older: what is still sealed under an older epoch, also where that is to stay so.
        namespaces: those that are to be sealed anew.
        blocked: of the first `BLOCKED_MAX` that remain, as far as sealing anew has come, those that
            wait for something else than a key or their turn.
        unrestored: whether the account was rebuilt and may lack rows, which nothing here counts.
    """

    epoch: int
    started_ms: int
    older: int
    namespaces: Sequence[NamespaceProgress]
    blocked: Sequence[Blocked]
    unrestored: bool


class RotationProgress:
    """Tells how far what is to be sealed anew has come."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, accounts: Accounts, custody: Custody
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._accounts = accounts
        self._custody = custody

    async def of(self, access: Access) -> Progress:
        """Return the progress of the namespaces that the key may read."""
        chain = await self._accounts.chain(access.account)
        keys = await self._custody.reseal_keys(access.account)
        found = await rows.find_occupied(
            self._database, account=access.account, names=access.namespaces
        )
        things: dict[str, list[tuple[int, int, int]]] = {}
        for row in found:
            entry = (row["epoch"], row["things"], row["reseal_below"])
            things.setdefault(row["name"], []).append(entry)
        namespaces = [
            _namespace_progress(Namespace(name), own, keys)
            for name, own in things.items()
            if own[0][2]
        ]
        remains = any(entry.remaining for entry in namespaces)
        return Progress(
            epoch=chain.epoch,
            started_ms=_started_ms(chain),
            older=sum(n for own in things.values() for epoch, n, _ in own if epoch < chain.epoch),
            namespaces=namespaces,
            blocked=await self._find_blocked(access, keys) if remains else [],
            unrestored=await is_incomplete(self._database, access.account),
        )

    async def _find_blocked(self, access: Access, keys: Keys | None) -> list[Blocked]:
        """Return those of the first due that cannot be sealed anew, as the keys at hand tell."""
        due = await rows.first_due(
            self._database, account=access.account, names=access.namespaces, limit=BLOCKED_MAX
        )
        found: list[Blocked] = []
        for at in range(0, len(due), LOOK_AT_ONCE):
            some = due[at : at + LOOK_AT_ONCE]
            names = [to_base64url(row["blob_id"]) for row in some]
            try:
                blobs = await self._blobs.get_many(access.account, names)
            except Unavailable:
                break  # of a store that is away, nobody knows what is missing in it
            stored = [blobs.get(name) for name in names]
            judged = await asyncio.to_thread(_judge, access.account, some, stored, keys)
            found += [
                Blocked(row["id"], row["namespace"], one)
                for row, one in zip(some, judged, strict=True)
                if one is not None and one != "moves"
            ]
            if "moves" in judged:
                break  # it has not come to what is behind this one
        return found


def _started_ms(chain: Chain) -> int:
    """Return when the newest epoch began."""
    return min(
        grant.created_ms
        for grants in chain.grants.values()
        for grant in grants
        if any(entry.epoch == chain.epoch for entry in grant.scope)
    )


def _namespace_progress(
    name: Namespace, things: Sequence[tuple[int, int, int]], keys: Keys | None
) -> NamespaceProgress:
    """`things` are (epoch, how many, below which they are due)."""
    held = _epochs(keys, name)
    due = [(epoch, count) for epoch, count, below in things if epoch < below]
    return NamespaceProgress(
        name=name,
        total=sum(count for _, count, _ in things),
        remaining=sum(count for _, count in due),
        waiting_for_keys=sum(count for epoch, count in due if epoch not in held),
    )


def _epochs(keys: Keys | None, name: Namespace) -> dict[int, NamespaceKey]:
    """Return epoch → the key of a namespace, of those at hand."""
    try:
        return {} if keys is None else {key.epoch: key for key in keys.of(name)}
    except NotAllowed:
        return {}


def _judge(
    account: AccountId,
    due: Sequence[Row],
    blobs: Sequence[bytes | Corrupted | None],
    keys: Keys | None,
) -> list[Outlook | None]:
    """Return the outlook of each; None if it waits for a key, or is altered.

    Nobody waits for an altered one.
    """
    return [_outlook(account, row, blob, keys) for row, blob in zip(due, blobs, strict=True)]


def _outlook(
    account: AccountId, row: Row, blob: bytes | Corrupted | None, keys: Keys | None
) -> Outlook | None:
    key = _epochs(keys, Namespace(row["namespace"])).get(row["epoch"])
    if row["format"] == OPAQUE:
        return None if key is None else "moves"
    if blob is None:
        return "missing"
    if key is None or not isinstance(blob, bytes):
        return None
    address = envelope.Address(row["type"], account, row["id"], row["revision"])
    try:
        decode(envelope.open_envelope(key, address, blob))
    except UnknownVersion:
        return "later"
    except CryptoError:
        return None
    return "moves"
