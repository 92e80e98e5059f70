"""The command `relayer`: flags and variables in, text or JSON out, exit codes.

Not here: the commands (`commands`).

Exit codes: 0 done; 1 it failed, or what was checked does not hold; 2 the call needs something else;
130 Ctrl-C.
"""

import signal
import sys
from importlib import import_module
from typing import Any, Final

INTERRUPTED: Final = 130  # what a shell says of Ctrl-C
_AS_JSON: Final = "relayer.json"  # in what click keeps for a call
# The module of each command and its name there: only what is asked for is imported.
_COMMANDS: Final = {
    "serve": ("serving", "serve_command"),
    "account": ("accounts", "account"),
    "key": ("accounts", "key"),
    "identity": ("installation", "identity_group"),
    "model": ("installation", "model_group"),
    "blobs": ("blobs", "blobs_group"),
    "backup": ("backup", "backup_group"),
    "migrate": ("upkeep", "migrate_command"),
    "check": ("upkeep", "check_command"),
    "rebuild": ("upkeep", "rebuild_command"),
    "reindex": ("upkeep", "reindex_command"),
    "health": ("installation", "health_command"),
    "doctor": ("installation", "doctor_command"),
    "top": ("top", "top_command"),
}

if sys.argv[1:2] == ["serve"]:
    # A reload must not end what is only about to load; `serve` takes this signal later.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

try:
    from relayer.process import forbid_core_files, loading, stand_in_for_streams

    with loading():
        import click

        from relayer import __version__
except KeyboardInterrupt:  # this takes as long as it takes to change one's mind
    sys.exit(INTERRUPTED)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, as `--help` lists them."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return it, None if there is no such command."""
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        with loading():
            command: click.Command = getattr(import_module(f"relayer.commands.{module}"), name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether it is a script that asks, also where nothing else can be understood."""
        ctx.meta[_AS_JSON] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as failure:
            raise _told(ctx, failure) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C that it has no answer to ends it without a word."""
        try:
            return super().invoke(ctx)
        except click.ClickException as failure:
            raise _told(ctx, failure) from None
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except RuntimeError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C while a class was made
                sys.exit(INTERRUPTED)
            raise


def _told(ctx: click.Context, failure: click.ClickException) -> click.ClickException:
    """A failure as whoever asked wants it."""
    from relayer.commands.options import JsonFailure  # noqa: PLC0415 - it loads the database's part

    return JsonFailure(failure) if ctx.meta[_AS_JSON] else failure


@click.group(cls=_Group, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="relayer")
def main() -> None:
    """Long-term memory for AI agents that nobody else can read: the server."""
    stand_in_for_streams()
    forbid_core_files()


if __name__ == "__main__":
    main()
