"""Answers held to the OpenAPI document, whatever a test asks for.

Not here: requests made of the document (`routes/test_openapi.py`), what stands in it
(`routes/test_document.py`).
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import jsonschema_rs
from litestar.types import ASGIApp

from relayer.http.openapi import document
from tests.framework import framework, transport_to

Json = dict[str, Any]
DOCUMENT = "/schema/openapi.json"
_REF = "#/components/schemas/"


class DescribedTransport(httpx.AsyncBaseTransport):
    """Asks an application in this process, and fails where its document says something else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inner = transport_to(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        described = described_of(self._app)
        is_json = response.headers.get("content-type") == "application/json"
        if described is not None and is_json and (body := await response.aread()):
            answer = json.loads(body)
            described.check(request.method, request.url, response.status_code, answer)
        return response


class Described:
    """The document of an application, by which its answers are judged."""

    def __init__(self, whole: Json) -> None:
        self._schemas = _closed(whole)
        self._operations = [
            (method.upper(), _pattern(path), operation["responses"])
            for path, operations in sorted(whole["paths"].items(), key=lambda one: "{" in one[0])
            for method, operation in operations.items()
        ]
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def check(self, method: str, url: httpx.URL, status: int, answer: Any) -> None:
        """Return when the document describes an answer in JSON, or does not have its route."""
        path = url.raw_path.decode().partition("?")[0]
        responses = next(
            (r for m, pattern, r in self._operations if m == method and pattern.fullmatch(path)),
            None,
        )
        if responses is None or status == 500:  # which no document promises
            return
        found = responses.get(str(status)) or responses.get(f"{status // 100}XX")
        assert found is not None, f"{method} {path} answers {status}: the document has no such."
        schema = found["content"]["application/json"]["schema"]
        wrong = [
            f"{e.instance_path}: {e.message}" for e in self._validator(schema).iter_errors(answer)
        ]
        assert not wrong, f"{method} {path} {status} is not as the document says: {wrong}"

    def _validator(self, schema: Json) -> jsonschema_rs.Validator:
        name = repr(schema)
        if name not in self._validators:
            whole = schema | {"components": {"schemas": self._schemas}}
            self._validators[name] = jsonschema_rs.Draft202012Validator(
                whole, validate_formats=True
            )
        return self._validators[name]


_DESCRIBED: dict[tuple[str, ...], Described] = {}  # by the routes, of which few sets are tested


def described_of(app: ASGIApp) -> Described | None:
    """The document of an application; None where that serves none."""
    routes = framework(app).routes
    paths = tuple(sorted(route.path for route in routes))
    if DOCUMENT not in paths:
        return None
    if paths not in _DESCRIBED:
        _DESCRIBED[paths] = Described(document(routes))
    return _DESCRIBED[paths]


def named_by(value: Any, schemas: Mapping[str, Json]) -> set[str]:
    """The names of the schemas that a part of the document refers to, and that these do."""
    found, waiting = set[str](), _refs(value)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting |= _refs(schemas[name])
    return found


def _refs(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for inner in value for name in _refs(inner)}
    if not isinstance(value, dict):
        return set()
    here = {value["$ref"].removeprefix(_REF)} if "$ref" in value else set[str]()
    return here | {name for inner in value.values() for name in _refs(inner)}


def _closed(whole: Json) -> Json:
    """The schemas, with no members in an object but those that they name."""
    return {
        name: {"additionalProperties": False} | schema if "properties" in schema else schema
        for name, schema in whole["components"]["schemas"].items()
    }


def _pattern(path: str) -> re.Pattern[str]:
    """What fits a route's path; a name of a namespace may have slashes."""
    return re.compile(
        re.sub(r"\\\{\w+\\\}", ".+" if "{name}" in path else "[^/]+", re.escape(path))
    )
