"""Shows memories to people: their text and writer, or that there are none.

It does not own lists of them (`lists.py`).
"""

from collections.abc import Callable, Iterable

from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.models import Memory, NamespaceInfo
from memrelay.sealed.keys import mask_key, normalise_namespace

HOW_TO_COUNT = "An owner begins with: memrelay settings count_recalls=on"
INDENT = " " * 8  # more than stands before any line of our own


def tell_nothing_found(
    shell: Shell, named: Iterable[str], existing: Callable[[], Iterable[NamespaceInfo]]
) -> None:
    """Tell people that nothing was found, or that namespaces which they named have no memory yet.

    Those may be mistyped, or just granted: the relayer knows a namespace by its first memory.
    `existing` returns those that this key may see.
    """
    if shell.args.json:
        return
    names = list(named)
    there = {info.name for info in existing()} if names else set()
    empty = [name for name in names if normalise_namespace(name) not in there]
    for name in empty:
        warn(f"Nothing is stored in the namespace {name} yet.")
    if not empty:
        warn("Nothing found.")


def writer(memory: Memory) -> str:
    """Return who wrote a memory: the label of the key, else its beginning."""
    return memory.writer_label or mask_key(memory.writer or "")


def render_text(memory: Memory) -> str:
    """Return a memory's text for people."""
    return "(sealed by another client)" if memory.text is None else memory.text


def one_entry(text: str) -> str:
    """Return a text for people, among others: none of its lines can look like another memory."""
    return text.replace("\n", f"\n{INDENT}")
