"""The commands on agents: provision, enrol, list, rotate, revoke; and what a gateway needs.

It does not own what they do (`agents/`). Only `--for env` and `--show-keys` print a private key;
every other configuration names the profile that holds it.
"""

import json
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from memrelay.agents.access import ROLES, Share, Wish
from memrelay.agents.agent_list import ELSEWHERE, Agent, find_names, list_agents
from memrelay.agents.enrolment import Enrolment
from memrelay.agents.provision import Agents
from memrelay.commands.admission import add_requests, agree, format_reply, read_given
from memrelay.commands.agent_names import (
    add_names,
    add_trial,
    read_words,
    tell_progress,
)
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
from memrelay.errors import ConfigError, MemrelayError
from memrelay.local_time import when
from memrelay.plurals import format_count
from memrelay.sealed.join_request import JoinRequest
from memrelay.sealed.keys import Identity, mask_key

TARGETS = ("openclaw", "hermes", "mcp", "env", "json")
_DEADLINE_S = 150.0


def register(add: Adder) -> None:
    """Add the commands on agents."""
    agents = add.group("agents", "Give each agent its own keys; see, replace and revoke them.")
    _add_provision(agents("provision", provision, namespace=False, agent=False))
    enrolled = agents("enrol", enrol, namespace=False, agent=False)
    add_requests(enrolled)
    enrolled.add_argument("--name", help="of one agent, if its request has another label")
    enrolled.add_argument(
        "--replace", action="store_true", help="end the agents' earlier keys with that"
    )
    _add_wish(enrolled)
    listed = agents("list", list_all, namespace=False, agent=False)
    add_names(listed)
    listed.add_argument(
        "--count", action="store_true", help="count what each wrote (reads the whole history)"
    )
    _add_folder(listed)
    rotated = agents("rotate", rotate, namespace=False, agent=False)
    add_names(rotated)
    rotated.add_argument(
        "--lost", action="store_true", help="profiles are lost; make the new keys here"
    )
    _add_wish(rotated)
    revoked = agents("revoke", revoke, namespace=False, agent=False)
    add_names(revoked)
    add_trial(revoked)
    _add_folder(revoked)


def _add_provision(parser: ArgumentParser) -> None:
    add_names(parser)
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
    parser.add_argument(
        "--also",
        action="append",
        metavar="NAMESPACE[=ROLE]",
        help="one more, beside what is shared; may be repeated",
    )
    parser.add_argument("--role", choices=ROLES, help="of a new agent: writer")
    parser.add_argument("--shared-role", choices=ROLES, help="in shared namespaces, if another")
    parser.add_argument(
        "--expires", type=parse_future, metavar="TIME", help='90d, "in 2 weeks", 2026-12-31'
    )
    add_trial(parser)
    _add_folder(parser)


def _add_folder(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="FOLDER", help="of the agents' profiles (agents/ beside the owner's)"
    )


def provision(shell: Shell) -> None:
    """Give agents keys of their own, for a namespace each and the shared ones."""
    args = shell.args
    if args.target == "openclaw" and args.out:
        raise ConfigError("OpenClaw's gateway looks beside the owner's profile: leave --out away.")
    if args.show_keys and not (args.json or args.target == "json"):
        raise ConfigError("--show-keys goes with --json or `--for json`.")
    if args.dry_run and (args.target or args.show_keys):
        raise ConfigError("--dry-run makes no keys that --for or --show-keys could print.")
    words = read_words(shell)
    with _administer(shell) as agents, tell_progress("provisioned") as note:
        names = find_names(agents.account, words, states=("active", "expired"))
        if args.target == "env" and len(names) > 1:
            raise ConfigError("An environment is one agent's: name one for `--for env`.")
        done = agents.provision(names, _wish(shell), is_trial=args.dry_run, note=note)
    if args.target is None:
        return _show(shell, done, show_keys=args.show_keys)
    value: dict[str, Any] = {"agents": [_json(agent, show=args.show_keys) for agent in done]}
    if args.target == "json":
        return shell.show(value, [json.dumps(value, indent=2)])
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
    with _administer(shell) as agents, tell_progress("enrolled") as note:
        plans = agents.plan_enrolments(named, wish, is_replacing=args.replace)
        lines = [_describe(plan) for plan in plans if not plan.is_done]
        if args.dry_run:
            value = {"agents": [_plan_json(plan) for plan in plans], "dry_run": True}
            return shell.show(value, lines or ["nothing would be granted"])
        agree(shell, lines)
        done = agents.enrol(named, wish, is_replacing=args.replace, note=note)
        account = agents.account.client.settings.account_id
    found = {"agents": [agent.to_json() for agent in done], "account_id": account}
    shell.show(found, [*map(_line, done), format_reply(account)])


def _describe(plan: Enrolment) -> str:
    grants = _format_shares(plan.lacking) or "nothing more"
    ends = ", ".join(map(mask_key, plan.replaces))
    end = f"; its key {ends} would end" if ends else ""
    return f"{plan.request} would be the agent {plan.name}: {grants}{end}"


def _plan_json(plan: Enrolment) -> dict[str, Any]:
    agent = Agent(
        name=plan.name,
        state=plan.state,
        public_key=plan.request.recipient.hex(),
        grants=plan.lacking,
    )
    return agent.to_json() | {"replaces": list(plan.replaces)}


def _name_of(request: JoinRequest, given: str | None) -> str:
    try:
        return agent_name(given or request.label)
    except ConfigError as error:
        raise ConfigError(f"{request} is called {request.label}. {error}") from None


def list_all(shell: Shell) -> None:
    """Show the agents of the account, also those whose key has ended."""
    words = read_words(shell, is_optional=True)
    with _administer(shell) as agents:
        found = list_agents(agents.account, words, warn=warn, count=shell.args.count)
    value = {"agents": [agent.to_json() for agent in found]}
    shell.show_table(value, _COLUMNS, [*map(_list_row, found)])
    if not found and not shell.args.json:
        warn("No agent fits." if words else f"No agents yet: {_FIRST} makes one.")


_FIRST = "`memrelay agents provision NAME`"
_COLUMNS = (
    Column("AGENT"),
    Column("KEY", rank=3),
    Column("STATE"),
    Column("HOLDS", is_text=True),
    Column("WROTE", rank=1),
    Column("USED", rank=2),
    Column("PROFILE", rank=4),
)


def rotate(shell: Shell) -> None:
    """Give agents new keys that hold the same, or what is asked; the old ones are revoked."""
    args = shell.args
    words = read_words(shell)
    with _administer(shell) as agents, tell_progress("rotated") as note:
        names = find_names(agents.account, words, states=("active",))
        done = agents.rotate(
            names, _wish(shell), is_lost=args.lost, is_trial=args.dry_run, note=note
        )
        elsewhere = [agent.name for agent in done if agent.state == ELSEWHERE]
        advice = agents.describe_elsewhere(elsewhere)
    _show(shell, done)
    if elsewhere:
        raise MemrelayError(advice)


def revoke(shell: Shell) -> None:
    """Withdraw agents' keys and delete their profiles."""
    args = shell.args
    words = read_words(shell)
    with _administer(shell) as agents, tell_progress("revoked") as note:
        names = find_names(agents.account, words, states=("active", "expired"))
        done = agents.revoke(names, is_trial=args.dry_run, note=note)
    more = [] if args.dry_run else ["It still opens copies of what it could read before."]
    if len(done) > 1 and more:
        more = ["They still open copies of what they could read before."]
    _show(shell, done, more=more)


def _show(
    shell: Shell, agents: Sequence[Agent], *, show_keys: bool = False, more: Sequence[str] = ()
) -> None:
    is_trial = shell.args.dry_run
    value: dict[str, Any] = {"agents": [_json(agent, show=show_keys) for agent in agents]}
    value |= {"dry_run": True} if is_trial else {}
    lines = [_line(_as_trial(agent) if is_trial else agent) for agent in agents]
    shell.show(value, [*lines, *more])


def _as_trial(agent: Agent) -> Agent:
    if agent.state in {"kept", ELSEWHERE}:
        return agent
    return replace(agent, state=f"would be {agent.state}")


def _hand_over(shell: Shell, old: Identity, new: Identity) -> None:
    # A gateway of all agents has one beside the owner's profile, an agent's own beside that one's.
    beside = spool_folder(shell.args.profile, shell.environ)
    prompts = beside.with_name("hooks") / "prompts"  # of coding agents, under way at this moment
    hand_over({beside, _folder(shell) / beside.name, prompts}, old, new)


@contextmanager
def _administer(shell: Shell) -> Iterator[Agents]:
    given = (("--out", shell.args.out), ("--profile", shell.args.profile))
    options = [word for name, value in given if value for word in (name, value)]
    # A relayer bounds the requests of a minute: many agents wait for the next one.
    with shell.client(deadline_s=_DEADLINE_S) as client:
        yield Agents(client, _folder(shell), options, partial(_hand_over, shell))


def _folder(shell: Shell) -> Path:
    if shell.args.out:
        return expand_home(shell.args.out)
    return agents_folder(shell.args.profile, shell.environ)


def _wish(shell: Shell) -> Wish:
    args = shell.args
    shared = None if args.shared is None else tuple(args.shared)
    ends = None if args.expires is None else args.expires.time.replace(microsecond=0)
    return Wish(
        shared=shared,
        role=args.role,
        shared_role=args.shared_role,
        expires_at=ends,
        also=tuple(map(_parse_also, args.also or ())),
    )


def _parse_also(text: str) -> tuple[str, str | None]:
    name, _, role = text.rpartition("=")
    return (name, role) if name and role in ROLES else (text, None)


def _line(agent: Agent) -> str:
    return "  ".join(filter(None, _row(agent)))


def _row(agent: Agent) -> Sequence[str]:
    written = "" if agent.written is None else format_count(agent.written, "memory")
    has_none = agent.state == "revoked" or agent.state.startswith("would be")
    place = agent.profile or ("" if has_none else "no profile here")
    key = "" if agent.public_key is None else mask_key(agent.public_key)
    return (agent.name, key, agent.state, _format_shares(agent.grants), written, place)


def _list_row(agent: Agent) -> Sequence[str]:
    *told, place = _row(agent)
    return (*told, when(agent.last_used_at) or "-", place)


def _format_shares(shares: Sequence[Share]) -> str:
    return "; ".join(
        f"{share.role} of {', '.join(share.namespaces)}"
        + (f" until {when(share.expires_at)}" if share.expires_at else "")
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
