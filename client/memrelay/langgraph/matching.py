"""Filters of a LangGraph store: which values and which namespaces fit.

It does not own the store (`store.py`).
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return whether a namespace begins or ends as a condition says; `*` is any label."""
    path, length = condition.path, len(condition.path)
    part = namespace[:length] if condition.match_type == "prefix" else namespace[-length:]
    return len(part) == length and all(map(_is_in, part, path))


def _is_in(label: str, wanted: str) -> bool:
    return wanted in ("*", label)


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the members of a value fit a filter.

    Raises:
        ValueError: the filter has an unknown operator, or compares something as a number.
    """
    return all(_compare(value.get(name), want) for name, want in wanted.items())


def _compare(have: Any, want: Any) -> bool:
    """Return whether a member fits: a value, members of an object, or LangGraph's operators.

    Raises:
        ValueError: there is no such operator, or it compares numbers and gets none.
    """
    if not isinstance(want, Mapping):
        return bool(have == (list(want) if isinstance(want, tuple) else want))
    if not any(name.startswith("$") for name in want):
        return isinstance(have, Mapping) and fits(have, want)
    unknown = want.keys() - _OPERATORS.keys()
    if unknown:
        raise ValueError(f"A filter has no operator {', '.join(sorted(unknown))}.")
    return all(_OPERATORS[name](have, operand) for name, operand in want.items())


def _of_numbers(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    return lambda have, operand: have is not None and compare(float(have), float(operand))


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": _of_numbers(operator.gt),
    "$gte": _of_numbers(operator.ge),
    "$lt": _of_numbers(operator.lt),
    "$lte": _of_numbers(operator.le),
}
