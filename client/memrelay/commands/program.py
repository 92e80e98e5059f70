"""Builds the parser of the command `memrelay`, of all its commands or of one.

It does not own the commands (`catalogue.py` lists them) or running them (`cli.py`).
"""

from argparse import RawDescriptionHelpFormatter

from memrelay import __version__
from memrelay.commands import catalogue
from memrelay.commands.exit_codes import MEANINGS
from memrelay.commands.parsers import COMMAND, Adder, Parser

VERSION = f"memrelay {__version__}"
_EPILOG = """\
settings:
  MEMRELAY_URL, MEMRELAY_ACCOUNT_ID, MEMRELAY_PRIVATE_KEY, MEMRELAY_NAMESPACE,
  MEMRELAY_RELAYER_KEY, MEMRELAY_CUSTODY (auto, sealed, managed), or a profile file (mode 0600):
  --profile, MEMRELAY_PROFILE, else ~/.config/memrelay/profile.json. The environment wins.

exit codes:
"""
_EPILOG += "\n".join(f"  {code:<3}  {meaning}" for code, meaning in MEANINGS.items())


class _Formatter(RawDescriptionHelpFormatter):
    """Lays the list of commands out with each in one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=17)
        self._action_max_length = 15  # argparse counts these without their own indentation


def build_parser(asked: str | None = None) -> Parser:
    """Return the parser of all commands, of the one that is asked for, or else of their list.

    All of them take many times as long to import and build as one.
    """
    parser = Parser(
        prog="memrelay",
        description="Long-term memory for AI agents that nobody else can read.",
        epilog=_EPILOG,
        formatter_class=_Formatter,
    )
    parser.sections = catalogue.SECTIONS
    parser.put_aside(
        *(title for title in catalogue.SECTIONS if title not in catalogue.EVERYDAY),
        rest="show all commands, the settings and the exit codes, and exit",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    subparsers = parser.add_subparsers(metavar=COMMAND, required=True)
    if asked is None:
        catalogue.register_all(Adder(subparsers))
    elif catalogue.is_command(asked):
        catalogue.register(asked, Adder(subparsers, asked))
    else:
        for name, summary in catalogue.SUMMARIES.items():
            subparsers.add_parser(name, help=summary)
    return parser
