"""The console's files at `/console`: their headers, caching, a path prefix, and a relayer without.

Not here: what the page does in a browser (`tests/console/`), `memrelay console`
(`tests/client/test_console.py`), the other pages (`test_pages.py`).
"""

import dataclasses
import gzip
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.http import console
from relayer.settings import Settings
from relayer.storage import Storage
from tests.routes_scene import assert_error_shape
from tests.signing import client_of

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SCRIPT, STYLE = "console-0123456789abcdef.js", "style-0123456789abcdef.css"
FILES = {
    "index.html": f'<!doctype html><script src="console/{SCRIPT}"></script>',
    SCRIPT: "console.log('a memory');" * 20,
    STYLE: "body{margin:0}",
    "icon-0123456789abcdef.svg": "<svg/>",
    "notes.txt": "no file of the page",
}
EVERYWHERE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@pytest.fixture
def console_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the build leaves it, from which applications built now serve."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(console, "FOLDER", tmp_path)
    return tmp_path


async def get(app: ASGIApp, path: str, **headers: str) -> httpx.Response:
    async with client_of(app) as client:
        return await client.get(path, headers=headers)


@pytest.mark.usefixtures("console_files")
async def test_each_file_comes_with_its_type_and_a_strict_policy(
    storage: Storage, lean: Settings
) -> None:
    app = build_app(storage, lean)
    types = {
        "/console": "text/html; charset=utf-8",
        f"/console/{SCRIPT}": "text/javascript; charset=utf-8",
        f"/console/{STYLE}": "text/css; charset=utf-8",
        "/console/icon-0123456789abcdef.svg": "image/svg+xml",
    }
    for path, media_type in types.items():
        answer = await get(app, path, **BROWSER)
        assert answer.status_code == 200
        assert answer.text == FILES[path.removeprefix("/console").strip("/") or "index.html"]
        assert answer.headers["content-type"] == media_type
        assert {name: answer.headers.get_list(name) for name in EVERYWHERE} == {
            name: [value] for name, value in EVERYWHERE.items()
        }
        assert "set-cookie" not in answer.headers
        [policy] = answer.headers.get_list("content-security-policy")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules.pop("require-trusted-types-for") == "'script'"
        own = {"script-src", "style-src", "connect-src", "img-src"}
        assert {name for name, value in rules.items() if value == "'self'"} == own
        nothing = {"default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types"}
        assert {name for name, value in rules.items() if value == "'none'"} == nothing
        assert len(rules) == len(own | nothing)


@pytest.mark.usefixtures("console_files")
async def test_what_a_name_pins_is_kept_and_the_page_is_asked_for_again(
    storage: Storage, lean: Settings
) -> None:
    app = build_app(storage, lean)
    page, script = await get(app, "/console", **BROWSER), await get(app, f"/console/{SCRIPT}")
    assert page.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    for path, answer in (("/console", page), (f"/console/{SCRIPT}", script)):
        etag = answer.headers["etag"]
        for known in (etag, f'"other", W/{etag}'):
            again = await get(app, path, **BROWSER, **{"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == etag
        assert (await get(app, path, **BROWSER, **{"if-none-match": '"x"'})).status_code == 200


@pytest.mark.usefixtures("console_files")
async def test_a_file_is_packed_for_whoever_takes_that(storage: Storage, lean: Settings) -> None:
    app = build_app(storage, lean)
    taken = {"gzip, br": True, "br;q=1, gzip;q=0.5": True, "identity": False, "gzip;q=0": False}
    for accepted, is_packed in taken.items():
        async with (
            client_of(app) as client,
            client.stream(
                "GET", f"/console/{SCRIPT}", headers={"accept-encoding": accepted}
            ) as answer,
        ):
            raw = b"".join([part async for part in answer.aiter_raw()])
        assert ("content-encoding" in answer.headers) is is_packed, accepted
        assert int(answer.headers["content-length"]) == len(raw)
        assert (gzip.decompress(raw) if is_packed else raw).decode() == FILES[SCRIPT]
        assert "accept-encoding" in answer.headers["vary"]


@pytest.mark.usefixtures("console_files")
@pytest.mark.parametrize("prefix", ["", "/m", "/team/memory"])
async def test_the_pages_addresses_lead_to_its_files_behind_a_prefix_too(
    storage: Storage, lean: Settings, prefix: str
) -> None:
    public = f"https://memory.example.org{prefix}" if prefix else ""
    app = build_app(storage, dataclasses.replace(lean, public_url=public))
    origin = "http://127.0.0.1:8000"
    slashed = await get(app, f"{prefix}/console/", **BROWSER)
    assert slashed.status_code == 308
    place = urljoin(f"{origin}{prefix}/console/", slashed.headers["location"])
    assert place == f"{origin}{prefix}/console"
    assert (await get(app, place, **BROWSER)).text == FILES["index.html"]
    address = urljoin(place, f"console/{SCRIPT}")
    assert (await get(app, address)).text == FILES[SCRIPT]


@pytest.mark.usefixtures("console_files")
@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing.js",
        "/console/index.html",
        "/console/notes.txt",
        "/console/../console.py",
        "/console/%2e%2e/console.py",
        f"/console/x/{SCRIPT}",
        f"/consoles/{SCRIPT}",
    ],
)
async def test_nothing_else_is_served(storage: Storage, lean: Settings, path: str) -> None:
    answer = await get(build_app(storage, lean), path, **BROWSER)
    assert answer.status_code == 404
    assert_error_shape(answer)


@pytest.mark.usefixtures("console_files")
async def test_programs_get_json_at_the_pages_address(storage: Storage, lean: Settings) -> None:
    answer = await get(build_app(storage, lean), "/console", accept="application/json")
    assert answer.status_code == 404
    assert_error_shape(answer)
    async with client_of(build_app(storage, lean)) as client:
        assert (await client.post("/console", headers=BROWSER)).status_code == 404


async def test_a_relayer_without_the_files_says_what_to_type(
    storage: Storage, lean: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "FOLDER", tmp_path / "missing")
    app = build_app(storage, lean)
    answer = await get(app, "/console", **BROWSER)
    assert answer.status_code == 200
    assert "The console is not built" in answer.text
    assert "make console" in answer.text
    assert "<script" not in answer.text
    assert "default-src 'none'; style-src 'sha256-" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert (await get(app, f"/console/{SCRIPT}", **BROWSER)).status_code == 404
    assert (await get(app, "/health")).status_code == 200
