"""Blobs as objects of a bucket, in any store that speaks S3's protocol.

Not here: which bucket (`settings.py`), keeping what was read at hand (`cache.py`).

- An object is named as a file of `FolderStore` is: what copies folders may fill a bucket.
- It is created only where nothing is (`If-None-Match: *`). Where a store does not know this
  condition it is put without: what has the same name has the same bytes.
- An object is missing only if the store says so of this very object. Whatever else goes wrong, or
  takes longer than the deadline, is `Unavailable`: an absent bucket holds no lost memories.
- Everything is said here; nothing is taken from variables that other programs read.
"""

import asyncio
import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from relayer.blobs.store import ACCOUNT, LIST_PAGE, NEWEST, is_name, read_mark, verify_blob
from relayer.errors import Corrupted, Unavailable
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import AccountId
from relayer.settings import Bucket

if TYPE_CHECKING:
    from obstore.store import S3Credential

T = TypeVar("T")
log = logging.getLogger("relayer.buckets")

AT_ONCE: Final = 16  # requests under way in one process
TOGETHER_MAX: Final = 100  # objects that a request needs at most; more may take longer
ATTEMPTS_MAX: Final = 4
CONNECT_S: Final = 3.0
ACCOUNTS_S: Final = 300.0  # there may be a thousand pages of them
_BACKOFF_S: Final = (0.1, 1.0)
_NO_SUCH_OBJECT: Final = "<Code>NoSuchKey</Code>"
_NO_SUCH_BUCKET: Final = "<Code>NoSuchBucket</Code>"
_FORBIDDEN: Final = " 403 "
_CONFLICT: Final = " 409 "
_CONDITION_UNKNOWN: Final = (" 501 ", "<Code>NotImplemented</Code>")


class BucketStore:
    """Blobs as objects `<prefix>/<account>/<first two characters>/<blob id>` of one bucket.

    `<prefix>/<account>/newest` holds the number of the newest receipt that anything there speaks
    of. `deadline_s` bounds every use for a request, its retries and its wait for others included.
    """

    transactional = False

    def __init__(self, *, bucket: Bucket, deadline_s: float) -> None:
        self._objects = _connect(bucket, deadline_s)
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._knows_condition = True

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Store blobs durably; storing one again changes nothing."""
        named = {_path(account, name): data for name, data in blobs.items()}
        await self._all([self._create(path, data) for path, data in named.items()])

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        """Return the blobs that exist, each verified or the error that says why not."""
        wanted = {name: _path(account, name) for name in names}
        found = await self._all([self._get(path) for path in wanted.values()])
        return {
            name: verify_blob(name, data)
            for name, data in zip(wanted, found, strict=True)
            if data is not None
        }

    async def unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        """Return no name: an object is read, or the store is away."""
        return []

    async def delete(self, account: AccountId, name: str) -> None:
        """Remove one blob; a missing one is no error."""
        await self._delete(_path(account, name))

    async def unmark(self, account: AccountId) -> None:
        """Forget what was marked, once nothing of the account is here any more."""
        await self._delete(f"{account.hex()}/{NEWEST}")

    async def _delete(self, path: str) -> None:
        async with self._translate_errors(self._deadline_s):
            try:
                await self._one(lambda: obstore.delete_async(self._objects, path))
            except FileNotFoundError as error:
                if _NO_SUCH_OBJECT not in str(error):
                    raise

    async def names(self, account: AccountId, *, after: str = "") -> AsyncIterator[str]:
        """Yield every name of the account, or those behind one, in the store's own order."""
        offset = _path(account, after) if after else None
        pages = obstore.list(
            self._objects, prefix=account.hex(), offset=offset, chunk_size=LIST_PAGE
        )
        while True:
            async with self._translate_errors(self._deadline_s):
                page = await self._one(lambda: anext(pages, None))
            if page is None:
                return
            for name in (found["path"].rpartition("/")[2] for found in page):
                if is_name(name) and name > after:
                    yield name

    async def accounts(self) -> list[AccountId]:
        """Return every account that has objects here."""
        async with self._translate_errors(max(ACCOUNTS_S, self._deadline_s)):
            listed = await self._one(lambda: obstore.list_with_delimiter_async(self._objects))
        names = sorted(path.rpartition("/")[2] for path in listed["common_prefixes"])
        return [AccountId(bytes.fromhex(name)) for name in names if ACCOUNT.fullmatch(name)]

    async def mark(self, account: AccountId, seq: int) -> None:
        """Remember that the account's history had come as far as this receipt."""
        if seq > await self.read_mark(account):
            async with self._translate_errors(self._deadline_s):
                await self._put(f"{account.hex()}/{NEWEST}", str(seq).encode())

    async def read_mark(self, account: AccountId) -> int:
        """Return the highest receipt number that was marked."""
        async with self._translate_errors(self._deadline_s):
            data = await self._get(f"{account.hex()}/{NEWEST}")
        return read_mark(data or b"")

    async def drop_drafts(self, account: AccountId, *, older_than: timedelta) -> bool:
        """Return false: each object is put by one request, whole."""
        return False

    async def _create(self, path: str, data: bytes) -> None:
        if self._knows_condition:
            try:
                return await self._put(path, data, create=True)
            except AlreadyExistsError as error:
                if _CONFLICT not in str(error):
                    return None
                # Somebody else is at it, and may not come to an end.
            except BaseError as error:
                if not any(sign in str(error) for sign in _CONDITION_UNKNOWN):
                    raise
                if self._knows_condition:  # the first of many at once says so
                    log.warning("puts are unconditional", extra={"event": "blobs.unconditional"})
                self._knows_condition = False
        return await self._put(path, data)

    async def _put(self, path: str, data: bytes, *, create: bool = False) -> None:
        await self._one(
            lambda: obstore.put_async(
                self._objects,
                path,
                data,
                mode="create" if create else "overwrite",
                use_multipart=False,
            )
        )

    async def _get(self, path: str) -> bytes | None:
        async def read() -> bytes:
            got = await obstore.get_async(self._objects, path)
            return bytes(await got.bytes_async())

        try:
            return await self._one(read)
        except FileNotFoundError as error:
            if _NO_SUCH_OBJECT not in str(error):
                raise
            return None

    async def _one(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._slots:
            return await ask()

    async def _all(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Return the results of all; the first failure ends the others."""
        deadline_s = self._deadline_s * max(1, math.ceil(len(work) / TOGETHER_MAX))
        async with self._translate_errors(deadline_s), asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
        return [task.result() for task in tasks]

    @asynccontextmanager
    async def _translate_errors(self, deadline_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except ExceptionGroup as failed:
            raise _away(failed.exceptions[0]) from None
        except (BaseError, OSError) as error:
            raise _away(error) from None


def _path(account: AccountId, name: str) -> str:
    blob_hash(name)  # refuses anything that is no name
    return f"{account.hex()}/{name[:2]}/{name}"


def _connect(bucket: Bucket, deadline_s: float) -> S3Store:
    async def key() -> "S3Credential":
        return {
            "access_key_id": bucket.access_key_id,
            "secret_access_key": bucket.secret_access_key,
            "token": None,
            "expires_at": None,
        }

    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        credential_provider=key,
        config={
            "aws_endpoint_url_s3": bucket.endpoint,
            "region": bucket.region,
            "virtual_hosted_style_request": False,
            "skip_signature": False,
            "disable_bulk_delete": True,  # not every store has it
        },
        client_options={
            "allow_http": bucket.endpoint.startswith("http://"),
            "allow_invalid_certificates": False,
            # One that is used for no name and no address: without it, variables would name some.
            "proxy_url": "http://127.0.0.1:9",
            "proxy_excludes": "*,0.0.0.0/0,::/0",
            "connect_timeout": timedelta(seconds=min(CONNECT_S, deadline_s / 2)),
            "timeout": timedelta(seconds=deadline_s / 2),
        },
        retry_config={
            "max_retries": ATTEMPTS_MAX - 1,
            "retry_timeout": timedelta(seconds=deadline_s),
            "backoff": {
                "init_backoff": timedelta(seconds=_BACKOFF_S[0]),
                "max_backoff": timedelta(seconds=_BACKOFF_S[1]),
                "base": 2,
            },
        },
    )


def _away(error: Exception) -> Exception:
    """Return the error to raise instead; the library's text holds addresses and goes nowhere."""
    if not isinstance(error, BaseError | OSError):
        return error
    message = "The blob store is away."
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if denied or _FORBIDDEN in str(error):  # a listing says so in words alone
        message = "The blob store refuses this relayer's key."
    elif _NO_SUCH_BUCKET in str(error):
        message = "The blob store has no such bucket."
    return Unavailable(message, code="blobs.unavailable")
