"""The HTTP library of the client: it comes from one line, and another one can stand there."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.client.shell_scene import Machine

PACKAGE = Path(__file__).parents[2] / "client/memrelay"
LIBRARIES = {"httpcore", "httpcore2", "httpx", "httpx2"}
PROGRAM = """
import json, sys
from memrelay.cli import main
code = main(sys.argv[1:])
print(json.dumps({name: name in sys.modules for name in ("httpx", "httpx2")}), file=sys.stderr)
sys.exit(code)
"""


def libraries(path: Path) -> set[str]:
    """Return which HTTP libraries a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found & LIBRARIES


def test_one_module_imports_the_library() -> None:
    importing = {path.name: found for path in PACKAGE.rglob("*.py") if (found := libraries(path))}
    assert importing == {"transport.py": {"httpx"}}


def test_the_maintained_continuation_can_take_its_place(run: Machine, tmp_path: Path) -> None:
    """By one line: then memories are stored and found, and httpx is not imported at all."""
    copy = tmp_path / "other"
    shutil.copytree(PACKAGE, copy / "memrelay", ignore=shutil.ignore_patterns("__pycache__"))
    transport = copy / "memrelay/transport.py"
    line, other = "\nimport httpx\n", "\nimport httpx2 as httpx\n"
    text = transport.read_text(encoding="utf-8")
    assert text.count(line) == 1
    transport.write_text(text.replace(line, other), encoding="utf-8")

    def call(*argv: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, *argv]
            + ["--json", "--profile", str(run.profile)],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stderr.splitlines()[-1]) == {"httpx": False, "httpx2": True}
        return json.loads(done.stdout)

    stored = call("remember", "Anna prefers tea.")
    (found,) = call("recall", "What does Anna drink?")["results"]
    assert (found["id"], found["text"]) == (stored["id"], "Anna prefers tea.")
    assert call("status")["namespaces"]
