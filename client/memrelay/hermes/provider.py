"""The memory provider of Hermes Agent: recall before each turn, capture after it, and tools.

It does not own what is recalled or kept (`gateway/`), what lies in a Hermes home (`home.py`)
or the mirror of Hermes' own memory (`mirror.py`). It runs inside Hermes, 0.19 or later.

- No method waits for the relayer beyond a deadline. A captured turn is on disk moments later, and
  before Hermes ends, which may forget a provider without a word.
- Only a run that serves the user writes; sub-agents, scheduled and internal runs do not.
- A message is captured once, with those before it in the same window.
- What a session erased, or said in a run that writes nothing, is known as long as Hermes runs,
  whatever providers it makes for it.
"""

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2s
from pathlib import Path
from typing import Any
from weakref import WeakSet

from agent.memory_provider import MemoryProvider
from hermes_constants import get_hermes_home

from memrelay.config import Settings, profile_path, spool_folder
from memrelay.errors import ConfigError
from memrelay.gateway import BlockingGateway, Context, Message, Roster
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.framing import SKILL, namespace_instruction
from memrelay.gateway.host_events import ASSISTANT, USER, read_messages
from memrelay.gateway.roster import Binding
from memrelay.gateway.schemas import FORGET, GET, SEARCH, STORE
from memrelay.gateway.skipped import SkippedRuns
from memrelay.hermes.home import PROVIDER, HermesSettings, identity_of, save_settings
from memrelay.hermes.mirror import Mirror
from memrelay.hermes.session_tracker import Conversation

log = logging.getLogger("memrelay.hermes")

_SOURCE = "hermes"
_WARM_UP = "What was said before?"  # any question does: it opens the connection and the keys
_SESSION_END_S = 1.0
_SHUTDOWN_S = 3.0


def register(ctx: Any) -> None:
    """Give Hermes a provider; Hermes calls this for each of its agents."""
    ctx.register_memory_provider(MemrelayProvider())


@dataclass(frozen=True, eq=False)
class _Memory:
    """The parts that all agents of a process with the same settings share."""

    settings: HermesSettings
    roster: Roster
    gateway: BlockingGateway
    users: "WeakSet[MemrelayProvider]" = field(default_factory=WeakSet)


_memories: dict[HermesSettings, _Memory] = {}
_erasures, _skipped = Erasures(), SkippedRuns()
_lock = threading.Lock()


def _enter(provider: "MemrelayProvider", settings: HermesSettings) -> _Memory:
    # Hermes makes a provider for each chat and drops most of them without a word. A gateway for
    # each would leave its thread and connections behind; and one outage is worth one warning.
    with _lock:
        if settings not in _memories:
            roster = Roster.load(settings.profile)
            spool_path = spool_folder(settings.profile, os.environ)
            gateway = BlockingGateway.start(
                roster,
                settings.gateway,
                source=_SOURCE,
                spool_path=spool_path,
                erasures=_erasures,
                skipped=_skipped,
            )
            _memories[settings] = _Memory(settings, roster, gateway)
        _memories[settings].users.add(provider)
        return _memories[settings]


def _leave(provider: "MemrelayProvider", memory: _Memory) -> None:
    with _lock:
        memory.users.discard(provider)
        last = not memory.users
        if last:
            _memories.pop(memory.settings, None)
    if last:
        memory.gateway.close(_SHUTDOWN_S)
    else:
        memory.gateway.flush(_SHUTDOWN_S)


class MemrelayProvider(MemoryProvider):
    """The memory of one of Hermes' agents."""

    def __init__(self) -> None:
        self._memory: _Memory | None = None
        self._agent: str | None = None
        self._session = ""
        self._chat: str | None = None  # what a messenger's sessions have in common
        self._run = ""  # empty for one that serves the user, or of which sort it is
        self._conversation = Conversation()
        self._mirror: Mirror | None = None

    # Setting up.

    @property
    def name(self) -> str:
        """The name by which Hermes' configuration chooses this provider."""
        return PROVIDER

    def is_available(self) -> bool:
        """Return whether there is a profile to work with; asks no relayer."""
        try:
            _profile_in(get_hermes_home())
        except ConfigError as error:
            log.warning("memory is not set up: %s", error)
            return False
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Begin to serve an agent, in its first session.

        Raises:
            ConfigError: there is no usable profile. Hermes logs it, and goes on without memory.
        """
        home = Path(kwargs.get("hermes_home") or get_hermes_home())
        settings = HermesSettings.load(home)
        self._agent = settings.agent_in(kwargs.get("agent_identity") or identity_of(home))
        self._session = session_id
        self._run = _sort_of_run(kwargs)
        self._chat = _chat_in(kwargs)
        self._memory = _enter(self, settings)
        self._mirror = Mirror(self._memory.roster, self._context())
        # The first turn should not pay for the first connection.
        threading.Thread(target=self._warm_up, daemon=True).start()

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return what `hermes memory setup` asks for."""
        return [
            {
                "key": "profile",
                "description": "Profile file that `memrelay init` made (empty: the usual one)",
            },
            {
                "key": "agent",
                "description": "Agent whose own key to use (empty: called like the Hermes profile)",
            },
        ]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Keep the answers of `hermes memory setup`.

        Raises:
            ConfigError: one of them is malformed.
        """
        save_settings(Path(hermes_home), values)

    def backup_paths(self) -> list[str]:
        """Return what `hermes backup` needs from outside its home: the key, and waiting turns."""
        home = get_hermes_home()
        try:
            path, settings = _profile_in(home)
            spool = spool_folder(HermesSettings.load(home).profile, os.environ)
        except ConfigError:
            return []
        paths = [path, spool, *([settings.seen_path] if settings.seen_path else [])]
        return [str(path) for path in paths if path.exists() and not path.is_relative_to(home)]

    # Before a turn.

    def system_prompt_block(self) -> str:
        """Return what the model should know of its memory, the same in every turn."""
        binding = self._bind()
        if binding is None:
            return ""
        return f"{SKILL}\n{namespace_instruction(binding.namespace, outcome='none')}"

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Note when a turn begins: what it says about time is said then."""
        self._conversation.begin(message)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the memories that fit what the user wrote, framed and escaped; never raises."""
        if self._memory is None:
            return ""
        injection = self._memory.gateway.recall(query, self._context(session_id))
        return injection.prepend_context or ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Do nothing: a turn recalls for its own words, which nobody knows before it begins."""

    # After a turn.

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Capture a turn that has ended; it is on its way when this returns.

        `messages` is left alone: there, the user's words may have a whole skill around them.
        """
        if self._writes():
            window, began, run = self._conversation.end(user_content, assistant_content)
            self._capture(window, self._context(session_id, run=run), began)
        elif self._memory is not None:
            turn = [Message(USER, user_content), Message(ASSISTANT, assistant_content)]
            self._memory.gateway.skip(turn, self._context(session_id))

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Capture what is about to be dropped and no turn's end has captured."""
        if not self._writes() or self._memory is None:
            return ""
        said, new = self._conversation.rest(read_messages(messages))
        context = self._context(run=self._conversation.run)
        if new:
            self._memory.gateway.capture(said, context, new=new)
        if _erasures.has_erased(context) or not self._memory.gateway.remembers(context):
            return ""
        return "What was said before this summary is in long-term memory: memory_search finds it."

    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """Capture what a sub-agent brought back; what it was told and said on the way is not."""
        if self._writes() and result:
            self._capture([Message(ASSISTANT, result)], self._context(run=self._conversation.run))

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Repeat in our memory, in the background, what Hermes changes in its own."""
        if self._writes() and self._mirror is not None:
            old_text = (metadata or {}).get("old_text") or (content if action == "remove" else "")
            self._mirror.write(action, content, old_text=old_text)

    # Sessions.

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Give what was captured a moment to arrive, so that the next session finds it."""
        if self._memory is not None:
            self._memory.gateway.flush(_SESSION_END_S)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Go on in another session; only a compressed one goes on with what was said before."""
        before, self._session = self._context(parent_session_id), new_session_id
        reason = None if reset or rewound else kwargs.get("reason")
        if reason != "compression":
            self._conversation.forget()
        if parent_session_id and reason == "compression":
            _erasures.go_on(before, self._context())
        elif parent_session_id and reason == "branch":
            _erasures.fork(before, self._context())

    def shutdown(self) -> None:
        """Deliver what waits, for a few seconds at most; the rest is delivered later."""
        if self._mirror is not None:
            self._mirror.close(_SHUTDOWN_S)
        memory, self._memory = self._memory, None
        if memory is not None:
            _leave(self, memory)

    # Tools.

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools as the model sees them."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in (SEARCH, GET, STORE, FORGET)
        ]

    def handle_tool_call(self, tool_name: str, args: Mapping[str, Any], **kwargs: Any) -> str:
        """Return a tool's answer as JSON; what goes wrong is an answer as well."""
        if self._memory is None:
            return json.dumps({"error": "Memory is not set up; go on without it."})
        if tool_name in {STORE.name, FORGET.name} and not self._writes():
            return json.dumps({"error": "This run may only search the memory."})
        context = self._context(run=self._conversation.run)
        answer = self._memory.gateway.call_tool(tool_name, args, context)
        if answer.details.get("erased"):
            # Nothing of it is captured, but it is known by that, also if it is interrupted.
            self._capture(self._conversation.prompts, context)
        member = "error" if answer.is_error else "result"
        return json.dumps({member: answer.text}, ensure_ascii=False)

    # Within.

    def _warm_up(self) -> None:
        if self._memory is not None:
            self._memory.gateway.recall(_WARM_UP, self._context("warm-up"))

    def _writes(self) -> bool:
        return self._memory is not None and not self._run

    def _context(self, session_id: str = "", *, run: str | None = None) -> Context:
        session = session_id or self._session
        return Context(
            agent_id=self._agent,
            session_id=session,
            session_key=f"{self._run}:{session}" if self._run else self._chat,
            run_id=run,
            trigger=self._run or None,
        )

    def _bind(self) -> Binding | None:
        return None if self._memory is None else self._memory.roster.bind(self._context())

    def _capture(
        self, messages: Sequence[Message], context: Context, began: datetime | None = None
    ) -> None:
        if self._memory is not None and messages:
            self._memory.gateway.capture(messages, context, occurred_at=began)


def _sort_of_run(kwargs: Mapping[str, Any]) -> str:
    """Return what a run is for, in Hermes' words; empty for one that serves the user."""
    context = str(kwargs.get("agent_context") or "primary")
    if context != "primary":
        return context
    return "cron" if kwargs.get("platform") == "cron" else ""


def _chat_in(kwargs: Mapping[str, Any]) -> str | None:
    # A digest: nothing in it is taken for an agent's name, or for a sort of run.
    key = kwargs.get("gateway_session_key")
    return blake2s(str(key).encode("utf-8", "replace")).hexdigest() if key else None


def _profile_in(home: Path) -> tuple[Path, Settings]:
    """Return the profile that a Hermes home works with, and its settings.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    settings = HermesSettings.load(home)
    path = settings.choose_profile(identity_of(home), os.environ)
    if path != profile_path(settings.profile, os.environ):
        return path, Settings.load(path, environ={})  # as an agent's own key is loaded everywhere
    return path, Settings.load(settings.profile)
