"""Finds what somebody changed in an export of a memory that is still there.

It does not own reading the files (`files.py`) or sending the edit (`storing.py`).

- Only what a file says counts as changed: a field that it leaves out stays.
- What is compared is the revision that was exported. So a file that nobody changed never takes a
  newer revision back.
"""

from collections.abc import Mapping
from typing import Any

from memrelay.importing.drafts import moment
from memrelay.importing.records import FIRST_STORED
from memrelay.models import Draft, Memory

_WORDS = ("text", "kind", "source", "importance", "confidence")
_TIMES = ("event_time", "expires_at")


def changes(draft: Draft, memory: Memory) -> dict[str, Any]:
    """Return the arguments of the edit that makes of a memory what a draft says; none for none."""
    changed: dict[str, Any] = {}
    for name in _WORDS:
        value = getattr(draft, name)
        if value is not None and value.strip() != (getattr(memory, name) or "").strip():
            changed[name] = value
    for name in _TIMES:
        time = moment(getattr(draft, name))
        if time is not None and time != getattr(memory, name):
            changed[name] = time
    if draft.tags is not None and draft.tags != memory.tags:
        changed["tags"] = draft.tags
    return changed | _metadata(draft.metadata or {}, memory.metadata or {})


def _metadata(told: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    # When a memory was first stored elsewhere is no metadata in a file, but its `created_at`.
    noted = {name: value for name, value in told.items() if name != FIRST_STORED}
    first = {name: value for name, value in known.items() if name == FIRST_STORED}
    same = not noted or {**noted, **first} == dict(known)
    return {} if same else {"metadata": {**noted, **first}}
