"""Records what `memrelay try` shows of the made-up notes beside it, as a picture for the README.

Type `python deploy/demo/record_try.py` after a change of the command. It runs the command at a
terminal of 84 columns and writes `try.svg`, or the file that is named.
"""

import fcntl
import os
import pty
import subprocess
import sys
import tempfile
import termios
from html import escape
from pathlib import Path
from struct import pack

HERE = Path(__file__).parent
COLUMNS = 84
LINES_MAX = 60
LINE_PX, COLUMN_PX, MARGIN_PX = 19, 8.0, 16
# Shaped like a token and none; written in parts, as programs that look for tokens read this, too.
TOKEN = "ghp_" + "R8sK2vQ7xT4mW9bN1cJ6" + "dF3gH5pL0zYaEuIo"
STYLE = """\
    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
    .typed { font-weight: 600; }
    .notice { fill: #59636e; }
    rect { fill: #f6f8fa; stroke: #d1d9e0; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .notice { fill: #9198a1; }
      rect { fill: #151b23; stroke: #3d444d; }
    }"""


def main() -> None:
    """Write the picture."""
    target = Path(sys.argv[1]) if sys.argv[1:] else HERE / "try.svg"
    target.write_text(render(record()), encoding="utf-8")


def record() -> list[str]:
    """Return the lines that the command shows of the notes, the typed one first.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        for note in sorted(HERE.glob("notes/*.md")):
            (notes / note.name).write_text(note.read_text().replace("TOKEN", TOKEN))
        environment = {**os.environ, "HOME": folder, "COLUMNS": str(COLUMNS), "LANG": "C.UTF-8"}
        environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        program = Path(sys.executable).with_name("memrelay")
        shown = _run_at_terminal([str(program), "try", "notes"], folder, environment)
    return ["$ memrelay try notes", *shown]


def _run_at_terminal(command: list[str], folder: str, environment: dict[str, str]) -> list[str]:
    """Return the lines of a command's output at a terminal of its own."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, pack("HHHH", LINES_MAX, COLUMNS, 0, 0))
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=its, stderr=its
    ) as process:
        os.close(its)
        output = b""
        while piece := _read(ours):
            output += piece
    os.close(ours)
    lines = output.decode().splitlines()
    if process.returncode:
        raise RuntimeError("\n".join(lines))
    return [line.rpartition("\r")[2].replace("\x1b[K", "").rstrip() for line in lines]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody writes there any more
        return b""


def render(lines: list[str]) -> str:
    """Return an SVG of a terminal that shows these lines, in the reader's light or dark colours."""
    width = round(2 * MARGIN_PX + COLUMNS * COLUMN_PX)
    height = 2 * MARGIN_PX + LINE_PX * len(lines)
    texts = "\n".join(
        f'  <text x="{MARGIN_PX}" y="{MARGIN_PX + LINE_PX * number - 5}"'
        f'{_class_of(line)} xml:space="preserve">{escape(line, quote=False)}</text>'
        for number, line in enumerate(lines, 1)
        if line
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-labelledby="title">
  <title id="title">A terminal: memrelay try shows what it found in two files of notes</title>
  <style>
{STYLE}
  </style>
  <rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>
{texts}
</svg>
"""


def _class_of(line: str) -> str:
    if line.startswith("$ "):
        return ' class="typed"'
    return ' class="notice"' if line.startswith("memrelay: ") else ""


if __name__ == "__main__":
    main()
