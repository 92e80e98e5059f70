"""Reads the arguments of the MCP server's tools.

It does not own which of them a tool takes (`tools.py`).

- A text that looks like JSON is a text. The library would read it wherever it may be left out, and
  a host may have read it before.
- A namespace that is called "null" is refused: nobody would look for what is in it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from memrelay.answers import rfc3339
from memrelay.gateway.arguments import NO_NAMESPACE, as_name, as_text, is_placeholder

Kind = Literal[
    "fact",
    "preference",
    "decision",
    "event",
    "working",
    "episodic",
    "semantic",
    "procedural",
    "summary",
]


def _refuse_placeholder(value: object) -> object:
    if isinstance(value, str) and is_placeholder(value):
        raise PydanticCustomError("namespace", NO_NAMESPACE)
    return value


def _none_if_placeholder(value: object) -> object:
    return None if isinstance(value, str) and is_placeholder(value) else value


# To be named behind a text's bounds: before them, these are checked of None as well.
Text = BeforeValidator(as_text)
NoneIfPlaceholder = BeforeValidator(_none_if_placeholder)
Space = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=128,
        description="The namespace; leave it out for this agent's own. See memory_namespaces.",
    ),
    BeforeValidator(as_name),
    BeforeValidator(_refuse_placeholder),
]
ID_PATTERN = r"^[0-9A-Za-z-]{1,64}$"
MemoryId = Annotated[
    str,
    Field(pattern=ID_PATTERN, description="The memory's id, as a recall shows it."),
]
Cursor = Annotated[
    str | None,
    Field(min_length=1, max_length=512, description="The next_cursor of the page before."),
    NoneIfPlaceholder,
]
Tags = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=128), Text]] | None,
    Field(max_length=32, description="Short words to find it by, or to find only such."),
]


def _of_some_year(value: datetime) -> datetime:
    rfc3339(value)
    return value


Time = Annotated[AwareDatetime, AfterValidator(_of_some_year)]
Moment = Annotated[Time | None, Field(description="RFC 3339 time with an offset.")]


class TextsAsTheyCame(FuncMetadata):
    """A tool's arguments, of which those that may be texts are taken as they came."""

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with lists and objects in place of the JSON for them."""
        fields = self.arg_model.model_fields
        texts = {
            name: value
            for name, value in data.items()
            if name in fields and str in _types(fields[name].annotation)
        }
        return super().pre_parse_json(data) | texts


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)
