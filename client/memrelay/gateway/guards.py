"""Decides whose turns are remembered, as which agent, in which namespace.

It does not own what a text is worth (`filters.py`), nor which key an agent has (`roster.py`).

- A run that works on memories itself never leads to recall or capture: memory would feed itself.
- Two agents do not get one name or one namespace by accident, except where the gateway itself does
  not tell them apart. Names with a digest can be chosen on purpose: who names agents is trusted.
"""

import re
from hashlib import blake2s

from memrelay.gateway.host_events import Context, Turn
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.trivial import is_trivial

MAIN_AGENT = "main"
TRIVIAL = "trivial"  # the one refusal that is about the prompt, not about the run
# What was said in a run that is refused so does not count later, either.
SKIPPED = frozenset({"memory_run", "cron", "heartbeat", "subagent", "failed"})
# What other gateways call the triggers of OpenClaw: `memory`, `cron`, and sub-agents' runs.
_OF_MEMORY = frozenset({"pre-compaction", "compaction", "dreaming"})
_SCHEDULED = frozenset({"cron", "cronjob", "schedule", "scheduled", "scheduler", "timer"})
_DELEGATED = frozenset({"subagent", "sub-agent", "delegate", "delegation", "inter-session"})

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NOT_IN_NAME = re.compile(r"[^a-z0-9_-]+")


def run_refusal(context: Context, settings: GatewaySettings) -> str | None:
    """Return why runs of this sort are left alone, in a fixed word, or None."""
    trigger = re.sub(r"[^a-z]+", "-", (context.trigger or "").lower()).strip("-")
    session = _within_agent(context.session_key)
    if "memory" in trigger or trigger in _OF_MEMORY or ":memory-capture:" in session:
        return "memory_run"
    if settings.skip_cron and (trigger in _SCHEDULED or ":cron:" in session):
        return "cron"
    if settings.skip_heartbeat and "heartbeat" in {trigger, session.rpartition(":")[2]}:
        return "heartbeat"
    if settings.skip_subagents and (trigger in _DELEGATED or ":subagent:" in session):
        return "subagent"
    return origin_refusal(context.origin, settings)


def origin_refusal(origin: str | None, settings: GatewaySettings) -> str | None:
    """Return why an input that came from there does not count, in a fixed word, or None."""
    if settings.skip_heartbeat and origin == "internal_system":
        return "heartbeat"
    # What another session sends, such as a sub-agent that has finished, arrives as a user's input.
    return "subagent" if settings.skip_subagents and origin == "inter_session" else None


def recall_refusal(query: str, context: Context, settings: GatewaySettings) -> str | None:
    """Return why nothing is recalled for a cleaned query, in a fixed word, or None."""
    if not settings.auto_recall:
        return "off"
    if refusal := run_refusal(context, settings):
        return refusal
    if len(query) < settings.prompt_chars_min or is_trivial(query):
        return TRIVIAL
    return None


def capture_refusal(turn: Turn, context: Context, settings: GatewaySettings) -> str | None:
    """Return why a turn is not captured, in a fixed word, or None."""
    if not settings.auto_capture:
        return "off"
    if refusal := run_refusal(context, settings):
        return refusal
    if not turn.success:
        return "failed"
    if not turn.messages:
        return "empty"
    return None


def agent_of(context: Context) -> str:
    """Return the agent's name, `main` if none is given: 1 to 64 of `a-z`, `0-9`, `_` and `-`.

    Letters are lower case, as in OpenClaw. A name with other characters gets a digest, so that it
    is safe in a path and still its own.
    """
    name = context.agent_id
    if name is None:
        key = context.session_key or ""
        if not key.lower().startswith("agent:"):
            return MAIN_AGENT
        name = key.split(":", 2)[1]
    lower = name.strip().lower()
    return lower if _NAME.fullmatch(lower) else distinct(lower)


def namespace_of(context: Context, default: str = "default") -> str:
    """Return the namespace of an agent without a key of its own: its name, or the main agent's.

    An agent that is called like the main agent's namespace gets another one than that.
    """
    name = agent_of(context)
    if name == MAIN_AGENT:
        return default
    return distinct(name) if name == default else name


def distinct(name: str) -> str:
    """Return a name for what is called so, and for nothing that may be called anything else."""
    stem = _NOT_IN_NAME.sub("-", name).strip("-_")[:40] or "agent"
    return f"{stem}-{blake2s(name.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _within_agent(session_key: str | None) -> str:
    """Return `:` and a session key without its `agent:NAME:`; an agent may be called `cron`."""
    parts = (session_key or "").strip().lower().split(":", 2)
    return ":" + (parts[-1] if parts[0] == "agent" and len(parts) == 3 else ":".join(parts))
