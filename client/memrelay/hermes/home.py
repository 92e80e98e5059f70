"""Changes a Hermes home: the provider's folder, its settings, and the choice of it.

It does not own what the provider does (`provider.py`), how the choice is written (`choice.py`)
or asking the user (`commands/hermes.py`).

- Nothing here holds a key: the settings name a profile, which does.
- Taking back restores what was there before, and leaves what the user changed since.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay import __version__
from memrelay.config import agent_name, agent_path, expand_home, profile_path
from memrelay.errors import ConfigError
from memrelay.gateway.guards import MAIN_AGENT, distinct
from memrelay.gateway.settings import GatewaySettings
from memrelay.hermes.choice import Choice, NotEditable
from memrelay.secure_files import write_private, write_private_text

PROVIDER = "memrelay"
FRAGMENT = f"memory:\n  provider: {PROVIDER}\n"

_PLUGIN = {
    "__init__.py": '"""Hermes finds this by the word register_memory_provider, and calls it."""\n'
    "from memrelay.hermes.provider import register  # noqa: F401\n",
    "plugin.yaml": f"name: {PROVIDER}\nversion: {__version__}\nkind: exclusive\n"
    'description: "Long-term memory that nobody else can read: end-to-end sealed, self-hosted."\n'
    f"pip_dependencies:\n  - {PROVIDER}\n",
}
_UNNAMED = {"", "default", "custom"}  # what Hermes calls a home that is no profile of its own


@dataclass(frozen=True, kw_only=True)
class HermesSettings:
    """The settings in `memrelay.json` of a Hermes home.

    Without `profile`, the environment and the user's own profile count; without `agent`, the name
    of the Hermes profile does.

    Raises:
        ConfigError: a member is unknown or malformed; the message names it.
    """

    profile: str | None = None
    agent: str | None = None
    gateway: GatewaySettings = field(default_factory=GatewaySettings)

    @classmethod
    def load(cls, home: Path) -> "HermesSettings":
        """Return the settings of a home; those of a home without any are the defaults."""
        path = settings_path(home)
        try:
            return cls.of(_read(path))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "HermesSettings":
        """Return the settings of a mapping; `settings` in it are those of the gateway."""
        unknown = set(values) - {"profile", "agent", "settings"}
        if unknown:
            raise ConfigError(f"there is no setting {', '.join(sorted(unknown))}.")
        for name in ("profile", "agent"):
            if not isinstance(values.get(name, ""), str):
                raise ConfigError(f"{name} is a text.")
        gateway = values.get("settings", {})
        if not isinstance(gateway, dict):
            raise ConfigError("settings is an object.")
        agent = values.get("agent")
        return cls(
            profile=values.get("profile") or None,
            agent=agent_name(agent) if agent else None,
            gateway=GatewaySettings.of(gateway),
        )

    def agent_in(self, identity: str | None) -> str | None:
        """Return whose memory it is in a Hermes profile; None for the memrelay profile's own."""
        if self.agent is not None:
            return self.agent
        if identity is None or identity in _UNNAMED:
            return None
        # Otherwise that profile's memory would be the one of the profile without a name.
        return distinct(MAIN_AGENT) if identity.lower() == MAIN_AGENT else identity

    def choose_profile(self, identity: str | None, environ: Mapping[str, str]) -> Path:
        """Return the path of the profile whose key signs: the agent's own, if it has one."""
        agent = self.agent_in(identity)
        own = None if agent is None else agent_path(agent, self.profile, environ)
        return own if own and own.exists() else profile_path(self.profile, environ)


def settings_path(home: Path) -> Path:
    """Return where a home keeps our settings."""
    return home / "memrelay.json"


def save_settings(home: Path, values: Mapping[str, Any]) -> None:
    """Change some settings of a home; an empty value takes one away.

    Raises:
        ConfigError: the result would be malformed, or cannot be written.
    """
    kept = {**_read(settings_path(home)), **values}
    kept = {name: value for name, value in kept.items() if value not in (None, "", {})}
    HermesSettings.of(kept)
    write_private(settings_path(home), kept)


def settings_say(home: Path, values: Mapping[str, Any]) -> bool:
    """Return whether a home's settings have these values; an empty one is none."""
    found = _read(settings_path(home))
    return all(found.get(name, "") == value for name, value in values.items())


def forget_settings(home: Path) -> None:
    """Remove the settings that an installation wrote; what the user tuned stays."""
    path = settings_path(home)
    if set(_read(path)) <= {"profile", "agent"}:
        path.unlink(missing_ok=True)


def home_path(chosen: str | None, environ: Mapping[str, str]) -> Path:
    """Return the home that Hermes itself would use, or the chosen one.

    Raises:
        ConfigError: there is none.
    """
    default = Path(environ.get("HOME") or Path.home()) / ".hermes"
    home = expand_home(chosen or environ.get("HERMES_HOME") or default).absolute()
    active = home / "active_profile"  # of `hermes profile use`
    if not chosen and active.is_file():
        name = active.read_text(encoding="utf-8").strip()
        home = home if name in _UNNAMED else home / "profiles" / name
    if not home.is_dir():
        raise ConfigError(
            f"There is no Hermes home at {home}; run `hermes setup`, or name it with --hermes-home."
        )
    return home


def identity_of(home: Path) -> str | None:
    """Return the name of the Hermes profile that a home is of, None for the one of no profile."""
    return home.name if home.parent.name == "profiles" else None


def plugin_path(home: Path) -> Path:
    """Return the folder in which Hermes looks for the provider."""
    return home / "plugins" / PROVIDER


def plugin_is_written(home: Path) -> bool:
    """Return whether the provider's files are there, as this version writes them."""
    folder = plugin_path(home)
    return all(
        (folder / name).is_file() and (folder / name).read_text(encoding="utf-8") == text
        for name, text in _PLUGIN.items()
    )


def write_plugin(home: Path) -> None:
    """Write the provider's files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    for name, text in _PLUGIN.items():
        write_private_text(plugin_path(home) / name, text)


def remove_plugin(home: Path) -> None:
    """Remove the provider's folder."""
    shutil.rmtree(plugin_path(home), ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a JSON object.")
    return values


class Configuration:
    """The `config.yaml` of a Hermes home.

    Raises:
        NotEditable: it cannot be read, or its `memory` is not written in plain lines.
    """

    def __init__(self, home: Path) -> None:
        self.path = (home / "config.yaml").resolve()
        self.backup = self.path.with_name(f"{self.path.name}.before-{PROVIDER}")
        self._text = _text_of(self.path)
        try:
            self._choice = Choice(self._text)
        except NotEditable as error:
            raise NotEditable(f"{self.path}: {error}") from None

    @property
    def provider(self) -> str | None:
        """The memory provider that is chosen."""
        return self._choice.value

    def install(self) -> None:
        """Choose our provider; the file before is kept beside it."""
        write_private_text(self.backup, self._text)
        self._replace(self._choice.replace_value(PROVIDER))

    def before(self) -> str | None:
        """Return the provider that was chosen before ours."""
        try:
            return Choice(_text_of(self.backup)).value
        except NotEditable:
            return None

    def uninstall(self) -> None:
        """Choose what was chosen before: the very file, if nothing else in it has changed."""
        old = _text_of(self.backup)
        if not old or Choice(old).replace_value(PROVIDER) != self._text:
            old = self._choice.replace_value(self.before() or '""')
        self._replace(old)
        self.backup.unlink(missing_ok=True)

    def _replace(self, text: str) -> None:
        mode = self.path.stat().st_mode & 0o777 if self.path.exists() else 0o600
        write_private_text(self.path, text)
        self.path.chmod(mode)


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        raise NotEditable(f"{path} cannot be read as text.") from None
