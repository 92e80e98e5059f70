"""The commands on the relayer of this machine that is started when it is needed.

It does not own how it is started (`local_relayer.py`).
"""

from pathlib import Path
from typing import Any

from memrelay.commands.parsers import Adder, parse_nonempty
from memrelay.commands.shell import Shell
from memrelay.config import agent_paths, expand_home, profile_path, read_profile
from memrelay.errors import ConfigError
from memrelay.local_relayer import LOG, LocalRelayer, prepare, state_of
from memrelay.secure_files import write_private
from memrelay.unix_sockets import parse_socket, socket_url

_STATES = {
    "running": "runs",
    "busy": "begins or ends",
    "stopped": "does not run; the next command that needs it starts it",
    "missing": "cannot run: its data folder is gone",
}


def register(add: Adder) -> None:
    """Add the commands on the local relayer."""
    local = add.group("local", "Show, end or move the relayer that commands start here.")
    local("status", status, namespace=False, agent=False)
    local("stop", stop, namespace=False, agent=False)
    use_parser = local("use", use, namespace=False, agent=False)
    use_parser.add_argument("folder", type=parse_nonempty, help="the data folder")


def status(shell: Shell) -> None:
    """Show whether the local relayer runs; this does not start it."""
    relayer = _find_relayer(shell)
    state, pid = state_of(relayer)
    value = {
        "state": state,
        "pid": pid,
        "data_dir": str(relayer.folder),
        "url": socket_url(relayer.socket),
        "log": str(relayer.folder / LOG),
    }
    shell.show(
        value,
        [
            f"relayer   {_STATES[state]}" + (f" (process {pid})" if pid else ""),
            f"data      {relayer.folder}",
            f"log       {relayer.folder / LOG}",
            *([_ADVICE] if state == "missing" else []),
        ],
    )


_ADVICE = "type      memrelay local use FOLDER, with the folder's new place"


def stop(shell: Shell) -> None:
    """End the local relayer; the next command that needs it starts it again."""
    relayer = _find_relayer(shell)
    was_running = relayer.stop()
    shell.show(
        {"stopped": was_running, "data_dir": str(relayer.folder)},
        ["the local relayer has ended" if was_running else "the local relayer was not running"],
    )


def use(shell: Shell) -> None:
    """Let the profile, and those of its agents, find the local relayer's data where it is now."""
    folder = expand_home(shell.args.folder).absolute()
    if not (folder / "relayer.key").exists():
        raise ConfigError(
            f"{folder} holds no relayer's data. To begin with new data, type"
            f" `memrelay init --local --data-dir {folder}`."
        )
    path = profile_path(shell.args.profile, shell.environ)
    values = read_profile(path, missing_ok=False)
    before = values.get("url")
    _refuse_other(before)
    url = prepare(folder)
    changed = [
        profile
        for profile in (path, *agent_paths(shell.args.profile, shell.environ).values())
        if _change_url(profile, before, url)
    ]
    shell.show(
        {"url": url, "data_dir": str(folder), "profiles": [str(profile) for profile in changed]},
        [f"data      {folder}", *(f"profile   {profile}" for profile in changed)],
    )


def _change_url(path: Path, before: Any, url: str) -> bool:
    values = read_profile(path, missing_ok=False)
    if values.get("url") != before:
        return False
    if path.suffix == ".toml":
        raise ConfigError(f'Set url = "{url}" in {path} yourself.')
    write_private(path, {**values, "url": url})
    return True


def _find_relayer(shell: Shell) -> LocalRelayer:
    """Return the local relayer that the profile names.

    Raises:
        ConfigError: it names another one, or there is no profile.
    """
    path = profile_path(shell.args.profile, shell.environ)
    url = shell.environ.get("MEMRELAY_URL") or read_profile(path, missing_ok=True).get("url")
    if url is None:
        raise ConfigError(f"There is no profile at {path}; make one with `memrelay init --local`.")
    return LocalRelayer(_refuse_other(url))


def _refuse_other(url: Any) -> Path:
    """Return the socket of a local relayer's URL.

    Raises:
        ConfigError: it is that of another relayer.
    """
    socket = parse_socket(url) if isinstance(url, str) else None
    if socket is None:
        raise ConfigError(
            f"The profile's relayer is {url}, which memrelay does not start. A profile for one"
            " that it does: `memrelay init --local`."
        )
    return socket
