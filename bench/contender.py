"""mem0 or memsearch behind three lines of protocol, in an environment that has nothing of ours.

    .venv-bench/bin/python bench/contender.py NAME --endpoint URL --dim N --folder FOLDER

Not here: the comparison (`others.py`).

- Each line of standard input is JSON: `{"store": [TEXT, ...]}` or `{"ask": [QUESTION, ...]}`. Each
  is answered by a line: seconds that all of it took, or milliseconds of each question.
- Defaults everywhere, but: the embedder is ours behind an OpenAI-compatible endpoint, no language
  model is asked, nothing is reported to anybody, and files lie in the folder.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

LIMIT = 10
KEY = "unused"
MODEL = "all-MiniLM-L6-v2"


class Contender(Protocol):
    """Stores texts and finds them again."""

    def store(self, texts: Sequence[str]) -> None:
        """Store texts; they can be found when this returns."""

    def ask(self, question: str) -> None:
        """Find ten."""


class Mem0:
    """mem0 without inference: each text is one memory, embedded and stored."""

    def __init__(self, endpoint: str, dim: int, folder: Path) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0")}
        from mem0 import Memory  # noqa: PLC0415  # reads the environment

        at = {"api_key": KEY, "openai_base_url": endpoint}
        store = {"path": str(folder / "qdrant"), "embedding_model_dims": dim}
        self._memory = Memory.from_config(
            {
                "embedder": {"provider": "openai", "config": at | {"model": MODEL}},
                "llm": {"provider": "openai", "config": at},  # constructed, and never asked
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )

    def store(self, texts: Sequence[str]) -> None:
        """Store texts; they can be found when this returns."""
        messages = [{"role": "user", "content": text} for text in texts]
        self._memory.add(messages, user_id="someone", infer=False)

    def ask(self, question: str) -> None:
        """Find ten."""
        self._memory.search(question, top_k=LIMIT, filters={"user_id": "someone"})


class MemSearch:
    """memsearch on one Markdown file for each call, a heading for each text."""

    def __init__(self, endpoint: str, dim: int, folder: Path) -> None:
        from memsearch import MemSearch as Search  # noqa: PLC0415  # not installed beside mem0's

        del dim  # it asks the endpoint
        self._folder, self._files = folder, 0
        self._runner = asyncio.Runner()
        self._search = Search(
            embedding_provider="openai",
            embedding_model=MODEL,
            embedding_base_url=endpoint,
            embedding_api_key=KEY,
            milvus_uri=str(folder / "milvus.db"),
        )

    def store(self, texts: Sequence[str]) -> None:
        """Store texts; they can be found when this returns."""
        self._files += 1
        path = self._folder / f"notes-{self._files}.md"
        path.write_text("\n\n".join(f"## Note {n}\n\n{text}" for n, text in enumerate(texts)))
        stored = self._runner.run(self._search.index_file(path))
        if stored != len(texts):
            raise RuntimeError(f"{stored} of {len(texts)} texts were stored")

    def ask(self, question: str) -> None:
        """Find ten."""
        self._runner.run(self._search.search(question, top_k=LIMIT))


CONTENDERS: dict[str, tuple[Callable[[str, int, Path], Contender], str]] = {
    "mem0": (Mem0, "mem0ai"),
    "memsearch": (MemSearch, "memsearch"),
}


def answer(contender: Contender, asked: dict[str, Any]) -> Any:
    """What a line asks for."""
    if "store" in asked:
        began = time.perf_counter()
        contender.store(asked["store"])
        return time.perf_counter() - began
    spent = []
    for question in asked["ask"]:
        began = time.perf_counter()
        contender.ask(question)
        spent.append(1000 * (time.perf_counter() - began))
    return spent


def main() -> None:
    """Say which version this is, then answer line by line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    lines, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    kind, package = CONTENDERS[arguments.name]
    contender = kind(arguments.endpoint, arguments.dim, arguments.folder)
    print(json.dumps(version(package)), file=lines, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(contender, json.loads(line))), file=lines, flush=True)


if __name__ == "__main__":
    main()
