"""The OpenAPI document: every route with what it takes and how it answers, made of the routes.

Not here: what members mean and what answers hold (SPEC.md); serving (`routes/openapi.py`).

- Bodies are described by the library that decodes them, from the very forms it decodes into, so
  the document is as strict as the relayer. Bounds that are no matter of form (bytes of a text,
  names of namespaces) are SPEC's.
- A route answers with what stands here, with an error of one shape, 503, or 501 where a model is
  wanted; never 500.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.routes import BaseRoute, HTTPRoute
from litestar.typing import FieldDefinition

from relayer import __version__
from relayer.http.checks import PUBLIC

Schema = dict[str, Any]

JSON: Final = "application/json"
OPENAPI: Final = "application/vnd.oai.openapi+json"
_REF: Final = "#/components/schemas/{name}"
_MCP: Final = ("/api/mcp", "/api/mcp/messages", "/api/mcp/sse")  # always 501
# Routes whose answers are no JSON object with the route's own status.
_ANSWERS: Final[Mapping[str, Mapping[str, str]]] = {
    **{path: {} for path in _MCP},
    "/metrics": {"200": "text/plain"},
    "/schema": {"200": OPENAPI},
    "/schema/openapi.json": {"200": OPENAPI},
    "/sui/sui.rpc.v2.LedgerService/BatchGetObjects": {"200": "application/grpc-web-text"},
    "/v1/consolidate": {"200": JSON, "202": JSON},
    "/v1/events": {"200": "text/event-stream"},
}
_LACKING: Final = ("/api/ask", "/api/embed", "/v1/ask", *_MCP)  # 501, where a model is not there
_SIGNED: Final = {
    "key": ("x-public-key", "Ed25519, lower-case hex"),
    "signature": ("x-signature", "Ed25519 over the signed text (SPEC §5), lower-case hex"),
    "timestamp": ("x-timestamp", "Unix seconds"),
    "nonce": ("x-nonce", "a UUID, new for each request"),
}
_OPTIONAL: Final = {
    "account": ("x-account-id", "the key's account; may be left out"),
    "unlock": ("x-memrelay-unlock", "keys lent to the relayer (SPEC §6); for sealed accounts"),
}


class Error(msgspec.Struct, forbid_unknown_fields=True):
    """Every error (SPEC §11)."""

    error: str
    message: str
    code: str
    request_id: str


class Document:
    """The document of one application, made once: anybody may ask for it."""

    def __init__(self) -> None:
        self._made = b""

    def of(self, routes: Sequence[BaseRoute]) -> bytes:
        """Return the document of the application's routes as JSON."""
        self._made = self._made or msgspec.json.encode(document(routes))
        return self._made


def document(routes: Sequence[BaseRoute]) -> Schema:
    """The document of these routes."""
    handlers = list(_handlers(routes))
    forms = {body.annotation for _, handler in handlers if (body := handler.parsed_data_field)}
    named = sorted(forms, key=lambda form: f"{form.__module__}.{form.__qualname__}")
    described, components = msgspec.json.schema_components([*named, Error], ref_template=_REF)
    bodies = dict(zip(named, described, strict=False))  # `Error` is nobody's body
    paths: dict[str, Schema] = {}
    for path, handler in handlers:
        for method in handler.http_methods:
            paths.setdefault(path, {})[method.lower()] = _operation(path, handler, bodies)
    return {
        "openapi": "3.1.0",
        "info": {"title": "memrelay", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _security_schemes()},
    }


def _handlers(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Each route's path, as OpenAPI writes it, and handler; OPTIONS is the framework's."""
    for route in sorted(routes, key=lambda route: route.path):
        assert isinstance(route, HTTPRoute)
        for handler in route.route_handlers:
            if "OPTIONS" not in handler.http_methods:
                yield re.sub(r":\w+\}", "}", route.path), handler


def _operation(path: str, handler: HTTPRouteHandler, bodies: Mapping[Any, Schema]) -> Schema:
    operation: Schema = {
        "summary": (handler.fn.__doc__ or "").partition("\n")[0],
        "parameters": [*_in_path(path), *_in_query(handler)],
        "responses": _responses(path, handler),
        "security": [] if handler.opt.get(PUBLIC) else _security(),
    }
    if (body := handler.parsed_data_field) is not None:
        content = {JSON: {"schema": bodies[body.annotation]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _in_path(path: str) -> Iterator[Schema]:
    for name in re.findall(r"\{(\w+)\}", path):
        yield {"in": "path", "name": name, "required": True, "schema": {"type": "string"}}


def _in_query(handler: HTTPRouteHandler) -> Iterator[Schema]:
    for name, parameter in handler.parsed_fn_signature.parameters.items():
        if isinstance(definition := parameter.kwarg_definition, QueryParameter):
            yield {
                "in": "query",
                "name": definition.name or name,
                "required": not parameter.has_default,
                "schema": _bounded(parameter, definition),
            }


def _bounded(parameter: FieldDefinition, definition: QueryParameter) -> Schema:
    """The schema of a query parameter: what it is when it is there, so never null."""
    inner = [a for a in parameter.args if a is not type(None)]
    bare = inner[0] if parameter.is_optional and len(inner) == 1 else parameter.annotation
    bounds = {
        "minimum": definition.ge,
        "maximum": definition.le,
        "pattern": definition.pattern,
        "maxLength": definition.max_length,
        "maxItems": definition.max_items,
    }
    named = {word: bound for word, bound in bounds.items() if bound is not None}
    schema = msgspec.json.schema(bare) | named
    if parameter.default is not None and parameter.has_default:
        schema["default"] = parameter.default
    return schema


def _responses(path: str, handler: HTTPRouteHandler) -> Schema:
    answers = _ANSWERS.get(path, {str(handler.status_code): JSON})
    error = {
        "description": "refused",
        "content": {JSON: {"schema": {"$ref": _REF.format(name=Error.__name__)}}},
    }
    away = error | {"description": "something behind the relayer is away; see retry-after"}
    lacking = error | {"description": "the relayer does not offer it, or lacks the model for it"}
    return {status: _answer(kind) for status, kind in answers.items()} | {
        "4XX": error,
        **({"501": lacking} if path in _LACKING else {}),
        "503": away,
    }


def _answer(media_type: str) -> Schema:
    schema: Schema = {"type": "object"} if media_type in (JSON, OPENAPI) else {}
    return {"description": "done", "content": {media_type: {"schema": schema}}}


def _security_schemes() -> Schema:
    return {
        name: {"type": "apiKey", "in": "header", "name": header, "description": description}
        for name, (header, description) in (_SIGNED | _OPTIONAL).items()
    }


def _security() -> list[dict[str, list[str]]]:
    """A signature, and what may come with it."""
    signed: dict[str, list[str]] = {name: [] for name in _SIGNED}
    return [signed, signed | {"account": []}, signed | {"account": [], "unlock": []}]
