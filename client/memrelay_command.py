"""What the command `memrelay` begins with, so that Ctrl-C ends it without a word from then on.

It does not own the command (`memrelay.cli`). It is no part of the package, for that is loaded
before any of its modules, and takes longest.
"""

import sys

INTERRUPTED = 130


def main() -> None:
    """Load the command and run it."""
    try:
        from memrelay.cli import main as command  # noqa: PLC0415  # what Ctrl-C may come into

        sys.exit(command())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
