"""The command status of a coding agent: what is installed, trusted, and waiting.

It does not own installing (`coding.py`).
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from memrelay.coding.codex_trust import TRUSTED, find_trust
from memrelay.coding.host_files import find_commands, find_program_of
from memrelay.coding.memory import CodingMemory, chosen_projects
from memrelay.coding.projects import project_of
from memrelay.commands.coding_scene import Scene
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import agent_path
from memrelay.errors import ConfigError, MemrelayError
from memrelay.installing.config_files import ConfigFile
from memrelay.installing.program import describe_missing_extra
from memrelay.plurals import format_count

TRUST: Final = (
    "Codex runs no hook that you do not trust, and does not say so: start `codex` once, look at the"
    " hooks and trust them. `memrelay codex status` shows whether you did."
)


def status(shell: Shell) -> None:
    """Show what is installed, whose key it uses, what waits, and how the relayer is."""
    scene = Scene(shell)
    value: dict[str, Any] = {"host": scene.host.name, "agent": scene.agent}
    document = ConfigFile(scene.hooks_path(scene.project), "json").document
    found = find_commands(scene.host, document)
    value["hooks"] = {event: found.get(event, []) for event in scene.host.events}
    client = ConfigFile(scene.client.path(shell.environ, sys.platform), scene.client.form)
    value["mcp"] = scene.client.find_command(client.document)
    value["skill"] = scene.files.skill_path(shell.environ).exists()
    value["projects"] = list(chosen_projects(scene.state, scene.agent))
    value["project"] = project_of(Path.cwd())
    value |= _memory_state(scene)
    if scene.host.name == "codex":
        value["trust"] = _trust(scene)
    shell.show(value, _status_lines(scene, value))


def _memory_state(scene: Scene) -> dict[str, Any]:
    path = agent_path(scene.agent, scene.owner, scene.shell.environ)
    try:
        memory = CodingMemory.load(scene.agent, "", str(scene.owner), scene.shell.environ)
    except ConfigError as error:
        fault = str(error)
        if not path.exists():
            fault = f"no key of its own yet: type `memrelay {scene.host.name} install`"
        return {"profile": None, "fault": fault, "waiting": 0, "outage": None}
    return {
        "profile": str(path),
        "fault": None,
        "waiting": memory.waiting_count,
        "outage": memory.outage.reason,
    }


def _trust(scene: Scene) -> dict[str, str] | None:
    program = shutil.which("codex", path=scene.shell.environ.get("PATH"))
    if program is None:
        warn("The command codex is not on the PATH: whether you trust the hooks is not known.")
        return None
    try:
        return find_trust(program, scene.project or Path.cwd(), scene.shell.environ)
    except MemrelayError as error:
        warn(str(error))
        return None


def _find_agents(value: dict[str, Any]) -> set[str]:
    """Return the agents whose keys the hooks use."""
    commands = [command for found in value["hooks"].values() for command in found]
    names = (re.search(r" --agent ([a-z0-9_-]{1,64})(?: |\Z)", command) for command in commands)
    return {name[1] for name in names if name}


def _find_gone(value: dict[str, Any]) -> list[Path]:
    """Return the programs that hooks and tools name and that are not there any more."""
    commands = [command for found in value["hooks"].values() for command in found]
    programs = {find_program_of(command) for command in commands}
    programs |= {Path(word) for word in (value["mcp"] or ())[:1]}
    absolute = (one for one in programs if one is not None and one.is_absolute())
    return sorted(one for one in absolute if not one.exists())


def _status_lines(scene: Scene, value: dict[str, Any]) -> Iterator[str]:
    command = f"memrelay {scene.host.name} install"
    missing = [event for event, found in value["hooks"].items() if not found]
    twice = [event for event, found in value["hooks"].items() if len(found) > 1]
    gone = _find_gone(value)
    if not missing:
        yield f"hooks    installed in {scene.hooks_path(scene.project)}"
    else:
        yield f"hooks    missing ({', '.join(missing)}): type `{command}`"
    if twice:
        yield f"hooks    there twice ({', '.join(twice)}): type `{command}`"
    for program in gone:
        yield f"program  {program} is gone, and is still named there: type `{command}`"
    yield f"tools    {'installed' if value['mcp'] else f'missing: type `{command}`'}"
    if value["mcp"] and (extra := describe_missing_extra()):
        yield f"extra    {extra}"
    yield f"skill    {'installed' if value['skill'] else f'missing: type `{command}`'}"
    yield f"agent    {value['agent']}, {value['profile'] or value['fault']}"
    for agent in sorted(_find_agents(value) - {value["agent"]}):
        look = f"memrelay {scene.host.name} status --agent {agent}"
        yield f"agent    the hooks use the key of {agent}: `{look}` shows it"
    if value["project"] in value["projects"]:
        yield f"project  this folder's turns are kept in {value['project']}"
    else:
        yield f"project  none: this folder's turns are the agent's; `{command} --project` makes one"
    yield f"waiting  {format_count(value['waiting'], 'turn')}"
    if value["outage"]:
        yield f"relayer  {value['outage']}: `memrelay doctor` says more"
    if (trust := value.get("trust")) is not None:
        ours = [command for found in value["hooks"].values() for command in found]
        untrusted = [one for one in ours if trust.get(one) not in TRUSTED]
        if ours and not untrusted:
            yield "trust    you trust all hooks: Codex runs them"
        elif ours:
            yield f"trust    {len(untrusted)} of {len(ours)} hooks are not trusted. {TRUST}"
