"""The OpenAPI document: every route with what it takes and how it answers, made of the routes.

Not here: what members mean (SPEC.md); serving (`routes/openapi.py`).

- Bodies are described by the library that decodes them, from the very forms it decodes into, so
  the document is as strict as the relayer. Bounds that are no matter of form (bytes of a text,
  names of namespaces) are SPEC's.
- Answers are described by what the route says that it returns, and by its `responses` where it
  has another status or media type.
- A route answers with what stands here, with an error of one shape, 503, or 501 where a model is
  wanted; never 500.
- An operation is named as its function is: who renames one renames it in every generated client.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, get_args, get_origin

import msgspec
from litestar import Response
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


class _Answer(NamedTuple):
    """One way in which a route answers."""

    status: int
    form: Any
    media_type: str
    description: str


class Document:
    """The document of one application, made once: anybody may ask for it."""

    def __init__(self) -> None:
        self._made = b""

    def of(self, routes: Sequence[BaseRoute]) -> bytes:
        """Return the document of the application's routes as JSON."""
        self._made = self._made or msgspec.json.encode(document(routes))
        return self._made


def document(routes: Sequence[BaseRoute]) -> Schema:
    """Return the document of these routes."""
    handlers = list(_handlers(routes))
    forms = {body.annotation for _, handler in handlers if (body := handler.parsed_data_field)}
    forms |= {answer.form for _, handler in handlers for answer in _answers(handler)}
    forms |= {one for form in forms for one in _alternatives(msgspec.inspect.type_info(form))}
    named = sorted(forms, key=lambda form: f"{form.__module__}.{form.__qualname__}")
    described, components = msgspec.json.schema_components([*named, Error], ref_template=_REF)
    schemas = dict(zip([*named, Error], described, strict=True))
    paths: dict[str, Schema] = {}
    for path, handler in handlers:
        for method in sorted(handler.http_methods):
            operation = _operation(path, method, handler, schemas)
            paths.setdefault(path, {})[method.lower()] = operation
    whole: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "memrelay", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _security_schemes()},
    }
    typed: Schema = _mark_type(whole)
    return typed


def _mark_type(schema: Any) -> Any:
    """Return a schema whose choices of words say that these are strings, as generators need it."""
    if isinstance(schema, list):
        return [_mark_type(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    choices = schema.get("enum")
    is_of_words = isinstance(choices, list) and all(isinstance(one, str) for one in choices)
    kind = {"type": "string"} if is_of_words else {}
    return kind | {name: _mark_type(inner) for name, inner in schema.items()}


def _handlers(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Yield each route's path, as OpenAPI writes it, and handler; OPTIONS is the framework's."""
    for route in sorted(routes, key=lambda route: route.path):
        assert isinstance(route, HTTPRoute)
        for handler in route.route_handlers:
            if "OPTIONS" not in handler.http_methods:
                yield re.sub(r":\w+\}", "}", route.path), handler


def one_of(*forms: type) -> msgspec.Meta:
    """Return what describes an `Any` that has one of several forms, each with a name of its own.

    msgspec describes no union of such types, for it could not decode one.
    """
    refs = [{"$ref": _REF.format(name=form.__name__)} for form in forms]
    return msgspec.Meta(extra_json_schema={"anyOf": refs}, extra={"forms": forms})


def _alternatives(described: msgspec.inspect.Type) -> Iterator[type]:
    """Yield the forms that `one_of` names, in an answer's members or lists of these."""
    match described:
        case msgspec.inspect.Metadata(type=inner, extra=extra):
            yield from (extra or {}).get("forms", ())
            yield from _alternatives(inner)
        case msgspec.inspect.ListType(item_type=item):
            yield from _alternatives(item)
        case msgspec.inspect.TypedDictType(fields=members):
            for member in members:
                yield from _alternatives(member.type)


def _operation(
    path: str, method: str, handler: HTTPRouteHandler, schemas: Mapping[Any, Schema]
) -> Schema:
    operation: Schema = {
        "operationId": _operation_id(path, method, handler),
        "summary": (handler.fn.__doc__ or "").partition("\n")[0],
        "parameters": [*_in_path(path), *_in_query(handler)],
        "responses": _responses(path, handler, schemas),
        "security": [] if handler.opt.get(PUBLIC) else _security(),
    }
    if (body := handler.parsed_data_field) is not None:
        content = {JSON: {"schema": schemas[body.annotation]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(path: str, method: str, handler: HTTPRouteHandler) -> str:
    """Return the function's name in camel case, with the method and the path's end where it has
    several of these."""
    name = str(handler.fn.__name__)
    if len(handler.http_methods) > 1:
        name += f"_{method.lower()}"
    if len(handler.paths) > 1:
        name += "_" + re.sub(r"\W", "_", path.rpartition("/")[2])
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


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
                "schema": _describe_parameter(parameter, definition),
            }


def _describe_parameter(parameter: FieldDefinition, definition: QueryParameter) -> Schema:
    """Return the schema of a query parameter: what it is when it is there, so never null."""
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


def _answers(handler: HTTPRouteHandler) -> Iterator[_Answer]:
    """Yield how a route answers when nothing is wrong, and what it says itself of other answers."""
    specified = handler.responses or {}
    for status, spec in specified.items():
        yield _Answer(status, spec.data_container, spec.media_type, spec.description)
    form = handler.parsed_fn_signature.return_type.annotation
    if get_origin(form) is Response:
        [form] = get_args(form)
    if form is not NoReturn and handler.status_code not in specified:
        yield _Answer(handler.status_code, form, JSON, "done")


def _responses(path: str, handler: HTTPRouteHandler, schemas: Mapping[Any, Schema]) -> Schema:
    error = _response(JSON, schemas[Error], "refused")
    away = error | {"description": "something behind the relayer is away; see retry-after"}
    lacking = error | {"description": "the relayer does not offer it, or lacks the model for it"}
    answers = {
        str(answer.status): _response(answer.media_type, schemas[answer.form], answer.description)
        for answer in _answers(handler)
    }
    offered = {"4XX": error, **({"501": lacking} if path in _LACKING else {}), "503": away}
    return offered | answers


def _response(media_type: str, schema: Schema, description: str) -> Schema:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _security_schemes() -> Schema:
    return {
        name: {"type": "apiKey", "in": "header", "name": header, "description": description}
        for name, (header, description) in (_SIGNED | _OPTIONAL).items()
    }


def _security() -> list[dict[str, list[str]]]:
    """Return a signature, and what may come with it."""
    signed: dict[str, list[str]] = {name: [] for name in _SIGNED}
    return [signed, signed | {"account": []}, signed | {"account": [], "unlock": []}]
