"""The request checks: each rule alone, then in order through an application in this process."""

import asyncio
import dataclasses
import gc
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.errors import NotAuthenticated, UpgradeRequired
from relayer.http.checks import (
    SignedRequest,
    check_clock,
    check_session,
    check_signature,
    parse_request,
    signed_path,
)
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity, account_id, account_text
from relayer.settings import Settings
from relayer.storage import Storage, storage_on
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.signing import client_of, signed_headers, signer_of

IDENTITY = Identity(bytes(range(32)))
ACCOUNT = "0x" + "5a" * 32
NONCE = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
NOW = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
BODY = b'{"query":"tea"}'
PATH = "/v1/recall?a=%2F"


def raw(**changes: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of one good request, some of them changed or (None) left out."""
    good = signed_headers(
        IDENTITY, "POST", PATH, BODY, account=ACCOUNT, timestamp_s=NOW_S, nonce=NONCE
    )
    named = good | {"x-" + name.replace("_", "-"): value for name, value in changes.items()}
    return [(k.encode(), v.encode("latin-1")) for k, v in named.items() if v is not None]


def parsed(
    headers: list[tuple[bytes, bytes]],
    *,
    method: str = "POST",
    path: str = PATH,
    body: bytes = BODY,
) -> SignedRequest:
    return parse_request(headers, method, path, body)


# 1. The form of the headers


def test_the_signed_text_is_the_dot_joined_fields() -> None:
    request = parsed(raw())
    digest = "2a11718dabeb816651a539d7a2bb91e9faa4a6b91f95aaac726c3c40aa2f13f0"
    text = f"1777887000.POST./v1/recall?a=%2F.{digest}.{NONCE}.{ACCOUNT}"
    assert request.message.decode() == text
    check_signature(request)


def test_without_an_account_the_last_field_is_empty() -> None:
    headers = signed_headers(IDENTITY, "GET", "/v1/settings", timestamp_s=NOW_S, nonce=NONCE)
    del headers["x-account-id"]
    request = parsed(
        [(k.encode(), v.encode()) for k, v in headers.items()],
        method="GET",
        path="/v1/settings",
        body=b"",
    )
    assert request.account is None
    assert request.message.endswith(b"." + NONCE.encode() + b".")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of nothing
    assert f".{empty}.".encode() in request.message
    check_signature(request)


@pytest.mark.parametrize(
    "changes",
    [
        {"public_key": None},
        {"public_key": ""},
        {"public_key": "ab" * 31},
        {"public_key": "ab" * 33},
        {"public_key": "AB" * 32},
        {"public_key": "0x" + "ab" * 31},
        {"public_key": "ab" * 32 + "\n"},
        {"public_key": "g" * 64},
        {"signature": None},
        {"signature": "ab" * 63},
        {"signature": "ab" * 65},
        {"signature": "AB" * 64},
        {"timestamp": None},
        {"timestamp": ""},
        {"timestamp": "-1"},
        {"timestamp": "+1777887000"},
        {"timestamp": "1777887000.0"},
        {"timestamp": " 1777887000"},
        {"timestamp": "1_777_887_000"},
        {"timestamp": "\xb2777887000"},
        {"timestamp": "1" * 13},
        {"nonce": NONCE + "x"},
        {"nonce": NONCE.replace("-", "")},
        {"nonce": "{" + NONCE + "}"},
        {"nonce": "urn:uuid:" + NONCE},
        {"nonce": NONCE + "." + ACCOUNT, "account_id": ""},
        {"account_id": "5a" * 32},
        {"account_id": "0x" + "5A" * 32},
        {"account_id": "0X" + "5a" * 32},
        {"account_id": "0x" + "5a" * 31},
        {"account_id": ACCOUNT + "." + ACCOUNT},
        {"account_id": ACCOUNT + "\n"},
    ],
)
def test_a_malformed_header_is_refused_before_any_text_is_built(changes: dict[str, Any]) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        parsed(raw(**changes))
    assert caught.value.cause == "headers"


@pytest.mark.parametrize("nonce", [None, ""])
def test_a_missing_nonce_means_a_client_too_old(nonce: str | None) -> None:
    with pytest.raises(UpgradeRequired):
        parsed(raw(nonce=nonce))


def test_an_upper_case_nonce_is_the_same_nonce() -> None:
    headers = signed_headers(
        IDENTITY, "POST", PATH, BODY, account=ACCOUNT, timestamp_s=NOW_S, nonce=NONCE.upper()
    )
    request = parsed([(k.encode(), v.encode()) for k, v in headers.items()])
    check_signature(request)
    assert request.nonce == uuid.UUID(NONCE)


@pytest.mark.parametrize(
    "name",
    ["x-public-key", "x-signature", "x-timestamp", "x-nonce", "x-account-id", "x-seal-session",
     "X-Memrelay-Unlock"],
)  # fmt: skip
def test_a_repeated_header_is_refused_even_with_one_value(name: str) -> None:
    header = next((h for h in raw() if h[0] == name.encode()), (name.encode(), b"a"))
    others = [h for h in raw() if h[0] != header[0]]
    with pytest.raises(NotAuthenticated):
        parsed([*others, header, (header[0].upper(), header[1])])


def test_headers_that_sign_nothing_may_repeat() -> None:
    parsed([*raw(), (b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-for", b"5.6.7.8")])


# 2. The clock


@pytest.mark.parametrize("off_s", [-300, 0, 300])
def test_the_clock_may_be_300_seconds_off(off_s: int) -> None:
    check_clock(parsed(raw()), NOW + timedelta(seconds=off_s))


@pytest.mark.parametrize("off_s", [-301, 301, -(10**9), 10**9])
def test_a_clock_further_off_is_told_by_a_header(off_s: int) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_clock(parsed(raw()), NOW + timedelta(seconds=off_s))
    assert caught.value.headers == {"x-auth-error": "ERR_TIMESTAMP_OUT_OF_BOUNDS"}


# 3. The signature


def test_a_good_signature_passes() -> None:
    check_signature(parsed(raw()))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, {"method": "PUT"}),
        ({}, {"method": "post"}),
        ({}, {"path": "/v1/recall?a=/"}),
        ({}, {"path": "/v1/recall?a=%2f"}),
        ({}, {"path": "/v1/recall"}),
        ({}, {"path": "/api/recall?a=%2F"}),
        ({}, {"body": BODY + b" "}),
        ({}, {"body": b""}),
        ({"timestamp": str(NOW_S + 1)}, {}),
        ({"timestamp": "0" + str(NOW_S)}, {}),
        ({"nonce": NONCE.upper()}, {}),
        ({"nonce": str(uuid.UUID(int=4))}, {}),
        ({"account_id": ""}, {}),
        ({"account_id": "0x" + "5b" * 32}, {}),
        ({"public_key": Identity(bytes(32)).public_key.hex()}, {}),
        ({"public_key": "00" * 32}, {}),  # a point of small order
        ({"public_key": "ff" * 32}, {}),  # no point at all
        ({"signature": "00" * 64}, {}),
        ({"signature": "ff" * 64}, {}),
    ],
)
def test_a_signature_over_anything_else_is_refused(
    changes: dict[str, Any], where: dict[str, Any]
) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_signature(parsed(raw(**changes), **where))
    assert caught.value.cause == "signature"


# What is signed of the address


@pytest.mark.parametrize(
    ("scope", "signed"),
    [
        ({"path": "/v1/a b", "raw_path": b"/v1/a%20b", "query_string": b""}, "/v1/a%20b"),
        ({"path": "/v1/x", "raw_path": b"/v1/x", "query_string": b"q=%C3%A9+"}, "/v1/x?q=%C3%A9+"),
        ({"path": "/v1/x", "raw_path": b"/v1/x?q=1", "query_string": b"q=1"}, "/v1/x?q=1"),
        ({"path": "/v1/x", "query_string": b"q"}, "/v1/x?q"),
        ({"path": "/v1/x"}, "/v1/x"),
        ({"path": "/v1/x", "raw_path": None}, "/v1/x"),
        ({"path": "//x", "raw_path": b"//x", "query_string": b"a=//b?c"}, "//x?a=//b?c"),
    ],
)
def test_path_and_query_are_signed_as_sent(scope: dict[str, object], signed: str) -> None:
    assert signed_path(scope) == signed


# 7. The session header (its own rules: test_sui.py)


def test_no_session_header_is_no_session() -> None:
    check_session(None, IDENTITY.public_key, NOW)


def test_a_bad_session_header_is_not_told_apart() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_session("e30=", IDENTITY.public_key, NOW)
    assert caught.value.cause == "session"
    assert caught.value.headers == {}


# All of them, in order, before real routes


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
        alive = [one for one in gc.get_objects() if isinstance(one, SignedRequest)]
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
    storage: Storage, lean: Settings, managed: NewKey, limit: dict[str, int], moved: timedelta
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
