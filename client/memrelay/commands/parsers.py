"""How a group of commands adds itself to the command line, with the options that all have.

It does not own any command.
"""

import math
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from memrelay.commands.shell import Shell

Command = Callable[[Shell], None]

_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


class Adder:
    """Adds commands to a parser; each gets its help from its docstring, `--json` and `--profile`.

    With `namespace`, a command also takes one instead of the profile's; with `agent`, the name of
    an agent whose own profile it uses.
    """

    def __init__(self, subparsers: Any) -> None:
        self._subparsers = subparsers

    def __call__(
        self, name: str, command: Command, *, namespace: bool = True, agent: bool = True
    ) -> ArgumentParser:
        """Add a command and return its parser."""
        added: ArgumentParser = self._subparsers.add_parser(
            name, help=command.__doc__, description=command.__doc__
        )
        added.set_defaults(command=command)
        added.add_argument("--json", action="store_true", help="print one JSON value")
        added.add_argument("--profile", metavar="PATH", help="the profile file")
        if agent:
            added.add_argument("--agent", metavar="NAME", help="act with this agent's own key")
        if namespace:
            added.add_argument("--namespace", metavar="NAME", help="instead of the profile's")
        return added

    def group(self, name: str, description: str) -> "Adder":
        """Add a command that has actions, and return what adds those."""
        parser = self._subparsers.add_parser(name, help=description, description=description)
        return Adder(parser.add_subparsers(metavar="ACTION", required=True))


def later(text: str) -> datetime:
    """Return a time to come, in whole seconds: from now (`30m`, `12h`, `90d`, `4w`) or RFC 3339."""
    now = datetime.now(UTC)
    span = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    try:
        moment = now + int(span[1]) * _UNITS[span[2]] if span else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ArgumentTypeError("write 30m, 12h, 90d, 4w or a time in RFC 3339") from None
    if moment.utcoffset() is None:
        raise ArgumentTypeError("a time needs an offset, such as Z or +02:00")
    if moment <= now:
        raise ArgumentTypeError("the time is past")
    return moment.astimezone(UTC).replace(microsecond=0)


def span(text: str) -> timedelta:
    """Return a span of time: `30m`, `12h`, `90d`, `4w`."""
    parts = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if parts is None or not int(parts[1]):
        raise ArgumentTypeError("write 30m, 12h, 90d or 4w")
    return int(parts[1]) * _UNITS[parts[2]]


def pair(text: str) -> tuple[str, str]:
    """Return the two parts of KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError("write KEY=VALUE")
    return key, value


def number(text: str) -> float:
    """Return a number; JSON has neither infinity nor what is no number."""
    value = float(text)
    if not math.isfinite(value):
        raise ArgumentTypeError("write a finite number")
    return value


def alias(text: str) -> tuple[str, str]:
    """Return the two parts of WORD=OTHER, both of which say something."""
    word, other = map(str.strip, pair(text))
    if not word or not other:
        raise ArgumentTypeError("write WORD=OTHER, such as k8s=kubernetes")
    return word, other
