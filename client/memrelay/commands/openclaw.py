"""The commands openclaw install and uninstall.

It does not own what OpenClaw's configuration needs (`openclaw.py`).
"""

import json
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import expand_home, profile_path
from memrelay.errors import ConfigError
from memrelay.gateway.endpoint import Endpoint, endpoint_path
from memrelay.gateway.roster import Roster
from memrelay.openclaw import (
    Change,
    Configuration,
    NotEditable,
    Record,
    config_path,
    copy_plugin,
    fragment,
)

OPENCLAW_MIN = (2026, 9)


def register(add: Adder) -> None:
    """Add the group openclaw."""
    group = add.group("openclaw", "The memory of the agents of an OpenClaw on this machine.")
    for name, command in (("install", install), ("uninstall", uninstall)):
        _add_options(group(name, command, namespace=False, agent=False))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--config", metavar="PATH", help="the openclaw.json (else OpenClaw's own)")
    parser.add_argument("--yes", action="store_true", help="write without asking")


def install(shell: Shell) -> None:
    """Set OpenClaw up: the plugin, its memory slot, its access to conversations, and its tools."""
    check_openclaw(shell)
    Roster.load(shell.args.profile, environ=shell.environ)
    endpoint = endpoint_path(shell.args.profile, shell.environ)
    plugin = plugin_path(shell)
    try:
        config = Configuration(_config(shell))
        missing = config.find_missing(plugin=plugin, endpoint=endpoint)
    except NotEditable as error:
        shell.show(
            value := fragment(plugin=plugin, endpoint=endpoint), [json.dumps(value, indent=2)]
        )
        copy_plugin(plugin)
        raise ConfigError(f"{error} Merge the lines above into it yourself.") from None
    backup = None
    if _confirm_changes(shell, config, missing):
        copy_plugin(plugin)
        if missing:
            record = _record(shell)
            # Remembered first: what is written can then always be taken back.
            record.write(config.path, [*record.read(config.path), *missing])
            backup = config.replace(config.with_changes(missing))
    _tell(shell, config, missing, backup, "Restart OpenClaw if it is running.")
    running = Endpoint.read(endpoint)
    if running is None or not running.answers():
        warn("The gateway is not running; start it with `memrelay gateway`.")


def uninstall(shell: Shell) -> None:
    """Take out of OpenClaw's configuration what install put there."""
    path, record = _config(shell), _record(shell)
    changes = record.read(path.resolve())
    try:
        config = Configuration(path)
    except NotEditable as error:
        told = [str(change) for change in changes]
        shell.show({"remove": told}, [f"  {change}" for change in told])
        raise ConfigError(f"{error} Take the lines above out of it yourself.") from None
    backup = None
    if _confirm_changes(shell, config, changes) and changes:
        backup = config.replace(config.without(changes))
        if not record.write(config.path, []):
            shutil.rmtree(plugin_path(shell), ignore_errors=True)
    _tell(shell, config, changes, backup, "Restart OpenClaw if it is running.")


def _confirm_changes(shell: Shell, config: Configuration, changes: list[Change]) -> bool:
    """Show the changes and return whether to make them."""
    args = shell.args
    if args.json:
        return bool(args.yes)
    verb = "in" if args.command is install else "taken out of"
    lines = [f"  {change}" for change in changes] or ["  nothing to change"]
    shell.show(None, [f"{verb} {config.path}:", *lines])
    if args.yes or not changes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("Add --yes to write this.")
    return input("Write this? [y/N] ").strip().lower() in {"y", "yes"}


def _tell(
    shell: Shell, config: Configuration, changes: list[Change], backup: Path | None, then: str
) -> None:
    value = {
        "config": str(config.path),
        "changes": [str(change) for change in changes],
        "written": backup is not None,
        "backup": None if backup is None else str(backup),
    }
    lines = [] if backup is None else [f"Written; the file before is {backup}. {then}"]
    shell.show(value, lines)


def check_openclaw(shell: Shell) -> None:
    """Check that the OpenClaw on the path, if there is one, can load the plugin.

    Raises:
        ConfigError: it is too old.
    """
    program = shutil.which("openclaw", path=shell.environ.get("PATH"))
    if program is None:
        warn("The command openclaw is not on the PATH: its version was not checked.")
        return
    try:
        told = subprocess.run(  # noqa: S603 - the user's own OpenClaw
            [program, "--version"],
            env=dict(shell.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        told = ""
    version = re.search(r"(\d{4})\.(\d+)\.\d+", told)
    if version is None:
        warn("OpenClaw did not tell its version.")
    elif (int(version[1]), int(version[2])) < OPENCLAW_MIN:
        raise ConfigError(f"OpenClaw {version[0]} is too old; run `openclaw update` first.")


def plugin_path(shell: Shell) -> Path:
    """Return the folder that OpenClaw loads the plugin from, beside the profile."""
    return profile_path(shell.args.profile, shell.environ).absolute().with_name("openclaw-plugin")


def _config(shell: Shell) -> Path:
    chosen = shell.args.config
    return expand_home(chosen) if chosen else config_path(shell.environ)


def _record(shell: Shell) -> Record:
    path = profile_path(shell.args.profile, shell.environ)
    return Record(path.with_name("openclaw-install.json"))
