"""Shortens what a client tells a model of the tools, without changing what they take or answer.

It does not own the tools (`tools.py`).

- Every character of a schema is in the context of each of a model's turns.
- Null is taken for a missing argument, though it is not advertised.
- A receipt is for the client that verifies it, and is no text for a model.
"""

from typing import Any

_RECEIPTS = {"receipt", "receipts"}


def shorten_schema(schema: Any) -> Any:
    """Return a JSON schema without titles, null beside another type, and defaults of null."""
    if isinstance(schema, list):
        return [shorten_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kinds = schema.get("anyOf", [])
    others = [kind for kind in kinds if kind != {"type": "null"}]
    if len(others) == 1 < len(kinds):
        schema = {**{n: v for n, v in schema.items() if n != "anyOf"}, **others[0]}
    return {
        name: _shorten_members(value) if name == "properties" else shorten_schema(value)
        for name, value in schema.items()
        if not (name == "title" or (name == "default" and value is None))
    }


def _shorten_members(members: dict[str, Any]) -> dict[str, Any]:
    # A member may itself be called "title" or "default".
    return {name: shorten_schema(value) for name, value in members.items()}


def without_receipts(value: Any) -> Any:
    """Return a tool's answer, or its schema, without receipts."""
    if isinstance(value, list):
        return [without_receipts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_receipts(item) for name, item in value.items() if name not in _RECEIPTS}
