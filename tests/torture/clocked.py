"""The relayer's command line with a clock that a test moves: `python -m tests.torture.clocked …`.

Not here: when it is moved (`faults.py`). Only this process's clock is moved, not the database's.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from relayer import clock

FILE = "TORTURE_CLOCK"  # names a file that holds the seconds to add; none, or no file: nothing


def _moved() -> datetime:
    try:
        offset_s = float(Path(os.environ[FILE]).read_text())
    except (KeyError, OSError, ValueError):
        offset_s = 0.0
    return datetime.now(UTC) + timedelta(seconds=offset_s)


clock.utc_now = _moved

from relayer.__main__ import main  # noqa: E402  # what it imports takes the clock at import

if __name__ == "__main__":
    main()
