"""The tools as a model sees them: names, descriptions and JSON schemas.

It does not own what they do (`tools.py`). A gateway that declares tools in a manifest of its own
repeats these words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEARCH_RESULTS, SEARCH_RESULTS_MAX = 5, 20
STORE_CHARS_MIN, STORE_CHARS_MAX = 3, 16_000
TRANSCRIPT_LINES, TRANSCRIPT_LINES_MAX = 40, 200


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool as a model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def _schema(required: Sequence[str], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_NAMESPACE = {
    "type": "string",
    "description": "One namespace, such as one that you share with others. Usually left out.",
}
_ID = {"type": "string", "description": "The id of a memory, as memory_search shows it."}

SEARCH = Tool(
    name="memory_search",
    description=(
        "Search long-term memory. Use it before you answer about people, preferences, decisions, "
        "dates or earlier work. Answer from what it finds; if it finds nothing, say so."
    ),
    parameters=_schema(
        ["query"],
        query={"type": "string", "description": "What to look for, in plain words."},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": SEARCH_RESULTS_MAX,
            "default": SEARCH_RESULTS,
        },
        namespace=_NAMESPACE,
    ),
)
GET = Tool(
    name="memory_get",
    description="Show one memory in full, with its dates and source, by the id of a search.",
    parameters=_schema(["id"], id=_ID),
)
STORE = Tool(
    name="memory_store",
    description=(
        "Store durable facts for later conversations: preferences, decisions, dates, what the "
        "user asks you to remember. Search first. Do not store secrets or passing remarks."
    ),
    parameters=_schema(
        ["text"],
        text={
            "type": "string",
            "minLength": STORE_CHARS_MIN,
            "maxLength": STORE_CHARS_MAX,
            "description": "The facts, in full sentences that name whom they are about.",
        },
        namespace=_NAMESPACE,
    ),
)
FORGET = Tool(
    name="memory_forget",
    description="Erase one memory for good, when the user asks for it. Search for its id first.",
    parameters=_schema(["id"], id=_ID),
)
TRANSCRIPT = Tool(
    name="memory_transcript",
    description=(
        "Read the end of the conversation that a memory came from, when the memory alone does not "
        "tell enough. Give a memory's id or a session's."
    ),
    parameters=_schema(
        [],
        id=_ID,
        session_id={"type": "string", "description": "The session of a conversation."},
        lines={
            "type": "integer",
            "minimum": 1,
            "maximum": TRANSCRIPT_LINES_MAX,
            "default": TRANSCRIPT_LINES,
        },
    ),
)
