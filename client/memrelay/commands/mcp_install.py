"""The commands mcp install and mcp uninstall: MCP clients that start this command's server.

They do not own where clients look (`installing/mcp_clients.py`) or how files are changed
(`installing/config_files.py`).

- A client gets a key of its own: an agent that is called like the client. Its file names the
  profile that holds the key, and no secret.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from memrelay.agents.access import Wish
from memrelay.agents.provision import Agents
from memrelay.coding.host_files import FILES
from memrelay.commands.new_keys import hand_over
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.suggestions import suggest
from memrelay.config import agent_path, agent_paths, agents_folder, profile_path, spool_folder
from memrelay.errors import ConfigError, MemrelayError
from memrelay.installing.config_files import Change, ConfigFile, Installations, Installed
from memrelay.installing.documents import Document
from memrelay.installing.errors import NotEditable
from memrelay.installing.mcp_clients import (
    ALL,
    CLIENTS,
    MANUAL,
    ManualClient,
    McpClient,
    find_client,
)
from memrelay.installing.program import describe_missing_extra, find_program
from memrelay.plurals import format_count

PURPOSE = "mcp"
HOOKS_PURPOSE = "hooks"  # of `memrelay claude install`, and others'
_TOOLS = "core"


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A client's file that is to be changed."""

    client: McpClient
    path: Path
    is_private: bool

    def open(self) -> ConfigFile:
        return ConfigFile(self.path, self.client.form, is_private=self.is_private)


def install(shell: Shell) -> None:
    """Set clients up, each with a key of its own."""
    args = shell.args
    if args.list + args.all + bool(args.client) != 1:
        raise ConfigError("Name the clients, or say --all or --list.")
    program = find_program(shell.environ)
    if args.list:
        return _list_clients(shell, program)
    chosen = _choose(shell)
    places = list(_find_places(shell, [c for c in chosen if isinstance(c, McpClient)]))
    if args.all and not places:
        raise ConfigError("No client was found here; --list shows where each is looked for.")
    opened, failures = _open(places)
    commands = _provision(shell, program, chosen)
    report = []
    installations = Installations(_folder(shell), PURPOSE)
    with nullcontext() if args.dry_run else installations.lock():
        for place, file in opened:
            command = commands[place.client.name]
            try:
                report.append(_install(installations, place, file, command, dry=args.dry_run))
            except (NotEditable, ConfigError) as error:
                failures.append(_fail(place, error))
    _show(shell, report, failures, _manual_entries(chosen, commands))
    _warn_of_use(shell, report)
    _end(failures, [(p, commands[p.client.name]) for p in places], "Add this to it yourself")


def uninstall(shell: Shell) -> None:
    """Take back what install did, byte for byte where nobody changed the file since."""
    args = shell.args
    if args.all == bool(args.client):
        raise ConfigError("Name the clients, or say --all.")
    installations = Installations(_folder(shell), PURPOSE)
    places = list(_find_installed(shell, installations))
    if args.all and not places:
        raise ConfigError("Nothing is installed.")
    opened, failures = _open(places)
    report = []
    with installations.lock():
        agents = _agents_of(shell, filter(None, (installations.find(p.path) for p in places)))
        for place, file in opened:
            try:
                report.append(_uninstall(installations, place, file, dry=args.dry_run))
            except (NotEditable, ConfigError) as error:
                failures.append(_fail(place, error))
        agents -= _agents_of(shell, installations.list_installed())
    if args.revoke and not args.dry_run:
        _revoke(shell, sorted(agents), report)
    _show(shell, report, failures, [])
    _end(failures, [], "")


def _choose(shell: Shell) -> list[McpClient | ManualClient]:
    args = shell.args
    if args.all:
        return [c for c in CLIENTS if c.is_present(shell.environ, sys.platform)]
    chosen: list[McpClient | ManualClient] = []
    for name in dict.fromkeys(args.client):
        client = find_client(name)
        if client is None:
            meant = suggest(name, list(ALL))
            raise ConfigError(f"There is no client {name}; {meant or 'see --list.'}")
        chosen.append(client)
    return chosen


def _find_places(shell: Shell, clients: Iterable[McpClient]) -> Iterator[_Place]:
    taken: set[Path] = set()
    for client in clients:
        path = _path_of(shell, client)
        if path is None and not shell.args.all:
            raise ConfigError(f"{client.title} has no file in a project; leave --project out.")
        if path is not None and path not in taken:  # two clients may share a project's file
            taken.add(path)
            yield _Place(client=client, path=path, is_private=shell.args.project is None)


def _path_of(shell: Shell, client: McpClient) -> Path | None:
    if shell.args.project is None:
        return client.path(shell.environ, sys.platform)
    return client.project_path(Path(shell.args.project).expanduser().absolute())


def _find_installed(shell: Shell, installations: Installations) -> Iterator[_Place]:
    """Yield the files to be put back: of the named clients, or of all that are known."""
    if not shell.args.all:
        chosen = _choose(shell)
        manual = [c.name for c in chosen if isinstance(c, ManualClient)]
        if manual:
            raise ConfigError(
                f"Take {' and '.join(manual)} out by hand, as it was put in; "
                f"`memrelay agents revoke {manual[0]}` ends its key."
            )
        yield from _find_places(shell, [c for c in chosen if isinstance(c, McpClient)])
        return
    needed = _find_needed(shell)
    for installed in installations.list_installed():
        client = _find_owner(shell, installed)
        if client is None:
            continue
        if (
            client.name in needed
            and installed.path == client.path(shell.environ, sys.platform).resolve()
        ):
            command = f"`memrelay {needed[client.name]} uninstall`"
            warn(f"{client.title} keeps its tools: its hooks need them; {command} takes both out.")
            continue
        yield _Place(client=client, path=installed.path, is_private=True)


def _find_needed(shell: Shell) -> dict[str, str]:
    """Return the clients that hooks of a coding agent were installed for, with its command."""
    hooks = Installations(_folder(shell), HOOKS_PURPOSE).list_installed()
    return {
        files.client: host
        for host, files in FILES.items()
        if any(
            one.path == files.hooks_path(shell.environ, None).resolve()
            or str(one.path).endswith(f"/{files.project_hooks}")
            for one in hooks
        )
    }


def _find_owner(shell: Shell, installed: Installed) -> McpClient | None:
    """Return the client that a file is of: the user's, else that whose project file fits best."""
    path = installed.path
    for client in CLIENTS:
        if client.path(shell.environ, sys.platform).resolve() == path:
            return client
    fitting = [
        (len(text), client)
        for client in CLIENTS
        for text in client.project
        if str(path).endswith(f"/{text}")
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _open(
    places: Sequence[_Place],
) -> tuple[list[tuple[_Place, ConfigFile]], list[dict[str, Any]]]:
    """Return the files that can be changed, and what is wrong with the others."""
    opened, failures = [], []
    for place in places:
        try:
            opened.append((place, place.open()))
        except NotEditable as error:
            failures.append(_fail(place, error))
    return opened, failures


def _fail(place: _Place, error: Exception) -> dict[str, Any]:
    reason = str(error).rstrip(".")
    named = reason if str(place.path) in reason else f"{place.path} is left alone: {reason}"
    return {"client": place.client.name, "file": str(place.path), "error": named}


def _provision(
    shell: Shell, program: Sequence[str], clients: Sequence[McpClient | ManualClient]
) -> dict[str, list[str]]:
    """Return the command for each client, whose key is made unless one agent's is chosen."""
    args = shell.args
    owner = args.profile
    if args.agent:
        paths = dict.fromkeys((c.name for c in clients), shell.profile_path())
    else:
        paths = {c.name: agent_path(c.name, owner, shell.environ) for c in clients}
        if not args.dry_run:
            shared = None if args.shared is None else tuple(args.shared)
            with shell.client() as client:
                _agents(shell, client).provision(list(paths), Wish(shared=shared))
    # The descriptions of all are in the context of each turn; these are most of what is used.
    tools = [] if args.tools == "all" else ["--tools", args.tools or _TOOLS]
    return {
        name: [*program, "mcp", "--profile", str(path.absolute()), *tools]
        for name, path in paths.items()
    }


def _agents(shell: Shell, client: Any) -> Agents:
    owner = ["--profile", shell.args.profile] if shell.args.profile else []
    folder = agents_folder(shell.args.profile, shell.environ)
    spool = spool_folder(shell.args.profile, shell.environ)
    return Agents(client, folder, owner, partial(hand_over, {spool, folder / spool.name}))


def _install(
    installations: Installations,
    place: _Place,
    file: ConfigFile,
    command: list[str],
    *,
    dry: bool,
) -> dict[str, Any]:
    change = place.client.change(file.document, command)
    missing = installations.find_missing(file, [change])
    state = "kept" if not missing else "would be changed" if dry else "installed"
    backup = None
    if missing and not dry:
        backup = installations.install(file, [change])
    return {
        "client": place.client.name,
        "file": str(place.path),
        "state": state,
        "change": str(change),
        "command": command,
        "backup": None if backup is None else str(backup),
    }


def _uninstall(
    installations: Installations, place: _Place, file: ConfigFile, *, dry: bool
) -> dict[str, Any]:
    if installations.find(place.path) is None:
        by_hand = place.client.find_command(file.document) is not None
        if by_hand:
            raise NotEditable(f"what is in {place.path} was not put there by this command")
        state = "not installed"
    elif dry:
        state = "would be put back"
    else:
        installations.uninstall(file)
        state = "put back" if place.path.exists() else "removed"
    return {"client": place.client.name, "file": str(place.path), "state": state}


def _agents_of(shell: Shell, installed: Iterable[Installed]) -> set[str]:
    """Return the agents whose profiles are named by what was installed."""
    names = {str(p.absolute()): n for n, p in _known_agents(shell).items()}
    commands = [_strings(change.value) for one in installed for change in one.changes]
    return {names[part] for command in commands for part in command if part in names}


def _known_agents(shell: Shell) -> dict[str, Path]:
    return agent_paths(shell.args.profile, shell.environ)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _strings(part)]


def _revoke(shell: Shell, agents: Sequence[str], report: list[dict[str, Any]]) -> None:
    if not agents:
        return
    with shell.client() as client:
        for agent in _agents(shell, client).revoke(agents):
            report.append({"client": agent.name, "file": "", "state": "key revoked"})


def _manual_entries(
    clients: Sequence[McpClient | ManualClient], commands: dict[str, list[str]]
) -> list[dict[str, Any]]:
    return [
        {"client": c.name, "place": c.place, "why": c.why, "paste": _snippet(commands[c.name])}
        for c in clients
        if isinstance(c, ManualClient)
    ]


def _snippet(command: list[str]) -> dict[str, Any]:
    return {"mcpServers": {"memrelay": {"command": command[0], "args": command[1:]}}}


def _show(
    shell: Shell,
    report: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    manual: list[dict[str, Any]],
) -> None:
    value = {"clients": report, "failed": failures, "by_hand": manual}
    lines = []
    for one in report:
        lines.append(f"{one['client']}  {one['state']}  {one['file']}".rstrip())
        if one.get("backup"):
            lines.append(f"  the file before is {one['backup']}")
        if one["state"] == "would be changed":
            lines.append(f"  {one['change']}")
    for one in manual:
        lines.append(f"{one['client']}  by hand, for {one['why']}: {one['place']}")
        lines += json.dumps(one["paste"], indent=2).splitlines()
    if any(one["state"] in {"installed", "put back", "removed"} for one in report):
        lines.append("Start the clients anew that are running.")
    shell.show(value, lines)


def _warn_of_use(shell: Shell, report: Sequence[dict[str, Any]]) -> None:
    if not shell.args.dry_run and (extra := describe_missing_extra()):
        warn(extra)
    if shell.args.project is not None and any(one["state"] == "installed" for one in report):
        warn("These files name paths of this machine: keep them out of version control.")


def _end(
    failures: Sequence[dict[str, Any]], places: Sequence[tuple[_Place, list[str]]], hint: str
) -> None:
    """Say what was left alone, and what a person can do about it.

    Raises:
        MemrelayError: something was.
    """
    for one in failures:
        warn(f"{one['error']}.")
        for place, command in places:
            if place.client.name == one["client"]:
                change = _change_of(place.client, command)
                warn(f"{hint}: {change}")
    if failures:
        raise MemrelayError(f"{format_count(len(failures), 'file')} could not be changed.")


def _change_of(client: McpClient, command: list[str]) -> Change:
    return client.change(Document("", "json"), command)


def _list_clients(shell: Shell, program: Sequence[str]) -> None:
    found = [_describe(shell, client, program) for client in CLIENTS]
    manual = [{"client": c.name, "title": c.title, "place": c.place} for c in MANUAL]
    lines = [f"{one['client']}  {one['state']}  {one['file']}" for one in found if one["file"]]
    lines += [f"{one['client']}  by hand  {one['place']}" for one in manual]
    shell.show({"clients": found, "by_hand": manual}, lines)


def _describe(shell: Shell, client: McpClient, program: Sequence[str]) -> dict[str, Any]:
    path = _path_of(shell, client)
    value = {"client": client.name, "title": client.title, "file": str(path or "")}
    if path is None:
        return {**value, "state": "no project file", "command": None}
    try:
        file = ConfigFile(path, client.form)
        command = client.find_command(file.document)
    except NotEditable as error:
        return {**value, "state": f"unreadable: {error}", "command": None}
    if command is not None:
        return {**value, "state": _judge(command, program), "command": command}
    present = shell.args.project is not None or client.is_present(shell.environ, sys.platform)
    return {**value, "state": "not installed" if present else "not found here", "command": None}


def _judge(command: list[str], program: Sequence[str]) -> str:
    """Return whether a client's command is the one that install would write."""
    if command[: len(program)] != list(program):
        return f"another command: {command[0] if command else 'none'}"
    profiles = [after for before, after in pairwise(command) if before == "--profile"]
    missing = [profile for profile in profiles if not Path(profile).exists()]
    return f"its key is gone: {missing[0]}" if missing else "installed"


def _folder(shell: Shell) -> Path:
    return profile_path(shell.args.profile, shell.environ).absolute().parent
