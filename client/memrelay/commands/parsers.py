"""Adds a group of commands to the command line, with the options that all have.

It does not own any command.
"""

import math
import re
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    _SubParsersAction,
)
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from memrelay.commands.exit_codes import EXIT_USAGE
from memrelay.commands.streams import tell_error
from memrelay.commands.times import parse_span
from memrelay.errors import ConfigError

if TYPE_CHECKING:  # it loads the client, which the help and the version do without
    from memrelay.commands.shell import Shell

COMMAND, ACTION = "COMMAND", "ACTION"  # stand for one in the help
Command = Callable[["Shell"], None]


_REQUIRED = "the following arguments are required: "  # as the library says


class Parser(ArgumentParser):
    """A parser that refuses by itself what it does not know: argparse leaves that to the first.

    A refusal is one line, or with `--json` one value, and says what may have been meant.
    """

    _is_json = False
    # Titles of lists of commands, in their order; without any, the commands are one list.
    sections: Mapping[str, Sequence[str]] = MappingProxyType({})
    _rare: frozenset[str] = frozenset()

    def put_aside(self, *titles: str, rest: str) -> None:
        """Leave the epilog, and the groups and lists with these titles, to `--help-all`.

        `rest` says in some words what that shows.
        """
        self._rare = frozenset(titles)
        self.add_argument("--help-all", action=_ShowWholeHelp, help=rest)

    def parse_known_args(  # type: ignore[override]  # narrower: of typeshed's overloads, one
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Return what was given; nothing is left over."""
        given = sys.argv[1:] if args is None else list(args)
        self._is_json = "--json" in given
        option = given[0].partition("=")[0] if given and self._subparsers is not None else ""
        if option.startswith("--") and option not in self._option_string_actions:
            # Its value would be taken for the command.
            meant = _suggest(option, [name for name in self._option_string_actions if name != "-h"])
            told = f"there is no option {option}{meant}" if meant else ""
            self.error(told or f"{option} goes behind the command")
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self._refuse_unknown(unknown)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong with the arguments, and end the process with the code for that."""
        if message.endswith(f": {ACTION}"):
            message = f"say which {ACTION.lower()}: {', '.join(find_actions(self))}"
        elif message.endswith(f": {COMMAND}"):
            message = f"no {COMMAND.lower()} was named"
        elif message.startswith(_REQUIRED):
            names = [self._name_argument(n) for n in message.removeprefix(_REQUIRED).split(", ")]
            message = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
        text = " ".join(f"{message.rstrip('.')} (see `{self.prog} --help`)".split())
        tell_error(text, code="arguments", as_json=self._is_json)
        sys.exit(EXIT_USAGE)

    @staticmethod
    def _name_argument(shown: str) -> str:
        """Return an argument as pages write it."""
        return shown if shown.startswith(("-", "{")) else shown.upper()

    def _refuse_unknown(self, unknown: Sequence[str]) -> NoReturn:
        option = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
        if option is None:
            self.error(f"one argument too many: {' '.join(unknown)}")
        meant = _suggest(option, [name for name in self._option_string_actions if name != "-h"])
        self.error(f"there is no option {option}{meant}")

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        meant = _suggest(str(value), names)
        if action.choices is find_actions(self):
            kind = str(action.metavar).lower()
            raise ArgumentError(None, f"there is no {kind} {value}{meant}")
        raise ArgumentError(action, f"{value} is none of {', '.join(names)}{meant}")

    def format_help(self) -> str:
        """Return the help, without what was put aside."""
        return self._format(is_whole="--help-all" not in self._option_string_actions)

    def format_whole_help(self) -> str:
        """Return the help with all that there is."""
        return self._format(is_whole=True)

    def _format(self, *, is_whole: bool) -> str:
        """Lay the help out; its first line has the arguments alone, for the options stand below."""
        formatter = self._get_formatter()
        formatter.add_usage(None, self._get_positional_actions(), [])
        line = formatter.format_help().removeprefix("usage: ").strip()
        formatter = self._get_formatter()
        formatter.add_usage(line.replace(self.prog, f"{self.prog} [OPTIONS]", 1), [], [])
        formatter.add_text(self.description)
        shown = [
            (title, actions)
            for title, actions in (*self._list_commands(), *self._list_options())
            if is_whole or title not in self._rare
        ]
        for title, actions in shown:
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog if is_whole else None)
        return formatter.format_help()

    def _list_commands(self) -> Iterator[tuple[str, list[Action]]]:
        """Yield the lists of commands, each with its title; those that were added."""
        if self._subparsers is None:
            return
        added = self._subparsers._group_actions[0]
        assert isinstance(added, _SubParsersAction)
        every = {one.dest: one for one in added._choices_actions}
        for title, names in self.sections.items():
            yield title, [every[name] for name in names if name in every]

    def _list_options(self) -> Iterator[tuple[str, list[Action]]]:
        """Yield the arguments and options, in their groups."""
        for group in self._action_groups:
            if group is not self._subparsers or not self.sections:
                yield group.title or "", group._group_actions

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse passes over it when help or the version cannot be written.
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class _ShowWholeHelp(Action):
    """Shows the whole help, and ends the process."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=SUPPRESS, help=help)

    def __call__(self, parser: ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_whole_help(), sys.stdout)
        parser.exit()


def find_actions(parser: ArgumentParser) -> Mapping[str, ArgumentParser]:
    """Return the parsers of a parser's commands or actions, none if it has no such."""
    groups = parser._subparsers
    return {} if groups is None else groups._group_actions[0].choices  # type: ignore[return-value]


def _suggest(given: str, names: Sequence[str]) -> str:
    from memrelay.commands.suggestions import suggest  # noqa: PLC0415 - for a refusal only

    meant = suggest(given, names)
    return f"; {meant}" if meant else ""


class _Unasked:
    """In place of the parser of a command that nobody asks for: forgets whatever is added."""

    def __getattr__(self, name: str) -> Callable[..., "_Unasked"]:
        return lambda *_, **__: self


_UNASKED: Any = _Unasked()


class Adder:
    """Adds commands to a parser; each gets its help from its docstring, `--json` and `--profile`.

    With `namespace`, a command also takes one instead of the profile's; with `agent`, the name of
    an agent whose own profile it uses. Where one is `asked` for, all others are left out.
    """

    def __init__(self, subparsers: Any, asked: str | None = None) -> None:
        self._subparsers = subparsers
        self._asked = asked

    def __call__(
        self, name: str, command: Command, *, namespace: bool = True, agent: bool = True
    ) -> Parser:
        """Add a command and return its parser."""
        text = command.__doc__ or ""
        added: Parser = self._among(name).add_parser(
            name, help=text.partition("\n")[0], description=text
        )
        added.set_defaults(command=command)
        common = added.add_argument_group("of most commands")
        common.add_argument("--json", action="store_true", help="print one JSON value")
        common.add_argument(
            "--profile", type=parse_nonempty, metavar="PATH", help="the profile file"
        )
        if agent:
            common.add_argument("--agent", metavar="NAME", help="act with this agent's own key")
        if namespace:
            common.add_argument("--namespace", metavar="NAME", help="instead of the profile's")
        return added

    def group(self, name: str, description: str) -> "Adder":
        """Add a command that has actions, and return what adds those."""
        parser = self._among(name).add_parser(name, help=description, description=description)
        return Adder(parser.add_subparsers(metavar=ACTION, required=True))

    def _among(self, name: str) -> Any:
        return self._subparsers if self._asked in (None, name) else _UNASKED


def tags(text: str) -> list[str]:
    """Return the tags of a text: several stand between commas."""
    found = [tag.strip() for tag in text.split(",")]
    if not all(found):
        raise ArgumentTypeError("a tag is empty; write TAG or TAG,TAG")
    return found


def pair(text: str) -> tuple[str, str]:
    """Return the two parts of KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError(f"write {key or 'KEY'}=VALUE")
    return key, value


def pairs(option: str, given: Iterable[tuple[str, str]] | None) -> dict[str, str] | None:
    """Return the pairs that an option gives, None without any.

    Raises:
        ConfigError: they give something two values.
    """
    found: dict[str, str] = {}
    for key, value in given or ():
        if found.setdefault(key, value) != value:
            raise ConfigError(f"{option} gives {key} two values.")
    return found or None


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return what reads a whole number of these bounds."""

    def read(text: str) -> int:
        if not (re.fullmatch(r"[0-9]{1,18}", text) and low <= int(text) <= high):
            raise ArgumentTypeError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def add_page(parser: ArgumentParser) -> None:
    """Add the options of what is shown page by page."""
    parser.add_argument(
        "--limit", type=whole(1, 200), default=20, metavar="N", help="1 to 200 (20)"
    )
    parser.add_argument("--cursor", help="where the last page ended")


def number(low: float, high: float, *, above: bool = False) -> Callable[[str], float]:
    """Return what reads a number of these bounds, or one that is `above` the lower one."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or (above and value == low):
            least = f"more than {low:g}, up" if above else f"from {low:g}"
            raise ArgumentTypeError(f"a number {least} to {high:g}")
        return value

    return read


def number_of(
    unit: timedelta, low: float, high: float, *, above: bool = False
) -> Callable[[str], float]:
    """Return what reads a span of time as a number of a unit, of these bounds; or that number."""
    read_number = number(low, high, above=above)

    def read(text: str) -> float:
        try:
            float(text)
        except ValueError:
            text = str(parse_span(text) / unit)
        return read_number(text)

    return read


def add_wait(parser: ArgumentParser, *, default_s: float, of: str) -> None:
    """Add the option that waits until what is stored is found by meaning, too."""
    parser.add_argument(
        "--wait",
        type=number_of(timedelta(seconds=1), 0, 1_000_000),
        nargs="?",
        const=default_s,
        metavar="SPAN",
        help=f"until {of} found by meaning, too; seconds, or 2m ({default_s:g}s)",
    )


def share(text: str) -> float:
    """Return a share from 0 to 1, also of per cent."""
    plain = text.strip()
    if not plain.endswith("%"):
        return number(0, 1)(plain)
    try:
        return number(0, 100)(plain[:-1]) / 100
    except ArgumentTypeError:
        raise ArgumentTypeError("a share from 0% to 100%") from None


def public_key(text: str) -> str:
    """Return a public key in hex."""
    if re.fullmatch(r"[0-9a-f]{64}", text) is None:
        raise ArgumentTypeError("a whole public key, 64 lower-case hexadecimal digits")
    return text


def parse_nonempty(text: str) -> str:
    """Return a text that says something: an unset variable of a shell gives an empty one."""
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


def alias(text: str) -> tuple[str, str]:
    """Return the two parts of WORD=OTHER, both of which say something."""
    word, other = map(str.strip, pair(text))
    if not word or not other:
        raise ArgumentTypeError("write WORD=OTHER, such as k8s=kubernetes")
    return word, other
