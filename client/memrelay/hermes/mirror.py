"""Repeats in our memory what Hermes changes in its own, in order and in the background.

It does not own when Hermes does so (`provider.py`). What fails is not tried again: Hermes itself
still has the entry, and puts it into every prompt.
"""

import atexit
import logging
import threading
from collections import deque
from weakref import WeakSet

from memrelay.gateway.filters import looks_injected
from memrelay.gateway.host_events import Context, encodable
from memrelay.gateway.roster import Binding, Roster
from memrelay.sync_client import SyncMemoryClient

log = logging.getLogger("memrelay.hermes")

SOURCE = "hermes:memory"
_DEADLINE_S = 10.0
_ENDING_S = 3.0  # that the interpreter's end waits, where nobody closed it
_FOUND_MAX = 20

_Change = tuple[str, str, str]  # what is done, to which text, in the place of which


class Mirror:
    """The mirror of one agent; `context` says whose."""

    def __init__(self, roster: Roster, context: Context) -> None:
        self._roster = roster
        self._context = context
        self._lock = threading.Lock()  # of what follows
        self._changes: deque[_Change] = deque()
        self._thread: threading.Thread | None = None  # while there is something to do
        self._closed = False
        _open.add(self)

    def write(self, action: str, content: object, *, old_text: object) -> None:
        """Begin to repeat a change: `add`, `replace` or `remove`; `old_text` is part of the old.

        What is no text is not repeated.
        """
        content = "" if action == "remove" else content
        if not isinstance(content, str) or not isinstance(old_text, str):
            return
        try:
            self._begin((action, encodable(content), encodable(old_text)))
        except RuntimeError as error:  # it is closed, or the interpreter is ending
            _warn(error)

    def close(self, timeout_s: float) -> None:
        """Finish what was begun, within a time, and give up the rest."""
        thread = self._thread
        if thread is not None and not self._closed:
            thread.join(timeout_s)
        self._closed = True

    def _begin(self, change: _Change) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("The mirror is closed.")
            if self._thread is not None and not self._thread.is_alive():
                self._thread = None  # after a fork it stays with the parent, with what waited
                self._changes.clear()
            if self._thread is None:
                # The interpreter's end waits for any other one, however long its relayer hangs.
                thread = threading.Thread(target=self._work, name="memrelay-mirror", daemon=True)
                thread.start()
                self._thread = thread  # only one that was begun can be waited for
            self._changes.append(change)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._changes:
                    self._thread = None
                    return
                change = self._changes.popleft()
            self._write(*change)

    def _write(self, action: str, content: str, old_text: str) -> None:
        try:
            binding = self._roster.bind(self._context)
            if binding is not None:
                _repeat(binding, action, content, old_text)
        except Exception as error:  # the next change may fare better
            _warn(error)


_open: "WeakSet[Mirror]" = WeakSet()


@atexit.register
def _close_all() -> None:
    for mirror in list(_open):
        mirror.close(_ENDING_S)


def _warn(error: Exception) -> None:
    log.warning("a change of Hermes' own memory was not mirrored (%s)", type(error).__name__)


def _repeat(binding: Binding, action: str, content: str, old_text: str) -> None:
    with SyncMemoryClient.from_settings(
        binding.client.settings, deadline_s=_DEADLINE_S, attempts_max=1
    ) as client:
        if binding.borrows and client.held_by_others(binding.namespace):
            return  # the namespace is other keys'; the hooks say so in the log
        new = None if action == "remove" else _store(client, binding, content)
        # Stored first: a failure must not lose both.
        if (old := _find_mirrored(client, binding, old_text, but=new)) is not None:
            client.forget(old)


def _store(client: SyncMemoryClient, binding: Binding, content: str) -> str | None:
    if not content.strip() or looks_injected(content):
        return None
    return client.remember(content, namespace=binding.namespace, kind="fact", source=SOURCE).id


def _find_mirrored(
    client: SyncMemoryClient, binding: Binding, old_text: str, *, but: str | None
) -> str | None:
    """Return the mirrored memory that a text is part of, as Hermes looks for its entries.

    Where several hold it, the one that says nothing else; none rather than a wrong one.
    """
    if not old_text.strip():
        return None
    found = client.recall(
        old_text, namespace=binding.namespace, source=SOURCE, limit=_FOUND_MAX, min_relevance=None
    )
    others = [memory for memory in found.results if memory.id != but]
    holding = [memory for memory in others if old_text in (memory.text or "")]
    meant = [memory for memory in holding if memory.text == old_text] or holding
    if len(meant) > 1:
        log.warning("a change of Hermes' own memory fits several memories here; none was erased")
    return meant[0].id if len(meant) == 1 else None
