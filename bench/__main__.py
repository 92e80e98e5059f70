"""The suite: measures, compares with baselines of the same run, prints tables.

    python -m bench [PART ...] [--json FILE] [--svg FILE] [--rounds N] [--largest N] [--backlog N]
        [--quick]

Not here: the parts, a module each. Without names, all of `PARTS` run one after the other.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from bench import (
    agents,
    clients,
    fairness,
    index,
    ingest,
    large,
    million,
    models,
    others,
    process,
    recall,
    remember,
    signing,
    sync,
)
from bench.curves import drawn
from bench.figures import Report
from bench.running import Scale, Site, site

ROUNDS: Final = 7
ROUNDS_QUICK: Final = 1


class Part(Protocol):
    """A module that measures one thing."""

    __doc__: str | None

    def measure(self, site: Site, scale: Scale) -> Awaitable[Report]:
        """The part's report."""


PARTS: Final[dict[str, Part]] = {
    "recall": recall,
    "signing": signing,
    "remember": remember,
    "ingest": ingest,
    "clients": clients,
    "fairness": fairness,
    "process": process,
    "index": index,
    "agents": agents,
    "sync": sync,
    "large": large,
    "million": million,
    "others": others,
    "models": models,
}


def main() -> int:
    """Run the parts asked for; 0 when all of them ran, whatever they measured."""
    asyncio.run(_run(parsed(sys.argv[1:])))
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, defaults filled in."""
    parser = _parser()
    given = parser.parse_args(arguments)
    given.parts = given.parts or list(PARTS)
    least = min(recall.SIZES_QUICK if given.quick else recall.SIZES)
    if "recall" in given.parts and given.largest < least:
        parser.error(
            f"--largest {given.largest} leaves nothing of `recall`, which begins at {least}"
        )
    given.rounds = given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS)
    return given


async def _run(given: argparse.Namespace) -> None:
    """Print each part's report as soon as it is there; what is written holds all so far."""
    scale = Scale(
        rounds=given.rounds,
        quick=given.quick,
        largest=given.largest,
        rows=given.rows,
        backlog=given.backlog,
    )
    run = {"machine": _machine(), "scale": vars(scale)}
    reports: dict[str, Report] = {}
    async with site() as place:
        for name in given.parts:
            began = time.perf_counter()
            reports[name] = report = await PARTS[name].measure(place, scale)
            if scale.quick:  # such figures say nothing, and so reach and miss nothing
                report.figures = [replace(figure, bounds=None) for figure in report.figures]
            print(f"\n## {name}\n{_title(PARTS[name])}\n\n{report.as_table()}", flush=True)
            print(f"{name} took {time.perf_counter() - began:.0f} s", file=sys.stderr)
            _write(given.json, given.svg, run, reports)


def _write(
    figures: Path | None, picture: Path | None, run: dict[str, Any], reports: dict[str, Report]
) -> None:
    if figures is not None:
        parts = {name: report.as_json() for name, report in reports.items()}
        figures.write_text(json.dumps(run | {"parts": parts}, indent=1) + "\n")
    if picture is not None:
        curves = [curve for report in reports.values() for curve in report.curves]
        picture.write_text(drawn(curves))


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:10} {_title(part)}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=(__doc__ or "").splitlines()[0],
        epilog=f"parts:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help="see below")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures for scripts")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the curves")
    numbers: Final = {
        "rounds": (None, f"of each measurement, {ROUNDS} by default"),
        "largest": (50_000, "leave larger namespaces out"),
        "backlog": (100, "MiB of one account's text that waits in `fairness`, 100 by default"),
        "rows": (
            0,
            "memories of `large`, and around those of `million`, which is left out without",
        ),
    }
    for name, (default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help=text)
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    return parser


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def _title(part: Part) -> str:
    return (part.__doc__ or "").splitlines()[0]


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"processors": os.cpu_count(), "python": platform.python_version(), "load": load}


if __name__ == "__main__":
    sys.exit(main())
