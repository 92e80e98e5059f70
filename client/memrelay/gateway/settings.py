"""Every threshold of the hooks, with its default, in named profiles.

It does not own what the thresholds are compared with (`guards.py`, `filters.py`).

- The default profile, `memwal`, has MemWal's values, but for its least lengths: these are those of
  `memwal-strict`. By default a text counts unless it says nothing (`trivial.py`), however short.
- `core-plus` and `memsearch` are those of the plugins of these names, for people who come from
  them. `coding` is that of coding agents' hooks.
- Names are snake_case here and in files, camelCase in a gateway's JSON configuration.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from memrelay.config import expand_home, profile_path
from memrelay.errors import ConfigError

MEMWAL_TAG = "memwal-memories"
CORE_PLUS_TAG = "relevant-memories"
COLD_START_TAG = "memrelay-recent-memories"
INJECTION_TOKENS_MIN = 100  # what stands around memories takes half of it
CAPTURE_SCOPES = ("window", "turn")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The settings of the hooks: what they do, and from which size on.

    Lengths are in characters after cleaning, times in seconds. A `*_max` of 0 means no bound where
    the comment says so.

    Raises:
        ConfigError: a value is out of its range; the message names it.
    """

    # Before a turn.
    auto_recall: bool = True
    recall_results_max: int = 5  # 1 to 20, over all namespaces together
    recall_tokens_max: int = 0  # of recalled memories, as the relayer counts them; 0: no bound
    relevance_min: float = 0.3  # of 1 − distance
    prompt_chars_min: int = 0  # shorter ones lead to no recall
    recall_deadline_s: float = 1.0  # a turn waits no longer; there is no second attempt
    outage_pause_s: float = 10.0  # after a failure, turns do not wait at all for this long
    recall_shared: bool = True  # also search the shared namespaces that the agent's key holds
    injection_tokens_max: int = 800  # of all that is put into a turn, estimated; 0: no bound
    memory_tag: str = MEMWAL_TAG  # what recalled memories are wrapped in
    memory_details: bool = False  # show each memory's id and relevance
    cold_start: bool = False  # a session's first turn gets the newest memories
    cold_start_memories: int = 30

    # After a turn.
    auto_capture: bool = True
    capture_scope: str = "window"  # "window": the last messages; "turn": the last turn only
    capture_messages_max: int = 10  # 1 to 50
    message_chars_min: int = 0  # shorter texts are dropped before any rule looks at them
    capture_chars_min: int = 0  # shorter ones are kept only for a trigger word
    capture_chars_max: int = 0  # longer messages are dropped; 0: no bound
    conversation_chars_min: int = 0
    capture_emojis_max: int = 3
    capture_code: bool = True  # keep messages with a code block or a heading
    capture_noise: bool = True  # keep log lines, reply directives and leaked prefixes
    require_user_message: bool = False  # capture nothing if no message of the user is left
    capture_retry_s: float = 2.0  # pause before the one immediate retry
    debounce_s: float = 0.0  # 0: a turn is captured when it ends

    # On disk, while the relayer is away.
    spool_bytes_max: int = 16 * 1024 * 1024
    spool_turns_max: int = 1000

    # Whose turns count.
    skip_subagents: bool = True
    skip_cron: bool = True
    skip_heartbeat: bool = True

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} is from {low} to {high}.")
        if 0 < self.injection_tokens_max < INJECTION_TOKENS_MIN:
            raise ConfigError(
                f"injection_tokens_max is at least {INJECTION_TOKENS_MIN}, or 0 for no bound."
            )
        if self.capture_scope not in CAPTURE_SCOPES:
            raise ConfigError("capture_scope is window or turn.")
        if self.memory_tag not in {MEMWAL_TAG, CORE_PLUS_TAG}:
            raise ConfigError(f"memory_tag is {MEMWAL_TAG} or {CORE_PLUS_TAG}.")

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None) -> "GatewaySettings":
        """Return the settings of a mapping in either spelling; `profile` names what it changes.

        Raises:
            ConfigError: a name is unknown, or a value of the wrong type or out of range.
        """
        given = {_snake(name): value for name, value in (values or {}).items()}
        profile = given.pop("profile", "memwal")
        if not isinstance(profile, str) or profile not in PROFILES:
            raise ConfigError(f"profile is one of {', '.join(PROFILES)}.")
        types = {item.name: type(getattr(_DEFAULTS, item.name)) for item in fields(cls)}
        for name, value in given.items():
            if name not in types:
                raise ConfigError(f"There is no setting {name}.")
            given[name] = _convert(name, value, types[name])
        return replace(PROFILES[profile], **given)


_RANGES: dict[str, tuple[float, float]] = {
    "recall_results_max": (1, 20),
    "recall_tokens_max": (0, 100_000),
    "relevance_min": (0, 1),
    "prompt_chars_min": (0, 1000),
    "recall_deadline_s": (0.05, 15),
    "outage_pause_s": (0, 3600),
    "injection_tokens_max": (0, 100_000),
    "cold_start_memories": (1, 100),
    "capture_messages_max": (1, 50),
    "message_chars_min": (0, 1000),
    "capture_chars_min": (0, 10_000),
    "capture_chars_max": (0, 60_000),
    "conversation_chars_min": (0, 10_000),
    "capture_emojis_max": (0, 1000),
    "capture_retry_s": (0, 60),
    "debounce_s": (0, 60),
    "spool_bytes_max": (0, 1 << 30),
    "spool_turns_max": (0, 100_000),
}


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _convert(name: str, value: object, wanted: type) -> Any:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"{name} has a value of the wrong type.")
    return value


_DEFAULTS = GatewaySettings()
_WITH_LENGTHS = GatewaySettings(prompt_chars_min=10, message_chars_min=11, capture_chars_min=30)
PROFILES = {
    "memwal": _DEFAULTS,
    "core-plus": GatewaySettings(
        prompt_chars_min=5,
        memory_tag=CORE_PLUS_TAG,
        memory_details=True,
        capture_chars_min=10,
        capture_chars_max=2000,
        conversation_chars_min=20,
        capture_code=False,
        require_user_message=True,
    ),
    "memsearch": replace(
        _WITH_LENGTHS,
        cold_start=True,
        capture_scope="turn",
        capture_noise=False,
        debounce_s=5.0,
    ),
    "memwal-strict": _WITH_LENGTHS,
    # Of a coding agent's turn the user's words count: its answers tell of files and commands.
    "coding": replace(_DEFAULTS, require_user_message=True),
}


def settings_table(
    file: str | None, profile: str | Path | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings in a file, or in `gateway.toml` beside the profile if there is one.

    Raises:
        ConfigError: it is missing or malformed, or a setting is wrong; the message names it.
    """
    path = expand_home(file) if file else settings_path(profile, environ)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        GatewaySettings.of(table)
    except FileNotFoundError:
        if file is None:
            return {}
        raise ConfigError(f"There is no file {path}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} cannot be read as TOML.") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return table


def settings_path(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the path of the gateway's settings, beside the profile."""
    return profile_path(profile, environ).with_name("gateway.toml")
