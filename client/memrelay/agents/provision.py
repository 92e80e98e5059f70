"""Agents' own keys: given, extended, replaced, taken back.

It does not own what an agent shall hold (`access.py`), its files (`storage.py`), keys that are made
elsewhere (`enrolment.py`), single grants (`account.py`), lists (`agent_list.py`), or arguments and
printing (`commands/agents.py`).

- Of several agents, all are judged before anything is done for one.
- A new key is on disk before the relayer hears of it, with all that is to be done for it. Whoever
  comes next finishes that first, so a crash at any point neither doubles nor loses a key.
- One process at a time makes, replaces or takes back the keys in a folder.
- A key that was revoked is never granted anything again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memrelay.agents.access import (
    Holdings,
    Wish,
    apply_wish,
    find_excess,
    find_missing,
    home_of,
    shares_of,
)
from memrelay.agents.account import AgentAccount, make_not_found
from memrelay.agents.agent_list import ELSEWHERE, Agent, unify
from memrelay.agents.enrolment import Enrolment, list_keys, plan_enrolment
from memrelay.agents.storage import AgentFiles, Plan
from memrelay.config import Settings, agent_name
from memrelay.errors import MemrelayError
from memrelay.sealed.join_request import JoinRequest
from memrelay.sealed.keys import Identity
from memrelay.sync_client import SyncMemoryClient

HandOver = Callable[[Identity, Identity], None]
Note = Callable[[int, int], None]  # is told how many agents are done, and of how many


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The needs of one agent: how it stands afterwards, and what does that (None: nothing).

    `replaces` is the key that a rotation ends.
    """

    agent: Agent
    act: Callable[[], Agent] | None = None
    replaces: str | None = None


def _ignore(done: int, of: int) -> None:
    """Tell nobody."""


class Agents:
    """The agents of one account, administered with an owner's key; profiles lie in `folder`.

    `options` are those of a command line that gets there, for the commands that messages name.
    `hand_over` is given an agent's replaced key and its new one once that works alone, and again
    after a crash. What changes agents only tells how they would stand if `is_trial`.
    """

    def __init__(
        self,
        client: SyncMemoryClient,
        folder: Path,
        options: Sequence[str] = (),
        hand_over: HandOver = lambda old, new: None,
    ) -> None:
        self._client = client
        self._files = AgentFiles(folder, client.settings.account_id)
        self._account = AgentAccount(client, self._files, options)
        self._hand_over = hand_over

    def provision(
        self, names: Sequence[str], wish: Wish, *, is_trial: bool = False, note: Note = _ignore
    ) -> list[Agent]:
        """Return agents that have a key of their own each and hold what is wished.

        Raises:
            ConfigError: an agent's own namespace would be shared by that.
            MemrelayError: one holds more than is wished, or its profile is lost.
        """
        names = unify(names)
        self._account.check_names(names, wish.namespaces)
        judge = partial(self._judge_provision, wish=wish)
        return self._carry_out_all(names, judge, is_trial=is_trial, note=note)

    def _judge_provision(self, name: str, *, wish: Wish) -> _Step:
        if (plan := self._find_plan(name)) is not None:
            return self._continue(name, plan, partial(self._judge_provision, wish=wish))
        account, settings = self._account, self._files.settings(name)
        if settings is None or account.ledger.is_revoked(settings.identity.public_key):
            account.check_new(name)
            want = apply_wish(name, wish, {})
            return _Step(
                agent=Agent(name=name, state="created", public_key=None, grants=shares_of(want)),
                act=lambda: self._begin(name, self._plan(name, want, settings)),
            )
        held = account.sum_grants(name, settings.public_key)
        want = apply_wish(name, wish, held)
        if too_much := find_excess(held, want):
            raise MemrelayError(
                f"{name} holds more than that in {', '.join(too_much)}. Only a new key can hold "
                f"less: {account.command('rotate', name)} with the same options."
            )
        lacking = find_missing(held, want)
        state = "extended" if lacking else "kept"
        agent = self._agent(name, state, settings, held | lacking)
        return _Step(agent=agent, act=partial(self._extend, agent, settings, lacking))

    def _extend(self, agent: Agent, settings: Settings, lacking: Holdings) -> Agent:
        for share in shares_of(lacking):
            self._account.grant(agent.name, settings, share)
        return agent

    def rotate(
        self,
        names: Sequence[str],
        wish: Wish,
        *,
        is_lost: bool = False,
        is_trial: bool = False,
        note: Note = _ignore,
    ) -> list[Agent]:
        """Return agents with new keys that hold the same, or what is wished; the old ones end.

        An agent without a profile here may run elsewhere, so `is_lost` has to say that it does not.
        Of several, those are left as they are (`ELSEWHERE`). Several that were interrupted go on
        where they stopped.

        Raises:
            NotFound: there is no such agent.
            MemrelayError: one holds nothing any more, several keys have its name, or a single one's
                profile is not here.
        """
        names = unify(names)
        begun: dict[str, str] = {}
        is_one = len(names) == 1

        def judge(name: str) -> _Step:
            step = self._judge_rotation(name, wish, is_lost=is_lost, begun=begun)
            if is_one and step.agent.state == ELSEWHERE:
                raise MemrelayError(self.describe_elsewhere(names))
            return step

        if is_one:
            return self._carry_out_all(names, judge, is_trial=is_trial, note=note)

        def begin(steps: Sequence[_Step]) -> None:
            replaces = {step.agent.name: step.replaces for step in steps if step.replaces}
            self._files.begin_rotation(replaces | begun)

        begun |= self._files.begun_rotation()
        done = self._carry_out_all(names, judge, is_trial=is_trial, note=note, begin=begin)
        if not is_trial:
            self._files.finish_rotation(names)
        return done

    def _judge_rotation(
        self, name: str, wish: Wish, *, is_lost: bool, begun: Mapping[str, str]
    ) -> _Step:
        def judge(name: str) -> _Step:
            return self._judge_rotation(name, wish, is_lost=is_lost, begun=begun)

        if (plan := self._find_plan(name)) is not None:
            return self._continue(name, plan, None if wish == Wish() else judge)
        account, settings = self._account, self._files.settings(name)
        old = settings.public_key if settings else account.find_only_holder(name)
        held = account.sum_grants(name, old)
        # A relayer's labels are not to be trusted with another agent's namespaces.
        if home_of(name) not in held:
            raise MemrelayError(
                f"{name} holds nothing any more; {account.command('provision', name)} grants it "
                "anew."
            )
        if settings is None and not is_lost:
            agent = Agent(name=name, state=ELSEWHERE, public_key=old, grants=shares_of(held))
            return _Step(agent=agent)
        want = apply_wish(name, wish, held)
        is_as_wished = not find_excess(held, want) and not find_missing(held, want)
        if settings and begun.get(name, old) != old and is_as_wished:
            # The interrupted run did it.
            return _Step(agent=self._agent(name, "rotated", settings, held))
        return _Step(
            agent=Agent(name=name, state="rotated", public_key=old, grants=shares_of(want)),
            act=lambda: self._begin(name, self._plan(name, want, settings, replaces=old)),
            replaces=old,
        )

    def describe_elsewhere(self, names: Sequence[str]) -> str:
        """Return what a person can do about agents that a rotation left as they are."""
        if not names:
            return ""
        command = self._account.command
        place = self._files.path(names[0])
        places = f"at {place}" if len(names) == 1 else f"in {place.parent}"
        return (
            f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no profile {places}. If it"
            f" is lost: {command('rotate', *names, '--lost')}. Where an agent runs on another "
            "machine, that would cut it off: have `memrelay join --replace` typed there, and give "
            f"the request to {command('enrol', 'REQUEST', '--replace')}. The old key works until "
            "then."
        )

    def revoke(
        self, names: Sequence[str], *, is_trial: bool = False, note: Note = _ignore
    ) -> list[Agent]:
        """Withdraw every key of agents and delete their profiles.

        Raises:
            NotFound: there is no such agent.
        """
        return self._carry_out_all(
            unify(names), self._judge_revocation, is_trial=is_trial, note=note
        )

    def _judge_revocation(self, name: str) -> _Step:
        keys = list_keys(self._account, name)
        if not keys:
            raise make_not_found(name)
        for key in keys:
            self._account.sum_grants(name, key, at_ms=0)  # raises for a key of the whole account
        agent = Agent(name=name, state="revoked", public_key=keys[-1])
        return _Step(agent=agent, act=partial(self._revoke, agent, keys))

    def _revoke(self, agent: Agent, keys: Sequence[str]) -> Agent:
        for key in keys:
            self._account.withdraw(agent.name, key)
        self._files.revoke(agent.name, keys[-1])
        return agent

    def plan_enrolments(
        self, requests: Mapping[str, JoinRequest], wish: Wish, *, is_replacing: bool = False
    ) -> list[Enrolment]:
        """Return what agents lack that made their keys elsewhere; all of it is checked.

        `requests` are by agent. The agents' earlier keys are to end if `is_replacing`.

        Raises:
            ConfigError: an agent's own namespace would be shared by that.
            Invalid: a request is not for this account and time.
            MemrelayError: another key has the name, or the key holds more, or was revoked.
        """
        self._account.refresh()
        return self._plan_enrolments(requests, wish, is_replacing=is_replacing)

    def _plan_enrolments(
        self, requests: Mapping[str, JoinRequest], wish: Wish, *, is_replacing: bool
    ) -> list[Enrolment]:
        self._account.check_names(list(requests), wish.namespaces)
        return [
            plan_enrolment(self._account, agent_name(name), request, wish, is_replacing)
            for name, request in requests.items()
        ]

    def enrol(
        self,
        requests: Mapping[str, JoinRequest],
        wish: Wish,
        *,
        is_replacing: bool = False,
        note: Note = _ignore,
    ) -> list[Agent]:
        """Return agents that made their keys elsewhere and hold what is wished.

        Raises:
            MemrelayError: as of `plan_enrolments`; nothing is granted to any then.
        """
        done: list[Agent] = []
        with self._alone():
            plans = self._plan_enrolments(requests, wish, is_replacing=is_replacing)
            for plan in plans:
                note(len(done), len(plans))
                done.append(self._enrol(plan))
            note(len(done), len(plans))
        return done

    def _enrol(self, plan: Enrolment) -> Agent:
        name, key = plan.name, plan.request.recipient.hex()
        for share in plan.lacking:
            self._client.admit_key(
                plan.request,
                namespaces=share.namespaces,
                role=share.role,
                label=name,
                expires=share.expires_at,
            )
        for old in plan.replaces:  # last, so that one always works
            self._account.withdraw(name, old)
        if plan.moves_from is not None:  # it lives elsewhere from now on
            self._files.revoke(name, plan.moves_from)
        grants = shares_of(self._account.sum_grants(name, key))
        return Agent(name=name, state=plan.state, public_key=key, grants=grants)

    def _carry_out_all(
        self,
        names: Sequence[str],
        judge: Callable[[str], _Step],
        *,
        is_trial: bool,
        note: Note,
        begin: Callable[[Sequence[_Step]], None] = lambda steps: None,
    ) -> list[Agent]:
        """Judge what each agent needs, then do it; `begin` is told all before the first."""
        if is_trial:
            self._account.refresh()
            return [judge(name).agent for name in names]
        done: list[Agent] = []
        with self._alone():
            steps = [judge(name) for name in names]
            begin(steps)
            for step in steps:
                note(len(done), len(steps))
                done.append(step.act() if step.act else step.agent)
            note(len(done), len(steps))
        return done

    @property
    def account(self) -> AgentAccount:
        """The account's agents as they stand."""
        return self._account

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes away; what is known of the account holds meanwhile."""
        self._account.check_owner()  # Only for an owner a folder is made.
        with self._files.lock():
            self._account.refresh()
            yield

    def _find_plan(self, name: str) -> Plan | None:
        """Return what was begun for an agent; what began with a key that ended is forgotten."""
        plan = self._files.plan(name)
        if plan and self._account.ledger.is_revoked(plan.settings.identity.public_key):
            self._files.finish(name)
            return None
        return plan

    def _continue(self, name: str, plan: Plan, judge: Callable[[str], _Step] | None) -> _Step:
        """Return what finishes a plan, and then does what is left to be judged."""

        def act() -> Agent:
            agent = self._complete(name, plan)
            step = judge(name) if judge else None
            return replace(step.act(), state=agent.state) if step and step.act else agent

        key = plan.settings.public_key
        agent = Agent(name=name, state=plan.state, public_key=key, grants=plan.grants)
        return _Step(agent=agent, act=act, replaces=plan.replaces)

    def _agent(self, name: str, state: str, settings: Settings, held: Holdings) -> Agent:
        path = str(self._files.path(name))
        grants = shares_of(held)
        return Agent(
            name=name, state=state, public_key=settings.public_key, grants=grants, profile=path
        )

    def _plan(
        self, name: str, want: Holdings, before: Settings | None, *, replaces: str | None = None
    ) -> Plan:
        """Return a plan with a new key; what an agent's profile says of its own stays."""
        owner = self._client.settings
        settings = replace(
            owner,
            aliases=(before or owner).aliases,
            private_key=Identity.generate().seed_hex(),
            namespace=home_of(name),
            relayer_key=self._client.statement().relayer.hex(),
            seen_path=None,
        )
        replaced = before.private_key if before else None
        grants = shares_of(want)
        return Plan(settings=settings, grants=grants, replaces=replaces, replaced=replaced)

    def _begin(self, name: str, plan: Plan) -> Agent:
        self._files.begin(name, plan)
        return self._complete(name, plan)

    def _complete(self, name: str, plan: Plan) -> Agent:
        """Do what is not done yet of a plan; the old key ends last, so that one always works."""
        account = self._account
        granted = account.sum_grants(name, plan.settings.public_key)
        for share in plan.grants:
            if not set(share.namespaces) <= set(granted):
                account.grant(name, plan.settings, share)
        self._files.keep(name, plan.settings)
        if plan.replaces:
            account.withdraw(name, plan.replaces)
        if plan.replaced:
            self._hand_over(Identity.from_hex(plan.replaced), plan.settings.identity)
        self._files.finish(name)
        held = account.sum_grants(name, plan.settings.public_key)
        return self._agent(name, plan.state, plan.settings, held)
