"""Writes `tests/vectors/*.json`; with `--check` it only tells whether they are up to date.

    python -m tests.generate_vectors [--check]

It does not own what they say (`scenarios*.py`). Equal sources give equal files.
"""

import argparse
import json
import sys
from pathlib import Path

from tests import scenarios, scenarios_archive, scenarios_grants, scenarios_signed, scenarios_unlock
from tests.scenarios import Scenario

FOLDER = Path(__file__).parent / "vectors"
_CHAPTERS = (
    scenarios.macs,
    scenarios.keys,
    scenarios.names,
    scenarios.envelopes,
    scenarios.indexes,
    scenarios.index_records,
    scenarios.turns,
    scenarios.requests,
    scenarios_signed.strict_json,
    scenarios_signed.objects,
    scenarios_grants.grants,
    scenarios_signed.revocations,
    scenarios_signed.joins,
    scenarios_signed.statements,
    scenarios_signed.receipts,
    scenarios_signed.checkpoints,
    scenarios_signed.successions,
    scenarios_grants.chains,
    scenarios_grants.epochs,
    scenarios_unlock.unlocks,
    scenarios_archive.archives,
)


def all_scenarios() -> list[Scenario]:
    """Every scenario; two of one name would be one file."""
    found = [scenario for chapter in _CHAPTERS for scenario in chapter()]
    assert len({scenario.name for scenario in found}) == len(found)
    return found


def files() -> dict[str, str]:
    """File name → content."""
    return {
        f"{scenario.name}.json": json.dumps(scenario.as_json(), indent=1) + "\n"
        for scenario in all_scenarios()
    }


def differing(wanted: dict[str, str], folder: Path) -> list[str]:
    """The names of files that are missing, changed or too many."""
    present = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(n for n in wanted.keys() | present.keys() if wanted.get(n) != present.get(n))


def write(wanted: dict[str, str], folder: Path) -> None:
    """Make the folder hold exactly these files."""
    folder.mkdir(exist_ok=True)
    for name in differing(wanted, folder):
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generate_vectors")
    parser.add_argument("--check", action="store_true")
    names = differing(wanted := files(), folder)
    if parser.parse_args(arguments).check:
        sys.stdout.writelines(f"differs: {name}\n" for name in names)
        return 1 if names else 0
    write(wanted, folder)
    sys.stdout.write(f"{len(wanted)} vectors, {len(names)} changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
