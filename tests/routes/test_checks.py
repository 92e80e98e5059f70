"""The request checks in order, through an application in this process: refusals, replays, windows.

Not here: each rule of a signature alone (`test_signatures.py`).
"""

import asyncio
import dataclasses
import gc
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.http.checks import REFUSAL_S_MIN, SignedHeaders
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity, account_id, account_text
from relayer.settings import Limits, Settings
from relayer.storage import Storage, storage_on
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.signing import client_of, signed_headers, signer_of

NONCE = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


async def refusal(
    app: ASGIApp, key: NewKey, *, method: str = "GET", path: str = "/v1/settings", **signer: Any
) -> httpx.Response:
    async with client_of(app, dataclasses.replace(signer_of(key), **signer)) as client:
        return await client.request(method, path)


async def test_a_signed_request_passes(app: ASGIApp, managed: NewKey) -> None:
    assert (await refusal(app, managed)).status_code == 200
    assert (await refusal(app, managed, account="")).status_code == 200


async def expired_key(storage: Storage, managed: NewKey) -> NewKey:
    return await provision.add_key(
        storage,
        account=managed.account,
        namespaces=[],
        role="reader",
        label="soon over",
        expires_at=utc_now() + timedelta(hours=1),
        owner=None,
        clock=utc_now,
    )


async def test_a_key_that_its_account_brought_along_is_known_by_its_first_request(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    """As after a move: its grant is here, but nobody has proven yet to hold the key."""
    moved = await expired_key(storage, managed)
    async with storage.database.connection() as connection:
        await connection.execute(
            "DELETE FROM key_owner WHERE public_key = $1", moved.identity.public_key
        )
    assert (await refusal(app, moved, account="")).status_code == 401, "it names no account"
    assert (await refusal(app, moved)).status_code == 200
    assert (await refusal(app, moved, account="")).status_code == 200


async def test_for_a_stranger_no_chain_is_verified(
    storage: Storage, lean: Settings, managed: NewKey, fresh_database: TestDatabase
) -> None:
    """A long one takes longer than a refusal: it would show that the account is there."""
    other = storage_on(
        lean, fresh_database.connect_args, storage.database, storage.identity, utc_now
    )
    replica, stranger = build_app(other, lean), Identity(bytes(31) + b"\1")
    refused = await refusal(replica, NewKey(managed.account, stranger, "managed"))
    assert refused.status_code == 401
    assert not other.accounts.chain_at_hand(managed.account).serial
    assert (await refusal(replica, managed)).status_code == 200
    assert other.accounts.chain_at_hand(managed.account).serial


async def test_every_refusal_has_one_body(
    app: ASGIApp, storage: Storage, managed: NewKey, sealed: NewKey
) -> None:
    stranger = NewKey(managed.account, Identity(bytes(31) + b"\1"), "managed")
    revoked = await expired_key(storage, managed)
    await provision.revoke_key(
        storage,
        account=managed.account,
        key=revoked.identity.public_key,
        owner=None,
        clock=utc_now,
    )
    replayed = signed_headers(managed.identity, "GET", "/v1/settings")
    async with client_of(app) as client:
        assert (await client.get("/v1/settings", headers=replayed)).status_code == 200
        answers = {
            "no signature": await refusal(app, managed, headers={"x-signature": None}),
            "repeated": await client.get(
                "/v1/settings", headers=[*replayed.items(), ("x-nonce", replayed["x-nonce"])]
            ),
            "bad signature": await refusal(app, managed, headers={"x-signature": "00" * 64}),
            "unknown key": await refusal(app, stranger),
            "unknown key, no account": await refusal(app, stranger, account=""),
            "foreign account": await refusal(app, managed, account=account_text(sealed.account)),
            "absent account": await refusal(app, managed, account="0x" + "00" * 32),
            "revoked": await refusal(app, revoked),
            "replay": await client.get("/v1/settings", headers=replayed),
            "session": await refusal(app, managed, headers={"x-seal-session": "e30="}),
            "founding with a foreign account": await refusal(
                app, stranger, method="POST", path="/v1/accounts"
            ),
        }
    for cause, answer in answers.items():
        assert answer.status_code == 401, cause
        assert "x-auth-error" not in answer.headers, cause
    assert len({told(answer) for answer in answers.values()}) == 1
    assert "request_id" in answers["replay"].json()


def told(answer: httpx.Response) -> tuple[str, str]:
    """Body and headers without what is random in both: the request id."""
    request_id = answer.headers.pop("x-request-id")
    assert answer.json()["request_id"] == request_id
    return answer.text.replace(request_id, ""), str(sorted(answer.headers.items()))


async def test_a_refusal_takes_its_time_behind_a_slow_body(app: ASGIApp, sealed: NewKey) -> None:
    """Else whoever sends slowly sees how long the checks took: an account that is there, longer."""
    stranger, body = Identity(bytes(31) + b"\1"), b"{}"
    account = account_text(sealed.account)
    sent_s = 0.0

    async def slowly() -> AsyncIterator[bytes]:
        nonlocal sent_s
        yield body[:1]
        await asyncio.sleep(2 * REFUSAL_S_MIN)
        sent_s = time.monotonic()
        yield body[1:]

    async with client_of(app) as client:
        signed = signed_headers(stranger, "POST", "/v1/recall", body, account=account)
        answer = await client.post("/v1/recall", headers=signed, content=slowly())
    assert answer.status_code == 401
    assert time.monotonic() - sent_s >= REFUSAL_S_MIN


async def test_a_wrong_clock_differs_by_one_header_only(app: ASGIApp, managed: NewKey) -> None:
    bad = told(await refusal(app, managed, headers={"x-signature": "00" * 64}))
    for skew_s in (-310, 310):
        answer = await refusal(app, managed, skew_s=skew_s)
        assert answer.status_code == 401
        assert answer.headers.pop("x-auth-error") == "ERR_TIMESTAMP_OUT_OF_BOUNDS"
        assert told(answer) == bad


async def test_a_client_without_nonces_is_told_to_upgrade(app: ASGIApp, managed: NewKey) -> None:
    answer = await refusal(app, managed, headers={"x-nonce": None})
    assert answer.status_code == 426
    assert answer.json()["code"] == "client.too_old"


# 4. Nonces


async def test_a_replay_is_refused_by_every_replica(
    app: ASGIApp, storage: Storage, lean: Settings, managed: NewKey
) -> None:
    headers = signed_headers(managed.identity, "GET", "/v1/settings")
    async with client_of(app) as here, client_of(build_app(storage, lean)) as there:
        first = await here.get("/v1/settings", headers=headers)
        again = await here.get("/v1/settings", headers=headers)
        elsewhere = await there.get("/v1/settings", headers=headers)
    assert [a.status_code for a in (first, again, elsewhere)] == [200, 401, 401]


async def test_of_simultaneous_equal_requests_one_passes(app: ASGIApp, managed: NewKey) -> None:
    headers = signed_headers(managed.identity, "GET", "/v1/settings")
    async with client_of(app) as client:
        answers = await asyncio.gather(
            *(client.get("/v1/settings", headers=headers) for _ in range(20))
        )
    assert sorted(a.status_code for a in answers) == [200] + [401] * 19


async def test_a_nonce_belongs_to_its_key(app: ASGIApp, managed: NewKey, sealed: NewKey) -> None:
    async with client_of(app) as client:
        for key in (managed, sealed):
            headers = signed_headers(key.identity, "GET", "/v1/settings", nonce=NONCE)
            assert (await client.get("/v1/settings", headers=headers)).status_code == 200


async def test_a_nonce_counts_only_after_its_signature_verified(
    app: ASGIApp, managed: NewKey
) -> None:
    headers = signed_headers(managed.identity, "GET", "/v1/settings")
    async with client_of(app) as client:
        forged = await client.get("/v1/settings", headers=headers | {"x-signature": "00" * 64})
        good = await client.get("/v1/settings", headers=headers)
    assert (forged.status_code, good.status_code) == (401, 200)


async def test_unknown_keys_leave_no_nonces(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    stranger = NewKey(managed.account, Identity(bytes(31) + b"\2"), "managed")
    await refusal(app, stranger)
    [row] = await storage.database.fetch("SELECT count(*) FROM nonces WHERE public_key <> '\\x'")
    assert row["count"] == 0


async def test_lost_nonces_refuse_everything_signed_before(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    """A crash of PostgreSQL empties the table of nonces; nothing recorded may pass again."""
    ahead = signed_headers(managed.identity, "GET", "/v1/settings", timestamp_s=now_s() + 200)
    past = signed_headers(managed.identity, "GET", "/v1/settings", timestamp_s=now_s() - 60)
    async with client_of(app) as client:
        for headers in (ahead, past):
            assert (await client.get("/v1/settings", headers=headers)).status_code == 200
        await storage.database.execute("TRUNCATE nonces")
        noticed = await refusal(app, managed)
        older = await refusal(app, managed, skew_s=-5)
        replays = [await client.get("/v1/settings", headers=h) for h in (ahead, past)]
        fresh = await refusal(app, managed, skew_s=2)
        again = await client.get("/v1/settings", headers=ahead)
    for answer in (noticed, older, replays[1]):
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-auth-error"] == "AUTH_UPSTREAM_UNAVAILABLE"
    assert replays[0].status_code == 401
    assert fresh.status_code == 200
    assert again.status_code == 401


def now_s() -> int:
    return int(utc_now().timestamp())


async def test_a_request_that_the_database_failed_is_not_kept(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    """Its body would stay in memory until somebody looks for cycles, out of everybody's count."""
    await storage.database.close()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            assert (await refusal(app, managed)).status_code == 503
        alive = [one for one in gc.get_objects() if isinstance(one, SignedHeaders)]
    finally:
        gc.enable()
    assert alive == []


async def test_without_its_database_the_relayer_refuses(
    app: ASGIApp, managed: NewKey, fresh_database: TestDatabase, postgres: EmbeddedPostgres
) -> None:
    name = fresh_database.connect_args["database"]
    admin = await asyncpg.connect(**{**postgres.admin_args, "database": "postgres"})
    try:
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        answer = await refusal(app, managed)
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')
    finally:
        await admin.close()
    assert answer.status_code == 503
    assert answer.json()["code"] == "database.unavailable"
    assert answer.headers["x-auth-error"] == "AUTH_UPSTREAM_UNAVAILABLE"
    assert int(answer.headers["retry-after"]) >= 1
    assert (await refusal(app, managed)).status_code == 200


# 5 and 6. The account and the grant


async def test_a_grant_that_ran_out_is_refused(
    storage: Storage, lean: Settings, managed: NewKey, fresh_database: TestDatabase
) -> None:
    key = await expired_key(storage, managed)
    later = two_hours_later
    then = storage_on(lean, fresh_database.connect_args, storage.database, storage.identity, later)
    now, future = build_app(storage, lean), build_app(then, lean, later)
    assert (await refusal(now, key)).status_code == 200
    assert (await refusal(future, key, skew_s=7200)).status_code == 401
    assert (await refusal(future, managed, skew_s=7200)).status_code == 200


def two_hours_later() -> datetime:
    return utc_now() + timedelta(hours=2)


async def test_a_revocation_counts_from_the_next_request_on_every_replica(
    app: ASGIApp,
    storage: Storage,
    lean: Settings,
    managed: NewKey,
    fresh_database: TestDatabase,
) -> None:
    key = await expired_key(storage, managed)
    other = storage_on(
        lean, fresh_database.connect_args, storage.database, storage.identity, utc_now
    )
    replica = build_app(other, lean)
    assert (await refusal(app, key)).status_code == 200
    assert (await refusal(replica, key)).status_code == 200
    await provision.revoke_key(
        storage, account=managed.account, key=key.identity.public_key, owner=None, clock=utc_now
    )
    assert (await refusal(app, key)).status_code == 401
    assert (await refusal(replica, key)).status_code == 401


async def test_who_waited_for_its_turn_is_looked_at_again(
    app: ASGIApp, storage: Storage, managed: NewKey, fresh_database: TestDatabase
) -> None:
    """A key that is taken away has no requests in line that are still answered."""
    key = await expired_key(storage, managed)
    busy = await asyncpg.connect(**fresh_database.connect_args)
    try:
        async with busy.transaction():
            await busy.execute("LOCK TABLE namespaces IN ACCESS EXCLUSIVE MODE")
            first = [
                asyncio.create_task(refusal(app, managed, path="/v1/namespaces"))
                for _ in range(Limits.requests_at_once_max)
            ]
            await counted(busy, len(first))
            waiting = asyncio.create_task(refusal(app, key))
            await counted(busy, len(first) + 1)
            await provision.revoke_key(
                storage,
                account=managed.account,
                key=key.identity.public_key,
                owner=None,
                clock=utc_now,
            )
        assert [answer.status_code for answer in await asyncio.gather(*first)] == [200, 200]
        assert (await waiting).status_code == 401
        assert (await refusal(app, managed)).status_code == 200, "it gave its place back"
    finally:
        await busy.close()


async def counted(connection: asyncpg.Connection, requests: int) -> None:
    """Return when so many requests have passed the checks before the line."""
    statement = "SELECT coalesce(sum(used), 0)::int FROM request_windows WHERE subject = 'hour'"
    while await connection.fetchval(statement) < requests:
        await asyncio.sleep(0.01)


async def test_a_key_whose_account_is_gone_is_refused(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    await storage.database.execute("DELETE FROM accounts WHERE account_id = $1", managed.account)
    assert (await refusal(app, managed)).status_code == 401


# 8. Request windows


class Stopped:
    """A clock that stands in the middle of a minute until it is moved."""

    def __init__(self) -> None:
        self.now = utc_now().replace(second=30, microsecond=0)

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize(
    ("limit", "moved"),
    [
        ({"requests_per_minute": 3}, timedelta(minutes=1)),
        ({"key_requests_per_minute": 3}, timedelta(minutes=1)),
        ({"requests_per_hour": 3}, timedelta(hours=1)),
    ],
)
async def test_a_full_window_answers_429_until_the_next_one(
    storage: Storage, lean: Settings, managed: NewKey, limit: dict[str, Any], moved: timedelta
) -> None:
    clock = Stopped()
    app = build_app(storage, dataclasses.replace(lean, **limit), clock)
    skew_s = int((clock.now - utc_now()).total_seconds())
    statuses = [(await refusal(app, managed, skew_s=skew_s)).status_code for _ in range(3)]
    full = await refusal(app, managed, skew_s=skew_s)
    wait_s = int(full.headers["retry-after"])
    clock.now += timedelta(seconds=wait_s)
    reopened = await refusal(app, managed, skew_s=skew_s + wait_s)
    assert statuses == [200] * 3
    assert (full.status_code, full.json()["code"]) == (429, "rate.limited")
    assert 1 <= wait_s <= moved.total_seconds()
    assert reopened.status_code == 200


async def test_a_keys_own_window_leaves_the_other_keys_theirs(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    other = await expired_key(storage, managed)
    app = build_app(storage, dataclasses.replace(lean, key_requests_per_minute=2), Stopped())
    statuses = [(await refusal(app, key)).status_code for key in (managed,) * 4 + (other,) * 4]
    assert statuses == [200, 200, 429, 429] * 2


async def test_a_request_counts_with_the_weight_of_its_route(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    app = build_app(storage, dataclasses.replace(lean, requests_per_minute=10), Stopped())
    async with client_of(app, signer_of(managed)) as client:
        stored = [
            await client.post("/api/remember", json={"text": f"Tea number {n}."}) for n in range(3)
        ]
    assert [a.status_code for a in stored] == [202, 202, 429]


async def test_refused_requests_do_not_use_up_a_window(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    app = build_app(storage, dataclasses.replace(lean, requests_per_minute=1), Stopped())
    forged = [await refusal(app, managed, headers={"x-signature": "00" * 64}) for _ in range(3)]
    assert [a.status_code for a in forged] == [401] * 3
    assert (await refusal(app, managed)).status_code == 200


async def test_limits_can_be_off(storage: Storage, lean: Settings, managed: NewKey) -> None:
    off = dataclasses.replace(lean, rate_limit="off", requests_per_minute=1)
    app = build_app(storage, off, Stopped())
    assert [(await refusal(app, managed)).status_code for _ in range(3)] == [200] * 3


# The address, through the application


async def test_an_encoded_query_is_signed_as_sent(app: ASGIApp, managed: NewKey) -> None:
    for target in ("/v1/stats?namespace=caf%C3%A9", "/v1/stats?namespace=caf%c3%a9"):
        assert (await refusal(app, managed, path=target)).status_code == 200
    headers = signed_headers(managed.identity, "GET", "/v1/stats?namespace=caf%C3%A9")
    async with client_of(app) as client:
        reencoded = await client.get("/v1/stats?namespace=caf%c3%a9", headers=headers)
    assert reencoded.status_code == 401


@pytest.mark.parametrize(
    ("sent", "prefix", "status"),
    [
        ("/memory/v1/keys", "/memory", 200),  # the proxy left the prefix
        ("/v1/settings", "", 200),  # the proxy took it away
        ("/memory/v1/keys", "", 401),  # the client signed it
        ("/memory/memory/v1/keys", "/memory", 404),  # it is stripped once
        ("/memoryx/v1/keys", "", 404),
        ("/memory", "", 404),
    ],
)
async def test_a_public_urls_prefix_is_not_signed(
    storage: Storage, lean: Settings, managed: NewKey, sent: str, prefix: str, status: int
) -> None:
    app = build_app(storage, dataclasses.replace(lean, public_url="https://a.example/memory/"))
    answer = await refusal(app, managed, path=sent, prefix=prefix)
    assert answer.status_code == status


@pytest.mark.parametrize("url", ["https://a.example/mém/x", "https://a.example/m%C3%A9m/x"])
@pytest.mark.parametrize("spelt", ["/m%C3%A9m/x", "/m%c3%a9m/x", "/%6d%C3%A9m/x"])
async def test_a_prefix_is_the_same_in_any_spelling(
    storage: Storage, lean: Settings, managed: NewKey, url: str, spelt: str
) -> None:
    app = build_app(storage, dataclasses.replace(lean, public_url=url))
    answer = await refusal(app, managed, path=f"{spelt}/v1/stats?namespace=%C3%A9", prefix=spelt)
    assert answer.status_code == 200
    assert answer.json()["namespace"] == "é"


# Routes that ask for less


async def test_a_public_route_asks_for_nothing(app: ASGIApp) -> None:
    async with client_of(app) as client:
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("named", [True, False])
async def test_a_founders_key_needs_no_account_yet(app: ASGIApp, named: bool) -> None:
    """The signature is checked all the same; what the body says comes after."""
    founder = Identity(bytes(31) + b"\3")
    account = account_text(account_id(founder.public_key)) if named else ""
    headers = signed_headers(founder, "POST", "/v1/accounts", b"{}", account=account)
    async with client_of(app) as client:
        first = await client.post("/v1/accounts", content=b"{}", headers=headers)
        replay = await client.post("/v1/accounts", content=b"{}", headers=headers)
    assert (first.status_code, replay.status_code) == (400, 401)
