"""Writes the types of the TypeScript client's API from a relayer's own description.

    python -m tests.generate_typescript           writes client/typescript/src/api.ts
    python -m tests.generate_typescript --check   fails where that would change it

The generator is npm's `openapi-typescript`, which `make typescript-types` installs. The file's
first line has a hash of the description, so that `make test` notices a change without Node.
"""

import argparse
import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.processes import running_relayer

PACKAGE = Path(__file__).parent.parent / "client/typescript"
TARGET = PACKAGE / "src/api.ts"
_HEAD = "// Types of a description whose SHA-256 is {}: `make typescript-types` writes them.\n"


def head_of(description: Mapping[str, Any]) -> str:
    """Return the first line of the types of a description, whatever the relayer's version is."""
    told = {name: value for name, value in description.items() if name != "info"}
    canonical = json.dumps(told, sort_keys=True, ensure_ascii=False).encode()
    return _HEAD.format(hashlib.sha256(canonical).hexdigest())


def read_description(folder: Path) -> dict[str, Any]:
    """Return the description that a relayer gives, which is started for it in a folder."""
    with running_relayer(folder / "data", folder, RELAYER_EMBEDDER="none") as relayer:
        answer = httpx.get(f"{relayer.url}/schema/openapi.json")
        answer.raise_for_status()
        return dict(answer.json())


def write_types(description: Mapping[str, Any], folder: Path) -> str:
    """Return the types of a description; the generator reads and writes files in a folder."""
    source, written = folder / "openapi.json", folder / "api.ts"
    source.write_text(json.dumps(description))
    program = PACKAGE / "node_modules/.bin/openapi-typescript"
    subprocess.run([program, source, "--output", written], check=True, capture_output=True)
    return head_of(description) + written.read_text()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the types, or tell whether they are those of the relayer that is here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    with TemporaryDirectory() as name:
        types = write_types(read_description(Path(name)), Path(name))
    if not check:
        TARGET.write_text(types)
        return 0
    if is_other := types != TARGET.read_text():
        print(f"differs: {TARGET.name}: run make typescript-types")
    return int(is_other)


if __name__ == "__main__":
    raise SystemExit(main())
