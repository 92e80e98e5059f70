"""Turns an answer's JSON into a frozen value, and back.

It does not own the answers themselves (`models.py`).

- Whatever a relayer answers is read by an `Answer`: nothing else looks into its JSON.
- Members that this version does not know are ignored; a known one that is missing, of another type
  or out of range is an error.
"""

import json
import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from memrelay.errors import ServerError

ABSENT = "absent"  # marks a field that only some answers have
JSON_DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1
_NESTING = frozenset({dict, list})
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def sometimes(*, secret: bool = False) -> Any:
    """Return a field that only some answers have; where it is None, or secret, it is not shown."""
    return field(default=None, repr=not secret, metadata={ABSENT: True})


def rfc3339(value: datetime | str, *, zoned: bool = False) -> str:
    """Return a time as the API writes it, in UTC or `zoned`; text is taken as it is.

    Raises:
        ValueError: the time has no time zone, or is none in UTC.
    """
    if isinstance(value, str):
        return value
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("A time needs a time zone.")
    try:
        written = value.astimezone(UTC)
        if zoned:  # in whole minutes, as RFC 3339 writes them
            minutes = round(offset / timedelta(minutes=1))
            written = written.astimezone(timezone(timedelta(minutes=minutes)))
    except OverflowError:  # in the first and the last year there is
        raise ValueError("A time in UTC is in one of the years 1 to 9999.") from None
    return written.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_json_object(data: bytes) -> dict[str, Any]:
    """Return the object that is the JSON of an answer or an event.

    Raises:
        ServerError: `answer.malformed`, when it is none, or one that could not be written again:
            with a number that is none, half a character, or nested too deeply.
    """
    try:
        value = _DECODER.decode(data.decode())
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not _shallow(value, JSON_DEPTH_MAX):
        raise ServerError("The relayer's answer is not JSON.", status=200, code="answer.malformed")
    return value


def _refuse(literal: str) -> float:
    raise ValueError(literal)


def _finite(literal: str) -> float:
    return value if math.isfinite(value := float(literal)) else _refuse(literal)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def _shallow(value: dict[str, Any], levels: int) -> bool:
    level: list[Any] = [value]
    for _ in range(levels):
        level = [
            part
            for whole in level
            for part in (whole.values() if type(whole) is dict else whole)
            if type(part) in _NESTING
        ]
        if not level:
            return True
    return False


def onward(asked: str | None, following: str | None) -> str | None:
    """Return the cursor of the page that follows the one that was asked for.

    Raises:
        ServerError: `answer.malformed`, when it leads to the same page again.
    """
    if following is not None and following == asked:
        raise make_malformed_error("a cursor that leads nowhere")
    return following


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
            raise make_malformed_error(cls.__name__)
        this: Any = cls  # the type checker takes classes for unhashable
        answer = cls.__new__(cls)
        # A frozen value's own constructor does no more, but with a call for each field.
        known = vars(answer)
        for name, place, default, as_is, read in _members(this):
            given = value.get(name, MISSING)
            if type(given) in as_is:
                known[name] = given
            elif given is not MISSING:
                known[name] = read(given, place)
            elif default is not MISSING:
                known[name] = default
            else:
                raise make_malformed_error(place)
        return answer

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON, without what is shown nowhere and what may be absent."""
        return {
            item.name: _plain(getattr(self, item.name))
            for item in fields(self)
            if item.repr and not (ABSENT in item.metadata and getattr(self, item.name) is None)
        }


def make_malformed_error(what: str) -> ServerError:
    """Return the error for an answer that does not hold what it has to."""
    message = f"The relayer's answer is malformed at {what}."
    return ServerError(message, status=200, code="answer.malformed")


Read = Callable[[object, str], Any]  # a value and where it stands, as a field has it


class _Member(NamedTuple):
    """A member of an answer's JSON, and how it is read; worked out once for each class.

    Values of the types in `as_is` are not read: most values are of these, and a call costs more.
    What has no default, that is `MISSING`, may not be missing.
    """

    name: str
    place: str
    default: Any
    as_is: frozenset[type]
    read: Read


@cache
def _members(cls: Any) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Member(
            item.name,
            f"{cls.__name__}.{item.name}",
            item.default,
            _as_is(hints[item.name]),
            _reader(hints[item.name]),
        )
        for item in fields(cls)
    )


def _as_is(hint: Any) -> frozenset[type]:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return _as_is(get_args(hint)[0]) | {types.NoneType}
    return frozenset({dict if origin is Mapping else hint} & {str, bool, float, dict})


def _reader(hint: Any) -> Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        given = _reader(arguments[0])
        return lambda value, place: None if value is None else given(value, place)
    if origin is tuple:
        each = _reader(arguments[0])
        return lambda value, place: tuple([each(item, place) for item in _list(value, place)])
    if isinstance(hint, type) and issubclass(hint, Answer):
        return lambda value, _: hint.from_json(value)
    if hint is datetime:
        return _time
    if hint is Any:
        return lambda value, _: value
    if hint in {int, float}:
        return _integer if hint is int else _number
    plain = dict if origin is Mapping else hint
    return lambda value, place: _plain_value(value, plain, place)


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise make_malformed_error(place)
    return value


def _integer(value: Any, place: str) -> int:
    # What JSON gives are never subclasses, save bool of int, which is no number here.
    if type(value) is not int or not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise make_malformed_error(place)
    return value


def _number(value: Any, place: str) -> float:
    return value if type(value) is float else float(_integer(value, place))


def _plain_value(value: object, plain: type, place: str) -> object:
    if type(value) is not plain:
        raise make_malformed_error(place)
    return value


def _time(value: object, name: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(value if isinstance(value, str) else "")
        parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter in the first and the last year there is
        raise make_malformed_error(name) from None
    if parsed.tzinfo is None:
        raise make_malformed_error(name)
    return parsed


def _plain(value: object) -> Any:
    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
