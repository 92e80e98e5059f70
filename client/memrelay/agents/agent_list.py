"""Agents as they stand: all of them, those that a pattern names, what each wrote.

It does not own what a key holds (`account.py`), or what is changed (`provision.py`).
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase

from memrelay.agents.access import Share, shares_of
from memrelay.agents.account import AgentAccount, label_of
from memrelay.answers import ABSENT, Answer
from memrelay.config import agent_name
from memrelay.errors import MemrelayError, NotFound
from memrelay.sync_client import SyncMemoryClient

ELSEWHERE = "elsewhere"


@dataclass(frozen=True, kw_only=True)
class Agent(Answer):
    """An agent's key as it stands; `profile` is None where its file is not here.

    `state` says what was done (created, enrolled, extended, kept, rotated, revoked), or in a list
    what it is (active, expired, revoked). An agent that a rotation left as it is, since only where
    it runs a new key can be made, is `elsewhere`. `public_key` is None if it is yet to be made.
    `last_used_at` is the hour in which its key last asked, None where nobody noted any.
    """

    name: str
    state: str
    public_key: str | None
    grants: tuple[Share, ...] = ()
    profile: str | None = None
    written: int | None = field(default=None, metadata={ABSENT: True})
    last_used_at: datetime | None = field(default=None, metadata={ABSENT: True})


def list_agents(
    account: AgentAccount,
    names: Sequence[str] = (),
    *,
    warn: Callable[[str], None],
    count: bool = False,
) -> list[Agent]:
    """Return all agents, also those whose key has ended; one warning tells what is left out.

    `names` are those that are wanted, if not all, or patterns. `count` also counts what each wrote
    and nobody erased, from the account's signed history.
    """
    account.refresh()
    counts = _count(account.client) if count else None
    profiles, faults = account.profiles
    found = []
    for key in account.infos:
        name = profiles.get(key.public_key) or label_of(key)
        if name is None or (names and not any(_fits(name, word) for word in names)):
            continue
        try:
            held = account.sum_grants(name, key.public_key)
        except MemrelayError as error:
            faults = [*faults, str(error)]
            continue
        has_ended = account.ledger.is_revoked(bytes.fromhex(key.public_key))
        agent = Agent(
            name=name,
            state="active" if held else "revoked" if has_ended else "expired",
            public_key=key.public_key,
            grants=shares_of(held),
            profile=str(account.files.path(name)) if key.public_key in profiles else None,
            written=None if counts is None else counts[key.public_key],
            last_used_at=key.last_used_at,
        )
        found.append(agent)
    if faults:
        warn(f"Left out: {' '.join(faults)}")
    return found


def _count(client: SyncMemoryClient) -> Counter[str]:
    """Count the memories of each key, following the receipts from the first one on."""
    relayer = client.statement().relayer.hex()
    # A client that has seen nothing yet is shown the whole history.
    fresh = replace(client.settings, seen_path=None, relayer_key=relayer)
    writers: dict[str, str] = {}
    with SyncMemoryClient.from_settings(fresh) as reader:
        for receipt in reader.receipts():
            for memory_id, _, _ in receipt.items:
                if receipt.op in {"remember", "analyze"}:
                    writers.setdefault(memory_id, receipt.actor.hex())
                elif receipt.op == "forget":
                    writers.pop(memory_id, None)
    return Counter(writers.values())


def find_names(account: AgentAccount, words: Sequence[str], *, states: Container[str]) -> list[str]:
    """Return the agents that words name; a word with `*`, `?` or `[` names all that fit it.

    Those are the agents in one of these states, and those with a file here.

    Raises:
        ConfigError: a name is malformed.
        NotFound: no agent fits a pattern.
    """
    if not any(map(is_pattern, words)):
        return unify(words)
    found = [
        agent.name
        for agent in list_agents(account, warn=lambda text: None)
        if agent.state in states or agent.profile
    ]
    known = sorted({*found, *account.files.pending_names()})
    names: list[str] = []
    for word in words:
        fitting = [name for name in known if _fits(name, word)] if is_pattern(word) else [word]
        if not fitting:
            raise NotFound(f"No agent is called like {word}.", status=404, code="not_found")
        names += fitting
    return unify(names)


def is_pattern(word: str) -> bool:
    """Return whether a word names all agents that fit it."""
    return any(char in word for char in "*?[")


def _fits(name: str, word: str) -> bool:
    return fnmatchcase(name, word.lower())


def unify(names: Sequence[str]) -> list[str]:
    """Return each agent's name once, in its one spelling.

    Raises:
        ConfigError: one is malformed.
    """
    return list(dict.fromkeys(map(agent_name, names)))
