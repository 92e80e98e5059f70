"""The files of agents on the owner's machine: profiles, unfinished plans, marks of revoked ones.

It does not own what is in a profile (`config.py`) or carrying plans out (`provision.py`).

- All of them lie in one folder: `NAME.json`, `NAME.json.pending` and `NAME.json.revoked`. Only the
  first two hold a private key; each is replaced at once.
- `rotation.begun` says which keys a rotation of several agents replaces, until all are replaced.
- The mark of a revoked agent keeps a gateway from serving it with the owner's key instead.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay.agents.access import Share
from memrelay.config import Settings, agent_name, agent_paths_in, read_profile
from memrelay.errors import ConfigError, ServerError
from memrelay.secure_files import lock_file, read_private, write_private

# As `secure_files.py` names what it has not put in its place yet. What agents have seen is named
# alike, but with another point, and is written without this folder's lock.
_HALF_WRITTEN = re.compile(
    r"\.([a-z0-9_-]+\.json(\.pending|\.revoked)?|rotation\.begun)\.[a-z0-9_]{8}"
)
_BEGUN_BYTES_MAX = 4 * 2**20  # of some 20,000 agents
_BEGUN_S_MAX = 24 * 3600  # who types the same a day later means new keys for all


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps to take for one agent: grants to a new key, its profile, an old key's end.

    `replaced` is the old one's private key, where that is here: what waits sealed for it is then
    sealed for the new one.
    """

    settings: Settings
    grants: tuple[Share, ...]
    replaces: str | None = None
    replaced: str | None = field(default=None, repr=False)

    @property
    def state(self) -> str:
        """The agent's state once this is done."""
        return "rotated" if self.replaces else "created"


class AgentFiles:
    """The files of one account's agents in one folder."""

    def __init__(self, folder: Path, account_id: str) -> None:
        self._folder = folder
        self._account_id = account_id

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be in what one process at a time is in; whoever begins a plan must be.

        What a killed one was just writing, a private key among it, is deleted.

        Raises:
            ConfigError: the folder cannot be written.
        """
        with lock_file(self._folder / ".lock"):
            for path in self._folder.glob(".*"):
                if _HALF_WRITTEN.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            yield

    def path(self, name: str) -> Path:
        """Return the path of an agent's profile."""
        return self._folder / f"{agent_name(name)}.json"

    def is_known(self, name: str) -> bool:
        """Return whether an agent has a profile here, or the mark of its end."""
        return self.path(name).exists() or self._revoked_path(name).exists()

    def is_pending_or_kept(self, name: str) -> bool:
        """Return whether an agent has a key here, or is about to get one."""
        return self.path(name).exists() or self._pending_path(name).exists()

    def _pending_path(self, name: str) -> Path:
        return self._folder / f"{agent_name(name)}.json.pending"

    def _revoked_path(self, name: str) -> Path:
        return self._folder / f"{agent_name(name)}.json.revoked"

    def settings(self, name: str) -> Settings | None:
        """Return the settings of an agent's profile, None without one.

        Raises:
            ConfigError: it is malformed, readable by others or of another account.
        """
        path = self.path(name)
        return self._own(read_profile(path, missing_ok=False), path) if path.exists() else None

    def profiles(self) -> tuple[dict[str, str], list[str]]:
        """Return the names of all agents by public key, and what is wrong with other profiles."""
        names: dict[str, str] = {}
        faults: list[str] = []
        for name in agent_paths_in(self._folder):
            try:
                settings = self.settings(name)
            except ConfigError as error:
                faults.append(str(error))
            else:
                names |= {settings.public_key: name} if settings else {}
        return names, faults

    def pending_names(self) -> list[str]:
        """Return the agents for which something was begun and not finished."""
        found = self._folder.glob("*.json.pending")
        return sorted(path.name.removesuffix(".json.pending") for path in found)

    def begun_rotation(self) -> dict[str, str]:
        """Return the keys, by agent, that an interrupted rotation of several was to replace.

        Raises:
            ConfigError: others may read the file.
        """
        return self._read_begun()[1]

    def begin_rotation(self, replaces: Mapping[str, str]) -> None:
        """Write down which keys, by agent, a rotation of several replaces."""
        began, _ = self._read_begun()
        write_private(self._begun_path(), {"began": began, "replaces": dict(replaces)})

    def finish_rotation(self, names: Iterable[str]) -> None:
        """Forget that these agents were to be rotated: it is done."""
        _, replaces = self._read_begun()
        for name in names:
            replaces.pop(name, None)
        if replaces:
            self.begin_rotation(replaces)
        else:
            self._begun_path().unlink(missing_ok=True)

    def _read_begun(self) -> tuple[int, dict[str, str]]:
        """Return when a rotation of several began that is not done, and the keys by agent."""
        data, now = read_private(self._begun_path(), bytes_max=_BEGUN_BYTES_MAX), int(time.time())
        try:
            values: Any = json.loads(data) if data else {"began": 0, "replaces": {}}
            if 0 <= now - values["began"] <= _BEGUN_S_MAX:
                replaces = {str(name): str(key) for name, key in values["replaces"].items()}
                return values["began"], replaces
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # It is of no use: all are rotated then, and each keeps a key that works.
        return now, {}

    def _begun_path(self) -> Path:
        return self._folder / "rotation.begun"

    def plan(self, name: str) -> Plan | None:
        """Return what was begun for an agent and not finished.

        Raises:
            ConfigError: its file is damaged, readable by others or of another account.
        """
        path = self._pending_path(name)
        data = read_private(path)
        if data is None:
            return None
        try:
            values = json.loads(data)
            settings = self._own(values["profile"], path)
            grants = tuple(Share.from_json(entry) for entry in values["grants"])
            return Plan(
                settings=settings,
                grants=grants,
                replaces=values["replaces"],
                replaced=values.get("replaced"),
            )
        except (ValueError, KeyError, TypeError, ServerError):
            # The parser's own message could quote the private key.
            raise ConfigError(f"{path} is damaged; remove it and try again.") from None

    def begin(self, name: str, plan: Plan) -> None:
        """Write down what is to be done for an agent."""
        values = {
            "profile": plan.settings.profile(),
            "grants": [share.to_json() for share in plan.grants],
            "replaces": plan.replaces,
            "replaced": plan.replaced,
        }
        write_private(self._pending_path(name), values)

    def keep(self, name: str, settings: Settings) -> None:
        """Write an agent's profile; a mark of its end is gone with that."""
        write_private(self.path(name), settings.profile())
        self._revoked_path(name).unlink(missing_ok=True)

    def finish(self, name: str) -> None:
        """Forget what was to be done for an agent."""
        self._pending_path(name).unlink(missing_ok=True)

    def revoke(self, name: str, public_key: str) -> None:
        """Delete the keys of an agent and mark it as revoked."""
        write_private(self._revoked_path(name), {"public_key": public_key})
        self.finish(name)
        self.path(name).unlink(missing_ok=True)

    def _own(self, values: Mapping[str, Any], path: Path) -> Settings:
        try:
            settings = Settings(**values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        except (TypeError, AttributeError):
            raise ConfigError(f"{path} is no whole profile.") from None
        if settings.account_id != self._account_id:
            raise ConfigError(f"{path} belongs to another account.")
        return settings
