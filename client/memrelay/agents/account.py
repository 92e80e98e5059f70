"""The keys of an account's agents as they stand: what each holds, and single grants and ends.

It does not own what is to be done for an agent (`provision.py`, `enrolment.py`), or its files
(`storage.py`).

- What a key holds is read from signed grants that lead back to the founder. The relayer's own list
  of keys tells labels only.
- All of it is looked up once for a command, however many agents that names.
"""

import shlex
import time
from collections.abc import Sequence
from functools import cached_property

from memrelay.agents.access import Holdings, Share, check_apart, home_of, sum_grants
from memrelay.agents.storage import AgentFiles
from memrelay.config import Settings, agent_name
from memrelay.errors import ConfigError, MemrelayError, NotFound, NotGranted
from memrelay.models import KeyInfo
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.ledger import Ledger
from memrelay.sync_client import SyncMemoryClient


class _Survey:
    """The keys of all agents, as the relayer lists them and as the profiles here say."""

    def __init__(self, client: SyncMemoryClient, files: AgentFiles) -> None:
        self._client = client
        self._files = files

    @cached_property
    def infos(self) -> Sequence[KeyInfo]:
        """The keys that the relayer lists."""
        return self._client.keys()

    @cached_property
    def profiles(self) -> tuple[dict[str, str], list[str]]:
        """The agents' names by public key, and what is wrong with other profiles."""
        return self._files.profiles()

    @cached_property
    def labelled(self) -> dict[str, list[str]]:
        """The public keys that the relayer lists under each agent's name."""
        found: dict[str, list[str]] = {}
        for info in self.infos:
            if (name := label_of(info)) is not None:
                found.setdefault(name, []).append(info.public_key)
        return found


class AgentAccount:
    """The keys of one account's agents, administered with an owner's key.

    `options` are those of a command line that gets there, for the commands that messages name.
    """

    def __init__(
        self, client: SyncMemoryClient, files: AgentFiles, options: Sequence[str] = ()
    ) -> None:
        self.client = client
        self.files = files
        self._options = options
        self._survey = _Survey(client, files)

    def refresh(self) -> None:
        """Look again at what there is.

        Raises:
            NotGranted: this is no owner's key.
        """
        self._survey = _Survey(self.client, self.files)
        self.client.session.forget_grants()
        self.check_owner()

    def check_owner(self) -> None:
        """Check that this is an owner's key.

        Raises:
            NotGranted: it is not.
        """
        own = self.ledger.list_grants_to(self.client.settings.identity.public_key, _now_ms())
        if not any(grant.role == "owner" for grant in own):
            raise NotGranted("Only an owner's key administers agents; name its profile.")

    @property
    def ledger(self) -> Ledger:
        """The account's grants, with those that this client has added since they were loaded."""
        return self.client.run(self.client.session.ledger())

    @property
    def infos(self) -> Sequence[KeyInfo]:
        """The keys that the relayer lists: their labels are its word alone."""
        return self._survey.infos

    @property
    def profiles(self) -> tuple[dict[str, str], list[str]]:
        """The agents' names by public key of their profiles here, and what is wrong with others."""
        return self._survey.profiles

    def sum_grants(self, name: str, public_key: str, at_ms: int | None = None) -> Holdings:
        """Return what a key holds, now unless another time is given.

        Raises:
            MemrelayError: it holds the whole account.
        """
        at_ms = _now_ms() if at_ms is None else at_ms
        return sum_grants(name, self.ledger.list_grants_to(bytes.fromhex(public_key), at_ms))

    def find_labelled_keys(self, name: str) -> list[str]:
        """Return the keys that the relayer lists under an agent's name, and no profile as others'.

        It may list any: what one of them holds tells whether it can be the agent's.
        """
        names, _ = self.profiles
        return [k for k in self._survey.labelled.get(name, []) if names.get(k, name) == name]

    def find_holders(self, name: str) -> list[str]:
        """Return the keys of this name that hold anything."""
        return [key for key in self.find_labelled_keys(name) if self.sum_grants(name, key)]

    def find_only_holder(self, name: str) -> str:
        """Return the key of this name that holds anything.

        Raises:
            NotFound: there is none.
            MemrelayError: there are several.
        """
        keys = self.find_holders(name)
        if len(keys) > 1:
            raise MemrelayError(
                f"Several keys are called {name}; {self.command('revoke', name)} ends them all."
            )
        if not keys:
            raise make_not_found(name)
        return keys[0]

    def check_names(self, names: Sequence[str], shared: Sequence[str]) -> None:
        """Check that no agent's own namespace is one that others use by these names.

        Raises:
            ConfigError: one is, or a name is malformed.
        """
        others = {normalise_namespace(self.client.settings.namespace), *shared}
        for name in names:
            check_apart(name, others)

    def check_new(self, name: str) -> None:
        """Check that no key of this name is in use, and that nobody holds its namespace yet.

        An agent that ended may have shared its own: one that this machine knows comes back.

        Raises:
            MemrelayError: a key is in use.
            ConfigError: somebody holds the namespace.
        """
        if self.find_holders(name):
            raise MemrelayError(
                f"{name} has a key, but no profile at {self.files.path(name)}: put it back, "
                f"or replace the key with {self.command('rotate', name, '--lost')}."
            )
        self.check_home(name)

    def check_home(self, name: str) -> None:
        """Check that nobody holds a new agent's own namespace yet.

        Raises:
            ConfigError: somebody does.
        """
        home, owner = home_of(name), self.client.settings.identity.public_key
        if not self.files.is_known(name) and self.ledger.names(home, _now_ms(), but=owner):
            check_apart(name, {home})

    def grant(self, name: str, settings: Settings, share: Share) -> None:
        """Grant a share to an agent's key."""
        self.client.add_key(
            namespaces=share.namespaces,
            role=share.role,
            label=name,
            identity=settings.identity,
            expires=share.expires_at,
        )

    def withdraw(self, name: str, public_key: str) -> None:
        """Revoke a key unless that was done; also one whose grants ended by this clock.

        The relayer's clock may differ, and it may take the key still.
        """
        if self.sum_grants(name, public_key, at_ms=0):
            self.client.revoke_key(public_key)

    def command(self, action: str, *words: str) -> str:
        """Return the command on agents that a message names."""
        return f"`{shlex.join(['memrelay', 'agents', action, *words, *self._options])}`"


def label_of(key: KeyInfo) -> str | None:
    """Return the agent that a key's label names, if the key can be an agent's."""
    label = key.label or ""
    try:
        return label if key.namespaces is not None and agent_name(label) == label else None
    except ConfigError:
        return None


def make_not_found(name: str) -> NotFound:
    """Return the error for an agent that nobody knows."""
    return NotFound(f"There is no agent {name}.", status=404, code="not_found")


def _now_ms() -> int:
    return int(time.time() * 1000)
