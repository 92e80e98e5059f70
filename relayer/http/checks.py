"""The checks every signed request passes, in order, and the guard that runs them before any route.

Not here: what a key may do in a namespace (`tenants.accounts`), the unlock header
(`tenants/custody.py`).

    1. The headers are there, once each, and strictly formed.
    2. The timestamp is within ±300 s.
    3. The signature over the raw request verifies.
    4. The nonce is new for this key, and the key is registered here.
    5. A MemWal session header, where one is sent, is live and signed by the same key.
    6. The account named is the key's account.
    7. The key holds a live grant, verified back to the founder.
    8. The account's and the key's request windows have room.
    9. Few enough of the account's requests are under way; until then it waits, and 7 is done again.

- Checks 1–3, 5 and 8 are pure: headers, bytes and a `now`, or counts, in, a verdict out.
- Every failure of 1–7 answers 401 with one body and one minimal duration, so that neither tells
  which check failed; only a missing nonce (426) and a wrong clock are told apart, for clients'
  sake.
- A relayer that cannot record a nonce refuses: fail closed.
"""

import asyncio
import hashlib
import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Scope

from relayer import concurrency
from relayer.clock import Clock, to_ms
from relayer.concurrency import ConcurrencyLimit
from relayer.database import requests as statements
from relayer.database.pool import Batches, Database
from relayer.errors import (
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
    Unavailable,
    UpgradeRequired,
)
from relayer.http import sui
from relayer.http.rate_limits import (
    OF_KEY,
    STATE,
    FullKeys,
    Room,
    rooms,
    weight_with_text,
    windows,
)
from relayer.http.requests import header
from relayer.sealed.keys import AccountId, PublicKey, account_id, parse_account
from relayer.sealed.primitives import CryptoError, verify_signature
from relayer.settings import Limits, Settings
from relayer.telemetry.instruments import time_stage
from relayer.tenants.accounts import Access, Accounts, LookUp
from relayer.tenants.key_uses import KeyUses

log = logging.getLogger("relayer.checks")

PUBLIC: Final = "public"  # route option: no signature
FOUNDING: Final = "founding"  # route option: signed by a key that has no account yet
WEIGHT: Final = "weight"  # route option: how much a request counts, 1 if not given
# Route option: what a body makes its request count, where that is more than the weight.
WEIGH: Final = "weigh"
TEXT: Final = "text"  # route option: its body is text to be indexed, and counts by its length, too
# Route option: what an owner takes rights away by; other keys of the account cannot use it up.
REVOKING: Final = "revoking"
ACCESS: Final = "access"  # in a request's state: who asks
FOUNDER: Final = "founder"  # in a request's state: the key that founds an account

FOUNDERS: Final = AccountId(bytes(32))  # stands for every key without an account in the windows
REFUSAL_S_MIN: Final = 0.02  # longer than any of the checks takes
_HEX_KEY: Final = re.compile(r"[0-9a-f]{64}")
_HEX_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_NONCE: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ACCOUNT: Final = re.compile(r"(?:0x[0-9a-f]{64})?")


@dataclass(frozen=True)
class SignedHeaders:
    """The headers of a signed request, strictly formed; the texts are as they were sent."""

    public_key: PublicKey
    signature: bytes = field(repr=False)
    timestamp: str
    nonce_text: str
    account_text: str

    @property
    def timestamp_s(self) -> int:
        """Return when it was signed, in Unix seconds."""
        return int(self.timestamp)

    @property
    def nonce(self) -> uuid.UUID:
        """Return the nonce, which counts once."""
        return uuid.UUID(self.nonce_text)

    @cached_property
    def account(self) -> AccountId | None:
        """Return the account that is named, if one is."""
        return parse_account(self.account_text) if self.account_text else None

    def message(self, method: str, path: str, body: bytes) -> bytes:
        """Return the text that the signature is over.

        `path` is as sent, with its query and without the public URL's prefix. The text is
        unambiguous only because `parse_headers` refused every field that could hold a dot.
        """
        digest = hashlib.sha256(body).hexdigest()
        fields = (self.timestamp, method, path, digest, self.nonce_text, self.account_text)
        return ".".join(fields).encode()


def parse_headers(headers: Sequence[tuple[bytes, bytes]]) -> SignedHeaders:
    """Check 1.

    Raises:
        UpgradeRequired: all is there but the nonce, as old clients send it.
        NotAuthenticated: a header is missing, repeated or malformed.
    """
    named = _single(headers)
    key, signature = named.get("x-public-key", ""), named.get("x-signature", "")
    timestamp, account = named.get("x-timestamp", ""), named.get("x-account-id", "")
    nonce = named.get("x-nonce", "")
    well_formed = (
        _HEX_KEY.fullmatch(key)
        and _HEX_SIGNATURE.fullmatch(signature)
        and _TIMESTAMP.fullmatch(timestamp)
        and _ACCOUNT.fullmatch(account)
    )
    if well_formed and not nonce:
        raise UpgradeRequired("This client is too old: it sends no nonce.")
    if not (well_formed and _NONCE.fullmatch(nonce)):
        raise NotAuthenticated("headers")
    return SignedHeaders(
        public_key=PublicKey(bytes.fromhex(key)),
        signature=bytes.fromhex(signature),
        timestamp=timestamp,
        nonce_text=nonce,
        account_text=account,
    )


def _single(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that say who asks, each at most once.

    Raises:
        NotAuthenticated: one is repeated, so that two parties could read two requests.
    """
    named: dict[str, str] = {}
    for name, value in headers:
        if (known := _SIGNING.get(name.lower())) is not None:
            if known in named:
                raise NotAuthenticated("headers")
            named[known] = value.decode("latin-1")
    return named


_SIGNING: Final = {
    name.encode(): name
    for name in """x-public-key x-signature x-timestamp x-nonce x-account-id x-seal-session
    x-memrelay-unlock""".split()
}


def check_clock(request: SignedHeaders, now: datetime) -> None:
    """Check 2.

    Raises:
        NotAuthenticated: signed too long ago or too far ahead.
    """
    if abs(now.timestamp() - request.timestamp_s) > Limits.clock_skew_s_max:
        raise NotAuthenticated("clock", headers={"x-auth-error": "ERR_TIMESTAMP_OUT_OF_BOUNDS"})


def check_signature(request: SignedHeaders, message: bytes) -> None:
    """Check 3.

    Raises:
        NotAuthenticated: the signature is not the key's over this very request.
    """
    try:
        verify_signature(request.public_key, message, request.signature)
    except CryptoError:
        raise NotAuthenticated("signature") from None


def check_session(header: str | None, public_key: PublicKey, now: datetime) -> None:
    """Check 5.

    Raises:
        NotAuthenticated: a session header was sent and is not live, or not this key's.
    """
    if header is None:
        return
    try:
        sui.verify_session(header, public_key, to_ms(now))
    except CryptoError:
        raise NotAuthenticated("session") from None


def check_room(found: Sequence[Room]) -> None:
    """Check 8.

    Raises:
        RateLimited: a window was full before; Retry-After says when all of them have room again.
    """
    if full := [room for room in found if room.left < 0]:
        raise RateLimited(
            "Too many requests; the limits are in /v1/usage.",
            retry_after_s=max(room.reset_s for room in full),
        )


class Guard:
    """Runs the checks before every route that is not public; leaves `Access` in its state."""

    def __init__(
        self,
        *,
        database: Database,
        accounts: Accounts,
        key_uses: KeyUses,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._key_uses = key_uses
        self._settings = settings
        self._clock = clock
        self._nonces = Batches.of(database, statements.record_nonces)
        self._counts = Batches.of(database, statements.count_requests)
        self._full = FullKeys()
        self._concurrency = ConcurrencyLimit(
            at_once=Limits.requests_at_once_max, waiting_max=Limits.requests_waiting_max
        )
        self._owners = ConcurrencyLimit(at_once=1, waiting_max=Limits.revoking_waiting_max)

    async def __call__(
        self,
        connection: ASGIConnection[Any, Any, Any, Any],
        handler: BaseRouteHandler,
    ) -> None:
        """Return when the request may go on.

        Raises:
            RelayerError: it may not.
        """
        if handler.opt.get(PUBLIC):
            return
        started = time.monotonic()
        try:
            # No body is read for a request that nobody can have signed just now.
            check_clock(parse_headers(list(connection.scope["headers"])), self._clock())
            body = await connection.body()  # type: ignore[attr-defined]  # an HTTP request
            # How slowly a body comes in is for its sender to say, who would see behind it what a
            # refusal takes.
            started = time.monotonic()
            await self._check(connection.scope, body, handler)
        except NotAuthenticated as refusal:
            # The answer tells nobody which check failed; the operator may know.
            log.info("refused", extra={"event": "auth.refused", "cause": refusal.cause})
            await asyncio.sleep(max(0.0, REFUSAL_S_MIN - (time.monotonic() - started)))
            raise
        except Unavailable as error:
            error.headers["x-auth-error"] = "AUTH_UPSTREAM_UNAVAILABLE"
            # Without its frames: they know the question that failed by it, and the request's body.
            raise error.with_traceback(None) from None

    @time_stage("request.check")
    async def _check(self, scope: Scope, body: bytes, handler: BaseRouteHandler) -> None:
        request, now = parse_headers(list(scope["headers"])), self._clock()
        check_clock(request, now)  # a body may come in slowly
        message = request.message(str(scope.get("method", "")), path_to_verify(scope), body)
        check_signature(request, message)
        founding, weight = bool(handler.opt.get(FOUNDING)), int(handler.opt.get(WEIGHT, 1))
        if weigh := handler.opt.get(WEIGH):
            weight = max(weight, int(weigh(body)))
        if handler.opt.get(TEXT):
            weight = weight_with_text(self._settings, weight, len(body))
        if founding:
            await self._check_founding(weight, now)
        chain = None if request.account is None else self._accounts.chain_at_hand(request.account)
        answer = await self._record_nonce(request, now, unregistered=founding)
        check_session(header(scope, b"x-seal-session"), request.public_key, now)
        if founding:
            self._check_founded(request)
            scope["state"][FOUNDER] = request.public_key
            return
        # What was read counts only if the account turns out to be the key's.
        read = None if chain is None else LookUp(chain, answer.named)
        access = await self._access(request, answer.owner, read, now)
        self._key_uses.note(access.account, access.key, now)
        scope["state"][ACCESS] = access
        scope["state"][STATE] = found = await self._count(access.account, access.key, weight, now)
        if handler.opt.get(REVOKING) and access.is_owner:
            check_room([room for room in found if room.name == OF_KEY])
            slot = await self._owners.acquire(access.account + access.key)
        else:
            check_room(found)
            slot = await self._concurrency.acquire(access.account)
        scope["state"][concurrency.STATE] = slot
        if slot.has_waited:  # as long as a request may take: the key may have lost its grants since
            scope["state"][ACCESS] = await self._access(
                request, access.account, None, self._clock()
            )

    async def _check_founding(self, weight: int, now: datetime) -> None:
        """Check a request to found an account, before anything is stored for an unknown key.

        Raises:
            NotAllowed: registration is closed.
            RateLimited: too many keys found accounts at once, all of them counted together.
        """
        if self._settings.registration == "closed":
            raise NotAllowed("Registration is closed.", code="registration.closed")
        check_room(await self._count(FOUNDERS, PublicKey(FOUNDERS), weight, now))

    async def _record_nonce(
        self, request: SignedHeaders, now: datetime, *, unregistered: bool, again: bool = False
    ) -> statements.NonceAnswer:
        """Check 4; whose the key is, and the row of the account that the request names.

        Raises:
            NotAuthenticated: a replay, or an unknown key.
            Unavailable: the database lost its nonces, and this request is from before.
        """
        answer = await self._nonces.ask(
            statements.Nonce(
                public_key=request.public_key,
                nonce=request.nonce,
                timestamp_s=request.timestamp_s,
                expires_at=now + timedelta(seconds=Limits.nonce_life_s),
                unregistered=unregistered,
                account=None if unregistered else request.account,
            )
        )
        if not answer.intact:
            await statements.restore_nonces(self._database)
            raise Unavailable("The relayer recovers from a crash.", retry_after_s=2)
        if answer.owner is None and not unregistered:
            if again or not await self._claims(request):
                raise NotAuthenticated("unknown key")
            return await self._record_nonce(request, now, unregistered=False, again=True)
        if not answer.fresh:
            raise NotAuthenticated("replay")
        if request.timestamp_s <= answer.floor_s:
            raise Unavailable("The relayer recovers from a crash.", retry_after_s=2)
        return answer

    async def _claims(self, request: SignedHeaders) -> bool:
        """Claim an unknown key for its account; true if the account brought that key along."""
        if request.account is None:
            return False
        return await self._accounts.claim(request.account, request.public_key)

    def _check_founded(self, request: SignedHeaders) -> None:
        """Check that an unregistered key names the account that it founds, or none."""
        if request.account not in (None, account_id(request.public_key)):
            raise NotAuthenticated("account")

    async def _access(
        self, request: SignedHeaders, owner: AccountId | None, read: LookUp | None, now: datetime
    ) -> Access:
        """Run checks 6 and 7."""
        if owner is None or request.account not in (None, owner):
            raise NotAuthenticated("account")
        try:
            access = await self._accounts.access(owner, request.public_key, read, time=now)
        except NotFound:
            raise NotAuthenticated("account") from None
        if access is None:
            raise NotAuthenticated("grant")
        return access

    async def _count(
        self, account: AccountId, key: PublicKey, weight: int, now: datetime
    ) -> tuple[Room, ...]:
        """Count this request and return the room left in each window; no windows without limits."""
        if self._settings.rate_limit == "off":
            return ()
        counted = windows(self._settings, key, now)
        used = self._full.of(account, key, now)
        if used is None:
            places = tuple(window.id for window in counted)
            used = await self._counts.ask(statements.Counted(account, places, weight))
        found = rooms(counted, used, now)
        if any(room.name == OF_KEY and room.left < 0 for room in found):
            self._full.note(account, key, now, used)
        return found


def path_to_verify(scope: Mapping[str, object]) -> str:
    """Return the path and query as the client signed them: raw, not decoded."""
    raw = scope.get("raw_path") or str(scope["path"]).encode()
    query = scope.get("query_string") or b""
    assert isinstance(raw, bytes)
    assert isinstance(query, bytes)
    path = raw.split(b"?", 1)[0]
    return (path + (b"?" + query if query else b"")).decode("latin-1")
