"""A text as a QR code, on a terminal or in a file.

It does not own the text (`join.py`). The library is an extra, and is loaded when a code is wanted.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from memrelay.commands.streams import warn
from memrelay.errors import ConfigError
from memrelay.secure_files import replace_file

_BORDER = 4  # light modules around a code, which scanners need
_KINDS = {".svg": "svg", ".png": "png"}


def is_picture(path: str) -> bool:
    """Return whether a file is a picture by its name."""
    return Path(path).suffix.lower() in _KINDS


def find_library() -> Any:
    """Return the library that makes codes.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import segno  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            'A QR code needs an extra; in a checkout: pip install "./client[qr]"'
        ) from None
    return segno


def show_code(text: str, *, otherwise: str) -> None:
    """Print a text's code to standard error, if the terminal has room for it.

    Else say how much it needs, and what a person can do, which is `otherwise`.
    """
    code = _make_code(text)
    width, height = code.symbol_size(border=_BORDER)
    lines = (height + 1) // 2  # two rows of modules are one of characters
    room = shutil.get_terminal_size()
    if sys.stderr.isatty() and (room.columns < width or room.lines <= lines):
        warn(
            f"The QR code takes {width} columns and {lines + 1} lines; this terminal has "
            f"{room.columns} and {room.lines}. Make it larger or its letters smaller, or "
            f"{otherwise}."
        )
        return
    drawn = io.StringIO()
    code.terminal(out=drawn, border=_BORDER, compact=True)
    print(drawn.getvalue(), end="", file=sys.stderr)


def save_code(text: str, path: Path) -> None:
    """Write a text's code to a file, as a picture of the kind that its name says.

    Raises:
        ConfigError: the file cannot be written.
    """
    drawn = io.BytesIO()
    _make_code(text).save(drawn, kind=_KINDS[path.suffix.lower()], border=_BORDER, scale=6)
    replace_file(path, drawn.getvalue())


def _make_code(text: str) -> Any:
    # Capitals take five and a half bits each, small letters eight.
    return find_library().make(text.upper(), micro=False)
