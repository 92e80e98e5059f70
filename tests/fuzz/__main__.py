"""`python -m tests.fuzz`: fuzz parsers, each for so long or so often, and say what came of it.

Not here: the loop (`loop.py`), the parsers (`parsers/`).
"""

import argparse
import base64
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tests.fuzz.loop import Outcome, fuzzed
from tests.fuzz.parsers import PARSERS


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when nothing failed; else 1, and each failing input stands there in base64."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PARSER", help=f"of {', '.join(PARSERS)}; all")
    parser.add_argument("--minutes", type=float, help="of processor time, for each parser")
    parser.add_argument("--runs", type=int, help="for each parser; makes it the same each time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one object a line")
    chosen = parser.parse_args(arguments)
    seconds = None if chosen.minutes is None else 60 * chosen.minutes
    if seconds is None and chosen.runs is None:
        parser.error("say --minutes or --runs")
    if unknown := set(chosen.names) - set(PARSERS):
        parser.error(f"there is no parser {', '.join(sorted(unknown))}")
    failed = False
    for name in chosen.names or PARSERS:
        outcome = fuzzed(PARSERS[name], seed=chosen.seed, runs=chosen.runs, seconds=seconds)
        print(_as_json(name, outcome) if chosen.json else _as_text(name, outcome), flush=True)
        failed = failed or bool(outcome.failures)
    return int(failed)


def _as_json(name: str, outcome: Outcome) -> str:
    failures = {what: base64.b64encode(data).decode() for what, data in outcome.failures.items()}
    return json.dumps({"parser": name} | asdict(outcome) | {"failures": failures})


def _as_text(name: str, outcome: Outcome) -> str:
    lines = [
        f"{name}: {outcome.runs:,} inputs in {outcome.seconds:.0f} s, {outcome.kept:,} kept,"
        f" {outcome.steps:,} steps, slowest {outcome.slowest_ms:.0f} ms,"
        f" {len(outcome.failures)} failures"
    ]
    for what, data in outcome.failures.items():
        lines.append(f"  {what}\n    {base64.b64encode(data).decode()}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
