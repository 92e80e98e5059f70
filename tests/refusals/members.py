"""Every member of every body with every wrong type, out of range, missing or unknown.

The cases follow from the forms of the routes, so a new route or member joins them by itself. Not
here: what is no JSON (`documents.py`), query parameters (`queries.py`).
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from litestar import Router
from litestar.handlers import HTTPRouteHandler
from msgspec import inspect

from relayer.routes.router import all_routes
from tests.refusals.case import CANARY, Case
from tests.refusals.world import World

ID = "0b5e9f3c-2d1a-4c8b-9e7f-112233445566"
VALUES: tuple[Any, ...] = (None, True, 1, 1.0, CANARY, [], {})
LONGEST_MADE = 10_000  # longer ones would be over the limit of a body
STAND_INS: dict[type, Any] = {
    inspect.DateTimeType: "2026-05-04T09:30:00Z",
    inspect.UUIDType: ID,
    inspect.BoolType: True,
}


@dataclass(frozen=True)
class Body:
    """A route that takes a body, and its form."""

    method: str
    path: str
    form: inspect.StructType

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def target(self) -> str:
        """A concrete path; what its names mean is never asked, for the body is refused first."""
        words = self.path.split("/")
        return "/".join(ID if word.startswith("{") else word for word in words)


def bodies() -> Iterator[Body]:
    """The routes that take bodies, by their table."""
    for entry in all_routes():
        routes = entry.routes if isinstance(entry, Router) else [entry]
        for route in routes:
            prefix = entry.path if isinstance(entry, Router) else ""
            handlers = getattr(route, "route_handlers", None) or [route]
            for handler in handlers:
                yield from _body(handler, prefix)


def _body(handler: HTTPRouteHandler, prefix: str) -> Iterator[Body]:
    data = handler.parsed_fn_signature.parameters.get("data")
    if data is None:
        return
    form = inspect.type_info(data.annotation)
    assert isinstance(form, inspect.StructType)
    [method], [path] = handler.http_methods, handler.paths
    yield Body(str(method), prefix + path.replace(":str", "").replace(":path", ""), form)


def valid(form: inspect.Type) -> Any:
    """The shortest value of a form."""
    match form:
        case inspect.UnionType():
            return valid(form.types[0])
        case inspect.StructType():
            return {f.encode_name: valid(f.type) for f in form.fields if f.required}
        case inspect.ListType():
            return [valid(form.item_type)] * (form.min_length or 0)
        case inspect.DictType():
            return {}
        case inspect.LiteralType():
            return form.values[0]
        case inspect.IntType() | inspect.FloatType():
            return form.ge if form.ge is not None else 1
        case inspect.BytesType():
            return base64.b64encode(bytes(form.min_length or 0)).decode()
        case inspect.StrType():
            return (
                "ab" * 32
                if (form.pattern or "").startswith("^[0-9a-f]{64}")
                else "a" * (form.min_length or 0)
            )
        case _:
            return next((v for k, v in STAND_INS.items() if isinstance(form, k)), None)


def takes(form: inspect.Type, value: Any) -> bool:
    """Whether a value has the JSON type that a form asks for, by that form's own words."""
    match form:
        case inspect.UnionType():
            return any(takes(one, value) for one in form.types)
        case inspect.LiteralType():
            return any(value == v and type(value) is type(v) for v in form.values)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.IntType():
            return type(value) is int
        case inspect.FloatType():
            return type(value) in (int, float)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.NoneType():
            return value is None
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.DictType() | inspect.StructType():
            return isinstance(value, dict)
        case inspect.DateTimeType() | inspect.UUIDType() | inspect.BytesType():
            return False  # none of the values is one of these
    raise NotImplementedError(type(form))


def wrong(form: inspect.Type) -> list[Any]:
    """Values of other types than the form's, also inside of lists and objects."""
    found = [value for value in VALUES if not takes(form, value)]
    for one in _members(form):
        if isinstance(one, inspect.ListType) and not isinstance(one.item_type, inspect.StructType):
            found += [[value] for value in wrong(one.item_type)]
        if isinstance(one, inspect.DictType):
            found += [{"a": value} for value in wrong(one.value_type)]
    return found


def outside(form: inspect.Type) -> list[Any]:
    """Values of the right type that are too small, too large, too long or of another pattern."""
    found: list[Any] = []
    for one in _members(form):
        match one:
            case inspect.IntType() | inspect.FloatType():
                found += [one.ge - 1] if one.ge is not None else []
                found += [one.gt] if one.gt is not None else []
                found += [one.le + 1, 10**20, 10**400] if one.le is not None else []
            case inspect.StrType() | inspect.BytesType():
                found += _lengths(one, "a")
                found += [valid(one) + "\n", "\0"] if getattr(one, "pattern", None) else []
            case inspect.ListType():
                found += _lengths(one, [valid(one.item_type)])
            case inspect.DateTimeType():
                found += ["2026-05-04T09:30:00", "2026-02-30T09:30:00Z", "2026-05-04"]
                found += [
                    "10000-01-01T00:00:00Z",
                    "2026-05-04T24:30:00Z",
                    "2026-05-04T09:30:00+25:00",
                ]
    return found


def _lengths(form: Any, one: Any) -> list[Any]:
    sizes = [form.min_length - 1] if form.min_length else []
    if form.max_length is not None and form.max_length < LONGEST_MADE:
        sizes.append(form.max_length + 1)
    if isinstance(form, inspect.BytesType):
        return [base64.b64encode(bytes(size)).decode() for size in sizes]
    return [one * size for size in sizes]


def _members(form: inspect.Type) -> Sequence[inspect.Type]:
    return form.types if isinstance(form, inspect.UnionType) else [form]


def _nested(form: inspect.Type) -> Iterator[tuple[str, inspect.StructType]]:
    """The objects inside of a member, and what the relayer calls their place."""
    for one in _members(form):
        if isinstance(one, inspect.StructType):
            yield "", one
        if isinstance(one, inspect.ListType):
            for place, inner in _nested(one.item_type):
                yield "[0]" + place, inner


def cases() -> Iterator[Case]:
    """Of every body there is."""
    for body in bodies():
        yield from _of(body, body.form, "", lambda value: value)


def _of(body: Body, form: inspect.StructType, place: str, wrap: Any) -> Iterator[Case]:
    good = valid(form)
    at = place or "the body"
    for member in form.fields:
        name, where = member.encode_name, f"{place}.{member.encode_name}".lstrip(".")
        for kind, values in (("type", wrong(member.type)), ("range", outside(member.type))):
            documents = [wrap(good | {name: value}) for value in values]
            if documents:
                yield _case(body, f"{kind}-of-{where}", documents, f" in {where}")
        if member.required:
            short = wrap({k: v for k, v in good.items() if k != name})
            yield _case(body, f"without-{where}", [short], f"{name} is missing in {at}")
        for suffix, inner in _nested(member.type):
            yield from _of(body, inner, where + suffix, _inside(wrap, good, name, suffix))
    if form.forbid_unknown_fields:
        unknown = [wrap(good | {CANARY: 1}), wrap(good | {"": None})]
        yield _case(body, f"unknown-member-of-{at}", unknown, f"a member is unknown in {at}")


def _inside(wrap: Any, good: Any, name: str, suffix: str) -> Any:
    return lambda value: wrap(good | {name: [value] if suffix else value})


def _case(body: Body, name: str, documents: Sequence[Any], says: str) -> Case:
    def build(w: World) -> list[bytes]:
        # The standard library writes what msgspec would not: 1.0, and numbers beyond 64 bits.
        raws = [json.dumps(document).encode() for document in documents]
        return [w.asked(body.target, raw, method=body.method).sent() for raw in raws]

    return Case(f"{body.name}/{name}", body.name, build, 400, "request.invalid", says)


CASES = list(cases())
