"""Web pages of other origins: which may ask, what their browsers are told before and with it.

Not here: that nothing is told without a list (`test_answers.py`), how origins are listed
(`upkeep/test_settings.py`), a page that uses the client (`typescript/package.py`).
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.signing import client_of, signer_of

PAGE = "https://app.example"
OTHER = "http://localhost:5173"
ORIGIN = "access-control-allow-origin"
EXPOSED = {"retry-after", "x-request-id", "x-auth-error", "ratelimit-remaining"}


@pytest.fixture
def open_app(storage: Storage, lean: Settings) -> ASGIApp:
    return build_app(storage, replace(lean, cors_origins=f"{PAGE}, {OTHER}"))


@pytest_asyncio.fixture
async def page(open_app: ASGIApp, managed: NewKey) -> AsyncIterator[httpx.AsyncClient]:
    """A client that signs, whose requests name no origin by themselves."""
    async with client_of(open_app, signer_of(managed)) as client:
        yield client


@pytest_asyncio.fixture
async def anybody(open_app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(open_app) as client:
        yield client


def told(answer: httpx.Response) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control-")}


def listed(answer: httpx.Response, name: str) -> set[str]:
    return {one.strip() for one in answer.headers[name].split(",")}


def preflight(origin: str, method: str = "POST", headers: str = "x-signature") -> dict[str, str]:
    asked = {"access-control-request-method": method, "access-control-request-headers": headers}
    return {"origin": origin, **asked}


@pytest.mark.parametrize("origin", [PAGE, OTHER])
@pytest.mark.parametrize("path", ["/v1/keys", "/health", "/nothing"])
async def test_a_listed_page_may_read_every_answer(
    page: httpx.AsyncClient, path: str, origin: str
) -> None:
    answer = await page.get(path, headers={"origin": origin})
    assert answer.headers.get_list(ORIGIN) == [origin]
    assert told(answer) == {ORIGIN, "access-control-expose-headers"}  # no credentials, no `*`
    assert listed(answer, "access-control-expose-headers") > EXPOSED
    assert "origin" in listed(answer, "vary")


async def test_refusals_and_rate_limits_are_as_without_an_origin(
    anybody: httpx.AsyncClient, page: httpx.AsyncClient
) -> None:
    answer = await anybody.get("/v1/keys", headers={"origin": PAGE})
    assert (answer.status_code, answer.headers[ORIGIN]) == (401, PAGE)
    counted = [await page.get("/v1/keys", headers=h) for h in ({}, {"origin": PAGE})]
    first, second = (int(one.headers["ratelimit-remaining"]) for one in counted)
    assert second in {first - 1, first}  # a minute may have begun between them


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://app.example:8443",
        "https://app.example:443",
        "http://app.example",
        "https://App.example",
        "https://app.example.evil.example",
        "https://evil-app.example",
        "https://evilapp.example",
        "https://app.example@evil.example",
        "https://app.example/",
        "https://app.example,https://evil.example",
        "https://sub.app.example",
        "http://localhost",
        "http://localhost:51730",
        "*",
        "",
    ],
)
async def test_another_origin_is_told_nothing(
    page: httpx.AsyncClient, anybody: httpx.AsyncClient, origin: str
) -> None:
    for answer in (
        await page.get("/v1/keys", headers={"origin": origin}),
        await anybody.options("/v1/recall", headers=preflight(origin)),
    ):
        assert told(answer) == set()
        assert "origin" in listed(answer, "vary")
    assert answer.status_code == 401  # as anybody's: it is not signed


async def test_two_origins_are_none(page: httpx.AsyncClient) -> None:
    answer = await page.get("/v1/keys", headers=[("origin", PAGE), ("origin", PAGE)])
    assert told(answer) == set()


async def test_an_answer_to_nobodys_page_varies_too(page: httpx.AsyncClient) -> None:
    """Else a cache could give it to a page without the header that lets it in."""
    answer = await page.get("/v1/keys")
    assert told(answer) == set()
    assert "origin" in listed(answer, "vary")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "TRACE", "NONSENSE"])
@pytest.mark.parametrize("path", ["/v1/recall", "/v1/keys", "/nothing", "/", "/metrics"])
async def test_a_preflight_says_what_pages_may_send(
    anybody: httpx.AsyncClient, path: str, method: str
) -> None:
    """It is the same for every path and method, so it tells nothing of what there is."""
    answer = await anybody.options(path, headers=preflight(PAGE, method, "x-anything"))
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[ORIGIN] == PAGE
    assert listed(answer, "access-control-allow-methods") == {
        *("GET", "POST", "PUT", "PATCH", "DELETE")
    }
    allowed = listed(answer, "access-control-allow-headers")
    assert {"x-signature", "x-memrelay-unlock", "content-type", "last-event-id"} < allowed
    assert "x-anything" not in allowed
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-private-network" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_options_without_a_preflight_wants_a_signature(
    anybody: httpx.AsyncClient, page: httpx.AsyncClient
) -> None:
    refused = await anybody.options("/v1/keys", headers={"origin": PAGE})
    assert (refused.status_code, refused.headers[ORIGIN]) == (401, PAGE)
    answer = await page.options("/v1/keys", headers={"origin": PAGE})
    assert (answer.status_code, answer.headers[ORIGIN]) == (204, PAGE)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "//metrics", "/%6detrics"])
async def test_metrics_are_for_no_page(anybody: httpx.AsyncClient, path: str) -> None:
    """On this machine they want no token, and a page runs on this machine, too."""
    answer = await anybody.get(path, headers={"origin": PAGE})
    is_metrics = answer.status_code != 404
    assert (ORIGIN in answer.headers) is not is_metrics


async def test_a_late_answer_is_for_pages_too(
    storage: Storage, lean: Settings, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = replace(lean, cors_origins=PAGE, request_timeout_s=1)
    app = build_app(storage, late)
    async with storage.database.transaction() as blocker:
        await blocker.execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE")
        async with client_of(app, signer_of(managed)) as client:
            answer = await client.get("/v1/keys", headers={"origin": PAGE})
    assert answer.status_code == 503
    assert answer.headers[ORIGIN] == PAGE
