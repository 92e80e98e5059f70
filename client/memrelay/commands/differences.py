"""Shows people what changed between two revisions of a memory.

It does not own what is shown around it (`lists.py`).
"""

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from memrelay.models import Memory

WORDS_MAX = 1000  # comparing takes the product of both lengths
_FIELDS = (
    "kind",
    "tags",
    "source",
    "event_time",
    "metadata",
    "importance",
    "confidence",
    "expires_at",
)
_PIECE = re.compile(r"\s+|\S+")


def word_diff(older: str, newer: str) -> str:
    """Return the newer text with `[-words that went-]` and `{+words that came+}` marked.

    Of texts that are too long to compare, the newer one as it is.
    """
    old, new = _PIECE.findall(older), _PIECE.findall(newer)
    if max(len(old), len(new)) > 2 * WORDS_MAX:
        return newer
    parts = []
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        gone, come = "".join(old[old_start:old_end]), "".join(new[new_start:new_end])
        if kind == "equal":
            parts.append(come)
        else:
            parts += [f"[-{gone}-]" if gone else "", f"{{+{come}+}}" if come else ""]
    return "".join(parts)


def list_changed_fields(older: Memory, newer: Memory) -> Iterator[str]:
    """Yield a line for each of a memory's other fields that changed."""
    before, after = older.to_json(), newer.to_json()
    for name in _FIELDS:
        if before[name] != after[name]:
            yield f"{name}: {_format_value(before[name])} → {_format_value(after[name])}"


def _format_value(value: object) -> str:
    if value in (None, [], {}):
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
