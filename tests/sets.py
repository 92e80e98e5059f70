"""The sets of memories and questions of `bench/data`, a list of objects each.

Not here: storing them, and what is found of them.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "bench/data"


def lines(name: str, file: str) -> list[dict[str, Any]]:
    """The `memories` or `queries` of a set."""
    text = (_FOLDER / name / f"{file}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
