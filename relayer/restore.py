"""Rebuilding index rows from sealed blobs.

Not here: writing them (`writer.py`). The blob says everything a row needs; who may read the
namespace is asked as always, and what was erased stays erased.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from relayer.blobs import BlobStore
from relayer.clock import from_ms
from relayer.database import memories as rows
from relayer.database import namespaces as namespace_rows
from relayer.database.pool import Database, UniqueViolation
from relayer.errors import NotFound
from relayer.namespaces import Namespaces
from relayer.opening import Caller
from relayer.record import decode
from relayer.sealed import envelope
from relayer.sealed.keys import Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError
from relayer.writer import Writer, new_memory

PAGE: Final = 200


@dataclass(frozen=True)
class Restored:
    """What a restore did: `total` blobs of the namespace were seen, `skipped` had their rows."""

    restored: int
    skipped: int
    failed: int
    total: int
    truncated: bool


class Restore:
    """Finds blobs without rows and gives them theirs."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, namespaces: Namespaces, writer: Writer
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._namespaces = namespaces
        self._writer = writer

    async def restore(self, caller: Caller, namespace: Namespace, limit: int) -> Restored:
        """Give at most `limit` blobs of the namespace their rows back.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
        """
        caller.access.require(namespace, "writer")
        keys = {key.key_id: key for key in caller.keys.of(namespace)}
        missing, altered = await self._missing(caller, keys)
        indexed = await self._indexed(caller, namespace)
        if missing:
            await namespace_rows.recount(self._database, caller.access.account)
        restored, failed = 0, altered
        for name in missing[:limit]:
            try:
                restored += await self._restore_one(caller, namespace, keys, name)
            except CryptoError:
                failed += 1
        inspected = min(len(missing), limit)
        return Restored(
            restored=restored,
            skipped=indexed + inspected - restored - (failed - altered),
            failed=failed,
            total=len(missing) + indexed + altered,
            truncated=len(missing) > limit,
        )

    async def _indexed(self, caller: Caller, namespace: Namespace) -> int:
        """How many memories of the namespace have their rows."""
        entry = await self._namespaces.find(caller.access.account, namespace)
        if entry is None:
            return 0
        return await rows.count_sealed(
            self._database, account=caller.access.account, namespace_id=entry.namespace_id
        )

    async def _missing(
        self, caller: Caller, keys: dict[bytes, NamespaceKey]
    ) -> tuple[list[str], int]:
        """(names of memory blobs without a row, how many blobs without a row are altered).

        Only blobs that no row speaks of are read. An altered one does not say whose it was.
        """
        account = caller.access.account
        names = [name async for name in self._blobs.names(account)]
        missing: list[str] = []
        altered = 0
        for page in _pages(names):
            hashes = {envelope.blob_hash(n): n for n in page}
            known = await rows.known_blobs(self._database, account=account, blob_ids=list(hashes))
            unknown = [name for blob, name in hashes.items() if blob not in known]
            for name, data in (await self._blobs.get_many(account, unknown)).items():
                if not isinstance(data, bytes):
                    altered += 1
                elif _is_memory_of(data, keys):
                    missing.append(name)
        return missing, altered

    async def _restore_one(
        self,
        caller: Caller,
        namespace: Namespace,
        keys: dict[bytes, NamespaceKey],
        name: str,
    ) -> bool:
        """Whether the blob got its row; not when it was erased, or its fact was said again since.

        Raises:
            CryptoError: it does not open.
        """
        account = caller.access.account
        blob = (await self._blobs.get_many(account, [name]))[name]
        if not isinstance(blob, bytes):
            raise CryptoError("altered")
        header = envelope.read_header(blob)
        if header.address.account != account:
            raise CryptoError("another account's blob")
        key = keys[header.key_id]
        draft, writer = decode(envelope.open_envelope(key, header.address, blob))
        if draft.namespace != namespace:
            return False
        entry = await self._namespaces.ensure(account, key)
        memory = new_memory(
            draft,
            key,
            entry,
            address=header.address,
            blob=blob,
            writer=writer,
            created_at=from_ms(header.created_ms),
        )
        try:
            await self._writer.store(
                caller.access, [memory], op="restore", names={entry.namespace_id: namespace}
            )
        except (UniqueViolation, NotFound):
            return False
        return True


def _is_memory_of(blob: bytes, keys: dict[bytes, NamespaceKey]) -> bool:
    try:
        header = envelope.read_header(blob)
    except CryptoError:
        return False
    return header.key_id in keys and header.address.type == envelope.MEMORY


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + PAGE] for at in range(0, len(names), PAGE))
