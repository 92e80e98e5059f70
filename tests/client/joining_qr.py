"""A request to be let in, as a QR code that a scanner reads.

`make test-frameworks` runs this file with the real package and a reader of codes.
"""

import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest
import zxingcpp

from tests.client.agents_scene import Machine, machine

__all__ = ["machine"]  # fixtures

PIXELS = 4  # a module's width in what the reader sees


def read_drawn(text: str) -> str:
    """Return what a scanner reads of half blocks on a dark terminal."""
    rows: list[list[bool]] = []
    for line in text.splitlines():
        rows.append([char in "█▀" for char in line])
        rows.append([char in "█▄" for char in line])
    pixels = b"".join(
        bytes(255 if light else 0 for light in row for _ in range(PIXELS))
        for row in rows
        for _ in range(PIXELS)
    )
    shape = [len(rows) * PIXELS, len(rows[0]) * PIXELS]
    [found] = zxingcpp.read_barcodes(memoryview(pixels).cast("B", shape=shape))
    return found.text


def is_drawn(line: str) -> bool:
    return bool(line) and set(line) <= set("█▀▄ ")


def join_on_terminal(machine: Machine, home: Path, columns: int, lines: int) -> str:
    """Return what `memrelay join --qr` prints on a terminal of this size."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environ = {**os.environ, "XDG_CONFIG_HOME": str(home)}
    for name in ("COLUMNS", "LINES"):
        environ.pop(name, None)
    argv = [sys.executable, "-m", "memrelay", "join", machine.url, "--qr"]
    with subprocess.Popen(argv, stdout=slave, stderr=slave, stdin=slave, env=environ) as process:
        os.close(slave)
        out = b""
        try:
            while piece := os.read(master, 65536):
                out += piece
        except OSError:  # the last who had it open is gone
            pass
        finally:
            os.close(master)
    assert process.returncode == 0, out
    return out.decode()


def test_the_code_on_a_terminal_is_the_request(machine, tmp_path):
    shown = join_on_terminal(machine, tmp_path / "there", 80, 50).splitlines()
    [request] = [line for line in shown if line.startswith("memrelay-join:")]
    code = read_drawn("\n".join(line for line in shown if is_drawn(line)))
    assert code == request.upper()
    machine.run("keys", "admit", code, "--yes", "--namespace", "team")


def test_a_code_larger_than_the_terminal_is_not_drawn(machine, tmp_path):
    for size in ((80, 24), (60, 80)):
        shown = join_on_terminal(machine, tmp_path / f"at{size[0]}", *size)
        assert f"this terminal has {size[0]} and {size[1]}" in shown
        assert "memrelay join --out request.svg" in shown
        assert "memrelay-join:" in shown
        assert not any(map(is_drawn, shown.splitlines()))


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_is_written(machine, tmp_path, kind):
    machine.environ["XDG_CONFIG_HOME"] = str(tmp_path / "there")
    file = tmp_path / f"request.{kind}"
    assert "written to" in machine.run("join", machine.url, "--out", str(file))
    begins = {"svg": b"<?xml", "png": b"\x89PNG"}[kind]
    assert file.read_bytes().startswith(begins)
