"""The README's picture shows what `memrelay try` shows now."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy/demo/record_try.py"
PICTURE = ROOT / "deploy/demo/try.svg"
# Floating-point sums differ a little among processors.
_PER_CENT = re.compile(r" [0-9 ]?[0-9]{1,2}%")


@pytest.mark.usefixtures("model_dir")
def test_the_picture_is_a_recording(tmp_path: Path) -> None:
    recorded = tmp_path / "try.svg"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(recorded)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    now, then = (_PER_CENT.sub("", path.read_text()) for path in (recorded, PICTURE))
    assert now == then, f"type: python {SCRIPT.relative_to(ROOT)}"
    assert "1 secret" in now
    assert "<script" not in now


def test_the_notes_have_no_secret_written_out() -> None:
    for note in SCRIPT.parent.glob("notes/*.md"):
        assert "ghp_" not in note.read_text()
