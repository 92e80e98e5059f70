"""Ways of the openai package by which a conversation goes around the memory: said, not hindered.

It does not own what goes through the memory (`memory.py`).
"""

import re
from functools import cache
from typing import Any

from openai import AsyncOpenAI, OpenAI

from memrelay.openai.memory import Memory

WEBSOCKET = "what goes over a WebSocket (realtime, live, responses.connect) goes without memory"

# By what a path begins with. Files, embeddings, images and the like are no conversation.
_BYPASSES = {
    "completions": "`completions` goes without memory; `chat.completions` and `responses` do not",
    "threads": "`beta.threads` (assistants) goes without memory",
    "batches": "`batches` go without memory",
    "realtime": "`realtime` goes without memory",
    "live": "`live` goes without memory",
    "chatkit": "`beta.chatkit` goes without memory",
    "agents": "`beta.agents` go without memory",
}
_FIRST_SEGMENT = re.compile(r"/(\w+)")
_ADDRESS = "websocket_base_url"
_MEMORY = "_memory"  # the attribute of a client with a memory


def warn_of_bypass(memory: Memory[Any], path: str) -> None:
    """Say once if a request belongs to a conversation that is not remembered."""
    first = _FIRST_SEGMENT.match(path)
    if first and (what := _BYPASSES.get(first[1])):
        memory.warn_once(what)


def watch_websockets(client: OpenAI | AsyncOpenAI, memory: Memory[Any]) -> None:
    """Say once if a client's address for WebSockets is read, which each of them begins with.

    They do not pass the client's own requests, and other packages open theirs by themselves.
    """
    kind: type = type(client)
    if not isinstance(vars(kind).get(_ADDRESS), property):  # which a copy has already
        client.__class__ = _make_watching_class(kind)
    vars(client)[_MEMORY] = memory


@cache
def _make_watching_class(kind: type) -> type:
    """Return a subclass whose only difference is that it warns when that address is read."""

    def read(client: Any) -> Any:
        if memory := vars(client).get(_MEMORY):
            memory.warn_once(WEBSOCKET)
        return vars(client).get(_ADDRESS)

    def write(client: Any, url: Any) -> None:
        vars(client)[_ADDRESS] = url

    own = {"__module__": kind.__module__, _ADDRESS: property(read, write)}
    return type(kind.__name__, (kind,), own)
