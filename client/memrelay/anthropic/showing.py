"""Paths of the memory tool, and what a model is shown of files.

It does not own the files (`files.py`). The words are those of the anthropic package's own tool.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from unicodedata import normalize

from anthropic.lib.tools import ToolError

ROOT = "/memories"
_PATH_CHARS_MAX = 400
_LINES_MAX = 999_999
_LEVELS = 2  # of folders that are shown
_ODD = re.compile(r"[\x00-\x1f\x7f\\]|%2e|%2f|%5c", re.IGNORECASE)


def check_path(path: str) -> str:
    """Return a path in its one spelling.

    Raises:
        ToolError: it is not below `/memories`, or may lead out of it.
    """
    steps = normalize("NFC", path).split("/")
    if steps[:2] != ["", "memories"]:
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    inner = [step for step in steps[2:] if step]
    if _ODD.search(path) or any(step.strip() in {".", "..", ""} for step in inner):
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    if len(path) > _PATH_CHARS_MAX:
        raise ToolError(f"Path is too long: at most {_PATH_CHARS_MAX} characters.")
    return "/".join([ROOT, *inner])


def show_file(path: str, content: str, view_range: Sequence[int] | None) -> str:
    """Return a file with numbers before its lines, or some of its lines.

    Raises:
        ToolError: it has too many lines.
    """
    lines, first = content.split("\n"), 0
    if len(lines) > _LINES_MAX:
        raise ToolError(f"File {path} exceeds maximum line limit of {_LINES_MAX:,} lines.")
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0]) - 1
        lines = lines[first : None if view_range[1] == -1 else view_range[1]]
    shown = [number_line(first + n, line) for n, line in enumerate(lines, 1)]
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(shown)


def show_folder(folder: str, sizes: Mapping[str, int]) -> str:
    """Return what is in a folder, two levels deep, given the sizes in bytes of all files below."""
    head = "Here're the files and directories up to 2 levels deep in"
    lines = [f"{head} {folder}, excluding hidden items:", _show_size(sum(sizes.values()), folder)]
    return "\n".join([*lines, *_show_items(folder, sizes, _LEVELS)])


def _show_items(folder: str, sizes: Mapping[str, int], levels: int) -> Iterator[str]:
    names = {path.removeprefix(f"{folder}/").partition("/")[0] for path in sizes}
    for name in sorted(names) if levels else ():
        path = f"{folder}/{name}"
        inner = {one: size for one, size in sizes.items() if one.startswith(f"{path}/")}
        if name.startswith("."):
            continue
        yield _show_size(sizes.get(path, sum(inner.values())), f"{path}/" if inner else path)
        yield from _show_items(path, inner, levels - 1)


def _show_size(size: int, path: str) -> str:
    unit = min((max(size, 1).bit_length() - 1) // 10, 3)
    number = f"{size / 1024**unit:.1f}".removesuffix(".0")
    return f"{number}{'BKMG'[unit]}\t{path}"


def find_lines(content: str, wanted: str) -> list[int]:
    """Return the numbers of the lines in which a text begins, as often as it does."""
    found, place = [], content.find(wanted)
    while place >= 0:
        found.append(content.count("\n", 0, place) + 1)
        place = content.find(wanted, place + 1)
    return found


def number_line(number: int, line: str) -> str:
    """Return a line with its number before it."""
    return f"{number:6}\t{line}"
