"""Finds the client and the namespace of the agent that a hook or a tool call is for.

It does not own what a session key means (`guards.py`) or how profiles are made (`agents/`).

- An agent with a profile of its own uses that profile's key and namespace, never another key.
- Any other agent works with the main profile, in a namespace of its own and in no other: what was
  granted to another key by name is not its own, whatever the agent is called.
- No agent reaches a namespace that was not granted to its key by name, the owner's neither.
- Profiles are looked at anew when their file changes, the main one, too: a rotated key needs no
  restart. What cannot be used is tried again after a few seconds: not all faults are in the file.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from memrelay.async_client import MemoryClient
from memrelay.config import (
    Settings,
    agent_name,
    agent_paths,
    agents_folder,
    profile_path,
)
from memrelay.errors import ConfigError, Invalid, NotAllowed, NotGranted
from memrelay.gateway.framing import Reader, presentable
from memrelay.gateway.guards import agent_of, namespace_of
from memrelay.gateway.host_events import Context
from memrelay.gateway.profiles import (
    LiveProfile,
    ProfileState,
    Source,
    Version,
    close_all,
    version_of,
)
from memrelay.models import Memory
from memrelay.sealed.keys import normalise_namespace

log = logging.getLogger("memrelay.gateway")

SHARED_NAMESPACES_MAX = 8  # their keys and one's own surely fit into one header


@dataclass(frozen=True, kw_only=True)
class RecallResult:
    """The memories that fit a query, best first; `degraded` if some were searched by words only."""

    memories: Sequence[Memory] = ()
    degraded: bool = False


@dataclass(frozen=True, kw_only=True)
class Binding:
    """An agent's place: its name, the client that holds its key, and its namespace.

    `told` are the keys whose shared namespaces were complained about, so that it happens once.
    """

    agent: str
    client: MemoryClient
    namespace: str
    told: set[tuple[str, str]] = field(default_factory=set, repr=False)

    @property
    def key(self) -> str:
        """The agent's public key, shortened for people."""
        return self.client.settings.masked_key

    @property
    def reader(self) -> Reader:
        """The agent as the reader of memories."""
        return Reader(public_key=self.client.settings.public_key, namespace=self.namespace)

    @property
    def borrows(self) -> bool:
        """True if the agent uses the main profile's key for a namespace of its own."""
        return self.namespace != _namespace(self.client)

    async def is_taken(self) -> bool:
        """Return whether the namespace is not this agent's to borrow: others hold it by name.

        It is shared then, or that of an agent whose profile is elsewhere; this agent has no memory.
        """
        if not self.borrows or not await self.client.held_by_others(self.namespace):
            return False
        text = (
            "the agent %s has no memory: it has no profile, and other keys were granted the "
            "namespace of its name (key %s)"
        )
        self._tell(f"taken {self.agent}", text, self.agent, self.key)
        return True

    async def list_shared(self) -> tuple[str, ...]:
        """Return the other namespaces that were granted to this agent's key by name."""
        others = await self._list_granted()
        if len(others) > SHARED_NAMESPACES_MAX:
            text = "only %d of %d shared namespaces are searched (key %s)"
            self._tell("many", text, SHARED_NAMESPACES_MAX, len(others), self.key)
        return others[:SHARED_NAMESPACES_MAX]

    async def recall(
        self,
        query: str,
        *,
        namespaces: Sequence[str],
        limit: int,
        min_relevance: float,
        chars_max: int | None,
        goal: str | None = None,
        tokens_max: int | None = None,
    ) -> RecallResult:
        """Return the presentable memories that fit a query, best first.

        Their texts are cut to `chars_max` characters: what is not shown needs no examination.

        Raises:
            MemrelayError: the first of the namespaces failed; without another one, it goes on.
        """

        async def recall(*names: str) -> RecallResult:
            answer = await self.client.recall(
                query,
                namespaces=names,
                limit=limit,
                min_relevance=min_relevance,
                goal=goal,
                max_tokens=tokens_max,
            )
            return RecallResult(memories=answer.results, degraded=answer.degraded)

        try:
            found = await recall(*namespaces)
        except (NotAllowed, NotGranted, Invalid):
            if len(namespaces) == 1:
                raise
            # One that is refused must not cost the others.
            found = await self._apart(recall, namespaces)
            if tokens_max is not None:
                found = replace(found, memories=_select_fitting(found.memories, tokens_max))
        shown = presentable(found.memories, limit=limit, chars_max=chars_max)
        return replace(found, memories=shown)

    async def _apart(
        self,
        recall: Callable[[str], Awaitable[RecallResult]],
        namespaces: Sequence[str],
    ) -> RecallResult:
        """Return what is recalled from one namespace at a time, best first."""
        answers = await asyncio.gather(*map(recall, namespaces), return_exceptions=True)
        found, degraded = list[Memory](), False
        for number, answer in enumerate(answers):
            if not isinstance(answer, BaseException):
                found += answer.memories
                degraded = degraded or answer.degraded
            elif number == 0:
                raise answer
            else:
                text = "a shared namespace could not be searched (%s, key %s)"
                self._tell("failed", text, type(answer).__name__, self.key)
        found.sort(key=lambda memory: memory.score or 0.0, reverse=True)
        return RecallResult(memories=found, degraded=degraded)

    async def may_use(self, namespace: str) -> bool:
        """Return whether this agent's tools may reach into a namespace."""
        return namespace == self.namespace or namespace in await self._list_granted()

    async def _list_granted(self) -> tuple[str, ...]:
        # A key of the whole account holds every other agent's namespace as well: by name, none.
        granted = () if self.borrows else await self.client.granted() or ()
        return tuple(name for name in granted if name != self.namespace)

    def _tell(self, matter: str, text: str, *values: object) -> None:
        if (self.key, matter) not in self.told:
            self.told.add((self.key, matter))
            log.warning(text, *values)


class Roster:
    """The agents of one machine: the main profile, and the profiles beside it.

    `source` is the main profile's path, and what loads its settings anew.
    """

    def __init__(
        self,
        main: Settings | None,
        folder: Path | None = None,
        source: Source | None = None,
        *,
        version: Version = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._now_s = monotonic
        self._main = LiveProfile(
            _client(main) if main else None,
            source,
            connect=_client,
            version=version,
            monotonic=monotonic,
        )
        self._folder = folder
        self._own: dict[str, ProfileState] = {}
        self._replaced: list[MemoryClient] = []
        self._told: set[tuple[str, str]] = set()

    @classmethod
    def load(
        cls,
        profile: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return the agents of the main profile (or environment) and of `agents/` beside it.

        Raises:
            ConfigError: the main profile is malformed or readable by others, or there is no profile
                at all. An agent's own that is so costs that agent its memory, until it is mended.
        """
        environ = os.environ if environ is None else environ
        path = profile_path(profile, environ)
        load, version = partial(Settings.load, profile, environ=environ), version_of(path)
        try:
            main = load()
        except ConfigError:
            if not agent_paths(profile, environ) or path.exists():
                raise
            main = None
        folder = agents_folder(profile, environ)
        return cls(main, folder, (path, load), version=version, monotonic=monotonic)

    @classmethod
    def single(cls, settings: Settings) -> Self:
        """Return a roster where every agent works with the same settings."""
        return cls(settings)

    def anew(self) -> "Roster":
        """Return the same agents with connections of their own."""
        main = self._main.client()
        return Roster(
            main.settings if main else None,
            self._folder,
            self._source,
            version=self._main.version,
            monotonic=self._now_s,
        )

    def bind(self, context: Context) -> Binding | None:
        """Return the binding of the agent of a call; None when it has no memory here."""
        name = agent_of(context)
        found, own = self._look_up(name)
        if found:
            return self._bind(name, own, _namespace(own)) if own else None
        main = self._main.client()
        if main is None:
            return None
        try:
            chosen = normalise_namespace(namespace_of(context, default=_namespace(main)))
        except Invalid:
            log.warning("an agent's name cannot be a namespace: it has no memory")
            return None
        return self._bind(name, main, chosen)

    seat = bind  # its former name

    def own(self, agent: str, namespace: str) -> MemoryClient | None:
        """Return the client of an agent's own profile, if it works in that namespace."""
        _, client = self._look_up(agent)
        return client if client is not None and _namespace(client) == namespace else None

    def _bind(self, agent: str, client: MemoryClient, namespace: str) -> Binding:
        return Binding(agent=agent, client=client, namespace=namespace, told=self._told)

    def clients(self) -> list[MemoryClient]:
        """Return the clients of the main profile and of every agent's own."""
        names = [path.stem for path in self._folder.glob("*.json")] if self._folder else []
        for name in [*names, *(self._own.keys() - names)]:
            self._look_up(name)
        found = [self._main.client(), *(known.client for known in self._own.values())]
        return [client for client in found if client is not None]

    async def close(self) -> None:
        """Close the connections of all clients."""
        own = (known.client for known in self._own.values() if known.client is not None)
        await close_all((*own, *self._replaced))
        await self._main.close()

    def _look_up(self, name: str) -> tuple[bool, MemoryClient | None]:
        """Return whether an agent has a profile of its own, and its client if that is usable."""
        if self._folder is None:
            return False, None
        try:
            path = self._folder / f"{agent_name(name)}.json"
        except ConfigError:
            return False, None
        version = version_of(path)
        if version is None:
            self._retire(path.stem)
            # A revoked agent left a mark: it is not served with the owner's key instead.
            return path.with_name(f"{path.name}.revoked").exists(), None
        known = self._own.get(path.stem)
        if known is None or not known.holds(version, self._now_s()):
            self._retire(path.stem)
            client = _own_client(path, tell=known is None or known.version != version)
            known = self._own[path.stem] = self._make_state(version, client, failed=client is None)
        return True, known.client

    def _make_state(
        self, version: Version, client: MemoryClient | None, *, failed: bool
    ) -> ProfileState:
        return ProfileState(version=version, client=client, at_s=self._now_s(), failed=failed)

    def _retire(self, name: str) -> None:
        known = self._own.pop(name, None)
        if known is not None and known.client is not None:
            self._replaced.append(known.client)  # a capture may still be under way with it


def _select_fitting(memories: Iterable[Memory], tokens_max: int) -> list[Memory]:
    """Return the memories that fit into a budget, in order, as the relayer fits them in."""
    fitting, left = [], tokens_max
    for memory in memories:
        if (tokens := memory.tokens or 0) <= left:
            fitting.append(memory)
            left -= tokens
    return fitting


def _own_client(path: Path, *, tell: bool) -> MemoryClient | None:
    try:
        return _client(Settings.load(path, environ={}))
    except ConfigError as error:
        text = "the profile %s cannot be used: that agent has no memory until it is mended (%s)"
        if tell:
            log.warning(text, path.name, error)
        return None


def _client(settings: Settings) -> MemoryClient:
    # The gateway repeats what is worth repeating itself: a turn must not wait for it.
    return MemoryClient.from_settings(settings, attempts_max=1)


def _namespace(client: MemoryClient) -> str:
    return normalise_namespace(client.settings.namespace)
