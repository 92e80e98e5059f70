"""The body of a chat completion, read: what the model said, and what it thought beside it.

It does not own what is in the text (`reasoning.py`, `decoding.py`), nor the connection (`chat.py`).

- Servers differ: content is a text, blocks or an object; an answer may stand in the call of a tool.
- An error or a page of a proxy in place of a completion is a server that is away, whatever its
  status says.
- A fault is a fixed word: nothing of what the server sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

_THOUGHTS: Final = ("thinking", "reasoning", "thought", "redacted")  # how such blocks' types begin
_CUT: Final = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})
_BLOCK_DEPTH_MAX: Final = 4
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Completion:
    """A model's answer.

    Attributes:
        text: its content, which may hold reasoning.
        calls: the arguments of the tools it called, JSON.
        reasoning: what it thought, as far as the server tells it apart.
        is_cut: it did not come to its end.
        has_reasoned: it thought before, also where the server keeps to itself what.
    """

    text: str = field(default="", repr=False)
    calls: tuple[str, ...] = field(default=(), repr=False)
    reasoning: str = field(default="", repr=False)
    is_cut: bool = False
    has_reasoned: bool = False


@dataclass(frozen=True)
class Fault:
    """The reason why there is no completion, in words of our own.

    Attributes:
        is_outage: something came that is no completion at all.
    """

    cause: str
    is_outage: bool = False


_NO_COMPLETION: Final = Fault("no completion", is_outage=True)


class _Message(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    parsed: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: Any = None  # of the older API, which some servers mix in
    finish_reason: str | None = None
    error: Any = None


class _Body(msgspec.Struct):
    choices: Any = None
    error: Any = None
    usage: Any = None


def read(body: bytes) -> Completion | Fault:
    """Return what the first choice of a chat completion says; text may be empty."""
    try:
        whole = msgspec.json.decode(body.removeprefix(_BOM), type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_COMPLETION
    if whole.choices is None:
        return _NO_COMPLETION
    try:
        choices = msgspec.convert(whole.choices, list[_Choice])
    except msgspec.ValidationError:
        return _NO_COMPLETION if whole.error else Fault("not a completion")
    choice = choices[0] if choices else _Choice()
    said = _parse_message(choice)
    if isinstance(said, Fault):
        return said
    said = replace(
        said, has_reasoned=bool(said.reasoning) or _count_reasoning_tokens(whole.usage) > 0
    )
    is_failed = choice.finish_reason == "error"
    # What is told beside an answer may be a warning.
    if not is_failed and (said.text or said.calls or said.reasoning):
        return said
    if is_failed or choice.error or whole.error:
        return _NO_COMPLETION
    return said


def _parse_message(choice: _Choice) -> Completion | Fault:
    message = choice.message or _Message(content=choice.text)
    spoken = list(_blocks(message.content))
    is_refused = bool(message.refusal) or any(kind == "refusal" for kind, _ in spoken)
    if is_refused or choice.finish_reason == "content_filter":
        return Fault("refusal")
    text = "\n".join(part for kind, part in spoken if kind == "text").strip()
    thoughts = [part for kind, part in spoken if kind == "thought"]
    for member in (message.reasoning_content, message.reasoning):
        thoughts += [part for _, part in _blocks(member)]
    calls = [part for kind, part in spoken if kind == "call"]
    calls += _calls(message)
    if isinstance(message.parsed, dict | list) and not text:
        calls.append(_json(message.parsed))
    is_cut = (choice.finish_reason or "").casefold() in _CUT
    return Completion(text, tuple(calls), "\n".join(thoughts).strip(), is_cut)


def _blocks(content: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) for each block: `text`, `thought`, `refusal` or `call`."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, list) and depth < _BLOCK_DEPTH_MAX:
        for block in content:
            yield from _blocks(block, depth + 1)
    elif isinstance(content, dict) and depth < _BLOCK_DEPTH_MAX:
        yield from _block(content, depth)


def _block(block: dict[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    kind = str(block.get("type", "")).casefold()
    if kind.startswith(_THOUGHTS):
        inner = block.get(kind, block.get("text", block.get("content")))
        for _, text in _blocks(inner, depth + 1):
            yield "thought", text
    elif kind == "refusal":
        yield "refusal", ""
    elif isinstance(block.get("input"), dict | list | str):  # of a tool, as Anthropic's API has it
        yield "call", _json(block["input"])
    elif "text" in block and kind in ("", "text", "output_text") and _is_block(block):
        inner = block["text"]
        inner = inner.get("value") if isinstance(inner, dict) else inner
        yield from _blocks(inner, depth + 1)
    elif kind and isinstance(block.get(kind), dict | list):  # {"type": "json", "json": {…}}
        yield "call", _json(block[kind])
    elif kind and "content" in block:
        yield from _blocks(block["content"], depth + 1)
    else:  # the object itself, in place of its text
        yield "call", _json(block)


def _is_block(block: dict[str, Any]) -> bool:
    """Tell a block of text without a type from a value that has a member `text`."""
    return "type" in block or len(block) == 1


def _count_reasoning_tokens(usage: Any) -> int:
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    tokens = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _calls(message: _Message) -> list[str]:
    called = message.tool_calls if isinstance(message.tool_calls, list) else []
    functions = [call.get("function", call) for call in called if isinstance(call, dict)]
    functions.append(message.function_call)
    return [
        _json(function["arguments"])
        for function in functions
        if isinstance(function, dict) and function.get("arguments") not in (None, "")
    ]


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
