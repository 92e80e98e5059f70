"""The command `relayer`: flags and variables in, text or JSON out, exit codes.

Not here: the commands (`commands`), what each exit code means (`commands/failures.py`).
"""

import signal
import sys
from importlib import import_module
from typing import Any, Final

INTERRUPTED: Final = 130  # what a shell says of Ctrl-C
_AS_JSON: Final = "relayer.json"  # in what click keeps for a call

if sys.argv[1:2] == ["serve"]:
    # A reload must not end what is only about to load; `serve` takes this signal later.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

try:
    from relayer.process import forbid_core_files, pause_collection, stand_in_for_streams

    with pause_collection():
        import click

        from relayer import __version__
        from relayer.commands.catalogue import COMMANDS
        from relayer.commands.failures import MEANINGS, render
        from relayer.commands.parsers import Group
except KeyboardInterrupt:  # this takes as long as it takes to change one's mind
    sys.exit(INTERRUPTED)

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<3}  {meaning}" for code, meaning in MEANINGS.items()
)


class _Program(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, as `--help` lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return it, None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        with pause_collection():
            module = import_module(f"relayer.commands.{entry.module}")
        command: click.Command = getattr(module, entry.name)
        return command

    def summarize(self, ctx: click.Context, name: str) -> str:
        """Return a command's summary without its module, which may take a second to import."""
        return COMMANDS[name].summary

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the options or commands that begin so, without any command's module."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - for a shell only

        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether it is a script that asks, also where nothing else can be understood."""
        ctx.meta[_AS_JSON] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as failure:
            raise render(failure, as_json=ctx.meta[_AS_JSON]) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C that it has no answer to ends it without a word."""
        try:
            return super().invoke(ctx)
        except click.ClickException as failure:
            raise render(failure, as_json=ctx.meta[_AS_JSON]) from None
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except RuntimeError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C while a class was made
                sys.exit(INTERRUPTED)
            raise

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program under its own name, also as a module."""
        return super().main(*args, **({"prog_name": "relayer"} | extra))


@click.group(
    cls=_Program,
    epilog=_EPILOG,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="relayer %(version)s")
def main() -> None:
    """Long-term memory for AI agents that nobody else can read: the server."""
    stand_in_for_streams()
    forbid_core_files()


if __name__ == "__main__":
    main()
