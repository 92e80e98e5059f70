"""Request windows: what counts how much, who shares them, and how a client learns of them."""

import asyncio
import dataclasses
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database import requests as statements
from relayer.database.pool import Database
from relayer.http import rate_limits
from relayer.http.checks import PUBLIC, TEXT, WEIGHT
from relayer.sealed.keys import Identity, PublicKey
from relayer.settings import (
    REGISTRATION_TOKEN_CHARACTERS_MIN,
    Limits,
    Settings,
    SettingsError,
)
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.framework import listed_handlers
from tests.processes import running_relayer
from tests.routes_scene import key_of
from tests.signing import Signer, client_of, signer_of

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-operator"


class Stopped:
    """A clock that stands in the middle of a minute."""

    def __init__(self) -> None:
        self.now = utc_now().replace(second=30, microsecond=0)

    def __call__(self) -> datetime:
        return self.now


# Weights


def routes() -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Every route of the table with a signature, by method and path."""
    for path, handler in listed_handlers():
        for method in set(handler.http_methods) - {"OPTIONS"}:
            if not handler.opt.get(PUBLIC):
                yield f"{method} {nameless(path)}", handler


def nameless(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def documented() -> dict[str, int]:
    """The table of SPEC §5.1."""
    section = (ROOT / "SPEC.md").read_text().partition("### 5.1 ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section, re.MULTILINE)
    return {
        nameless(name): int(weight)
        for weight, names in rows
        for name in re.findall("`(.+?)`", names)
    }


def test_every_route_has_the_weight_that_is_documented() -> None:
    """A route that nobody has weighed fails."""
    assert {name: handler.opt.get(WEIGHT, 1) for name, handler in routes()} == documented()


def test_every_route_whose_body_is_indexed_is_documented() -> None:
    section = (ROOT / "SPEC.md").read_text().partition("\nSome bodies are text to be indexed:")[2]
    names = re.findall(r"`(\w+ .+?)`", section.partition("Each full KiB")[0])
    assert {name for name, handler in routes() if handler.opt.get(TEXT)} == set(
        map(nameless, names)
    )


def test_text_that_is_indexed_counts_by_its_length() -> None:
    """What a MiB of it takes, three thousand short requests take as well."""
    settings = Settings()
    weights = [
        rate_limits.weight_with_text(settings, 5, n) for n in (1_023, 1_024, Limits.text_bytes_max)
    ]
    assert weights == [5, 9, 5 + 4 * 1_024]


@pytest.mark.parametrize("name", ["requests_per_minute", "key_requests_per_minute"])
def test_no_request_counts_more_than_an_empty_window_has(name: str) -> None:
    """It would be refused for ever."""
    roomy: dict[str, Any] = {name: 100}
    narrow: dict[str, Any] = {name: 3}
    settings = dataclasses.replace(Settings(), **roomy)
    assert rate_limits.weight_with_text(settings, 5, Limits.text_bytes_max) == 100
    assert rate_limits.weight_with_text(dataclasses.replace(settings, **narrow), 5, 9_999) == 5


async def test_a_long_text_uses_up_its_accounts_window(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    app = build_app(storage, dataclasses.replace(lean, requests_per_minute=50), Stopped())
    async with client_of(app, signer_of(managed)) as client:
        answers = [
            await client.post("/api/remember", json={"text": f"{n} {4_096 * 'a'}"})
            for n in range(3)
        ]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["29", "8", "0"]


# Who shares them


async def test_two_processes_share_one_budget(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    """The requests of two replicas are counted together."""
    limits = {"RELAYER_EMBEDDER": "none", "RELAYER_REQUESTS_PER_HOUR": "20"}
    one, two = tmp_path / "one", tmp_path / "two"
    shared = limits | {"RELAYER_KEY_FILE": str(tmp_path / "relayer.key")}
    with (
        running_relayer(one, model_dir, database_url=fresh_database.url, **shared) as here,
        running_relayer(two, model_dir, database_url=fresh_database.url, **shared) as there,
    ):
        for _ in range(2):  # the hour may end in between, but hardly twice
            account = here.command("account", "create", "--label", "a", "--custody", "managed")
            identity = Identity(bytes.fromhex(account["private_key"]))
            signer = Signer(identity=identity, account=account["account_id"])
            hour = utc_now().hour
            async with httpx.AsyncClient(auth=signer, timeout=30) as client:
                urls = [f"{relayer.url}/v1/settings" for relayer in (here, there)] * 15
                answers = [await client.get(url) for url in urls]
            if utc_now().hour == hour:
                break
    assert [a.status_code for a in answers] == [200] * 20 + [429] * 10
    left = [int(a.headers["ratelimit-remaining"]) for a in answers]
    assert left == [*range(19, -1, -1), *[0] * 10]


async def test_another_key_keeps_no_owner_from_taking_its_rights(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """What its own window refuses is not charged to the account, whose end stops no revocation."""
    limited = dataclasses.replace(lean, requests_per_minute=12, key_requests_per_minute=8)
    app = build_app(storage, limited, Stopped())
    lent = await key_of(storage, managed, "reader", "shared")
    revocation = {"revocation": "AAAA", "relayer": storage.identity.public_key.hex()}
    async with client_of(app, signer_of(lent)) as other, client_of(app, signer_of(managed)) as own:
        asked = [(await other.get("/v1/settings")).status_code for _ in range(30)]
        assert asked == [200] * 8 + [429] * 22
        assert (await own.get("/v1/usage")).json()["requests"]["minute_left"] == 2
        asked = [(await own.get("/v1/settings")).status_code for _ in range(3)]
        assert asked == [200, 200, 429]
        assert (await own.get("/v1/grants")).status_code == 200
        assert (await own.post("/v1/revocations", json=revocation)).status_code == 400
        assert (await own.get("/v1/grants")).status_code == 429, "its own window is full, too"
        assert (await other.get("/v1/grants")).status_code == 429


# How a client learns of them


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"requests_per_minute": 9}, ("9", "3", "30")),
        ({"key_requests_per_minute": 8}, ("8", "2", "30")),
        ({"requests_per_hour": 7}, ("7", "1", None)),
    ],
)
async def test_answers_tell_the_window_that_has_least_left(
    storage: Storage, lean: Settings, managed: NewKey, limits: dict[str, Any], told: tuple[str, ...]
) -> None:
    app = build_app(storage, dataclasses.replace(lean, **limits), Stopped())
    async with client_of(app, signer_of(managed)) as client:
        stored = await client.post("/api/remember", json={"text": "Tea in the morning."})
        read = await client.get("/v1/settings")
        full = [await client.get("/v1/settings") for _ in range(4)][-1]
    assert stored.status_code == 202
    assert room(read)[:2] == told[:2]
    assert told[2] in (None, room(read)[2])
    assert full.status_code == 429
    assert room(full) == (told[0], "0", full.headers["retry-after"])


def room(answer: httpx.Response) -> tuple[str | None, ...]:
    names = ("limit", "remaining", "reset")
    return tuple(answer.headers.get(f"ratelimit-{name}") for name in names)


async def test_usage_tells_every_limit_and_what_is_left(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """Limits are visible."""
    limited = dataclasses.replace(
        lean, requests_per_minute=9, requests_per_hour=7, key_requests_per_minute=8
    )
    app = build_app(storage, limited, Stopped())
    async with client_of(app, signer_of(managed)) as client:
        await client.post("/api/remember", json={"text": "Tea in the morning."})
        used = (await client.get("/v1/usage")).json()
    assert used["requests"] == {
        "limited": True,
        "per_minute": 9,
        "per_hour": 7,
        "per_key_per_minute": 8,
        "minute_left": 3,
        "hour_left": 1,
        "key_minute_left": 2,
    }
    assert 0 < used["storage_bytes"] < used["storage_bytes_max"]


async def test_without_limits_nothing_is_left_or_told(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    app = build_app(storage, dataclasses.replace(lean, rate_limit="off"))
    async with client_of(app, signer_of(managed)) as client:
        answer = await client.get("/v1/usage")
    assert room(answer) == (None, None, None)
    assert set(answer.json()["requests"]) == {
        "limited", "per_minute", "per_hour", "per_key_per_minute"
    }  # fmt: skip


async def test_strangers_learn_nothing_of_a_window(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    app = build_app(storage, lean)
    forged = dataclasses.replace(signer_of(managed), headers={"x-signature": "00" * 64})
    async with client_of(app, forged) as client:
        for path in ("/v1/keys", "/health"):
            assert room(await client.get(path)) == (None, None, None)


def test_a_window_opens_again_no_earlier_than_told() -> None:
    """Rounded up: whoever waits so long finds room."""
    now = datetime.fromisoformat("2026-05-04T09:59:58.400Z")
    counted = rate_limits.windows(Settings(), PublicKey(bytes(32)), now)
    found = rate_limits.rooms(counted, dict.fromkeys((w.id for w in counted), 12_001), now)
    assert {room.name: (room.left, room.reset_s) for room in found} == {
        "minute": (-1, 2),
        "key_minute": (-1, 2),
        "hour": (287_999, 2),
    }


# Registration


async def attempts(app: ASGIApp, count: int, token: str) -> list[str]:
    """The codes that so many keys, new ones each, get for founding with a token."""
    codes = []
    for number in range(count):
        stranger = Signer(identity=Identity(bytes([*range(30), number, len(token)])))
        async with client_of(app, stranger) as client:
            body = {"relayer": "00" * 32, "grants": ["AAAA"], "token": token}
            codes.append((await client.post("/v1/accounts", json=body)).json()["code"])
    return codes


async def test_guesses_at_a_token_are_counted_together(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """Whatever keys they are signed by; accounts have windows of their own."""
    changed = dataclasses.replace(
        lean, registration="token", registration_token=TOKEN, requests_per_minute=30
    )
    app = build_app(storage, changed, Stopped())
    relayer_first = ["relayer.other"] * 3  # the body is judged only after the request counted
    assert await attempts(app, 5, "wrong" * 4) == [*relayer_first, *["rate.limited"] * 2]
    assert await attempts(app, 1, TOKEN) == ["rate.limited"]
    async with client_of(app, signer_of(managed)) as client:
        assert (await client.get("/v1/settings")).status_code == 200


@pytest.mark.parametrize("length", [1, REGISTRATION_TOKEN_CHARACTERS_MIN - 1])
def test_a_token_that_can_be_guessed_is_refused(length: int) -> None:
    with pytest.raises(SettingsError, match="RELAYER_REGISTRATION_TOKEN"):
        Settings(registration_token="t" * length)


# Places


async def test_refused_and_failed_requests_give_their_places_back(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """More of each kind than there are places and room in the line."""
    app = build_app(storage, lean)
    wrong = [("GET", "/v1/memories/none"), ("POST", "/v1/remember"), ("GET", "/v1/export")]
    async with client_of(app, signer_of(managed)) as client:
        for method, path in wrong * (Limits.requests_at_once_max + 1):
            assert (await client.request(method, path)).status_code in (400, 404)
        together = [client.get("/v1/settings") for _ in range(Limits.requests_at_once_max + 10)]
        assert {a.status_code for a in await asyncio.gather(*together)} == {200}


async def test_what_rights_are_taken_away_by_has_a_short_line_of_each_key(
    storage: Storage, lean: Settings, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "requests_at_once_max", 0)  # other requests of the account hang
    app = build_app(storage, dataclasses.replace(lean, request_timeout_s=30))
    async with client_of(app, signer_of(managed)) as client:
        assert (await client.get("/v1/grants")).status_code == 200
        async with storage.database.transaction() as connection:
            await connection.execute("LOCK TABLE grants IN ACCESS EXCLUSIVE MODE")
            asked = {asyncio.create_task(client.get("/v1/grants")) for _ in range(80)}
            refused: set[asyncio.Task[httpx.Response]] = set()
            while len(asked) > 1 + Limits.revoking_waiting_max:
                done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                refused |= done
        assert {task.result().json()["code"] for task in refused} == {"rate.at_once"}
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}


async def test_a_request_that_waits_too_long_is_told_so_and_leaves_the_line(
    storage: Storage, lean: Settings, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "requests_at_once_max", 0)
    app = build_app(storage, dataclasses.replace(lean, request_timeout_s=1))
    async with client_of(app, signer_of(managed)) as client:
        answer = await client.get("/v1/settings")
    assert (answer.status_code, answer.json()["code"]) == (503, "request.deadline")


async def test_relayers_that_count_the_same_do_not_wait_for_each_other(
    storage: Storage, managed: NewKey, fresh_database: TestDatabase
) -> None:
    """Also where a minute and an hour end in the midst, and whatever comes first."""
    other = await Database.connect(fresh_database.connect_args, connections=4)
    hour = utc_now().replace(minute=0, second=0, microsecond=0)
    keys = [PublicKey(bytes([n]) * 32) for n in range(4)]
    settings = Settings()
    ends = [hour - timedelta(seconds=1), hour, hour + timedelta(seconds=61)]
    asked = [
        statements.Counted(
            managed.account,
            tuple(window.id for window in rate_limits.windows(settings, key, now)),
            1,
        )
        for key in keys
        for now in ends
    ]
    chance, counted = random.Random(7), list[statements.Counted]()
    try:
        for _ in range(150):
            batches = [chance.sample(asked, chance.randint(1, 4)) for _ in range(8)]
            counted += [one for batch in batches for one in batch]
            await asyncio.gather(
                *(
                    statements.count_requests(database, batch)
                    for database, batch in zip([storage.database, other] * 4, batches, strict=True)
                )
            )
        [last] = await statements.count_requests(other, asked[:1])
    finally:
        await other.close()
    expected = Counter(place for one in [*counted, asked[0]] for place in one.windows)
    assert last == {place: expected[place] for place in asked[0].windows}
