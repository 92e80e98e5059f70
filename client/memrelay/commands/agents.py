"""The commands on agents: provision, enrol, list, rotate, revoke; and what a gateway needs.

It does not own what they do (`agents/`). Only `--for env` and `--show-keys` print a private key;
every other configuration names the profile that holds it.
"""

import json
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memrelay.agents.access import ROLES, Share, Wish
from memrelay.agents.provision import Agent, Agents
from memrelay.answers import rfc3339
from memrelay.commands.admission import add_requests, agree, format_reply, read_given
from memrelay.commands.new_keys import hand_over
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column
from memrelay.commands.times import parse_future
from memrelay.config import (
    VARIABLES,
    Settings,
    agent_name,
    agents_folder,
    expand_home,
    profile_path,
    spool_folder,
)
from memrelay.errors import ConfigError
from memrelay.plurals import format_count
from memrelay.sealed.join_request import JoinRequest
from memrelay.sealed.keys import Identity, mask_key
from memrelay.sync_client import SyncMemoryClient

TARGETS = ("openclaw", "hermes", "mcp", "env", "json")


def register(add: Adder) -> None:
    """Add the commands on agents."""
    agents = add.group("agents", "Give each agent its own keys; see, replace and revoke them.")
    _add_provision(agents("provision", provision, namespace=False, agent=False))
    enrolled = agents("enrol", enrol, namespace=False, agent=False)
    add_requests(enrolled)
    enrolled.add_argument("--name", help="of one agent, if its request has another label")
    _add_wish(enrolled)
    listed = agents("list", list_agents, namespace=False, agent=False)
    listed.add_argument(
        "--count", action="store_true", help="count what each wrote (reads the whole history)"
    )
    _add_folder(listed)
    rotated = agents("rotate", rotate, namespace=False, agent=False)
    rotated.add_argument("name", help="the agent")
    rotated.add_argument(
        "--lost", action="store_true", help="its profile is lost; make its new key here"
    )
    _add_wish(rotated)
    revoked = agents("revoke", revoke, namespace=False, agent=False)
    revoked.add_argument("name", help="the agent")
    _add_folder(revoked)


def _add_provision(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="+", help="the agents: a-z, 0-9, _ and -")
    _add_wish(parser)
    parser.add_argument(
        "--for",
        dest="target",
        choices=TARGETS,
        help="print what to give to this gateway; env holds the private key",
    )
    parser.add_argument("--show-keys", action="store_true", help="private keys in the JSON, too")


def _add_wish(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--shared", action="append", metavar="NAMESPACE", help="holds it, too; may be repeated"
    )
    parser.add_argument("--role", choices=ROLES, help="of a new agent: writer")
    parser.add_argument("--shared-role", choices=ROLES, help="in shared namespaces, if another")
    parser.add_argument(
        "--expires", type=parse_future, metavar="TIME", help='90d, "in 2 weeks", 2026-12-31'
    )
    _add_folder(parser)


def _add_folder(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="FOLDER", help="of the agents' profiles (agents/ beside the owner's)"
    )


def provision(shell: Shell) -> None:
    """Give agents keys of their own, for a namespace each and the shared ones."""
    args = shell.args
    names = list(dict.fromkeys(map(agent_name, args.name)))
    if args.target == "env" and len(names) > 1:
        raise ConfigError("An environment is one agent's: name one for `--for env`.")
    if args.target == "openclaw" and args.out:
        raise ConfigError("OpenClaw's gateway looks beside the owner's profile: leave --out away.")
    if args.show_keys and not (args.json or args.target == "json"):
        raise ConfigError("--show-keys goes with --json or `--for json`.")
    with shell.client() as client:
        done = _agents(shell, client).provision(names, _wish(shell))
    value: dict[str, Any] = {"agents": [_json(agent, show=args.show_keys) for agent in done]}
    if args.target in {None, "json"}:
        lines = [json.dumps(value, indent=2)] if args.target else map(_line, done)
        return shell.show(value, lines)
    configuration = list(_configuration(shell, done))
    if args.target == "env":
        warn("These lines hold the private key.")
    if not args.json:
        for agent in done:
            warn(_line(agent))
    shell.show(value | {"configuration": "\n".join(configuration)}, configuration)


def enrol(shell: Shell) -> None:
    """Let in agents of other machines, by the requests that `memrelay join` made there."""
    args, wish = shell.args, _wish(shell)
    requests = read_given(shell)
    named: dict[str, JoinRequest] = {}
    for request in requests:
        name = _name_of(request, args.name if len(requests) == 1 else None)
        if name in named:
            raise ConfigError(f"Two requests are called {name}: enrol them apart, with --name.")
        named[name] = request
    if args.name and len(requests) > 1:
        raise ConfigError("--name is for one request; several go by their labels.")
    with shell.client() as client:
        agents = _agents(shell, client)
        plans = [plan for plan in agents.plan_enrolments(named, wish) if plan.lacking]
        agree(
            shell,
            [
                f"{plan.request} would be the agent {plan.name}: {_format_shares(plan.lacking)}"
                for plan in plans
            ],
        )
        done = agents.enrol(named, wish)
        account = client.settings.account_id
    value = {"agents": [agent.to_json() for agent in done], "account_id": account}
    shell.show(value, [*map(_line, done), format_reply(account)])


def _name_of(request: JoinRequest, given: str | None) -> str:
    try:
        return agent_name(given or request.label)
    except ConfigError as error:
        raise ConfigError(f"{request} is called {request.label}. {error}") from None


def list_agents(shell: Shell) -> None:
    """Show the agents of the account, also those whose key has ended."""
    with shell.client() as client:
        found = _agents(shell, client).list_agents(warn=warn, count=shell.args.count)
    value = {"agents": [agent.to_json() for agent in found]}
    shell.show_table(value, _COLUMNS, [*map(_row, found)])


_COLUMNS = (
    Column("AGENT"),
    Column("KEY", rank=3),
    Column("STATE"),
    Column("HOLDS", is_text=True),
    Column("WROTE", rank=1),
    Column("PROFILE", rank=2),
)


def rotate(shell: Shell) -> None:
    """Give an agent a new key that holds the same, or what is asked; the old one is revoked."""
    with shell.client() as client:
        agents = _agents(shell, client)
        agent = agents.rotate(shell.args.name, _wish(shell), is_lost=shell.args.lost)
    shell.show(agent.to_json(), [_line(agent)])


def revoke(shell: Shell) -> None:
    """Withdraw an agent's key and delete its profile."""
    with shell.client() as client:
        agent = _agents(shell, client).revoke(shell.args.name)
    shell.show(
        agent.to_json(), [_line(agent), "It still opens copies of what it could read before."]
    )


def _hand_over(shell: Shell, old: Identity, new: Identity) -> None:
    # A gateway of all agents has one beside the owner's profile, an agent's own beside that one's.
    beside = spool_folder(shell.args.profile, shell.environ)
    prompts = beside.with_name("hooks") / "prompts"  # of coding agents, under way at this moment
    hand_over({beside, _folder(shell) / beside.name, prompts}, old, new)


def _agents(shell: Shell, client: SyncMemoryClient) -> Agents:
    given = (("--out", shell.args.out), ("--profile", shell.args.profile))
    options = [word for name, value in given if value for word in (name, value)]
    return Agents(client, _folder(shell), options, partial(_hand_over, shell))


def _folder(shell: Shell) -> Path:
    if shell.args.out:
        return expand_home(shell.args.out)
    return agents_folder(shell.args.profile, shell.environ)


def _wish(shell: Shell) -> Wish:
    args = shell.args
    shared = None if args.shared is None else tuple(args.shared)
    ends = None if args.expires is None else args.expires.time.replace(microsecond=0)
    return Wish(shared=shared, role=args.role, shared_role=args.shared_role, expires_at=ends)


def _line(agent: Agent) -> str:
    return "  ".join(filter(None, _row(agent)))


def _row(agent: Agent) -> Sequence[str]:
    written = "" if agent.written is None else format_count(agent.written, "memory")
    place = "" if agent.state == "revoked" else agent.profile or "no profile here"
    key = mask_key(agent.public_key)
    return (agent.name, key, agent.state, _format_shares(agent.grants), written, place)


def _format_shares(shares: Sequence[Share]) -> str:
    return "; ".join(
        f"{share.role} of {', '.join(share.namespaces)}"
        + (f" until {rfc3339(share.expires_at)}" if share.expires_at else "")
        for share in shares
    )


def _json(agent: Agent, *, show: bool) -> dict[str, Any]:
    return agent.to_json() | ({"private_key": _settings(agent).private_key} if show else {})


def _settings(agent: Agent) -> Settings:
    return Settings.load(agent.profile, environ={})


def _configuration(shell: Shell, agents: Sequence[Agent]) -> Iterator[str]:
    """Yield the lines that the chosen gateway needs; all but those for `env` hold no key."""
    target = shell.args.target
    if target == "env":
        values = _settings(agents[0]).profile()
        values["allow_insecure"] = "1" if values["allow_insecure"] else None
        for member, variable in VARIABLES.items():
            if values[member] is not None:
                yield f"export {variable}={shlex.quote(values[member])}"
    elif target == "mcp":
        servers = {
            f"memrelay-{agent.name}" if len(agents) > 1 else "memrelay": {
                "command": "memrelay",
                "args": ["mcp", *_choice(shell, agent)],
            }
            for agent in agents
        }
        yield json.dumps({"mcpServers": servers}, indent=2)
    elif target == "hermes":
        yield "# Hermes gets the path of a profile; the key stays there. One agent a Hermes home:"
        for agent in agents:
            yield shlex.join(["memrelay", "hermes", "install", *_choice(shell, agent)])
    else:
        names = ", ".join(agent.name for agent in agents)
        owner = _owner(shell)
        yield f"# The gateway reads the keys in {_folder(shell)}; openclaw.json holds none."
        yield f"# OpenClaw's agents with these ids have them: {names}. First, and left running:"
        yield shlex.join(["memrelay", "gateway", *owner])
        yield "# Then, in another terminal:"
        yield shlex.join(["memrelay", "openclaw", "install", *owner])


def _choice(shell: Shell, agent: Agent) -> list[str]:
    """Return the options that make a command of any environment use an agent's profile."""
    if shell.args.out:
        return ["--profile", str(Path(agent.profile or "").absolute())]
    return ["--agent", agent.name, *_owner(shell)]


def _owner(shell: Shell) -> list[str]:
    path = profile_path(shell.args.profile, shell.environ).absolute()
    return [] if path == profile_path(None, {}) else ["--profile", str(path)]
