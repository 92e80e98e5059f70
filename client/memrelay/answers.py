"""How an answer's JSON becomes a frozen value, and back.

It does not own the answers themselves (`models.py`). Members that this version does not know are
ignored; a known one that is missing or of another type is an error.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from memrelay.errors import ServerError

ABSENT = "absent"  # marks a field that only some answers have


def sometimes(*, secret: bool = False) -> Any:
    """Return a field that only some answers have; where it is None, or secret, it is not shown."""
    return field(default=None, repr=not secret, metadata={ABSENT: True})


def rfc3339(value: datetime | str) -> str:
    """Return a time as the API writes it; text is taken as it is.

    Raises:
        ValueError: the time has no time zone.
    """
    if isinstance(value, str):
        return value
    if value.utcoffset() is None:
        raise ValueError("A time needs a time zone.")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The base of every answer: reads itself from JSON, checking types as it goes."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the answer in a JSON object.

        Raises:
            ServerError: `answer.malformed`, when a member is missing or of another type.
        """
        if not isinstance(value, dict):
            raise _malformed(cls.__name__)
        this: Any = cls  # the type checker takes classes for unhashable
        hints = _hints(this)
        known: dict[str, Any] = {}
        for item in fields(cls):
            if item.name in value:
                name = f"{cls.__name__}.{item.name}"
                known[item.name] = _convert(value[item.name], hints[item.name], name)
            elif item.default is MISSING and item.default_factory is MISSING:
                raise _malformed(f"{cls.__name__}.{item.name}")
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON, without what is shown nowhere and what may be absent."""
        return {
            item.name: _plain(getattr(self, item.name))
            for item in fields(self)
            if item.repr and not (ABSENT in item.metadata and getattr(self, item.name) is None)
        }


def _malformed(what: str) -> ServerError:
    message = f"The relayer's answer is malformed at {what}."
    return ServerError(message, status=200, code="answer.malformed")


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _convert(value: object, hint: Any, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return None if value is None else _convert(value, arguments[0], name)
    if origin is tuple:
        if not isinstance(value, list):
            raise _malformed(name)
        return tuple(_convert(item, arguments[0], name) for item in value)
    if isinstance(hint, type) and issubclass(hint, Answer):
        return hint.from_json(value)
    if hint is datetime:
        return _time(value, name)
    return _plain_value(value, dict if origin is Mapping else hint, name)


def _plain_value(value: object, hint: Any, name: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    matches = hint is Any or isinstance(value, hint)
    if not matches or (hint is not Any and hint is not bool and isinstance(value, bool)):
        raise _malformed(name)
    return value


def _time(value: object, name: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise _malformed(name) from None
    if parsed.utcoffset() is None:
        raise _malformed(name)
    return parsed


def _plain(value: object) -> Any:
    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
