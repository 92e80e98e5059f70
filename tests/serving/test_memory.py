"""A process that loaded much keeps no more memory than what it holds."""

import subprocess
import sys

import pytest

LOADED_MB = 200
LOAD = """
import re, sys
from pathlib import Path
from relayer.process import return_freed_memory

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

if BOUNDED:
    return_freed_memory()
large = bytearray(30 << 20)  # freed, it would raise the bounds of the C library
del large
before = resident_mb()
pieces = []
for _ in range(LOADED):
    pieces.append((bytearray(1 << 20), bytearray(600)))  # what is needed, and what stays of it
held = resident_mb()
stays = [small for _, small in pieces]
del pieces
print(round(held - before), round(resident_mb() - before))
"""


@pytest.mark.parametrize("bounded", [True, False])
def test_what_is_freed_goes_back(bounded: bool) -> None:
    """The C library alone keeps it, if small pieces that stay lie between."""
    source = LOAD.replace("BOUNDED", str(bounded)).replace("LOADED", str(LOADED_MB))
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True, text=True)
    held, left = map(int, run.stdout.split())
    assert held > LOADED_MB * 0.9
    assert (left < LOADED_MB / 10) == bounded
