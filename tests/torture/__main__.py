"""`python -m tests.torture`: kills and faults by a seed, figures and a verdict at the end.

Not here: what happens (`run.py`). Exit code 1 if anything was lost, doubled, wrong or late.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.swift import PROGRAMS
from tests.torture.run import Outcome, run

# Of the kills: at a relayer with a database of its own, and at relayers whose blobs are far away.
EMBEDDED_SHARE = BUCKET_SHARE = 0.2


def main() -> int:
    """Run all grounds and print what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill (200)")
    parser.add_argument("--seed", type=int, help="of the plan; drawn if not given")
    parser.add_argument("--minutes-max", type=float, default=60.0, help="of the rounds (60)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON only")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended as well
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    say = (lambda line: None) if options.json else _say
    say(f"seed {seed}")
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        Path(name).chmod(0o711)  # the database server drops root and must walk through
        for title, (share, kind) in _grounds(say).items():
            kills = round(options.kills * share)
            say(f"{title}: {kills} kills")
            outcomes[title] = asyncio.run(
                run(
                    Path(name) / str(len(outcomes)),
                    seed=seed,
                    kills=kills,
                    seconds_max=60 * options.minutes_max * share,
                    embedded=kind == "embedded",
                    bucket=kind == "bucket",
                    say=say,
                )
            )
    figures = {title: outcome.as_json() for title, outcome in outcomes.items()}
    print(json.dumps(figures) if options.json else _shown(outcomes))
    return 0 if all(outcome.ok for outcome in outcomes.values()) else 1


def _grounds(say: Callable[[str], None]) -> dict[str, tuple[float, str]]:
    """Title → share and kind of each ground that can be had here."""
    far = BUCKET_SHARE if PROGRAMS.exists() else 0.0
    grounds = {
        "two relayers, one database, one blob folder": (1 - EMBEDDED_SHARE - far, "folder"),
        "a relayer with a database of its own": (EMBEDDED_SHARE, "embedded"),
    }
    if far:
        return grounds | {"two relayers, one database, one bucket": (far, "bucket")}
    say("left out: an object store that lags; there is no Swift here: make .venv-swift/.ready")
    return grounds


def _say(line: str) -> None:
    print(line, flush=True)


def _shown(outcomes: dict[str, Outcome]) -> str:
    lines = []
    for title, outcome in outcomes.items():
        lines += [f"{title}:", json.dumps(outcome.as_json(), indent=2)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
