"""The OpenAPI document as HTML for people: every operation with all that the document says of it.

Not here: the document (`openapi.py`), the page around this one (`pages.py`).

- It is made of the document alone. A keyword of a schema that has no words here is shown as it is,
  so nothing that the document says is left out but titles, which repeat names.
- `Markup.format` escapes whatever is no `Markup`: no text of the document becomes HTML.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup, escape

Schema = Mapping[str, Any]

METHODS: Final = ("get", "put", "post", "patch", "delete", "head", "options", "trace")
_SCHEMA_REF: Final = "#/components/schemas/"
_JOINED: Final = {"anyOf": " or ", "oneOf": " or ", "allOf": " and "}
# Words of their own stand for these; every other keyword is shown as it is.
_WORDED: Final = frozenset(
    ("$ref", "type", "enum", "const", "items", "properties", "required", "title", "description")
) | frozenset(_JOINED)
_SCHEMAS: Final = frozenset(
    ("additionalProperties", "contains", "else", "if", "not", "propertyNames", "then")
)
_CODE: Final = re.compile("`([^`]+)`")


def reference(document: Schema) -> Markup:
    """Return the main part of a page that describes the API of an OpenAPI 3.1 document."""
    operations = list(_operations(document))
    schemas = document.get("components", {}).get("schemas", {})
    return Markup('{}{}{}<h1 id="schemas">Schemas</h1>{}').format(
        _contents(operations),
        _render_signing(document),
        _join(_operation(document, *one) for one in operations),
        _join(_render_schema_name(name, schema) for name, schema in sorted(schemas.items())),
    )


def anchor(method: str, path: str) -> str:
    """Return the fragment that leads to an operation."""
    return re.sub(r"[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-") + (
        "-root" if path == "/" else ""
    )


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def _contents(operations: Iterable[tuple[str, str, Schema]]) -> Markup:
    row = Markup('<li><a href="#{}"><b>{}</b> <code>{}</code></a> {}</li>')
    rows = [
        row.format(anchor(method, path), method, path, _prose(operation.get("summary", "")))
        for method, path, operation in operations
    ]
    return Markup('<nav id="routes"><h2>Routes</h2><ul>{}</ul></nav>').format(_join(rows))


def _render_signing(document: Schema) -> Markup:
    """Return the headers by which a request says who asks."""
    schemes = document.get("components", {}).get("securitySchemes", {})
    rows = [
        (_code(one.get("name", name)), one.get("description", "")) for name, one in schemes.items()
    ]
    return Markup('<section id="signing"><h2>Signed requests</h2>{}{}</section>').format(
        _paragraph("`memrelay` and its Python client sign by themselves. The headers are:"),
        _table(("header", "holds"), rows),
    )


def _operation(document: Schema, method: str, path: str, operation: Schema) -> Markup:
    shell = Markup(
        '<section id="{}" class="operation"><h2><b>{}</b> <code>{}</code></h2>{}</section>'
    )
    named = operation.get("operationId")
    parts = [
        _paragraph(operation.get("summary", "")),
        _paragraph(operation.get("description", "")),
        _paragraph(f"Operation `{named}`." if named else ""),
        _paragraph("Deprecated." if operation.get("deprecated") else ""),
        _paragraph(_who(document, operation)),
        _parameters(document, operation),
        _body(document, operation),
        _answers(document, operation),
    ]
    return shell.format(anchor(method, path), method, path, _join(parts))


def _who(document: Schema, operation: Schema) -> str:
    """Return whether it is signed, and what may come with the signature."""
    alternatives = [set(one) for one in operation.get("security", document.get("security", []))]
    if not any(alternatives):
        return "Unsigned: anybody may ask."
    schemes = document.get("components", {}).get("securitySchemes", {})
    needed = set.intersection(*alternatives)
    listed = [name for name in schemes if name in set.union(*alternatives)]

    def headers(names: Iterable[str]) -> str:
        return ", ".join(f"`{schemes[name].get('name', name)}`" for name in names)

    may = headers(name for name in listed if name not in needed)
    signed = f"Signed: {headers(name for name in listed if name in needed)}."
    return signed + (f" It may also send {may}." if may else "")


def _parameters(document: Schema, operation: Schema) -> Markup:
    rows = []
    for one in (_resolve(document, given) for given in operation.get("parameters", ())):
        needed = "required" if one.get("required") else "optional"
        value = _shape(one.get("schema", {}))
        if text := one.get("description"):
            value = Markup("{} {}").format(_prose(text), value)
        rows.append((_code(one["name"]), one["in"], needed, value))
    heads = ("parameter", "in", "", "value")
    return Markup("<h3>Parameters</h3>{}").format(_table(heads, rows)) if rows else Markup("")


def _body(document: Schema, operation: Schema) -> Markup:
    if "requestBody" not in operation:
        return Markup("")
    body = _resolve(document, operation["requestBody"])
    needed = "required" if body.get("required") else "optional"
    return Markup("<h3>Body ({})</h3>{}{}").format(
        needed, _paragraph(body.get("description", "")), _content(document, body, with_members=True)
    )


def _answers(document: Schema, operation: Schema) -> Markup:
    rows = []
    for status, given in operation.get("responses", {}).items():
        answer = _resolve(document, given)
        headers = _join(
            Markup("<p>Header {}: {}</p>").format(
                _code(name), _shape(_resolve(document, header).get("schema", {}))
            )
            for name, header in answer.get("headers", {}).items()
        )
        said = Markup("{}{}{}").format(
            _paragraph(answer.get("description", "")),
            _content(document, answer, with_members=status.startswith("2")),
            headers,
        )
        rows.append((_code(status), said))
    return Markup("<h3>Answers</h3>{}").format(_table(("status", "answer"), rows))


def _content(document: Schema, described: Schema, *, with_members: bool) -> Markup:
    """Return each media type of a body or an answer, with what it holds.

    `with_members` also shows the members of a schema that is only named.
    """
    parts = []
    for kind, one in described.get("content", {}).items():
        schema = one.get("schema", {})
        shown = Markup(": {}").format(_shape(schema)) if schema else Markup("")
        if with_members and "$ref" in schema:
            shown += _members(_resolve(document, schema))
        parts.append(Markup('<div class="content">{}{}</div>').format(_code(kind), shown))
    return _join(parts)


def _render_schema_name(name: str, schema: Schema) -> Markup:
    shown = Markup('<section id="schema-{}" class="schema"><h2>{}</h2>{}</section>')
    return shown.format(name, name, _shape(schema))


def _shape(schema: Any) -> Markup:
    """Return what a schema allows: a phrase, and the members of an object below it."""
    if not isinstance(schema, Mapping):  # true or false
        return Markup("anything") if schema else Markup("nothing")
    described = schema.get("description", "")
    parts = [
        _kind(schema),
        *(_keyword(word, value) for word, value in schema.items() if word not in _WORDED),
    ]
    phrase = Markup(", ").join(part for part in parts if part) or Markup("anything")
    return Markup("{}{}{}").format(
        phrase, Markup(" – {}").format(_prose(described)) if described else "", _members(schema)
    )


def _kind(schema: Schema) -> Markup:
    parts = []
    if "$ref" in schema:
        parts.append(_link(schema["$ref"]))
    if "const" in schema:
        parts.append(_code(json.dumps(schema["const"])))
    if "enum" in schema:
        parts.append(Markup(" or ").join(_code(json.dumps(one)) for one in schema["enum"]))
    elif "type" in schema:
        kinds = schema["type"]
        parts.append(escape(kinds if isinstance(kinds, str) else " or ".join(kinds)))
    if "items" in schema:
        parts.append(Markup("each: {}").format(_shape(schema["items"])))
    parts += [
        escape(between).join(_shape(one) for one in schema[word])
        for word, between in _JOINED.items()
        if word in schema
    ]
    return Markup(", ").join(parts)


def _keyword(word: str, value: Any) -> Markup:
    if word == "additionalProperties" and isinstance(value, bool):
        return escape("other members allowed" if value else "no other members")
    if word in _SCHEMAS:
        return Markup("{}: {}").format(word, _shape(value))
    return Markup("{} {}").format(word, _code(json.dumps(value, ensure_ascii=False)))


def _members(schema: Schema) -> Markup:
    required = frozenset(schema.get("required", ()))
    rows = [
        (_code(name), "required" if name in required else "optional", _shape(member))
        for name, member in schema.get("properties", {}).items()
    ]
    return _table(("member", "", "value"), rows) if rows else Markup("")


def _link(ref: str) -> Markup:
    if not ref.startswith(_SCHEMA_REF):
        return _code(ref)
    name = ref.removeprefix(_SCHEMA_REF)
    return Markup('<a href="#schema-{}">{}</a>').format(name, name)


def _resolve(document: Schema, given: Schema) -> Schema:
    """Return a parameter, body, answer or header, where it only names one of the document's."""
    while "$ref" in given:
        found: Any = document
        for step in given["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        given = found
    return given


def _table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> Markup:
    head = _join(Markup("<th>{}</th>").format(one) for one in heads)
    body = _join(
        Markup("<tr>{}</tr>").format(_join(Markup("<td>{}</td>").format(cell) for cell in row))
        for row in rows
    )
    shell = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>")
    return shell.format(head, body)


def _paragraph(text: str) -> Markup:
    return Markup("<p>{}</p>").format(_prose(text)) if text else Markup("")


def _prose(text: str) -> Markup:
    """Return a text with what stands between backticks as code."""
    parts = _CODE.split(text)  # every second one was between them
    return _join(_code(one) if n % 2 else escape(one) for n, one in enumerate(parts))


def _code(text: Any) -> Markup:
    return Markup("<code>{}</code>").format(text)


def _join(parts: Iterable[Any]) -> Markup:
    return Markup("").join(parts)
