"""The commands hermes install and uninstall.

It does not own what a Hermes home needs (`hermes/`).
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import agent_name, profile_path
from memrelay.errors import ConfigError
from memrelay.gateway.guards import MAIN_AGENT
from memrelay.hermes.choice import NotEditable
from memrelay.hermes.home import (
    FRAGMENT,
    PROVIDER,
    Configuration,
    forget_settings,
    home_path,
    plugin_is_written,
    plugin_path,
    remove_plugin,
    save_settings,
    settings_path,
    settings_say,
    write_plugin,
)
from memrelay.hermes.interpreter import find_install_command, interpreter


def register(add: Adder) -> None:
    """Add the group hermes."""
    group = add.group("hermes", "The memory of a Hermes Agent on this machine.")
    _add_options(group("install", install, namespace=False))
    _add_options(group("uninstall", uninstall, namespace=False, agent=False))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--hermes-home", metavar="PATH", help="the home (else Hermes' own)")
    parser.add_argument("--yes", action="store_true", help="write without asking")


def install(shell: Shell) -> None:
    """Make this the memory of a Hermes home: its provider, its settings, its configuration."""
    home = home_path(shell.args.hermes_home, shell.environ)
    wanted = _choose_settings(shell)
    try:
        config = Configuration(home)
    except NotEditable as error:
        write_plugin(home)
        save_settings(home, wanted)
        shell.show({"add": FRAGMENT}, FRAGMENT.splitlines())
        raise ConfigError(f"{error} Set the lines above in it yourself.") from None
    changes = []
    if not plugin_is_written(home):
        changes.append(f"{plugin_path(home)}: the provider")
    if not settings_say(home, wanted):
        told = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
        changes.append(f"{settings_path(home)}: {told or 'as in the environment'}")
    if config.provider != PROVIDER:
        was = f", was {config.provider}" if config.provider else ""
        changes.append(f"{config.path}: memory.provider {PROVIDER}{was}")
    written = _confirm_changes(shell, changes)
    if written:
        write_plugin(home)
        save_settings(home, wanted)
        if config.provider != PROVIDER:
            config.install()
    usable = _check_python(shell)
    _tell(shell, home, changes, written=written, usable=usable)


def uninstall(shell: Shell) -> None:
    """Take back what install did; the provider chosen before is chosen again."""
    home = home_path(shell.args.hermes_home, shell.environ)
    config = Configuration(home)
    changes = []
    if config.provider == PROVIDER:
        before = config.before() or "Hermes' own memory alone"
        changes.append(f"{config.path}: memory.provider back to {before}")
    if plugin_path(home).exists():
        changes.append(f"{plugin_path(home)}: removed")
    written = _confirm_changes(shell, changes)
    if written:
        if config.provider == PROVIDER:
            config.uninstall()
        remove_plugin(home)
        forget_settings(home)
    _tell(shell, home, changes, written=written)


def _choose_settings(shell: Shell) -> dict[str, str]:
    """Return the settings to write: which profile, whose memory.

    Raises:
        ConfigError: there is no usable profile, or the agent has none of its own.
    """
    settings = shell.settings()
    path = profile_path(shell.args.profile, shell.environ).absolute()
    if shell.args.agent:
        return {"profile": str(path), "agent": agent_name(shell.args.agent)}
    if not path.exists():
        warn("The key comes from the environment: Hermes needs the same variables, in its .env.")
        return {"profile": "", "agent": ""}
    # One agent's own profile holds that agent's namespace, however the Hermes profile is called.
    return {"profile": str(path), "agent": "" if settings.namespace == "default" else MAIN_AGENT}


def _confirm_changes(shell: Shell, changes: list[str]) -> bool:
    """Show the changes and return whether to make them."""
    args = shell.args
    if args.json:
        return bool(args.yes and changes)
    shell.show(None, changes or ["nothing to change"])
    if args.yes or not changes:
        return bool(changes)
    if not sys.stdin.isatty():
        raise ConfigError("Add --yes to write this.")
    return input("Write this? [y/N] ").strip().lower() in {"y", "yes"}


def _tell(
    shell: Shell, home: Path, changes: list[str], *, written: bool, usable: bool | None = None
) -> None:
    value = {"home": str(home), "changes": changes, "written": written, "usable": usable}
    lines = ["Written. Begin a new session in Hermes; restart its gateway if it runs."]
    shell.show(value, lines if written else [])


def _check_python(shell: Shell) -> bool | None:
    """Return whether Hermes can import the provider; None if its Python was not found."""
    python = interpreter(shell.environ)
    if python is None:
        warn("The command hermes was not found: make sure that memrelay is installed beside it.")
        return None
    try:
        command = find_install_command(python)
    except ConfigError as error:
        warn(str(error))
        return None
    if command:
        warn(f"Hermes cannot import memrelay yet; run `{command}`.")
    return command is None
