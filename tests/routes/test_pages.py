"""The pages of `/` and `/docs`: what they show, to whom, and that they reach for nothing else.

Not here: the document that `/docs` is made of (`test_openapi.py`).
"""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
import pytest
from litestar.types import ASGIApp

from relayer import __version__
from relayer.app import build_app
from relayer.http.reference import anchor, reference
from relayer.settings import Settings
from relayer.storage import Storage
from tests.life import until
from tests.processes import RunningRelayer, create_account
from tests.routes_scene import assert_error_shape
from tests.signing import client_of

HARDENED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
VOID = {"meta"}
# Elements and attributes that load, send or run something.
ACTIVE = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "video", "audio"}
REACHING = {
    "src",
    "srcset",
    "action",
    "data",
    "poster",
    "background",
    "style",
    "ping",
    "http-equiv",
}


class Parsed(HTMLParser):
    """A page: its elements, ids, links and texts; the text of each section by its id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sections: dict[str, str] = {"": ""}
        self.style = ""
        self._section = ""
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def text(self) -> str:
        return "".join(self.sections.values())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.elements.append((tag, named))
        if tag not in VOID:
            self.open.append(tag)
        if found := named.get("id"):
            self.ids.append(found)
            if tag == "section":
                self._section = found
                self.sections[found] = ""
        if tag == "a":
            self.links.append(named["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            self.style += data
        else:
            self.sections[self._section] += data


async def page(app: ASGIApp, path: str, **headers: str) -> Parsed:
    async with client_of(app) as client:
        answer = await client.get(path, headers=BROWSER | headers)
    assert answer.status_code == 200
    return Parsed(answer.text)


async def openapi(app: ASGIApp) -> dict[str, Any]:
    async with client_of(app) as client:
        document: dict[str, Any] = (await client.get("/schema/openapi.json")).json()
    return document


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_has_no_script_and_a_policy_that_allows_its_style_alone(
    app: ASGIApp, path: str
) -> None:
    async with client_of(app) as client:
        answer = await client.get(path, headers=BROWSER)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    shown = Parsed(answer.text)
    digest = base64.b64encode(hashlib.sha256(shown.style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    expected = HARDENED | {"content-security-policy": policy}
    assert {name: answer.headers.get_list(name) for name in expected} == {
        name: [value] for name, value in expected.items()
    }
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["x-request-id"])
    assert {tag for tag, _ in shown.elements} & ACTIVE == set()
    names = {name for _, attributes in shown.elements for name in attributes}
    assert names & REACHING == set()
    assert not [name for name in names if name.startswith("on")]
    assert "url(" not in shown.style
    assert "@import" not in shown.style


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_all_others_get_json_as_from_every_path_that_is_no_route(
    app: ASGIApp, path: str
) -> None:
    async with client_of(app) as client:
        answers = [
            await client.get(path),
            await client.get(path, headers={"accept": "application/json"}),
            await client.get(path, headers={"accept": "text/html;q=0, */*"}),
            await client.get(path, headers={"accept": "text/html;q=0.000"}),
            await client.get(path, headers={"accept": "text/htmlx, x-text/html"}),
            await client.head(path, headers=BROWSER),
            await client.post(path, headers=BROWSER),
            await client.get(f"{path.rstrip('/')}/nothing", headers=BROWSER),
        ]
        weighed = await client.get(path, headers={"accept": "*/*, TEXT/HTML ; q=0.1"})
    assert [a.status_code for a in answers] == [404] * len(answers)
    for answer in answers:
        assert answer.headers["content-type"] == "application/json"
        if answer.request.method != "HEAD":
            assert_error_shape(answer)
    assert weighed.headers["content-type"] == "text/html; charset=utf-8"


async def test_no_other_route_answers_with_a_page(app: ASGIApp) -> None:
    async with client_of(app) as client:
        for path in ("/health", "/schema", "/v1/keys", "/nothing", "/docs.html", "/index.html"):
            answer = await client.get(path, headers=BROWSER)
            assert "json" in answer.headers["content-type"], path


def test_the_first_page_says_how_it_is_and_nothing_of_anybody(relayer: RunningRelayer) -> None:
    before = httpx.get(relayer.url, headers=BROWSER).text
    create_account(relayer, "sealed")
    assert httpx.get(relayer.url, headers=BROWSER).text == before
    shown = Parsed(before)
    assert "It is well: it answers, and it takes writes." in shown.text
    assert f"memrelay init {relayer.url}" in shown.text.splitlines()
    assert f"memrelay {__version__}" in shown.text
    docs = httpx.get(f"{relayer.url}/docs", headers=BROWSER)
    assert docs.headers["content-length"] == str(len(docs.content))
    until(lambda: '"route":"/docs"' in relayer.log.read_text().replace(" ", ""), "the page's line")


async def test_a_relayer_that_takes_no_writes_says_so_and_what_to_type(
    app: ASGIApp, storage: Storage
) -> None:
    await storage.database.execute("UPDATE alembic_version SET version_num = '0001'")
    shown = await page(app, "/")
    assert "It answers, but it takes no writes now." in shown.text
    assert "relayer doctor" in shown.text
    assert "It is well" not in shown.text


@pytest.mark.parametrize("prefix", ["", "/m", "/team/memory"])
async def test_every_link_leads_somewhere_behind_a_prefix_too(
    storage: Storage, lean: Settings, prefix: str
) -> None:
    """A proxy may leave the prefix in the path, or take it out."""
    public = f"https://memory.example.org{prefix}" if prefix else ""
    app = build_app(storage, dataclasses.replace(lean, public_url=public))
    origin = "http://127.0.0.1:8000"
    for path in ("/", "/docs"):
        shown = await page(app, f"{prefix}{path}")
        assert shown.links
        assert not [link for link in shown.links if urlsplit(link).scheme or link[:2] == "//"]
        for link in shown.links:
            address, fragment = urldefrag(urljoin(f"{origin}{prefix}{path}", link))
            assert address.startswith(f"{origin}{prefix}/")
            if fragment:
                assert (address, fragment in shown.ids) == (f"{origin}{prefix}{path}", True)
                continue
            for asked in {address, address.replace(f"{origin}{prefix}/", f"{origin}/")}:
                async with client_of(app) as client:
                    answer = await client.get(asked, headers=BROWSER)
                assert (asked, answer.status_code) == (asked, 200)
    told = public or origin
    assert f"memrelay init {told}" in (await page(app, f"{prefix}/")).text
    if prefix:  # as somebody types it
        assert (await page(app, prefix)).links == (await page(app, "/")).links


def members_of(schema: Any) -> Iterator[str]:
    """The names of members and the values that a schema lists, at every depth."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (json.dumps(one) for one in schema.get("enum", ()))
        for inner in schema.values():
            yield from members_of(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from members_of(inner)


async def test_every_operation_is_shown_with_all_it_takes_and_answers(app: ASGIApp) -> None:
    document, shown = await openapi(app), await page(app, "/docs")
    assert len(shown.ids) == len(set(shown.ids))
    count = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            count += 1
            text = shown.sections[anchor(method, path)]
            assert f"{method.upper()} {path}" in text
            assert operation["summary"].replace("`", "") in text
            assert ("Unsigned" in text) is (operation["security"] == [])
            for parameter in operation["parameters"]:
                assert parameter["name"] in text
                for value in members_of(parameter["schema"]):
                    assert value in text
            for kind in operation.get("requestBody", {}).get("content", {}):
                assert kind in text
            for status, answer in operation["responses"].items():
                assert status in text
                assert answer.get("description", "").replace("`", "") in text
    assert count > 70
    for name, schema in document["components"]["schemas"].items():
        text = shown.sections[f"schema-{name}"]
        for member in members_of(schema):
            assert member in text, (name, member)
    for scheme in document["components"]["securitySchemes"].values():
        assert scheme["name"] in shown.sections["signing"]


async def test_a_body_is_shown_with_its_members_where_it_is_taken(app: ASGIApp) -> None:
    remember = (await page(app, "/docs")).sections[anchor("post", "/v1/remember")]
    assert [m for m in ("text", "relayer", "idempotency_key", "tags") if m not in remember] == []


HOSTILE = '"><script>alert(1)</script><img src=x onerror=y>'


def test_no_text_of_the_document_becomes_html() -> None:
    texts = {
        "summary": f"a {HOSTILE}",
        "description": f"b `{HOSTILE}`",
        "operationId": HOSTILE,
        "parameters": [
            {"name": HOSTILE, "in": HOSTILE, "schema": {"enum": [HOSTILE], HOSTILE: HOSTILE}}
        ],
        "requestBody": {
            "description": HOSTILE,
            "content": {HOSTILE: {"schema": {"properties": {HOSTILE: {"const": HOSTILE}}}}},
        },
        "responses": {
            HOSTILE: {
                "description": HOSTILE,
                "headers": {HOSTILE: {"schema": {"type": HOSTILE}}},
                "content": {HOSTILE: {"schema": {"$ref": f"#/components/schemas/{HOSTILE}"}}},
            }
        },
        "security": [{HOSTILE: []}],
    }
    document = {
        "paths": {f"/{HOSTILE}": {"get": texts}},
        "components": {
            "schemas": {HOSTILE: {"description": HOSTILE, "anyOf": [{"title": "t"}]}},
            "securitySchemes": {HOSTILE: {"name": HOSTILE, "description": HOSTILE}},
        },
    }
    shown = Parsed(str(reference(document)))
    assert {tag for tag, _ in shown.elements} & ACTIVE == set()
    assert {name for _, attributes in shown.elements for name in attributes} <= {
        "class",
        "href",
        "id",
    }
    assert shown.text.count(HOSTILE) > 15


def test_every_word_of_a_schema_is_shown() -> None:
    """Also those that this relayer's document does not use today, and what is only named."""
    schema = {
        "type": ["array", "null"],
        "items": {"oneOf": [{"const": 17}, {"$ref": "#/components/schemas/Tea"}]},
        "prefixItems": [{"type": "integer"}],
        "minItems": 3,
        "uniqueItems": True,
        "default": {"sort": "oolong"},
        "not": {"maxLength": 23},
        "x-unit": "cups",
    }
    document = {
        "paths": {
            "/tea": {
                "parameters": [],
                "put": {
                    "deprecated": True,
                    "parameters": [{"$ref": "#/components/parameters/Pot"}],
                    "requestBody": {"$ref": "#/components/requestBodies/Leaves"},
                    "responses": {"default": {"$ref": "#/components/responses/Poured"}},
                },
            }
        },
        "components": {
            "parameters": {"Pot": {"name": "pot", "in": "query", "description": "which pot"}},
            "requestBodies": {"Leaves": {"content": {"text/plain": {"schema": schema}}}},
            "responses": {"Poured": {"description": "hot", "content": {"text/tea": {}}}},
            "schemas": {"Tea": {"additionalProperties": {"type": "boolean"}}},
        },
    }
    shown = Parsed(str(reference(document)))
    text = shown.sections[anchor("put", "/tea")]
    words = """array null 17 Tea integer minItems 3 uniqueItems true oolong maxLength 23 x-unit cups
    Deprecated pot which optional hot text/tea default Unsigned"""
    assert [word for word in words.split() if word not in text] == []
    assert "#schema-Tea" in shown.links
    assert "additionalProperties: boolean" in shown.sections["schema-Tea"]
