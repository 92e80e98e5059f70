"""Commands and groups of commands with a help that fits on a screen.

Not here: which commands there are (`catalogue.py`), how they fail (`failures.py`).

- `--help` shows the settings that most people choose, `--help-all` each with its variable.
- A summary in a list of commands is never cut off.
"""

from typing import Any, Final, cast

import click

EVERYDAY: Final = frozenset(
    {
        *("data_dir", "host", "port", "public_url", "database_url"),
        *("registration", "llm_model", "embedder", "workers"),
    }
)
FEW: Final = 4  # so many settings are shown at once
_ALL: Final = "relayer.help_all"  # in what click keeps for a call


class Setting(click.Option):
    """An option for a setting, which a variable gives as well."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the default and the variable, which only the whole help has."""
        extra = super().get_help_extra(ctx)
        if isinstance(ctx.command, Command) and ctx.command.is_long and not ctx.meta.get(_ALL):
            extra.pop("envvars", None)
        return extra


class Command(click.Command):
    """A command whose settings stand behind `--help-all` where they are many."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self._settings = [one for one in self.params if isinstance(one, Setting)]
        self.is_long = len(self._settings) > FEW
        if self.is_long:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help="Show all settings, too, and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then its settings."""
        own = [one for one in self.get_params(ctx) if not isinstance(one, Setting)]
        _write(ctx, formatter, "Options", own)
        is_whole = bool(ctx.meta.get(_ALL)) or not self.is_long
        shown = [one for one in self._settings if is_whole or one.name in EVERYDAY]
        _write(ctx, formatter, "Settings", shown)
        if not is_whole:
            formatter.write_paragraph()
            formatter.write_text(f"All settings and their variables: {ctx.command_path} --help-all")


class Group(click.Group):
    """A group of commands, which lists each with its whole summary."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line or two for each command."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summarize(ctx, name)) for name in names])

    def summarize(self, ctx: click.Context, name: str) -> str:
        """Return what a command of this group does, in one sentence."""
        return summary_of(cast("click.Command", self.get_command(ctx, name)))


def summary_of(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _show_all(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _write(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, shown: "list[Any]"
) -> None:
    records = [one.get_help_record(ctx) for one in shown if isinstance(one, click.Option)]
    if found := [record for record in records if record is not None]:
        with formatter.section(title):
            formatter.write_dl(found)
