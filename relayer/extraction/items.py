"""The items of a model's answer, in whatever form they came: what each says, field by field.

It does not own finding the value in the answer (`relayer.answers`), nor what is believed of an
item (`model.py`).

- Only the text is needed. A field that is missing or strange is left out, never the fact for it.
- The names of keys and of enumerations count in any case; a number may stand in quotes.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

Item = dict[str, Any]

_DEPTH_MAX: Final = 5
_TEXT_KEYS: Final = (
    "text", "fact", "content", "memory", "statement", "sentence", "description", "note", "value",
)  # fmt: skip
_KEYS: Final = {
    "saidby": "said_by", "speaker": "said_by", "source": "said_by", "role": "said_by",
    "kind": "kind", "type": "kind", "category": "kind",
    "importance": "importance", "priority": "importance",
    "confidence": "confidence", "certainty": "confidence",
    "eventtime": "event_time", "time": "event_time", "date": "event_time", "when": "event_time",
    "contradicts": "contradicts",
}  # fmt: skip
# Whose value is the list, and what is beside it is not.
_LIST_KEYS: Final = (
    "facts", "memories", "items", "extractedfacts", "data", "result", "results", "output",
    "response", "answer", "arguments", "parameters", "input", "json", "properties", "procedures",
)  # fmt: skip
# What a model is sure to mean by "no facts", when it says so in words.
_NOTHING: Final = re.compile(
    r"\W*(?:null|none|nil|nothing|n/a|empty(?: list)?|no|keine)\W*\Z"
    r"|\W*(?:(?:the |this )?conversation (?:has|contains|holds) |there (?:are|is|were|was) "
    r"|i (?:found|find|see|have found) |(?:facts|answer|result|output)\W{1,3})?"
    r"(?:no(?:ne| ne?w)?|nothing|not any|keine)\b[^.!?\n{}\[\]]{0,40}"
    r"\b(?:facts?|memor(?:y|ies)|information|details?|items?|remember|store|stored|keep|kept|note"
    r"|noting|keeping|storing|remembering|lasts?|durable|fakten)\b[^\n{}\[\]]{0,200}\Z",
    re.IGNORECASE,
)
_NUMBERED_KEY: Final = re.compile(r"(?:fact|memory)?\d{1,2}")
_BULLET: Final = re.compile(r"[ \t]{0,8}(?:[-*•–]|\d{1,2}[.)])[ \t]+(?:\*\*)?")
_TEXT_LABEL: Final = re.compile(r"[\"']?(?:text|fact)(?: \d{1,2})?[\"']?\**[ \t]*:\**[ \t]*", re.I)
_LIST_CHARS_MAX: Final = 40_000


def read_items(value: Any) -> list[Item] | None:
    """Return the items of a decoded value or of a text without one; None if it holds none.

    An item has a `text` and, under the schema's names, other fields. An empty list is an answer.
    """
    found = _text_items(value) if isinstance(value, str) else _items(value, 0)
    return None if found is None else [_item(one) for one in found]


def _items(value: Any, depth: int) -> list[Any] | None:
    if value is None or value in ({}, []):
        return []
    if depth > _DEPTH_MAX:
        return None
    if isinstance(value, str):
        return _inner(value, depth)
    if isinstance(value, list):
        return _flatten(value, depth)
    return _members(value, depth) if isinstance(value, dict) else None


def _inner(text: str, depth: int) -> list[Any] | None:
    """Return the items of a value that is encoded once more, or the one that is a text."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _items(json.loads(text, strict=False), depth + 1)
        except (ValueError, RecursionError):
            return None
    if _NOTHING.match(text) or not text.strip():
        return []
    return [text] if depth and " " in text.strip() else None


def _flatten(values: Sequence[Any], depth: int) -> list[Any] | None:
    """Return the items of all values that are or hold any, unless none does."""
    found, is_any = list[Any](), False
    for value in values:
        if isinstance(value, str) and value.lstrip()[:1] not in ("{", "["):
            one = [value] if " " in value.strip() or not value.isascii() else None
        elif isinstance(value, dict | list | str):
            one = _items(value, depth + 1)
        else:
            one = None
        if one is not None:
            is_any = True
            found += one
    return found if is_any else None


def _members(value: dict[str, Any], depth: int) -> list[Any] | None:
    folded = {_fold(key): inner for key, inner in value.items()}
    for key in _LIST_KEYS:
        if key in folded and not _is_schema(key, folded[key]):
            inner = _items(folded[key], depth + 1)
            if inner is not None:
                return inner
    if _text(value) is not None:
        return [value]
    inners = [inner for inner in value.values() if isinstance(inner, dict | list)]
    if inners and len(inners) == len(value):  # numbered, or sorted by something
        return _flatten(inners, depth)
    numbered = [inner for key, inner in folded.items() if _NUMBERED_KEY.fullmatch(key)]
    return _flatten(numbered, depth) if numbered else None


def _is_schema(key: str, value: Any) -> bool:
    """Tell a schema that was repeated from one that was filled in."""
    inners = value.values() if isinstance(value, dict) else [[]]
    return key == "properties" and not any(isinstance(inner, list) for inner in inners)


def _text(item: dict[str, Any]) -> str | None:
    folded = {_fold(key): inner for key, inner in item.items()}
    for key in _TEXT_KEYS:
        inner = folded.get(key)
        if isinstance(inner, dict):
            inner = _text(inner)
        if isinstance(inner, str):
            return inner
    return None


def _item(one: Any) -> Item:
    if isinstance(one, str):
        return {"text": one}
    fields = {_KEYS.get(_fold(key), _fold(key)): value for key, value in one.items()}
    return fields | {"text": _text(one) or ""}


def _fold(key: object) -> str:
    return re.sub(r"[\W_]+", "", str(key)[:64]).casefold()


def _text_items(text: str) -> list[Any] | None:
    """Return what a text without JSON lists; nothing if it says that there is nothing."""
    if _NOTHING.match(text[:400]) and len(text) <= 400:
        return []
    lines = list(_split_bullets(text[:_LIST_CHARS_MAX]))
    return lines or None


def _split_bullets(text: str) -> Iterator[str]:
    for line in text.splitlines():
        bullet = _BULLET.match(line)
        if bullet:
            said = line[bullet.end() :]
            label = _TEXT_LABEL.match(said)
            yield said[label.end() if label else 0 :].strip(" \t*\"'")


def read_choice(allowed: Sequence[str], value: object, default: str) -> str:
    """Return the one of `allowed` that `value` names, in whatever case; else `default`."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        return default
    words = re.findall(r"[a-z]+", value[:64].casefold())
    return next((word for word in words if word in allowed), default)


def read_place(number: object, count: int) -> int | None:
    """Return the index that a model's number of a known memory stands for, if there is one."""
    if isinstance(number, list) and number:
        number = number[0]
    if isinstance(number, str):
        digits = re.fullmatch(r"\D{0,16}(\d{1,4})(?:\.0{1,2})?\D{0,2}", number)
        number = int(digits[1]) if digits else None
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number - 1 if 1 <= number <= count else None
