"""The agents that a command is about: names, patterns of names, and files of either.

It does not own which agents there are (`agents/agent_list.py`).
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from memrelay.agents.provision import Note
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import expand_home
from memrelay.errors import ConfigError, MemrelayError

_FILE_CHARACTERS_MAX = 2**20
_HELP = "agents' names, or patterns in quotes such as 'team-*'"


def add_names(parser: ArgumentParser) -> None:
    """Add the arguments that name agents."""
    parser.add_argument("name", nargs="*", help=_HELP)
    parser.add_argument(
        "--names", metavar="FILE", help="a file of names, one a line; - is standard input"
    )


def add_trial(parser: ArgumentParser) -> None:
    """Add the option to change nothing."""
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")


def read_words(shell: Shell, *, is_optional: bool = False) -> list[str]:
    """Return the names and patterns that were given.

    Raises:
        ConfigError: there are none, or their file cannot be read.
    """
    words = [*shell.args.name, *(_read_file(shell.args.names) if shell.args.names else [])]
    if not words and not is_optional:
        raise ConfigError("Name the agents, or a file of names with --names.")
    return words


def _read_file(name: str) -> list[str]:
    """Return the words of a file; what stands behind a # is for people."""
    try:
        if name == "-":
            text = sys.stdin.read(_FILE_CHARACTERS_MAX + 1)
        else:
            with expand_home(name).open(encoding="utf-8-sig") as file:
                text = file.read(_FILE_CHARACTERS_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is no text of names.") from None
    if len(text) > _FILE_CHARACTERS_MAX:
        raise ConfigError(f"{name} is too long: at most {_FILE_CHARACTERS_MAX} characters.")
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    if not words:
        raise ConfigError(f"{name} names no agent.")
    return words


@contextmanager
def tell_progress(done: str) -> Iterator[Note]:
    """Yield what tells a person at a terminal how far a command on many agents has come.

    An error after the first agent is preceded by a line that says how many are done.
    """
    counts = (0, 0)
    with ProgressLine(sys.stderr, done, "agent") as line:

        def note(number: int, of: int) -> None:
            nonlocal counts
            counts = number, of
            line(number, of)

        try:
            yield note
        except MemrelayError:
            if counts[0]:
                warn(f"{counts[0]} of {counts[1]} agents are {done}; the same command goes on.")
            raise
