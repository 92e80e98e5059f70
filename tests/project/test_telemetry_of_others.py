"""What we are made of tells nobody about us.

Not here: what the relayer itself sends, and to whom (`abuse/`, `test_secrecy.py`).
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.model_fixture import model_folder

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from relayer.embedding.builtin import BuiltinEmbedder
embedder = BuiltinEmbedder(folder=Path(sys.argv[1]))
asyncio.run(embedder.close())
print([line.split()[-1] for line in open("/proc/self/maps") if "onnxruntime" in line][:1])
"""


def test_the_model_s_runtime_keeps_no_mark_of_this_machine(tmp_path: Path) -> None:
    """It writes an id and a queue of what it will send into the user's cache folder, if it may."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model_folder())],
        # Nothing else: it is silent by itself where it finds the marks of a test machine.
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "onnxruntime" in done.stdout, "it was loaded"
    assert list(tmp_path.rglob("*")) == []


def test_the_product_loads_it_in_one_place() -> None:
    loading = {
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "relayer").rglob("*.py")
        for one in ast.walk(ast.parse(path.read_text()))
        if (isinstance(one, ast.ImportFrom) and (one.module or "").startswith("onnxruntime"))
        or (isinstance(one, ast.Import) and one.names[0].name.startswith("onnxruntime"))
    }
    assert loading == {"relayer/embedding"}
