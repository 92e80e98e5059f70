"""Agents' own keys: given, extended, replaced, taken back, and counted by what they wrote.

It does not own what an agent shall hold (`shares.py`), its files (`files.py`), grants
(`keyholders.py`), or arguments and printing (`commands/agents.py`).

- A new key is on disk before the relayer hears of it, with all that is to be done for it. Whoever
  comes next finishes that first, so a crash at any point neither doubles nor loses a key.
- What a key holds is read from signed grants that lead back to the founder. The relayer's own list
  of keys tells labels only.
- A key that was revoked is never granted anything again.
"""

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from memrelay.agents.files import AgentFiles, Plan
from memrelay.agents.shares import (
    Held,
    Share,
    Wish,
    excess,
    held_by,
    home_of,
    missing,
    shares_of,
    wanted,
)
from memrelay.answers import ABSENT, Answer
from memrelay.client import SyncMemoryClient
from memrelay.config import Settings, agent_name
from memrelay.errors import ConfigError, MemrelayError, NotFound, NotGranted
from memrelay.models import KeyInfo
from memrelay.sealed.keys import Identity
from memrelay.sealed.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Agent(Answer):
    """An agent's key as it stands; `profile` is None where its file is not here.

    `state` says what was done (created, extended, kept, rotated, revoked), or in a list what it is
    (active, expired, revoked).
    """

    name: str
    state: str
    public_key: str
    grants: tuple[Share, ...] = ()
    profile: str | None = None
    written: int | None = field(default=None, metadata={ABSENT: True})


class Agents:
    """The agents of one account, administered with an owner's key; profiles lie in `folder`."""

    def __init__(self, client: SyncMemoryClient, folder: Path) -> None:
        self._client = client
        self._files = AgentFiles(folder, client.settings.account_id)

    def provision(self, name: str, wish: Wish) -> Agent:
        """Return an agent that has a key of its own and holds what is wished.

        Raises:
            MemrelayError: it holds more than is wished, or its profile is lost.
        """
        name = agent_name(name)
        finished = self._resume(name)
        ledger, settings = self._ledger(), self._files.settings(name)
        if settings is None or ledger.revoked(settings.identity.public_key):
            if self._labelled(name, live_in=ledger):
                raise MemrelayError(
                    f"{name} has a key, but no profile at {self._files.path(name)}: put it back, "
                    f"or replace the key with `memrelay agents rotate {name}`."
                )
            return self._carry_out(name, self._plan(name, wanted(name, wish, {})))
        held = _held(name, ledger, settings.public_key)
        want = wanted(name, wish, held)
        if too_much := excess(held, want):
            raise MemrelayError(
                f"{name} holds more than that in {', '.join(too_much)}. Only a new key can hold "
                f"less: `memrelay agents rotate {name}` with the same options."
            )
        shares = shares_of(missing(held, want))
        for share in shares:
            self._grant(name, settings, share)
        state = finished or ("extended" if shares else "kept")
        return self._agent(name, state, settings, want | held)

    def rotate(self, name: str, wish: Wish) -> Agent:
        """Return an agent with a new key that holds the same, or what is wished; the old one ends.

        Raises:
            NotFound: there is no such agent.
            MemrelayError: it holds nothing any more, or several keys have its name.
        """
        name = agent_name(name)
        finished = self._resume(name)
        ledger, settings = self._ledger(), self._files.settings(name)
        old = settings.public_key if settings else self._only_labelled(name, ledger)
        held = _held(name, ledger, old)
        # A relayer's labels are not to be trusted with another agent's namespaces.
        if home_of(name) not in held:
            raise MemrelayError(
                f"{name} holds nothing any more; `memrelay agents provision {name}` grants it anew."
            )
        if settings and finished and wish == Wish():
            return self._agent(name, finished, settings, held)
        return self._carry_out(name, self._plan(name, wanted(name, wish, held), old))

    def revoke(self, name: str) -> Agent:
        """Withdraw every key of an agent and delete its profile.

        Raises:
            NotFound: there is no such agent.
        """
        name = agent_name(name)
        ledger, plan, settings = self._ledger(), self._files.plan(name), self._files.settings(name)
        labelled = self._labelled(name)
        own = [found.public_key for found in (plan and plan.settings, settings) if found]
        keys = [*labelled, *([plan.replaces] if plan and plan.replaces else []), *own]
        if not keys:
            raise _unknown(name)
        for key in dict.fromkeys(keys):
            if _held(name, ledger, key):
                self._client.revoke_key(key)
        self._files.revoke(name, keys[-1])
        return Agent(name=name, state="revoked", public_key=keys[-1])

    def listed(self, *, count: bool = False) -> tuple[Agent, ...]:
        """Return all agents, also those whose key has ended.

        `count` also counts what each wrote and nobody erased, from the account's signed history.
        """
        ledger = self._ledger()
        counts = self._count() if count else None
        names = {settings.public_key: name for name, settings in self._files.profiles()}
        infos, found = self._client.keys(), []
        for key in infos:
            name = names.get(key.public_key) or _agent_label(key)
            if name is not None:
                held = _held(name, ledger, key.public_key)
                ended = "revoked" if key.revoked else "expired"
                agent = Agent(
                    name=name,
                    state="active" if held else ended,
                    public_key=key.public_key,
                    grants=shares_of(held),
                    profile=str(self._files.path(name)) if key.public_key in names else None,
                    written=None if counts is None else counts[key.public_key],
                )
                found.append(agent)
        return tuple(found)

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

    def _ledger(self) -> Ledger:
        ledger = self._client.grants()
        own = ledger.held_by(self._client.settings.identity.public_key, _now_ms())
        if not any(grant.role == "owner" for grant in own):
            raise NotGranted("Only an owner's key administers agents; name its profile.")
        return ledger

    def _labelled(self, name: str, live_in: Ledger | None = None) -> list[str]:
        """Return the keys that the relayer lists under an agent's name, or the live ones only."""
        infos = self._client.keys()
        keys = [info.public_key for info in infos if _agent_label(info) == name]
        return [key for key in keys if live_in is None or _held(name, live_in, key)]

    def _only_labelled(self, name: str, ledger: Ledger) -> str:
        keys = self._labelled(name, live_in=ledger)
        if len(keys) > 1:
            raise MemrelayError(
                f"Several keys are called {name}; `memrelay agents revoke {name}` ends them all."
            )
        if not keys:
            raise _unknown(name)
        return keys[0]

    def _agent(self, name: str, state: str, settings: Settings, held: Held) -> Agent:
        path = str(self._files.path(name))
        grants = shares_of(held)
        return Agent(
            name=name, state=state, public_key=settings.public_key, grants=grants, profile=path
        )

    def _plan(self, name: str, want: Held, replaces: str | None = None) -> Plan:
        settings = replace(
            self._client.settings,
            private_key=Identity.generate().seed_hex(),
            namespace=home_of(name),
            relayer_key=self._client.statement().relayer.hex(),
            seen_path=None,
        )
        return Plan(settings=settings, grants=shares_of(want), replaces=replaces)

    def _carry_out(self, name: str, plan: Plan) -> Agent:
        self._files.begin(name, plan)
        return self._complete(name, plan)

    def _resume(self, name: str) -> str | None:
        """Complete what was interrupted; return what the agent is by that, None without any."""
        plan = self._files.plan(name)
        if plan is None:
            return None
        if self._ledger().revoked(plan.settings.identity.public_key):
            self._files.finish(name)
            return None
        return self._complete(name, plan).state

    def _complete(self, name: str, plan: Plan) -> Agent:
        """Do what is not done yet of a plan; the old key ends last, so that one always works."""
        granted = _held(name, self._ledger(), plan.settings.public_key)
        for share in plan.grants:
            if not set(share.namespaces) <= set(granted):
                self._grant(name, plan.settings, share)
        self._files.keep(name, plan.settings)
        ledger = self._ledger()
        if plan.replaces and _held(name, ledger, plan.replaces):
            self._client.revoke_key(plan.replaces)
        self._files.finish(name)
        held = _held(name, ledger, plan.settings.public_key)
        return self._agent(name, plan.state, plan.settings, held)

    def _grant(self, name: str, settings: Settings, share: Share) -> None:
        self._client.add_key(
            namespaces=share.namespaces,
            role=share.role,
            label=name,
            identity=settings.identity,
            expires=share.expires_at,
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _held(name: str, ledger: Ledger, public_key: str) -> Held:
    return held_by(name, ledger.held_by(bytes.fromhex(public_key), _now_ms()))


def _agent_label(key: KeyInfo) -> str | None:
    """Return the agent that a key's label names, if the key can be an agent's."""
    label = key.label or ""
    try:
        return label if key.namespaces is not None and agent_name(label) == label else None
    except ConfigError:
        return None


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no agent {name}.", status=404, code="not_found")
