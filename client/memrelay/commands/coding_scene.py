"""A coding agent and what a command on it was told: which files, whose key, which project.

It does not own the commands (`coding.py`, `coding_status.py`).
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memrelay.coding.host_files import FILES, HostFiles, find_commands, find_strays, hook_changes
from memrelay.coding.hosts import HOSTS, Host
from memrelay.coding.memory import hooks_folder
from memrelay.commands.shell import Shell
from memrelay.config import agent_name, agent_path, profile_path
from memrelay.errors import ConfigError
from memrelay.installing.config_files import Change, ConfigFile, Installations
from memrelay.installing.errors import Steps
from memrelay.installing.mcp_clients import McpClient, find_client
from memrelay.installing.program import find_program


@dataclass(frozen=True)
class Scene:
    """A coding agent and this command's options."""

    shell: Shell

    @property
    def host(self) -> Host:
        """The host of this command."""
        return HOSTS[self.shell.args.host]

    @property
    def files(self) -> HostFiles:
        """Where the host looks."""
        return FILES[self.host.name]

    @property
    def client(self) -> McpClient:
        """The host as an MCP client."""
        client = find_client(self.files.client)
        assert isinstance(client, McpClient)
        return client

    @property
    def agent(self) -> str:
        """The agent whose key is used."""
        return agent_name(self.shell.args.agent or self.files.client)

    @property
    def owner(self) -> Path:
        """The path of the owner's profile."""
        return profile_path(self.shell.args.profile, self.shell.environ).absolute()

    @property
    def state(self) -> Path:
        """The folder of what hooks keep."""
        return hooks_folder(self.owner, self.shell.environ)

    @property
    def project(self) -> Path | None:
        """The folder of the project that is meant.

        Raises:
            ConfigError: there is no such folder.
        """
        if self.shell.args.project is None:
            return None
        folder = Path(self.shell.args.project).expanduser().absolute()
        if not folder.is_dir():
            raise ConfigError(f"There is no folder {folder}.")
        return folder

    def installations(self, purpose: str) -> Installations:
        """Return what was changed in others' files for a purpose."""
        return Installations(self.owner.parent, purpose)

    def hooks_path(self, project: Path | None) -> Path:
        """Return the file with the hooks, of the user or in a project."""
        return self.files.hooks_path(self.shell.environ, project)

    def has_user_hooks(self) -> bool:
        """Return whether hooks of ours stand in the file for all folders, whoever wrote them."""
        document = ConfigFile(self.hooks_path(None), "json").document
        return bool(find_commands(self.host, document))

    def find_strays(self, file: ConfigFile) -> list[Steps]:
        """Return the paths of our hooks in a file that no install of this profile has made."""
        installed = self.installations("hooks").find(file.path)
        return find_strays(self.host, file.document, installed.changes if installed else ())

    def changes(self) -> Iterator[tuple[str, ConfigFile, list[Change]]]:
        """Yield what is to be in which file, for which purpose; two may be in one file, in turn."""
        environ, program = self.shell.environ, find_program(self.shell.environ)
        project = self.project
        if not (project and self.has_user_hooks()):
            profile = None if self.owner == profile_path(None, {}) else self.owner
            path = self.hooks_path(project)
            file = ConfigFile(path, "json", is_private=project is None)
            yield "hooks", file, hook_changes(self.host, program, self.agent, profile)
        file = ConfigFile(self.client.path(environ, sys.platform), self.client.form)
        own = agent_path(self.agent, self.owner, environ)
        yield (
            "mcp",
            file,
            [self.client.change(file.document, [*program, "mcp", "--profile", str(own)])],
        )
