"""The memory of one coding agent on this machine: what it recalls, keeps and has waiting.

It does not own when a hook does which (`hook.py`), or the rules about texts (`gateway/`).

- Only the agent's own key is used, never the owner's.
- In a project that was chosen for it, the agent remembers in the project's namespace, and recalls
  from its own as well. Other projects' namespaces stay out.
- Nothing here waits for the relayer beyond a deadline.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from memrelay.coding.outage import Outage
from memrelay.coding.projects import PREFIX, project_of
from memrelay.coding.prompts import SentPrompts
from memrelay.coding.prose import without_code
from memrelay.config import Settings, agent_name, agent_path, profile_path, spool_folder
from memrelay.errors import ConfigError, Invalid, NotAllowed, NotGranted
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.conversation import capturable, number_messages
from memrelay.gateway.framing import Reader, frame_memories, memory_chars_max, presentable
from memrelay.gateway.host_events import Message
from memrelay.gateway.settings import GatewaySettings, settings_table
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.models import Memory
from memrelay.operations.reads import Reads
from memrelay.sealed.keys import normalise_namespace
from memrelay.secure_files import read_private, write_private
from memrelay.sync_connection import SyncConnection
from memrelay.unix_sockets import parse_socket

SHARED_MAX: Final = 8
# Hosts write a text of 10,000 characters to a file that others may read. A token is counted as at
# most 4 bytes, and what stands around the memories is counted, too.
TOKENS_MAX: Final = 2200


@dataclass(frozen=True, kw_only=True)
class CodingMemory:
    """The memory of an agent with a profile of its own; `owner` is the profile beside it.

    `source` is what its memories are from.
    """

    agent: str
    source: str
    settings: Settings = field(repr=False)
    thresholds: GatewaySettings
    folder: Path
    spool_path: Path

    @classmethod
    def load(
        cls, agent: str, source: str, profile: str | None, environ: Mapping[str, str]
    ) -> "CodingMemory":
        """Return the memory of an agent whose profile lies beside the owner's.

        Raises:
            ConfigError: it has none, or something there cannot be used.
        """
        name = agent_name(agent)
        # The environment may hold another key, such as the owner's.
        settings = Settings.load(agent_path(name, profile, environ), environ={})
        table = {"profile": "coding", **settings_table(None, profile, environ)}
        return cls(
            agent=name,
            source=source,
            settings=settings,
            thresholds=_bound(GatewaySettings.of(table)),
            folder=hooks_folder(profile, environ),
            spool_path=spool_folder(profile, environ),
        )

    @property
    def outage(self) -> Outage:
        """How the relayer is to this agent at present."""
        return outage_of(self.folder, self.agent)

    @property
    def is_starting(self) -> bool:
        """True if its relayer is this machine's own and begins to serve at present."""
        socket = parse_socket(self.settings.url)
        if socket is None:
            return False
        from memrelay.local_relayer import LocalRelayer, state_of  # noqa: PLC0415 - few need it

        relayer = LocalRelayer(socket)
        return relayer.is_on_demand and state_of(relayer).state == "busy"

    @cached_property
    def prompts(self) -> SentPrompts:
        """The prompts that wait for their answer."""
        return SentPrompts(self.folder / "prompts", self.settings.identity)

    @cached_property
    def spool(self) -> Spool:
        """The captured turns that wait for the relayer."""
        return Spool(
            self.spool_path,
            bytes_max=self.thresholds.spool_bytes_max,
            turns_max=self.thresholds.spool_turns_max,
        )

    @property
    def waiting_count(self) -> int:
        """The number of captured turns that wait for the relayer."""
        return len(self.spool.names(SpoolKey.of(self.settings.identity)))

    def namespace_in(self, folder: str) -> str:
        """Return where a turn in a folder is kept: its project's namespace, or the agent's."""
        project = project_of(folder) if folder else None
        return project if project in chosen_projects(self.folder, self.agent) else self._home

    @property
    def _home(self) -> str:
        return normalise_namespace(self.settings.namespace)

    def recall(self, query: str, folder: str, *, deadline_s: float) -> str | None:
        """Return the memories that fit a query, framed for the model; None if none fits.

        Raises:
            MemrelayError: the relayer refuses, or is not reached in time.
        """
        place = self.namespace_in(folder)
        limits = {"timeout_s": deadline_s, "deadline_s": deadline_s}
        with SyncConnection.from_settings(self.settings, attempts_max=1, **limits) as connection:
            reads = Reads(connection.session)
            granted = connection.run(reads.granted())
            names = (place, *self._shared(granted or (), place))
            thresholds = self.thresholds

            def search(*namespaces: str) -> Sequence[Memory]:
                return connection.run(
                    reads.recall(
                        query,
                        namespaces=namespaces,
                        limit=thresholds.recall_results_max,
                        min_relevance=thresholds.relevance_min,
                        max_tokens=thresholds.recall_tokens_max or None,
                    )
                ).results

            try:
                found = search(*names)
            except (NotAllowed, NotGranted, Invalid):
                if names == (self._home,):
                    raise
                found = search(self._home)  # one that is refused must not cost the others
        shown = presentable(
            found, limit=thresholds.recall_results_max, chars_max=memory_chars_max(thresholds)
        )
        reader = Reader(public_key=self.settings.public_key, namespace=place)
        return frame_memories(shown, thresholds, reader)

    def _shared(self, granted: Sequence[str], place: str) -> tuple[str, ...]:
        """Return the other namespaces to search: the agent's own first, no other project's."""
        others = [name for name in granted if name != place and not name.startswith(PREFIX)]
        others.sort(key=lambda name: name != self._home)
        return tuple(others[:SHARED_MAX] if self.thresholds.recall_shared else others[:0])

    def keep(self, messages: Sequence[Message], *, session: str, folder: str, at: datetime) -> bool:
        """Keep what is worth keeping of a turn, on disk and sealed; return whether anything is."""
        plain = [replace(message, text=without_code(message.text)) for message in messages]
        kept = capturable(plain, self.thresholds)
        if not kept:
            return False
        turn = CapturedTurn.make(
            self.settings.identity,
            agent=self.agent,
            namespace=self.namespace_in(folder),
            text=number_messages(kept),
            session=session,
            source=self.source,
            occurred_at=at,
            names=(session,) if session else (),
        )
        self.spool.put(SpoolKey.of(self.settings.identity), turn.to_bytes())
        return True


def hooks_folder(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of what hooks keep, beside the owner's profile."""
    return profile_path(profile, environ).parent / "hooks"


def outage_of(folder: Path, agent: str) -> Outage:
    """Return how the relayer is to an agent at present."""
    return Outage(folder / f"{agent}.away.json", time.time)


def chosen_projects(folder: Path, agent: str) -> tuple[str, ...]:
    """Return the projects' namespaces that were chosen for an agent.

    Raises:
        ConfigError: their file cannot be used.
    """
    path = _projects_path(folder, agent)
    data = read_private(path)
    try:
        found = [] if data is None else json.loads(data)["projects"]
        return tuple(name for name in found if isinstance(name, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path} is damaged; remove it.") from None


def choose_projects(folder: Path, agent: str, projects: Sequence[str]) -> None:
    """Keep which projects' namespaces are chosen for an agent."""
    if projects:
        write_private(_projects_path(folder, agent), {"projects": list(projects)})
    else:
        _projects_path(folder, agent).unlink(missing_ok=True)


def _projects_path(folder: Path, agent: str) -> Path:
    return folder / f"{agent}.projects.json"


def _bound(thresholds: GatewaySettings) -> GatewaySettings:
    tokens = thresholds.injection_tokens_max or TOKENS_MAX
    return replace(thresholds, injection_tokens_max=min(tokens, TOKENS_MAX))
