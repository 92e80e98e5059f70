"""`relayer completion`: the script by which a shell completes this program's commands.

Not here: what is completed, which click finds from the commands themselves.
"""

from typing import Final

import click
from click.shell_completion import get_completion_class

from relayer.commands.parsers import Command

VARIABLE: Final = "_RELAYER_COMPLETE"  # in which click's script asks this program
SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print what completes commands in bash, zsh or fish.

    Put one line into the file that your shell reads at its start:

    \b
      bash, ~/.bashrc:                   eval "$(relayer completion bash)"
      zsh, ~/.zshrc behind compinit:     eval "$(relayer completion zsh)"
      fish, ~/.config/fish/config.fish:  relayer completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(kind(context.find_root().command, {}, "relayer", VARIABLE).source())
