"""The MCP clients whose configuration file is documented, and those that are set up by hand.

It does not own how a file is changed (`config_files.py`), keys or commands (`commands/`).

- A path begins with `~` or with `{config}`, `{data}` or `{support}`: the folders that the system
  has for settings, for data, and on macOS for both.
- A client that keeps its servers in a database, or says nowhere where they stand, is set up by
  hand: what to paste is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay.installing.config_files import Change
from memrelay.installing.documents import Document, Form

SERVER = "memrelay"
_SERVERS = ("mcpServers",)

Command = Sequence[str]  # a program by its absolute path, and its arguments


def _plain(command: Command) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _typed(command: Command) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _enabled(command: Command) -> dict[str, Any]:
    return {**_plain(command), "disabled": False}


def _typed_enabled(command: Command) -> dict[str, Any]:
    return {**_typed(command), "disabled": False}


def _custom(command: Command) -> dict[str, Any]:
    return {"source": "custom", **_plain(command), "env": {}}


def _local(command: Command) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True}


def _with_all_tools(command: Command) -> dict[str, Any]:
    return {**_typed(command), "tools": ["*"]}


def _active(command: Command) -> dict[str, Any]:
    return {**_plain(command), "env": {}, "active": True}


def _transport(command: Command) -> dict[str, Any]:
    return {**_plain(command), "transport": "stdio"}


def _named(command: Command) -> dict[str, Any]:
    return {"name": SERVER, "transport": "stdio", **_plain(command)}


def _extension(command: Command) -> dict[str, Any]:
    return {
        "name": SERVER,
        "description": "Long-term memory",
        "type": "stdio",
        "cmd": command[0],
        "args": list(command[1:]),
        "envs": {},
        "env_keys": [],
        "enabled": True,
        "timeout": 300,
    }


@dataclass(frozen=True, kw_only=True)
class McpClient:
    """An MCP client: where it looks for its servers, in which form, and who says so.

    `linux` and `macos` are paths of its file for a user; of several, the one that is there counts,
    else the first. `project` is its file in a project. `key` leads to the servers. `entry` makes a
    server's entry. With `is_list` they are a list. `moved_by` is a variable, and the beginning of
    the path that its value replaces. `marker` is a folder that is there if the client is, unless
    that of its file tells. `checked` is the version, or the day of the page, that the fact is of.
    """

    name: str
    title: str
    linux: tuple[str, ...]
    macos: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    key: tuple[str, ...] = _SERVERS
    entry: Callable[[Command], dict[str, Any]] = _plain
    form: Form = "json"
    is_list: bool = False
    moved_by: tuple[str, str] | None = None
    marker: str | None = None
    checked: str
    source: str

    def path(self, environ: Mapping[str, str], platform: str) -> Path:
        """Return the path of the client's file for this user."""
        texts = (self.macos or self.linux) if platform == "darwin" else self.linux
        paths = [Path(_expand(self._move(text, environ), environ)) for text in texts]
        return next((path for path in paths if path.exists()), paths[0])

    def project_path(self, folder: Path) -> Path | None:
        """Return the path of the client's file in a project, None if it has none."""
        paths = [folder / text for text in self.project]
        return next((path for path in paths if path.exists()), paths[0] if paths else None)

    def is_present(self, environ: Mapping[str, str], platform: str) -> bool:
        """Return whether this user has the client, as far as its folders tell."""
        path = self.path(environ, platform)
        if self.marker is not None:
            return path.exists() or Path(_expand(self.marker, environ)).is_dir()
        return path.exists() or path.parent.is_dir()

    def change(self, document: Document, command: Command) -> Change:
        """Return the change that makes a server of a command known to the client."""
        value = self.entry(command)
        if self.is_list:
            return Change(path=self.key, value=value, is_element=True)
        return Change(path=(*self._servers(document), SERVER), value=value, is_own=True)

    def find_command(self, document: Document) -> list[str] | None:
        """Return the command of the server that is there, None if there is no such server."""
        if self.is_list:
            servers = _as_list(document.get(self.key))
            found = next((server for server in servers if _is_ours(server)), None)
        else:
            found = document.get((*self._servers(document), SERVER))
        if not isinstance(found, dict):
            return None
        first = found.get("command", found.get("cmd"))
        command = first if isinstance(first, list) else [first, *_as_list(found.get("args"))]
        return [part for part in command if isinstance(part, str)]

    def _servers(self, document: Document) -> tuple[str, ...]:
        # OpenCode 2 takes both, and one file should not mix them.
        nested = (*self.key, "servers")
        is_nested = self.entry is _local and isinstance(document.get(nested), dict)
        return nested if is_nested else self.key

    def _move(self, text: str, environ: Mapping[str, str]) -> str:
        if self.moved_by is not None and environ.get(self.moved_by[0]):
            variable, beginning = self.moved_by
            return text.replace(beginning, environ[variable], 1)
        return text


@dataclass(frozen=True, kw_only=True)
class ManualClient:
    """A client that is set up by hand: where to paste what `memrelay mcp install` shows."""

    name: str
    title: str
    place: str
    why: str


def _is_ours(server: Any) -> bool:
    return isinstance(server, dict) and server.get("name") == SERVER


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _expand(text: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or str(Path.home())
    folders = {
        "{config}": environ.get("XDG_CONFIG_HOME") or f"{home}/.config",
        "{data}": environ.get("XDG_DATA_HOME") or f"{home}/.local/share",
        "{support}": f"{home}/Library/Application Support",
    }
    for name, folder in folders.items():
        text = text.replace(name, folder)
    return home + text[1:] if text == "~" or text.startswith("~/") else text


_CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_ROO = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"

CLIENTS: tuple[McpClient, ...] = (
    McpClient(
        name="claude-code",
        title="Claude Code",
        linux=("~/.claude.json",),
        project=(".mcp.json",),
        entry=_typed,
        moved_by=("CLAUDE_CONFIG_DIR", "~"),
        marker="~/.claude",
        checked="2.1.332",
        source="seen in a run of `claude mcp add`",
    ),
    McpClient(
        name="claude-desktop",
        title="Claude Desktop",
        linux=("{config}/Claude/claude_desktop_config.json",),
        macos=("{support}/Claude/claude_desktop_config.json",),
        checked="2026-11",
        source="modelcontextprotocol.io/quickstart/user; Linux: github.com/neondatabase/add-mcp",
    ),
    McpClient(
        name="cursor",
        title="Cursor",
        linux=("~/.cursor/mcp.json",),
        project=(".cursor/mcp.json",),
        checked="2026-11",
        source="docs.cursor.com/context/model-context-protocol",
    ),
    McpClient(
        name="vscode",
        title="VS Code",
        linux=("{config}/Code/User/mcp.json",),
        macos=("{support}/Code/User/mcp.json",),
        project=(".vscode/mcp.json",),
        key=("servers",),
        entry=_typed,
        checked="2026-11",
        source="code.visualstudio.com/docs/agents/reference/mcp-configuration",
    ),
    McpClient(
        name="vscode-insiders",
        title="VS Code Insiders",
        linux=("{config}/Code - Insiders/User/mcp.json",),
        macos=("{support}/Code - Insiders/User/mcp.json",),
        project=(".vscode/mcp.json",),
        key=("servers",),
        entry=_typed,
        checked="2026-11",
        source="code.visualstudio.com/docs/agents/reference/mcp-configuration",
    ),
    McpClient(
        name="windsurf",
        title="Windsurf",
        linux=("~/.codeium/windsurf/mcp_config.json",),
        checked="2026-11",
        source="docs.windsurf.com/windsurf/cascade/mcp",
    ),
    McpClient(
        name="zed",
        title="Zed",
        linux=("{config}/zed/settings.json",),
        macos=("~/.config/zed/settings.json",),
        project=(".zed/settings.json",),
        key=("context_servers",),
        entry=_custom,
        checked="2026-11",
        source="github.com/zed-industries/zed, docs/src/ai/mcp.md",
    ),
    McpClient(
        name="gemini",
        title="Gemini CLI",
        linux=("~/.gemini/settings.json",),
        project=(".gemini/settings.json",),
        moved_by=("GEMINI_CLI_HOME", "~"),
        checked="0.61.0",
        source="seen in a run of `gemini mcp add`",
    ),
    McpClient(
        name="codex",
        title="Codex",
        linux=("~/.codex/config.toml",),
        project=(".codex/config.toml",),
        key=("mcp_servers",),
        form="toml",
        moved_by=("CODEX_HOME", "~/.codex"),
        checked="0.171.0",
        source="seen in a run of `codex mcp add`",
    ),
    McpClient(
        name="cline",
        title="Cline in VS Code",
        linux=(f"{{config}}/Code/{_CLINE}",),
        macos=(f"{{support}}/Code/{_CLINE}",),
        entry=_enabled,
        checked="2026-11",
        source="docs.cline.bot/mcp/configuring-mcp-servers",
    ),
    McpClient(
        name="cline-cli",
        title="Cline CLI",
        linux=("~/.cline/data/settings/cline_mcp_settings.json",),
        entry=_enabled,
        marker="~/.cline",
        checked="3.0.65",
        source="docs.cline.bot/mcp/mcp-overview",
    ),
    McpClient(
        name="roo",
        title="Roo Code",
        linux=(f"{{config}}/Code/{_ROO}",),
        macos=(f"{{support}}/Code/{_ROO}",),
        project=(".roo/mcp.json",),
        entry=_enabled,
        checked="2026-11",
        source="github.com/RooCodeInc/Roo-Code-Docs, docs/features/mcp/using-mcp-in-roo.mdx",
    ),
    McpClient(
        name="kilo",
        title="Kilo Code",
        linux=("{config}/kilo/kilo.jsonc", "{config}/kilo/kilo.json"),
        macos=("~/.config/kilo/kilo.jsonc", "~/.config/kilo/kilo.json"),
        project=("kilo.jsonc", "kilo.json", ".kilo/kilo.jsonc", ".kilo/kilo.json"),
        key=("mcp",),
        entry=_local,
        checked="7.8.1",
        source="github.com/Kilo-Org/kilocode, packages/kilo-docs/pages/automate/mcp",
    ),
    McpClient(
        name="continue",
        title="Continue",
        linux=("~/.continue/mcpServers/memrelay.json",),
        project=(".continue/mcpServers/memrelay.json",),
        marker="~/.continue",
        checked="1.5.47",
        source="docs.continue.dev/customize/deep-dives/mcp",
    ),
    McpClient(
        name="goose",
        title="Goose",
        linux=("{config}/goose/config.yaml",),
        macos=("~/.config/goose/config.yaml",),
        key=("extensions",),
        entry=_extension,
        form="yaml",
        checked="2026-11",
        source="github.com/block/goose, documentation/docs/guides/config-files.md",
    ),
    McpClient(
        name="lm-studio",
        title="LM Studio",
        linux=("~/.lmstudio/mcp.json",),
        checked="0.3.17",
        source="lmstudio.ai/docs/app/mcp",
    ),
    McpClient(
        name="jan",
        title="Jan",
        linux=("{data}/Jan/data/mcp_config.json",),
        macos=("{support}/Jan/data/mcp_config.json",),
        entry=_active,
        checked="2026-11",
        source="github.com/janhq/jan, src-tauri/src/core/mcp/constants.rs",
    ),
    McpClient(
        name="opencode",
        title="OpenCode",
        linux=("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
        macos=("~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
        project=("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
        key=("mcp",),
        entry=_local,
        checked="1.18.33",
        source="opencode.ai/docs/config, opencode.ai/docs/migrate-v1",
    ),
    McpClient(
        name="kiro",
        title="Kiro",
        linux=("~/.kiro/settings/mcp.json",),
        project=(".kiro/settings/mcp.json",),
        entry=_enabled,
        marker="~/.kiro",
        checked="2026-11",
        source="kiro.dev/docs/mcp/configuration",
    ),
    McpClient(
        name="amp",
        title="Amp",
        linux=("~/.config/amp/settings.json", "~/.config/amp/settings.jsonc"),
        project=(".amp/settings.json", ".amp/settings.jsonc"),
        key=("amp.mcpServers",),
        checked="2026-11",
        source="ampcode.com/manual",
    ),
    McpClient(
        name="junie",
        title="JetBrains Junie",
        linux=("~/.junie/mcp/mcp.json",),
        project=(".junie/mcp/mcp.json",),
        marker="~/.junie",
        checked="2026-11",
        source="jetbrains.com/help/junie/model-context-protocol-mcp.html",
    ),
    McpClient(
        name="copilot-jetbrains",
        title="GitHub Copilot in JetBrains IDEs",
        linux=("~/.config/github-copilot/intellij/mcp.json",),
        key=("servers",),
        entry=_typed,
        checked="2026-11",
        source="github.com/laravel/boost, which writes it",
    ),
    McpClient(
        name="copilot-cli",
        title="GitHub Copilot CLI",
        linux=("~/.copilot/mcp-config.json",),
        entry=_with_all_tools,
        moved_by=("COPILOT_HOME", "~/.copilot"),
        checked="1.0.102",
        source="docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
    ),
    McpClient(
        name="warp",
        title="Warp",
        linux=("~/.warp/.mcp.json",),
        project=(".warp/.mcp.json",),
        checked="2026-08",
        source="github.com/warpdotdev/warp, the skill agent-add-mcp",
    ),
    McpClient(
        name="qwen-code",
        title="Qwen Code",
        linux=("~/.qwen/settings.json",),
        project=(".qwen/settings.json",),
        checked="0.24.4",
        source="qwenlm.github.io/qwen-code-docs/en/users/features/mcp",
    ),
    McpClient(
        name="kimi-code",
        title="Kimi Code",
        linux=("~/.kimi-code/mcp.json",),
        project=(".kimi-code/mcp.json",),
        moved_by=("KIMI_CODE_HOME", "~/.kimi-code"),
        checked="2026-11",
        source="moonshotai.github.io/kimi-code/zh/customization/mcp",
    ),
    McpClient(
        name="crush",
        title="Crush",
        linux=("{config}/crush/crush.json",),
        macos=("~/.config/crush/crush.json",),
        project=(".crush.json", "crush.json"),
        key=("mcp",),
        entry=_typed,
        checked="0.96.1",
        source="github.com/charmbracelet/crush, README.md",
    ),
    McpClient(
        name="factory-droid",
        title="Factory Droid",
        linux=("~/.factory/mcp.json",),
        project=(".factory/mcp.json",),
        entry=_typed_enabled,
        checked="0.215.0",
        source="docs.factory.ai/cli/configuration/mcp",
    ),
    McpClient(
        name="auggie",
        title="Auggie",
        linux=("~/.augment/settings.json",),
        checked="0.36.0",
        source="docs.augmentcode.com/cli/integrations",
    ),
    McpClient(
        name="rovo-dev",
        title="Rovo Dev CLI",
        linux=("~/.rovodev/mcp.json",),
        entry=_transport,
        checked="2026-11",
        source="support.atlassian.com/rovo/docs/connect-to-an-mcp-server-in-rovo-dev-cli",
    ),
    McpClient(
        name="mistral-vibe",
        title="Mistral Vibe",
        linux=("~/.vibe/config.toml",),
        project=(".vibe/config.toml",),
        key=("mcp_servers",),
        entry=_named,
        form="toml",
        is_list=True,
        checked="3.0.3",
        source="docs.mistral.ai/vibe/code/cli/mcp-servers",
    ),
)

MANUAL: tuple[ManualClient, ...] = (
    ManualClient(
        name="cherry-studio",
        title="Cherry Studio",
        place="Settings, MCP Servers, Add, Import from JSON",
        why="its servers stand in a database",
    ),
    ManualClient(
        name="jetbrains-ai",
        title="JetBrains AI Assistant",
        place="Settings, Tools, AI Assistant, Model Context Protocol, Add, As JSON",
        why="the IDE keeps them in settings of its own",
    ),
    ManualClient(
        name="antigravity",
        title="Antigravity",
        place="MCP Servers, Manage MCP Servers, View raw config",
        why="its releases differ in where the file is",
    ),
    ManualClient(
        name="trae",
        title="Trae",
        place="Settings, MCP, Add, Add manually",
        why="its pages name no file",
    ),
    ManualClient(
        name="anythingllm",
        title="AnythingLLM",
        place="plugins/anythingllm_mcp_servers.json in its storage folder",
        why="the folder is chosen at installation",
    ),
)


ALL: Mapping[str, McpClient | ManualClient] = {one.name: one for one in CLIENTS} | {
    one.name: one for one in MANUAL
}


def find_client(name: str) -> McpClient | ManualClient | None:
    """Return the client of a name, None if there is none."""
    return ALL.get(name)


def render_table() -> str:
    """Return the clients as a table of a page."""
    lines = ["| client | name | file, in a project | checked | source |", "|---|---|---|---|---|"]
    for client in CLIENTS:
        places = [_for_page(paths[0]) for paths in (client.linux, client.macos) if paths]
        if len(places) == 2:
            places = places[:1] if places[0] == places[1] else [places[0], f"macOS {places[1]}"]
        project = [f"project `{client.project[0]}`"] if client.project else []
        lines.append(
            f"| {client.title} | `{client.name}` | {', '.join([*places, *project])} "
            f"| {client.checked} | {client.source} |"
        )
    return "\n".join(lines)


def render_manual_table() -> str:
    """Return the clients that are set up by hand as a table of a page."""
    lines = ["| client | name | where to paste | why |", "|---|---|---|---|"]
    lines += [f"| {c.title} | `{c.name}` | {c.place} | {c.why} |" for c in MANUAL]
    return "\n".join(lines)


def _for_page(path: str) -> str:
    shown = {"{config}": "~/.config", "{data}": "~/.local/share"}
    for name, folder in {**shown, "{support}": "~/Library/Application Support"}.items():
        path = path.replace(name, folder)
    return f"`{path}`"
