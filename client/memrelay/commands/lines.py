"""Memories from a file of JSON lines, and the progress of storing them.

It does not own the storing (`writing.py`). Every line is read and checked before the first one is
sent, so a malformed file stores nothing.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TextIO

from memrelay.errors import ConfigError
from memrelay.models import Draft

_FIELDS = frozenset(item.name for item in fields(Draft))
_TEXTS = _FIELDS - {"tags", "metadata"}


def read_drafts(lines: Iterable[str], warn: Callable[[str], None]) -> list[Draft]:
    """Return the drafts of JSON lines; empty lines are skipped.

    Unknown fields are left out, with one call of `warn` for all of them.

    Raises:
        ConfigError: a line is not an object with a `text`, or a field has another type.
    """
    drafts: list[Draft] = []
    unknown: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise ConfigError(f"Line {number} is not JSON.") from None
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise ConfigError(f"Line {number} is not an object with a text.")
        unknown |= set(value) - _FIELDS
        drafts.append(_draft(value, number))
    if unknown:
        warn(f"Unknown fields were left out: {', '.join(sorted(unknown))}.")
    return drafts


def _draft(value: dict[str, object], number: int) -> Draft:
    known = {name: part for name, part in value.items() if name in _FIELDS and part is not None}
    for name, part in known.items():
        if name in _TEXTS and not isinstance(part, str):
            raise ConfigError(f"Line {number}: {name} is text.")
    tags, metadata = known.get("tags"), known.get("metadata")
    if tags is not None:
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ConfigError(f"Line {number}: tags is a list of texts.")
        known["tags"] = tuple(tags)
    if metadata is not None and not isinstance(metadata, dict):
        raise ConfigError(f"Line {number}: metadata is an object.")
    return Draft(**known)  # type: ignore[arg-type]  # checked above, name by name


class ProgressLine:
    """Tells on a stream how many memories are stored and how fast, at most once a second."""

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._told_s = float("-inf")

    def __call__(self, done: int, total: int | None) -> None:
        """Tell, if it is time to or all is done."""
        now_s = self._monotonic()
        if done != total and now_s - self._told_s < 1.0:
            return
        self._told_s = now_s
        rate = done / max(now_s - self._began_s, 1e-9)
        of = "" if total is None else f" of {total}"
        print(f"{done}{of} stored, {rate:.0f} a second", file=self._stream, flush=True)
