"""The files of a coding agent that hooks, tools and a skill stand in, and what is put there.

It does not own how a file is changed (`installing/config_files.py`) or what hosts say (`hosts.py`).

- The command of a hook stays the same over releases: Codex asks its user for new trust otherwise.
- No key is written: the command names an agent, whose profile holds the key.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memrelay.coding.hosts import HOSTS, Host
from memrelay.installing.config_files import Change
from memrelay.installing.documents import Document
from memrelay.installing.errors import Steps


@dataclass(frozen=True, kw_only=True)
class HostFiles:
    """Where a host looks; `client` is its name among MCP clients, and that of its agent.

    `folder` is in the home folder. `moved_by` is the variable that moves it, or the home folder of
    it if it `moves_home`. `project_hooks` is the file in a project that is this user's.
    """

    client: str
    folder: str
    moved_by: str
    hooks: str
    project_hooks: str
    moves_home: bool = False

    def home(self, environ: Mapping[str, str]) -> Path:
        """Return the host's folder for this user."""
        home = Path(environ.get("HOME") or Path.home())
        if moved := environ.get(self.moved_by):
            return Path(moved) / self.folder if self.moves_home else Path(moved)
        return home / self.folder

    def hooks_path(self, environ: Mapping[str, str], project: Path | None) -> Path:
        """Return the file with the hooks, of the user or in a project."""
        return project / self.project_hooks if project else self.home(environ) / self.hooks

    def skill_path(self, environ: Mapping[str, str]) -> Path:
        """Return the file of the skill."""
        return self.home(environ) / "skills" / "memrelay" / "SKILL.md"


FILES: Final[Mapping[str, HostFiles]] = {
    "claude": HostFiles(
        client="claude-code",
        folder=".claude",
        moved_by="CLAUDE_CONFIG_DIR",
        hooks="settings.json",
        project_hooks=".claude/settings.local.json",
    ),
    "codex": HostFiles(
        client="codex",
        folder=".codex",
        moved_by="CODEX_HOME",
        hooks="hooks.json",
        project_hooks=".codex/hooks.json",
    ),
    "gemini": HostFiles(
        client="gemini",
        folder=".gemini",
        moved_by="GEMINI_CLI_HOME",
        hooks="settings.json",
        project_hooks=".gemini/settings.json",
        moves_home=True,
    ),
}


def hook_changes(
    host: Host, program: Sequence[str], agent: str, profile: Path | None
) -> list[Change]:
    """Return the changes that make a host run the hooks, an element of a list for each event."""
    changes = []
    for event, told in host.events.items():
        command = hook_command(host, event, program, agent, profile)
        handler = {"type": "command", "command": command, "timeout": told.timeout}
        changes.append(
            Change(path=("hooks", told.name), value={"hooks": [handler]}, is_element=True)
        )
    return changes


def hook_command(
    host: Host, event: str, program: Sequence[str], agent: str, profile: Path | None
) -> str:
    """Return the shell's line for an event.

    Gemini waits for all that holds a hook's output, so that no shell must stay in between.
    """
    words = [*program, "hook", event, "--host", host.name, "--agent", agent]
    line = shlex.join([*words, *(["--profile", str(profile)] if profile else [])])
    return f"exec {line}" if host.name == "gemini" else line


def find_commands(host: Host, document: Document) -> dict[str, list[str]]:
    """Return our commands that stand in a file, by event."""
    found: dict[str, list[str]] = {}
    for event, command, _ in _find_handlers(host, document):
        found.setdefault(event, []).append(command)
    return found


def find_strays(host: Host, document: Document, own: Sequence[Change]) -> list[Steps]:
    """Return the paths of our hooks in a file that none of our changes has made, in order.

    They come with a file from another machine, or from a profile that is gone. Each would run
    beside those of an install, so that a turn would be kept twice.
    """
    values = [(change.path, change.value) for change in own]
    strays = list[Steps]()
    for _, _, path in _find_handlers(host, document):
        group = path[:3]
        if (group[:2], document.get(group)) in values:
            continue
        # A group that runs nothing is a fault to some hosts.
        strays.append(path if len(document.get(path[:-1])) > 1 else group)
    return strays


def find_program_of(command: str) -> Path | None:
    """Return the program that a hook's command starts, None if its words cannot be told."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return next((Path(word) for word in words if word != "exec"), None)


def _find_handlers(host: Host, document: Document) -> Iterator[tuple[str, str, Steps]]:
    """Yield the event, the command and the path of each hook of ours."""
    for event, told in host.events.items():
        groups = document.get(("hooks", told.name))
        for number, group in enumerate(groups if isinstance(groups, list) else []):
            handlers = group.get("hooks") if isinstance(group, dict) else None
            for place, handler in enumerate(handlers if isinstance(handlers, list) else []):
                command = handler.get("command") if isinstance(handler, dict) else None
                if isinstance(command, str) and f" hook {event} --host {host.name} " in command:
                    yield event, command, ("hooks", told.name, number, "hooks", place)


assert set(FILES) == set(HOSTS)
