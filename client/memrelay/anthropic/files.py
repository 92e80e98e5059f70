"""The files of the memory tool as memories of one namespace, free of I/O.

It does not own what is shown of them (`showing.py`) or the client (`memory_tool.py`).

- A file is one memory: its path in the first line, then its content. So it is sealed, found by a
  recall, and what it said before stays as history.
- A change names the revision that it was made from, and is made anew if somebody was faster. Of
  two that make one file, the first one in the relayer's order has made it.
- A folder is there while a file is below it.
"""

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from anthropic.lib.tools import ToolError

from memrelay.anthropic.showing import (
    ROOT,
    check_path,
    find_lines,
    number_line,
    show_file,
    show_folder,
)
from memrelay.either_client import Procedure, call, list_all
from memrelay.errors import Conflict
from memrelay.models import Memory, secrets_in
from memrelay.plurals import format_count

SOURCE = "memory-tool"
_BYTES_MAX = 60_000  # of the 64 KiB that a text may have
_TRIES_MAX = 5


class Files:
    """The procedures on the files of one namespace."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    def view(self, command: Any) -> Procedure[str]:
        """Return a file's numbered lines, or a folder's files."""
        path = check_path(command.path)
        if (memory := (yield from self._find(path))) is not None:
            return show_file(command.path, _content(memory), command.view_range)
        below = yield from self._below(path)
        if not below and path != ROOT:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        return show_folder(path, {name: len(_content(m).encode()) for name, m in below.items()})

    def create(self, command: Any) -> Procedure[str]:
        """Make a file that is not there yet."""
        path = check_path(command.path)
        yield from self._check_free(path, f"File {command.path} already exists")
        done = yield from call("remember", **self._draft(path, command.file_text))
        # Whoever made the same file meanwhile sees two, too, and both see which was the first.
        first = yield from self._find(path)
        if done.duplicate or first is None or first.id != done.id:
            if not done.duplicate:
                yield from call("forget", done.id)
            raise ToolError(f"File {command.path} already exists")
        return f"File created successfully at: {command.path}{_describe_secrets(done.redacted)}"

    def str_replace(self, command: Any) -> Procedure[str]:
        """Replace a text that a file has once."""
        changed_at = 0

        def replace(content: str) -> str:
            nonlocal changed_at
            old, count = command.old_str, content.count(command.old_str) if command.old_str else 0
            if count == 0:
                raise ToolError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim "
                    f"in {command.path}."
                )
            if count > 1:
                lines = ", ".join(str(number) for number in find_lines(content, old))
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in "
                    f"lines: {lines}. Please ensure it is unique"
                )
            changed_at = content[: content.index(old)].count("\n")
            return content.replace(old, command.new_str)

        content, note = yield from self._change(command.path, replace)
        lines = content.split("\n")
        shown = range(max(0, changed_at - 2), min(len(lines), changed_at + 3))
        snippet = "\n".join(number_line(n + 1, lines[n]) for n in shown)
        head = "The memory file has been edited. Here is the snippet showing the change"
        return f"{head} (with line numbers):\n{snippet}{note}"

    def insert(self, command: Any) -> Procedure[str]:
        """Insert lines behind one of a file, or before the first."""

        def insert(content: str) -> str:
            lines = content.removesuffix("\n").split("\n") if content else []
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}. "
                    f"It should be within the range [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            return "\n".join(lines) + "\n"

        _, note = yield from self._change(command.path, insert)
        return f"The file {command.path} has been edited.{note}"

    def delete(self, command: Any) -> Procedure[str]:
        """Erase a file, or all below a folder, with its history."""
        path = check_path(command.path)
        if path == ROOT:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        gone = yield from self._at_or_below(path)
        if not gone:
            raise ToolError(f"The path {command.path} does not exist")
        yield from call("forget_many", [memory.id for memory in gone.values()])
        return f"Successfully deleted {command.path}"

    def rename(self, command: Any) -> Procedure[str]:
        """Give a file, or a folder, another path that is free."""
        old, new = check_path(command.old_path), check_path(command.new_path)
        if old == ROOT:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        moved = yield from self._at_or_below(old)
        if not moved:
            raise ToolError(f"The path {command.old_path} does not exist")
        if f"{new}/".startswith(f"{old}/") and new != old:
            raise ToolError(f"Cannot rename {command.old_path} into itself")
        yield from self._check_free(new, f"The destination {command.new_path} already exists")
        for name, memory in moved.items():
            draft = self._draft(f"{new}{name.removeprefix(old)}", _content(memory))
            yield from self._edit(memory, draft)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear(self) -> Procedure[str]:
        """Erase all files."""
        found = yield from self._below(ROOT)
        if found:
            yield from call("forget_many", [memory.id for memory in found.values()])
        return "All memory cleared"

    def _find(self, path: str) -> Procedure[Memory | None]:
        tags = [_tag(path)]
        filters = {"namespace": self._namespace, "tags": tags, "source": SOURCE}
        found = yield from call("list", limit=20, **filters)
        return min(found.memories, key=_order, default=None)

    def _below(self, folder: str) -> Procedure[dict[str, Memory]]:
        """Return the files below a folder by their paths; the first one of each path counts."""
        found = yield from list_all(namespace=self._namespace, source=SOURCE)
        files = {_path(memory): memory for memory in sorted(found, key=_order, reverse=True)}
        return {path: files[path] for path in sorted(files) if path.startswith(f"{folder}/")}

    def _at_or_below(self, path: str) -> Procedure[dict[str, Memory]]:
        memory = yield from self._find(path)
        return {path: memory} if memory is not None else (yield from self._below(path))

    def _check_free(self, path: str, message: str) -> Procedure[None]:
        files = yield from self._below(ROOT)
        steps = path.split("/")
        above = {"/".join(steps[:n]) for n in range(3, len(steps) + 1)}
        if path == ROOT or above & files.keys() or any(f.startswith(f"{path}/") for f in files):
            raise ToolError(message)

    def _change(self, path: str, change: Callable[[str], str]) -> Procedure[tuple[str, str]]:
        """Return what a file says after a change, and what to tell of it."""
        for _ in range(_TRIES_MAX):
            memory = yield from self._find(check_path(path))
            if memory is None:
                below = yield from self._below(check_path(path))
                known = f"The path {path} is not a file."
                none = f"The path {path} does not exist. Please provide a valid path."
                raise ToolError(known if below else none)
            content = change(_content(memory))
            note = yield from self._edit(memory, self._draft(_path(memory), content))
            if note is not None:
                return content, note
        raise ToolError(f"{path} is being changed by others; view it and try again.")

    def _edit(self, memory: Memory, draft: dict[str, Any]) -> Procedure[str | None]:
        """Return what to tell of a change, None if somebody else changed the file meanwhile."""
        changes = {name: draft[name] for name in ("text", "tags", "namespace")}
        try:
            done = yield from call("edit", memory.id, revision=memory.revision, **changes)
        except Conflict as error:
            if error.code == "memory.revisions":  # there is no room for another one
                done = yield from call("remember", **draft)
                yield from call("forget", memory.id)
            elif error.code == "memory.revision":
                return None
            else:
                raise
        return _describe_secrets(done.redacted)

    def _draft(self, path: str, content: str) -> dict[str, Any]:
        if len(content.encode()) > _BYTES_MAX:
            raise ToolError(f"The file would be too large: at most {_BYTES_MAX} bytes.")
        return {
            "text": f"{path}\n{content}",
            "tags": [_tag(path)],
            "source": SOURCE,
            "namespace": self._namespace,
            "idempotency_key": str(uuid4()),
        }


def _tag(path: str) -> str:
    return f"file:{hashlib.blake2b(path.encode(), digest_size=16).hexdigest()}"


def _order(memory: Memory) -> tuple[int, str]:
    return memory.seq or 0, memory.id


def _path(memory: Memory) -> str:
    return (memory.text or "").partition("\n")[0]


def _content(memory: Memory) -> str:
    return (memory.text or "").partition("\n")[2]


def _describe_secrets(redacted: Any) -> str:
    count = secrets_in(redacted)
    return f"\n{format_count(count, 'secret')} taken out of it." if count else ""
