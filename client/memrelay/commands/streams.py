"""The standard streams of a command: ready for any text, and safe to show in a terminal.

It does not own what a command prints (`shell.py`).
"""

import io
import os
import sys

from memrelay.errors import MemrelayError


def open_streams() -> None:
    """Let standard streams take any text, and be there if they were closed.

    Raises:
        MemrelayError: standard output is closed, so that nothing could be shown.
    """
    shown = sys.stdout is not None
    # In this order they take the numbers that are free, which no other file must get.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if not shown:
        raise MemrelayError("Standard output is closed; to see nothing, send it to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error: what its encoding lacks is readable still, and nothing is lost.
        sys.stdout.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """Return a text without the characters that would steer a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def as_encoded(text: str) -> str:
    """Return a text as standard output shows it, where its encoding lacks characters."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def can_show(text: str) -> bool:
    """Return whether the encoding of standard output has all characters of a text."""
    return as_encoded(text) == text


def warn(text: str) -> None:
    """Print one line for people beside the output."""
    print(f"memrelay: {printable(text)}", file=sys.stderr)


def tell_error(
    text: str, *, code: str, request_id: str | None = None, as_json: bool = False
) -> None:
    """Print why a command failed: one line, or one JSON value in a line.

    `code` is the relayer's, or a fixed word for what failed here.
    """
    if not as_json:
        return warn(text)
    import json  # noqa: PLC0415 - only here

    value = {"error": text, "code": code, "request_id": request_id}
    print(json.dumps(value), file=sys.stderr)


def ascii_only() -> bool:
    """Return whether JSON on standard output is to have nothing but ASCII.

    JSON may hold control characters as they are, and a terminal would obey them; an encoding may
    lack other characters.
    """
    return sys.stdout.isatty() or (sys.stdout.encoding or "").lower()[:3] != "utf"
