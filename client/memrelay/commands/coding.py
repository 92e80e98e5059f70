"""The commands of coding agents: claude, codex and gemini, each with install, uninstall, status.

It does not own where these look (`coding/host_files.py`, `installing/mcp_clients.py`), or how
their files are changed (`installing/config_files.py`).
"""

import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from memrelay.coding.hosts import HOSTS
from memrelay.coding.memory import choose_projects, chosen_projects
from memrelay.coding.projects import project_of
from memrelay.coding.skill import SKILL
from memrelay.commands.coding_scene import Scene
from memrelay.commands.coding_status import TRUST, status
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import (
    Settings,
    agent_path,
    agents_folder,
    spool_folder,
)
from memrelay.installing.config_files import ConfigFile
from memrelay.installing.program import describe_missing_extra
from memrelay.secure_files import replace_file

_PLAIN: Final = (
    "Recalled memories stand in plain text in {title}'s own session files, as your prompts do."
)


def register(add: Adder) -> None:
    """Add the groups claude, codex and gemini."""
    for host in HOSTS.values():
        group = add.group(host.name, f"The memory of {host.title} on this machine.")
        for name, command in (("install", install), ("uninstall", uninstall), ("status", status)):
            parser = group(name, command, namespace=False, agent=False)
            parser.set_defaults(host=host.name)
            _add_options(parser, name)


def _add_options(parser: ArgumentParser, command: str) -> None:
    parser.add_argument(
        "--agent", metavar="NAME", help="whose key to use (one that is called like the program)"
    )
    parser.add_argument(
        "--project",
        nargs="?",
        const=".",
        metavar="FOLDER",
        help="give the project of this folder a namespace of its own",
    )
    if command != "status":
        parser.add_argument("--dry-run", action="store_true", help="only tell what would change")
    if command == "install":
        parser.add_argument(
            "--shared",
            action="append",
            metavar="NAMESPACE",
            help="the agent holds this one, too; may be repeated",
        )


def install(shell: Shell) -> None:
    """Remember for this coding agent: its hooks, its tools, a skill, and a key of its own."""
    scene, dry = Scene(shell), shell.args.dry_run
    project = scene.project
    list(scene.changes())  # what cannot be edited is found before a key is made
    namespace = project_of(project) if project else None
    if not dry:
        _provision(scene, namespace)
    report = []
    with nullcontext() if dry else scene.installations("hooks").lock():
        if project is None:
            report += _end_in_projects(scene, dry=dry)
        for purpose, file, wanted in scene.changes():
            installations = scene.installations(purpose)
            missing = installations.find_missing(file, wanted)
            strays = scene.find_strays(file) if purpose == "hooks" else []
            backup = None
            if (missing or strays) and not dry:
                backup = installations.install(file, wanted, strays)
            changes = [f"{'.'.join(map(str, path))}: take out" for path in strays]
            changes += map(str, missing)
            report.append(_report(purpose, file.path, changes, backup, dry=dry))
    report.append(_install_skill(scene, dry=dry))
    if namespace:
        report.append(_choose(scene, namespace, dry=dry))
    _show(shell, scene, report)
    if dry or shell.args.json:
        return
    warn(_PLAIN.format(title=scene.host.title))
    if extra := describe_missing_extra():
        warn(extra)
    if scene.host.name == "codex":
        warn(TRUST)


def uninstall(shell: Shell) -> None:
    """Take back what install did; what is remembered stays, and the agent's key, too."""
    scene, dry = Scene(shell), shell.args.dry_run
    project = scene.project
    paths = [("hooks", scene.hooks_path(project))]
    if project is None:  # the last one first: two may stand in one file
        paths.insert(0, ("mcp", scene.client.path(shell.environ, sys.platform)))
    report = []
    with nullcontext() if dry else scene.installations("hooks").lock():
        for purpose, path in paths:
            installations = scene.installations(purpose)
            installed = installations.find(path)
            state = "not installed" if installed is None else "would be put back"
            if installed is not None and not dry:
                installations.uninstall(ConfigFile(path, installed.form))
                state = "put back" if path.exists() else "removed"
            report.append({"what": purpose, "file": str(path), "state": state})
    if project is None:
        report.append(_uninstall_skill(scene, dry=dry))
    elif namespace := project_of(project):
        report.append(_choose(scene, namespace, dry=dry, ends=True))
    _show(shell, scene, report)


def _provision(scene: Scene, project: str | None) -> None:
    """Give the agent a key of its own, and that key the namespaces that are asked for."""
    from memrelay.agents.access import Wish  # noqa: PLC0415 - with the whole client
    from memrelay.agents.provision import Agents  # noqa: PLC0415
    from memrelay.commands.new_keys import hand_over  # noqa: PLC0415

    shell = scene.shell
    shared = (*(shell.args.shared or ()), *([project] if project else []))
    if not shared and agent_path(scene.agent, scene.owner, shell.environ).exists():
        return
    folder, spool = (
        agents_folder(scene.owner, shell.environ),
        spool_folder(scene.owner, shell.environ),
    )
    owner = ["--profile", shell.args.profile] if shell.args.profile else []
    settings = Settings.load(shell.args.profile, environ=shell.environ)
    with shell.client(settings) as client:
        agents = Agents(client, folder, owner, partial(hand_over, {spool, folder / spool.name}))
        agents.provision([scene.agent], Wish(shared=shared or None))


def _end_in_projects(scene: Scene, *, dry: bool) -> list[dict[str, Any]]:
    """Take the hooks out of projects' files: those of all folders would be there twice."""
    installations = scene.installations("hooks")
    user = scene.hooks_path(None).resolve()
    report = []
    for one in installations.list_installed():
        if one.path != user and one.path.as_posix().endswith(f"/{scene.files.project_hooks}"):
            if not dry:
                installations.uninstall(ConfigFile(one.path, one.form))
            state = "would be put back" if dry else "put back"
            report.append({"what": "hooks", "file": str(one.path), "state": state})
    return report


def _choose(scene: Scene, namespace: str, *, dry: bool, ends: bool = False) -> dict[str, Any]:
    chosen = chosen_projects(scene.state, scene.agent)
    if (namespace in chosen) != ends:
        state = "not installed" if ends else "kept"
    elif dry:
        state = "would be put back" if ends else "would be changed"
    else:
        others = [name for name in chosen if name != namespace]
        choose_projects(scene.state, scene.agent, others if ends else [*others, namespace])
        state = "put back" if ends else "installed"
    return {"what": "project", "file": namespace, "state": state}


def _install_skill(scene: Scene, *, dry: bool) -> dict[str, Any]:
    path = scene.files.skill_path(scene.shell.environ)
    if path.exists() and path.read_bytes() == SKILL.encode():
        state = "kept"
    elif dry:
        state = "would be changed"
    else:
        replace_file(path, SKILL.encode(), mode=0o644, is_private=False)
        state = "installed"
    return {"what": "skill", "file": str(path), "state": state}


def _uninstall_skill(scene: Scene, *, dry: bool) -> dict[str, Any]:
    path = scene.files.skill_path(scene.shell.environ)
    if not path.exists():
        state = "not installed"
    elif path.read_bytes() != SKILL.encode():
        state = "left: it is not as install wrote it"
    elif dry:
        state = "would be removed"
    else:
        path.unlink()
        for folder in (path.parent, path.parent.parent):
            if not any(folder.iterdir()):
                folder.rmdir()
        state = "removed"
    return {"what": "skill", "file": str(path), "state": state}


def _report(
    purpose: str, path: Path, changes: list[str], backup: Path | None, *, dry: bool
) -> dict[str, Any]:
    state = "kept" if not changes else "would be changed" if dry else "installed"
    return {
        "what": purpose,
        "file": str(path),
        "state": state,
        "changes": changes,
        "backup": None if backup is None else str(backup),
    }


def _show(shell: Shell, scene: Scene, report: list[dict[str, Any]]) -> None:
    lines = []
    for one in report:
        lines.append(f"{one['what']:<8} {one['state']:<18} {one['file']}")
        if one["state"] == "would be changed":
            lines += [f"  {change}" for change in one.get("changes", ())]
        if one.get("backup"):
            lines.append(f"  the file before is {one['backup']}")
    changed = any(one["state"] in {"installed", "put back", "removed"} for one in report)
    if changed:
        lines.append(f"Begin a new session of {scene.host.title}.")
    value = {"host": scene.host.name, "agent": scene.agent, "changes": report}
    shell.show(value, lines)
