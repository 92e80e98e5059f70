"""Defines the exit codes of every command, and what `--help` says of each.

Not here: which error ends with which code (`cli.py`).
"""

from collections.abc import Mapping

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

MEANINGS: Mapping[int, str] = {
    EXIT_OK: "done; a recall that finds nothing is done, too",
    EXIT_FAILED: "the relayer refused, was not reached or is not to be trusted",
    EXIT_USAGE: "wrong arguments or settings",
    EXIT_NOT_FOUND: "no such memory, key, webhook or run",
    EXIT_INTERRUPTED: "ended by Ctrl-C",
}
