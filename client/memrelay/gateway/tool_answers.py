"""Words the tools' answers to a model, with all that others wrote escaped.

It does not own what the tools do (`tools.py`) or how memories are shown (`framing.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memrelay.answers import rfc3339
from memrelay.errors import Conflict, NotAllowed, NotFound, NotGranted, ServerError
from memrelay.extraction import degradation
from memrelay.gateway.framing import Reader, is_unsure, writer_of
from memrelay.gateway.line_breaks import one_line
from memrelay.gateway.outage import AWAY, reason_of
from memrelay.gateway.quoting import escape, quote
from memrelay.models import Analysis, Memory, Remembered, relevance_percent

PREVIEW_FACTS = 3
_CONFLICTS = {
    "memory.revision": "It was changed since you read it: read it again.",
    "memory.duplicate": "Another memory says exactly this already.",
    "memory.superseded": "It was superseded: a newer memory stands in its place.",
}


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer of a tool: a text for the model, and the same as values for a program."""

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    @classmethod
    def fail(cls, message: str) -> "ToolAnswer":
        """Return the answer of a call that could not be carried out."""
        return cls(text=message, details={"error": message}, is_error=True)


def explain(error: Exception) -> str:
    """Return in plain words, for a model, why its call failed."""
    if isinstance(error, (NotGranted, NotAllowed)):
        return "Your key is not allowed to do that there."
    if isinstance(error, NotFound):
        return "There is no memory with that id."
    if isinstance(error, Conflict) and error.code in _CONFLICTS:
        return _CONFLICTS[error.code]
    if reason_of(error) == AWAY:
        return "The memory cannot be reached right now; go on without it."
    if isinstance(error, ServerError):
        return f"The memory refused that ({error.status})."
    return "The memory failed; go on without it."


def details_of(memory: Memory, reader: Reader) -> dict[str, Any]:
    """Return a memory as values for a program, with the texts escaped all the same."""
    known = {
        "id": memory.id,
        "text": memory.text or "",
        "namespace": memory.namespace,
        "kind": memory.kind,
        "source": memory.source,
        "writer": writer_of(memory, reader),
        "unsure": is_unsure(memory) or None,
        "event_time": rfc3339(memory.event_time) if memory.event_time else None,
        "created_at": rfc3339(memory.created_at) if memory.created_at else None,
        "relevance": None if memory.distance is None else relevance_percent(memory.distance),
    }
    shown = {name: value for name, value in known.items() if value is not None}
    return {n: escape(value) if isinstance(value, str) else value for n, value in shown.items()}


def report_stored(kept: Analysis | Remembered | None) -> ToolAnswer:
    """Return the answer for what a text to store became."""
    if kept is None:
        return ToolAnswer(text="That is stored already.", details={"fact_count": 0})
    if isinstance(kept, Remembered):
        return ToolAnswer(
            text=f"Stored as it is (id {escape(kept.id)}).",
            details={"fact_count": 1, "ids": [escape(kept.id)], "status": escape(kept.status)},
        )
    first = [fact.text for fact in kept.facts[:PREVIEW_FACTS]]
    preview = [escape(one_line(text)) for text in first]
    more = kept.fact_count - len(preview)
    lines = [f"Stored facts: {kept.fact_count}.", *(f"- {quote(text)}" for text in first)]
    if more > 0:
        lines.append(f"and {more} more")
    if (note := degradation(kept)) is not None:
        lines.append(escape(one_line(note)))
    return ToolAnswer(
        text="\n".join(lines),
        details={
            "fact_count": kept.fact_count,
            "preview": preview,
            "ids": [escape(fact.id) for fact in kept.facts],
            "status": escape(kept.status),
        },
    )
