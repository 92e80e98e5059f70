"""How a group of commands adds itself to the command line, with the options that all have.

It does not own any command.
"""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from memrelay.commands.shell import Shell

Command = Callable[[Shell], None]


class Adder:
    """Adds commands to a parser; each gets its help from its docstring, `--json` and `--profile`.

    With `namespace`, a command also takes one instead of the profile's.
    """

    def __init__(self, subparsers: Any) -> None:
        self._subparsers = subparsers

    def __call__(self, name: str, command: Command, *, namespace: bool = True) -> ArgumentParser:
        """Add a command and return its parser."""
        added: ArgumentParser = self._subparsers.add_parser(
            name, help=command.__doc__, description=command.__doc__
        )
        added.set_defaults(command=command)
        added.add_argument("--json", action="store_true", help="print one JSON value")
        added.add_argument("--profile", metavar="PATH", help="the profile file")
        if namespace:
            added.add_argument("--namespace", metavar="NAME", help="instead of the profile's")
        return added

    def group(self, name: str, description: str) -> "Adder":
        """Add a command that has actions, and return what adds those."""
        parser = self._subparsers.add_parser(name, help=description, description=description)
        return Adder(parser.add_subparsers(metavar="ACTION", required=True))


def pair(text: str) -> tuple[str, str]:
    """Return the two parts of KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError("write KEY=VALUE")
    return key, value
