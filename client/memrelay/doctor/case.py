"""Holds the subject of an examination: a profile with its relayer, and commands that mend it.

It does not own the checks.

- A fact is looked up when a check first asks for it, in whatever order; what goes wrong then is
  raised anew for each that asks.
- Commands name the profile or agent that was given, so that they mend the one that was examined.
"""

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from memrelay.agents.storage import AgentFiles
from memrelay.config import VARIABLES, Settings, agent_path, agents_folder, is_named, profile_path
from memrelay.doctor.refusals import Inquiry
from memrelay.errors import ConfigError, Invalid, MemrelayError
from memrelay.exchange import Received
from memrelay.models import Usage
from memrelay.sealed.grants import Grant
from memrelay.sealed.keys import Identity, normalise_namespace
from memrelay.secure_files import read_private
from memrelay.sync_client import SyncMemoryClient
from memrelay.trust_store import TrustState, TrustStore

_PRIVATE_KEY = re.compile(rb"""["']([0-9a-fA-F]{64})["']""")  # and whatever looks like one
_SET_CLOCK = {"darwin": "sudo sntp -sS time.apple.com", "win32": "w32tm /resync"}


class TimedAnswer(NamedTuple):
    """An answer, and between which times of this machine the relayer gave it."""

    response: Received
    asked: datetime
    come: datetime


class Case:
    """The profile that a command with these options would use, and the facts about it.

    Raises:
        ConfigError: the agent's name or the namespace is malformed.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        profile: str | None = None,
        agent: str | None = None,
        namespace: str | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 5.0,
        system: Path = Path("/"),
    ) -> None:
        self.system = system  # where /proc and /sys are
        self.main_path = profile_path(profile, environ)
        self.path = agent_path(agent, profile, environ) if agent else self.main_path
        self.required = bool(agent) or is_named(profile, environ)
        self.agent = agent
        self.environ = environ
        # Who names an agent means its key, also where the environment holds another one.
        self.overrides: Mapping[str, str] = {} if agent else environ
        self.namespace = namespace
        self.clock = clock
        self._timeout_s = timeout_s
        self._main_options = f" --profile {shlex.quote(profile)}" if profile else ""
        self._options = self._main_options + (f" --agent {agent}" if agent else "")
        self._owner_options = self._main_options if agent else ""
        if namespace is not None:
            _check_namespace(namespace)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the profile and what overrides it."""
        chosen = self.path if self.required else None
        return Settings.load(chosen, environ=self.overrides, namespace=self.namespace)

    @cached_property
    def trust_state(self) -> TrustState:
        """The state of the relayer that this client verified before."""
        return TrustStore(self.settings.seen_path).value

    @cached_property
    def health(self) -> TimedAnswer:
        """The relayer's answer on how it is."""
        asked = self.now()
        return TimedAnswer(self.inquiry.get("/health"), asked, self.now())

    @cached_property
    def valid_grants(self) -> list[Grant]:
        """The grants of this key that count now and lead back to the founder."""
        public_key = self.settings.identity.public_key
        return self.client.grants().list_grants_to(public_key, int(self.clock() * 1000))

    @property
    def is_owner(self) -> bool:
        """True if this key owns the account."""
        return any(grant.role == "owner" for grant in self.valid_grants)

    @cached_property
    def usage(self) -> Usage:
        """The account's usage, and the way in which the relayer finds facts."""
        return self.client.usage()

    @cached_property
    def inquiry(self) -> Inquiry:
        """Single requests to the relayer."""
        return Inquiry(self.settings, clock=self.clock, timeout_s=self._timeout_s)

    @cached_property
    def client(self) -> SyncMemoryClient:
        """The client that every command would use."""
        return SyncMemoryClient.from_settings(self.settings, deadline_s=2 * self._timeout_s)

    def close(self) -> None:
        """Close what was opened."""
        for name in ("inquiry", "client"):
            if name in vars(self):  # a cached property that was never asked for is not there
                with suppress(MemrelayError):
                    vars(self)[name].close()

    def now(self) -> datetime:
        """The time of this machine."""
        return datetime.fromtimestamp(self.clock(), UTC)

    def owner(self) -> Settings | None:
        """The main profile, if it holds another key of the same account at the same relayer."""
        usual = {name: v for name, v in self.environ.items() if name != "MEMRELAY_PROFILE"}
        above = self.path.parent.parent / "profile.json"
        for path in (self.main_path, above, profile_path(None, usual)):
            with suppress(ConfigError):
                main = Settings.load(path, environ={})
                same = (main.url, main.account_id) == (self.settings.url, self.settings.account_id)
                if same and main.private_key != self.settings.private_key:
                    return main
        return None

    def identities(self) -> list[Identity]:
        """The keys that there are here: of the environment, and of profiles, plans and what they
        replaced, in the folders of the owner's and of the agents'."""
        keys = [self.environ.get(VARIABLES["private_key"], "")]
        folders = (self.main_path.parent, agents_folder(self.main_path, self.environ))
        for path in chain(*(f.glob(ends) for f in folders for ends in ("*.json*", "*.toml*"))):
            with suppress(ConfigError):
                found = _PRIVATE_KEY.findall(read_private(path) or b"")
                keys += [key.decode() for key in found]
        identities = []
        for key in keys:
            with suppress(ConfigError):
                identities.append(Identity.from_hex(key))
        return identities

    def list_agents(self) -> dict[str, str]:
        """The agents whose profiles are here, by public key."""
        folder = agents_folder(self.main_path, self.environ)
        with suppress(ConfigError):
            return AgentFiles(folder, self.settings.account_id).profiles()[0]
        return {}

    # What to type

    def command(self, text: str) -> str:
        """A command of this program, for the profile that is examined."""
        return f"memrelay {text}{self._options}"

    def local(self, text: str) -> str:
        """A command on what serves all agents here; it takes no agent's name."""
        return f"memrelay {text}{self._main_options}"

    def correct(self, name: str, value: str) -> str:
        """Return the command that changes a setting, in the place where it came from."""
        if self.overrides.get(VARIABLES[name]) or not self.path.exists():
            return f"export {VARIABLES[name]}={shlex.quote(value)}"
        return f"${{EDITOR:-vi}} {shlex.quote(str(self.path))}"

    def renew(self) -> str:
        """Return the command by which an owner grants this key's holder what it needs."""
        if name := self._agent_name():
            return self.agents(f"provision {name}")
        namespace = shlex.quote(self.settings.namespace)
        return f"memrelay keys add --namespace {namespace} --out NEW.json"

    def prolong(self) -> str:
        """Return the command that an owner types before a grant ends."""
        name = self._agent_name()
        return self.agents(f"rotate {name} --expires 90d") if name else self.renew()

    def agents(self, text: str) -> str:
        """A command on agents, for the owner's profile."""
        return f"memrelay agents {text}{self._owner_options}"

    def _agent_name(self) -> str | None:
        return self.agent or (self.path.stem if self.path.parent.name == "agents" else None)

    def trust(self) -> str:
        """Return the command that accepts another relayer; its key comes from the operator."""
        if self.overrides.get(VARIABLES["relayer_key"]) or not self.path.exists():
            return f"export {VARIABLES['relayer_key']}=KEY"
        return self.command("trust KEY")

    def set_clock(self) -> str:
        """Return the command that sets this machine's clock."""
        return _SET_CLOCK.get(sys.platform, "sudo timedatectl set-ntp true")


def _check_namespace(name: str) -> None:
    try:
        normalise_namespace(name)
    except Invalid as error:
        raise ConfigError(str(error)) from None
