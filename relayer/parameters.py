"""The parameters of a request beside its messages, and how many of them an endpoint takes.

It does not own sending it (`chat.py`), nor when another try is worth it (`llm.py`).

- Structure is asked for as strictly as the endpoint can give it: by a schema, by a schema without
  bounds, as some JSON object, in the words of the prompt alone.
- `strict` is never asked for: it makes every field required, which costs a small model its tokens.
- What a refusal names goes first. It is a word of ours: nothing else of an error's body is kept.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Named = Literal["format", "temperature", "max_tokens", "max_completion_tokens"]
Form = Literal["schema", "plain schema", "object", "words"]

FORMS: Final[tuple[Form, ...]] = ("schema", "plain schema", "object", "words")
TOKENS_MAX: Final = 2_048  # of an answer; twenty facts have fewer
REASONING_TOKENS_MAX: Final = 16_384  # of one with reasoning, which counts among them
_BOUNDS: Final = ("maxItems", "maxLength", "additionalProperties")
# What servers call their parameters where they refuse one.
_NAMED: Final = re.compile(
    r"(?P<completion>max_completion_tokens)"
    r"|(?P<tokens>max_(?:new_|output_)?tokens|in the completion|num_predict)"
    r"|(?P<temperature>temperature)"
    r"|(?P<format>response_?format|json_?schema|json_?object|structured[ _]output|guided|grammar"
    r"|schema|strict|max_?items|max_?length|additional_?properties)",
    re.IGNORECASE,
)
_KINDS: Final[dict[str, Named]] = {
    "completion": "max_completion_tokens",
    "tokens": "max_tokens",
    "temperature": "temperature",
    "format": "format",
}


def find_named(text: str) -> tuple[Named, ...]:
    """Return the parameters that the body of a refusal names, the first one first.

    A page of a proxy names none, whatever words are in it.
    """
    if text.lstrip()[:1] == "<":
        return ()
    found = (_KINDS[str(match.lastgroup)] for match in _NAMED.finditer(text))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Parameters:
    """The parameters that are sent beside the messages."""

    form: Form = "schema"
    has_temperature: bool = True
    bound: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    tokens_max: int = TOKENS_MAX

    def members(self, name: str | None, schema: dict[str, object]) -> dict[str, Any]:
        """Return the members of the request; without a `name`, no structure is asked for."""
        members: dict[str, Any] = {"temperature": 0} if self.has_temperature else {}
        if self.bound is not None:
            members[self.bound] = self.tokens_max
        if name is None or self.form == "words":
            return members
        if self.form == "object":
            return members | {"response_format": {"type": "json_object"}}
        shape = schema if self.form == "schema" else _without_bounds(schema)
        spec = {"name": name, "schema": shape}
        return members | {"response_format": {"type": "json_schema", "json_schema": spec}}

    def without(self, named: Sequence[Named]) -> "Parameters | None":
        """Return what to send after a refusal that names these; None if nothing is left to drop."""
        for name in named:
            less = self._without(name, named)
            if less is not None:
                return less
        return None

    def _without(self, name: Named, named: Sequence[Named]) -> "Parameters | None":
        if name == "format":
            return self.less_structured()
        if name == "temperature":
            return replace(self, has_temperature=False) if self.has_temperature else None
        if self.bound is None:
            return None
        if self.bound == "max_tokens" and "max_completion_tokens" in named:
            # Only models that reason insist on that name.
            return replace(self, bound="max_completion_tokens", tokens_max=REASONING_TOKENS_MAX)
        return replace(self, bound=None)

    def changes(self, before: "Parameters") -> list[str]:
        """Return in words what an endpoint takes otherwise than was thought."""
        told = []
        if self.form != before.form:
            told.append(f"structure as {self.form}")
        if self.has_temperature != before.has_temperature:
            told.append("no temperature")
        if self.bound != before.bound:
            told.append(self.bound or "no bound on tokens")
        if self.tokens_max != before.tokens_max:
            told.append("room for reasoning")
        return told

    def less_structured(self) -> "Parameters | None":
        """Return these with the next form; None if there is none."""
        at = FORMS.index(self.form) + 1
        return replace(self, form=FORMS[at]) if at < len(FORMS) else None

    def next(self) -> "Parameters | None":
        """Return what to send after a refusal that names nothing."""
        if self.form != "words":
            return self.less_structured()
        bare = replace(self, has_temperature=False, bound=None)
        return bare if bare != self else None

    def for_reasoning(self) -> "Parameters | None":
        """Return these with room for reasoning; None if they have it."""
        if self.bound is None or self.tokens_max >= REASONING_TOKENS_MAX:
            return None
        return replace(self, tokens_max=REASONING_TOKENS_MAX)


def _without_bounds(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: _without_bounds(v) for k, v in schema.items() if k not in _BOUNDS}
    return [_without_bounds(part) for part in schema] if isinstance(schema, list) else schema
