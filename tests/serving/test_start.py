"""What a relayer loads as it starts: the libraries that its settings and its database need.

Not here: how long a start takes and what it keeps (`make bench`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import TestDatabase
from tests.older import database_at

ROOT = Path(__file__).parents[2]
# Each takes long to load, or keeps much, and most relayers do without.
LIBRARIES = ("alembic", "onnx", "onnxruntime", "openai", "sqlalchemy")

# Prints which of them were loaded by the modules of a serving process, and then by the step.
PROGRAM = f"""
import asyncio, json, sys
import relayer.__main__, relayer.serve, relayer.workers.supervisor, relayer.workers.worker
from relayer.database.migrate import migrate
from relayer.embedding.building import build_embedder
from relayer.services import build_language_model
from relayer.settings import Settings

def loaded():
    return [name for name in {LIBRARIES} if name in sys.modules]

def build(settings):
    build_embedder(Settings(**settings)), build_language_model(Settings(**settings))

imported = loaded()
{{step}}
print(json.dumps([imported, loaded()]))
"""
BUILD = "build(json.loads(sys.argv[1]))"
MIGRATE = "asyncio.run(migrate(json.loads(sys.argv[1])))"


def loaded(step: str, argument: dict[str, Any]) -> list[str]:
    """What one step of a start loads, after its modules loaded none."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(step=step), json.dumps(argument)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported, after = json.loads(done.stdout)
    assert imported == []
    return list(after)


ENDPOINT = {"openai_base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"embedder": "none"}, []),
        ({"embedder": "builtin"}, ["onnxruntime"]),
        ({"embedder": "openai", "embedding_model": "m", **ENDPOINT}, ["openai"]),
        ({"embedder": "none", "llm_model": "m", **ENDPOINT}, ["openai"]),
    ],
    ids=["nothing", "the built-in embedder", "an embedding endpoint", "a language model"],
)
def test_settings_load_what_they_name(
    model_dir: Path, settings: dict[str, Any], expected: list[str]
) -> None:
    assert loaded(BUILD, {"model_dir": str(model_dir), **settings}) == expected


# Every command's module, and what says which there are.
COMMANDS = "relayer.__main__, " + ", ".join(
    f"relayer.commands.{path.stem}"
    for path in sorted((ROOT / "relayer/commands").glob("[a-z]*.py"))
)


def printed(program: str) -> str:
    """What a process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_command_loads_nothing_of_what_serves() -> None:
    """Most of them last for less time than that takes to load."""
    serving = ("httpx2", "litestar", "onnxruntime", "pgqueuer", "pydantic", "uvicorn", *LIBRARIES)
    shown = printed(
        f"import sys, {COMMANDS}; print([name for name in {serving} if name in sys.modules])"
    )
    assert shown == "[]\n"


def test_the_version_loads_no_command() -> None:
    absent = ("asyncio", "asyncpg", "nacl", "numpy", "relayer.commands.options", "relayer.settings")
    shown = printed(f"""
import atexit, sys
atexit.register(lambda: print([name for name in {absent} if name in sys.modules]))
sys.argv = ["relayer", "--version"]
import relayer.__main__
relayer.__main__.main()
""")
    assert shown.splitlines()[-1] == "[]"


def test_a_current_database_needs_no_migrations(fresh_database: TestDatabase) -> None:
    assert loaded(MIGRATE, fresh_database.connect_args) == []


async def test_an_earlier_one_does(postgres: EmbeddedPostgres) -> None:
    async with database_at(postgres, "0001") as earlier:
        assert loaded(MIGRATE, earlier["connect_args"]) == ["alembic", "sqlalchemy"]


def test_a_product_of_vectors_takes_one_thread() -> None:
    """More would spin for work behind it, where the event loop and PostgreSQL want the processor.

    Of a process with one processor this says nothing.
    """
    product = "vectors = numpy.ones((384, 20_000), 'f4'); vectors[:, 0] @ vectors"
    count = "len(os.listdir('/proc/self/task'))"
    done = subprocess.run(
        [sys.executable, "-c", f"import os, relayer, numpy; {product}; print({count})"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "THREADS" not in name},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == 1
