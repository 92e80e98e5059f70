"""Sets whose conversation a call counts as, in this thread or task, and whether it counts.

It does not own what a conversation is without a word about it (`memory.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_session: ContextVar[tuple[str, str | None] | None] = ContextVar("memrelay_session", default=None)
_off: ContextVar[bool] = ContextVar("memrelay_off", default=False)


@contextmanager
def memory_session(session: str, *, agent: str | None = None) -> Iterator[None]:
    """Count the calls within as another conversation, and as one of `agent` if it is given.

    It holds for this thread or task only, so one client can serve many users.
    """
    token = _session.set((session, agent))
    try:
        yield
    finally:
        _session.reset(token)


@contextmanager
def without_memory() -> Iterator[None]:
    """Neither recall nor capture around the calls within, in this thread or task."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


def current_session() -> tuple[str, str | None] | None:
    """Return the session and the agent that a `memory_session` around this names."""
    return _session.get()


def is_off() -> bool:
    """Return whether this is within `without_memory`."""
    return _off.get()
