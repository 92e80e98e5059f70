"""Agents' own keys: given, extended, replaced, taken back, and counted by what they wrote.

It does not own what an agent shall hold (`access.py`), its files (`storage.py`), grants
(`operations/keyholders.py`), or arguments and printing (`commands/agents.py`).

- A new key is on disk before the relayer hears of it, with all that is to be done for it. Whoever
  comes next finishes that first, so a crash at any point neither doubles nor loses a key.
- One process at a time makes, replaces or takes back the keys in a folder.
- What a key holds is read from signed grants that lead back to the founder. The relayer's own list
  of keys tells labels only.
- A key that was revoked is never granted anything again.
"""

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from memrelay.agents.access import (
    Holdings,
    Share,
    Wish,
    apply_wish,
    check_apart,
    find_excess,
    find_missing,
    home_of,
    shares_of,
    sum_grants,
)
from memrelay.agents.storage import AgentFiles, Plan
from memrelay.answers import ABSENT, Answer
from memrelay.config import Settings, agent_name
from memrelay.errors import ConfigError, MemrelayError, NotFound, NotGranted
from memrelay.models import KeyInfo
from memrelay.sealed.join_request import JoinRequest
from memrelay.sealed.keys import Identity, normalise_namespace
from memrelay.sealed.ledger import Ledger
from memrelay.sync_client import SyncMemoryClient

HandOver = Callable[[Identity, Identity], None]


@dataclass(frozen=True, kw_only=True)
class Enrolment:
    """The grants that an agent lacks that made its key elsewhere."""

    name: str
    request: JoinRequest
    held: Holdings
    lacking: tuple[Share, ...]

    @property
    def state(self) -> str:
        """The agent's state once these are granted."""
        if not self.lacking:
            return "kept"
        return "extended" if self.held else "enrolled"


@dataclass(frozen=True, kw_only=True)
class Agent(Answer):
    """An agent's key as it stands; `profile` is None where its file is not here.

    `state` says what was done (created, enrolled, extended, kept, rotated, revoked), or in a list
    what it is (active, expired, revoked).
    """

    name: str
    state: str
    public_key: str
    grants: tuple[Share, ...] = ()
    profile: str | None = None
    written: int | None = field(default=None, metadata={ABSENT: True})


class Agents:
    """The agents of one account, administered with an owner's key; profiles lie in `folder`.

    `options` are those of a command line that gets there, for the commands that messages name.
    `hand_over` is given an agent's replaced key and its new one once that works alone, and again
    after a crash.
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
        self._options = options
        self._hand_over = hand_over
        self._known: Ledger | None = None

    def provision(self, names: Sequence[str], wish: Wish) -> list[Agent]:
        """Return agents that have a key of their own each and hold what is wished.

        Raises:
            ConfigError: an agent's own namespace would be shared by that.
            MemrelayError: one holds more than is wished, or its profile is lost.
        """
        for name in names:
            main = normalise_namespace(self._client.settings.namespace)
            check_apart(agent_name(name), {main, *(wish.shared or ())})
        with self._alone():
            return [self._provision(agent_name(name), wish) for name in names]

    def _provision(self, name: str, wish: Wish) -> Agent:
        finished = self._resume(name)
        ledger, settings = self._ledger(), self._files.settings(name)
        if settings is None or ledger.is_revoked(settings.identity.public_key):
            self._check_new(name, ledger)
            return self._carry_out(name, self._plan(name, apply_wish(name, wish, {}), settings))
        held = _sum_grants(name, ledger, settings.public_key)
        remedy = f"{self._command('rotate', name)} with the same options."
        lacking = _find_lacking(name, held, wish, remedy)
        for share in shares_of(lacking):
            self._grant(name, settings, share)
        state = finished or ("extended" if lacking else "kept")
        return self._agent(name, state, settings, held | lacking)

    def plan_enrolments(self, requests: Mapping[str, JoinRequest], wish: Wish) -> list[Enrolment]:
        """Return, by name, what agents lack that made their keys elsewhere; all of it is checked.

        Raises:
            ConfigError: an agent's own namespace would be shared by that.
            Invalid: a request is not for this account and time.
            MemrelayError: another key has the name, or the key holds more, or was revoked.
        """
        main = normalise_namespace(self._client.settings.namespace)
        for name in requests:
            check_apart(agent_name(name), {main, *(wish.shared or ())})
        return [self._plan_enrolment(agent_name(n), r, wish) for n, r in requests.items()]

    def enrol(self, requests: Mapping[str, JoinRequest], wish: Wish) -> list[Agent]:
        """Return agents that made their keys elsewhere and hold what is wished.

        Raises:
            MemrelayError: as of `plan_enrolments`; nothing is granted to any then.
        """
        with self._alone():
            return [self._enrol(plan) for plan in self.plan_enrolments(requests, wish)]

    def _plan_enrolment(self, name: str, request: JoinRequest, wish: Wish) -> Enrolment:
        ledger, key = self._ledger(), request.recipient.hex()
        if ledger.is_revoked(request.recipient):
            raise MemrelayError(
                f"{request} is of a key that was revoked: have `memrelay join --force` run there."
            )
        held = _sum_grants(name, ledger, key)
        if held and home_of(name) not in held:
            raise MemrelayError(f"{request} is of a key that is not the agent {name}'s.")
        if not held:
            if self._files.is_pending_or_kept(name) or self._find_holders(name, ledger):
                raise MemrelayError(
                    f"{name} has a key already; {self._command('revoke', name)} ends it first."
                )
            self._check_home(name, ledger)
        remedy = f"{self._command('revoke', name)}, and enrol a new one."
        lacking = _find_lacking(name, held, wish, remedy)
        if lacking:
            self._client.check_request(request)
        return Enrolment(name=name, request=request, held=held, lacking=shares_of(lacking))

    def _enrol(self, plan: Enrolment) -> Agent:
        for share in plan.lacking:
            self._client.admit_key(
                plan.request,
                namespaces=share.namespaces,
                role=share.role,
                label=plan.name,
                expires=share.expires_at,
            )
            self._known = None
        key = plan.request.recipient.hex()
        held = _sum_grants(plan.name, self._ledger(), key)
        return Agent(name=plan.name, state=plan.state, public_key=key, grants=shares_of(held))

    def rotate(self, name: str, wish: Wish, *, is_lost: bool = False) -> Agent:
        """Return an agent with a new key that holds the same, or what is wished; the old one ends.

        An agent without a profile here may run elsewhere, so `is_lost` has to say that it does not.

        Raises:
            NotFound: there is no such agent.
            MemrelayError: it holds nothing any more, several keys have its name, or its profile is
                not here.
        """
        name = agent_name(name)
        with self._alone():
            return self._rotate(name, wish, is_lost=is_lost)

    def _rotate(self, name: str, wish: Wish, *, is_lost: bool) -> Agent:
        finished = self._resume(name)
        ledger, settings = self._ledger(), self._files.settings(name)
        old = settings.public_key if settings else self._find_only_labelled(name, ledger)
        if settings is None and not is_lost:
            raise MemrelayError(
                f"{name} has no profile at {self._files.path(name)}. If it is lost: "
                f"{self._command('rotate', name, '--lost')}. If {name} runs on another machine, "
                f"that would cut it off: have `memrelay join` typed there with another --profile, "
                f"then {self._command('revoke', name)}, and enrol the new request."
            )
        held = _sum_grants(name, ledger, old)
        # A relayer's labels are not to be trusted with another agent's namespaces.
        if home_of(name) not in held:
            raise MemrelayError(
                f"{name} holds nothing any more; {self._command('provision', name)} grants it anew."
            )
        if settings and finished and wish == Wish():
            return self._agent(name, finished, settings, held)
        plan = self._plan(name, apply_wish(name, wish, held), settings, replaces=old)
        return self._carry_out(name, plan)

    def revoke(self, name: str) -> Agent:
        """Withdraw every key of an agent and delete its profile.

        Raises:
            NotFound: there is no such agent.
        """
        name = agent_name(name)
        with self._alone():
            return self._revoke(name)

    def _revoke(self, name: str) -> Agent:
        plan, settings = self._files.plan(name), self._files.settings(name)
        ledger, home = self._ledger(), home_of(name)
        labelled = [
            key
            for key in self._find_labelled_keys(name)
            if ledger.has_granted(home, bytes.fromhex(key))
        ]
        own = [found.public_key for found in (plan and plan.settings, settings) if found]
        keys = [*labelled, *([plan.replaces] if plan and plan.replaces else []), *own]
        if not keys:
            raise _make_not_found(name)
        for key in dict.fromkeys(keys):
            self._withdraw(name, key)
        self._files.revoke(name, keys[-1])
        return Agent(name=name, state="revoked", public_key=keys[-1])

    def list_agents(self, *, warn: Callable[[str], None], count: bool = False) -> list[Agent]:
        """Return all agents, also those whose key has ended; one warning tells what is left out.

        `count` also counts what each wrote and nobody erased, from the account's signed history.
        """
        ledger, infos = self._fetch_ledger(), self._client.keys()
        counts = self._count() if count else None
        names, faults = self._files.profiles()
        found = []
        for key in infos:
            name = names.get(key.public_key) or _agent_label(key)
            if name is None:
                continue
            try:
                held = _sum_grants(name, ledger, key.public_key)
            except MemrelayError as error:
                faults.append(str(error))
                continue
            ended = "revoked" if ledger.is_revoked(bytes.fromhex(key.public_key)) else "expired"
            agent = Agent(
                name=name,
                state="active" if held else ended,
                public_key=key.public_key,
                grants=shares_of(held),
                profile=str(self._files.path(name)) if key.public_key in names else None,
                written=None if counts is None else counts[key.public_key],
            )
            found.append(agent)
        if faults:
            warn(f"Left out: {' '.join(faults)}")
        return found

    def _count(self) -> Counter[str]:
        """Count the memories of each key, following the receipts from the first one on."""
        relayer = self._client.statement().relayer.hex()
        # A client that has seen nothing yet is shown the whole history.
        fresh = replace(self._client.settings, seen_path=None, relayer_key=relayer)
        writers: dict[str, str] = {}
        with SyncMemoryClient.from_settings(fresh) as client:
            for receipt in client.receipts():
                for memory_id, _, _ in receipt.items:
                    if receipt.op in {"remember", "analyze"}:
                        writers.setdefault(memory_id, receipt.actor.hex())
                    elif receipt.op == "forget":
                        writers.pop(memory_id, None)
        return Counter(writers.values())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes away; what is known of the account holds meanwhile."""
        self._fetch_ledger()  # Only for an owner a folder is made.
        with self._files.lock():
            try:
                yield
            finally:
                self._known = None

    def _ledger(self) -> Ledger:
        self._known = self._known or self._fetch_ledger()
        return self._known

    def _fetch_ledger(self) -> Ledger:
        ledger = self._client.grants()
        own = ledger.list_grants_to(self._client.settings.identity.public_key, _now_ms())
        if not any(grant.role == "owner" for grant in own):
            raise NotGranted("Only an owner's key administers agents; name its profile.")
        return ledger

    def _command(self, action: str, name: str, *more: str) -> str:
        return f"`{shlex.join(['memrelay', 'agents', action, name, *more, *self._options])}`"

    def _check_new(self, name: str, ledger: Ledger) -> None:
        """Check that no key of this name is in use, and that nobody holds its namespace yet.

        An agent that ended may have shared its own: one that this machine knows comes back.
        """
        if self._find_holders(name, ledger):
            raise MemrelayError(
                f"{name} has a key, but no profile at {self._files.path(name)}: put it back, "
                f"or replace the key with {self._command('rotate', name, '--lost')}."
            )
        self._check_home(name, ledger)

    def _find_holders(self, name: str, ledger: Ledger) -> list[str]:
        """Return the keys of this name that hold anything."""
        return [key for key in self._find_labelled_keys(name) if _sum_grants(name, ledger, key)]

    def _check_home(self, name: str, ledger: Ledger) -> None:
        home, owner = home_of(name), self._client.settings.identity.public_key
        if not self._files.is_known(name) and ledger.names(home, _now_ms(), but=owner):
            check_apart(name, {home})

    def _find_labelled_keys(self, name: str) -> list[str]:
        """Return the keys that the relayer lists under an agent's name, and no profile as others'.

        It may list any: what one of them holds tells whether it can be the agent's.
        """
        names, _ = self._files.profiles()
        infos = self._client.keys()
        keys = [info.public_key for info in infos if _agent_label(info) == name]
        return [key for key in keys if names.get(key, name) == name]

    def _find_only_labelled(self, name: str, ledger: Ledger) -> str:
        keys = self._find_holders(name, ledger)
        if len(keys) > 1:
            raise MemrelayError(
                f"Several keys are called {name}; {self._command('revoke', name)} ends them all."
            )
        if not keys:
            raise _make_not_found(name)
        return keys[0]

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

    def _carry_out(self, name: str, plan: Plan) -> Agent:
        self._files.begin(name, plan)
        return self._complete(name, plan)

    def _resume(self, name: str) -> str | None:
        """Complete what was interrupted; return what the agent is by that, None without any."""
        plan = self._files.plan(name)
        if plan is None:
            return None
        if self._ledger().is_revoked(plan.settings.identity.public_key):
            self._files.finish(name)
            return None
        return self._complete(name, plan).state

    def _complete(self, name: str, plan: Plan) -> Agent:
        """Do what is not done yet of a plan; the old key ends last, so that one always works."""
        granted = _sum_grants(name, self._ledger(), plan.settings.public_key)
        for share in plan.grants:
            if not set(share.namespaces) <= set(granted):
                self._grant(name, plan.settings, share)
        self._files.keep(name, plan.settings)
        if plan.replaces:
            self._withdraw(name, plan.replaces)
        if plan.replaced:
            self._hand_over(Identity.from_hex(plan.replaced), plan.settings.identity)
        self._files.finish(name)
        held = _sum_grants(name, self._ledger(), plan.settings.public_key)
        return self._agent(name, plan.state, plan.settings, held)

    def _grant(self, name: str, settings: Settings, share: Share) -> None:
        self._client.add_key(
            namespaces=share.namespaces,
            role=share.role,
            label=name,
            identity=settings.identity,
            expires=share.expires_at,
        )
        self._known = None

    def _withdraw(self, name: str, public_key: str) -> None:
        """Revoke a key unless that was done; also one whose grants ended by this clock.

        The relayer's clock may differ, and it may take the key still.
        """
        if _sum_grants(name, self._ledger(), public_key, at_ms=0):
            self._client.revoke_key(public_key)
            self._known = None


def _find_lacking(name: str, held: Holdings, wish: Wish, remedy: str) -> Holdings:
    """Return what a key lacks of a wish, or raise if it holds more: no grant takes away."""
    want = apply_wish(name, wish, held)
    if too_much := find_excess(held, want):
        raise MemrelayError(
            f"{name} holds more than that in {', '.join(too_much)}. Only a new key can hold less: "
            f"{remedy}"
        )
    return find_missing(held, want)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _sum_grants(name: str, ledger: Ledger, public_key: str, at_ms: int | None = None) -> Holdings:
    at_ms = _now_ms() if at_ms is None else at_ms
    return sum_grants(name, ledger.list_grants_to(bytes.fromhex(public_key), at_ms))


def _agent_label(key: KeyInfo) -> str | None:
    """Return the agent that a key's label names, if the key can be an agent's."""
    label = key.label or ""
    try:
        return label if key.namespaces is not None and agent_name(label) == label else None
    except ConfigError:
        return None


def _make_not_found(name: str) -> NotFound:
    return NotFound(f"There is no agent {name}.", status=404, code="not_found")
