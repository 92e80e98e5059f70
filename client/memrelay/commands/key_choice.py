"""Finds the keys that a person names to revoke, and shows them before anything is revoked.

It does not own revoking (`keys.py`, `rotation.py`) or agents' keys as such (`agents/`).

- What a key holds, and whether it counts, is read from signed grants that lead back to the founder.
- A relayer's list of keys tells labels only. A label alone revokes nothing unasked: who swaps two
  would have the stolen key kept, and granted all that is new.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memrelay.agents.storage import AgentFiles
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import agents_folder
from memrelay.errors import ConfigError, MemrelayError, NotFound, NotGranted
from memrelay.local_time import when
from memrelay.sealed.grants import Grant, NamespaceScope
from memrelay.sealed.keys import mask_key
from memrelay.sealed.ledger import Ledger
from memrelay.sync_client import SyncMemoryClient

KEY_HELP = "public key, 8 or more digits of its beginning, its short form in `keys list`, or label"
YES_HELP = "also by a label that only the relayer tells, and if too few owners are left"
_BEGINNING_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class ChosenKey:
    """A key that is to be revoked; `label` is its name if the relayer alone says that it is."""

    public_key: str
    holds: str
    label: str | None = None

    def __str__(self) -> str:
        return f"{self.public_key}, {self.holds}"


def choose_keys(shell: Shell, client: SyncMemoryClient, names: Sequence[str]) -> list[ChosenKey]:
    """Return the keys that a person means, each shown, and agreed to where that is needed.

    Raises:
        NotGranted: this is no owner's key.
        NotFound: there is no such key.
        ConfigError: too few owners would be left; or only the relayer says which key has a label,
            and nobody is there to ask.
        MemrelayError: there are several, the answer is no, or an agent's profile here contradicts.
    """
    ledger, now_ms = client.grants(), int(time.time() * 1000)
    if not _owns(ledger.list_grants_to(client.settings.identity.public_key, now_ms)):
        raise NotGranted("Only an owner's key revokes keys.")
    infos = client.keys()
    labels = {info.public_key: info.label for info in infos}
    folder = agents_folder(shell.args.profile, shell.environ)
    agents, _ = AgentFiles(folder, client.settings.account_id).profiles()
    keys = [_find(name, ledger, labels, agents, now_ms) for name in names]
    check_owners_left(ledger, [key.public_key for key in keys], now_ms, anyway=shell.args.yes)
    _agree(shell, keys)
    return keys


def end_agents(shell: Shell, client: SyncMemoryClient, keys: Sequence[ChosenKey]) -> list[str]:
    """End the agents here whose keys were revoked; return their names.

    As of `agents revoke`: the profile goes, and a mark keeps a gateway from taking the owner's key
    for that agent. One that is about to get another key is left alone.
    """
    files = AgentFiles(agents_folder(shell.args.profile, shell.environ), client.settings.account_id)
    going = {key.public_key for key in keys}
    ended: list[str] = []
    if not going & files.profiles()[0].keys():
        return ended
    with files.lock():
        for key, name in files.profiles()[0].items():
            plan = files.plan(name)
            if key in going and (plan is None or plan.settings.public_key in going):
                files.revoke(name, key)
                ended.append(name)
    return ended


def _find(
    wanted: str,
    ledger: Ledger,
    labels: Mapping[str, str | None],
    agents: Mapping[str, str],
    now_ms: int,
) -> ChosenKey:
    """Return the key of this name; what is the key's own comes before what others call it."""
    if not wanted:
        raise ConfigError("Name the key; an empty name is that of no key.")
    keys = [key.hex() for key in ledger.recipients()]
    # By whichever clock: a key that ended by this one may count still by the relayer's.
    live = {key.hex() for key in ledger.holders(0)}
    found, label = _by_digits(wanted, keys), None
    if not found:
        called = [key for key in keys if labels.get(key) == wanted]
        called = [key for key in called if key in live] or called
        own = [key for key, name in agents.items() if name == wanted and key in live]
        if (own and set(called) - set(own)) or any(agents.get(k, wanted) != wanted for k in called):
            raise MemrelayError(
                f"The relayer calls {' and '.join(called)} {wanted}, and the agents' profiles on "
                "this machine say otherwise; give the whole public key."
            )
        found, label = own or called, None if own else wanted
    found = [key for key in found if key in live] or found
    if not found:
        hint = f" A public key's beginning counts from {_BEGINNING_DIGITS} digits on."
        short = hint if len(wanted) < _BEGINNING_DIGITS else ""
        raise NotFound(f"No key has this name.{short}", status=404, code="not_found")
    if len(found) > 1:
        raise MemrelayError(
            "Several keys have this name; give the whole public key: `memrelay keys list --json`."
        )
    held = ledger.list_grants_to(bytes.fromhex(found[0]), now_ms)
    return ChosenKey(public_key=found[0], holds=describe_grants(held), label=label)


def _by_digits(wanted: str, keys: Sequence[str]) -> list[str]:
    exact = [key for key in keys if wanted in {key, mask_key(key)}]
    long = len(wanted) >= _BEGINNING_DIGITS
    return exact or [key for key in keys if long and key.startswith(wanted)]


def describe_grants(held: Sequence[Grant]) -> str:
    """Return what grants give, for people."""
    return "; ".join(dict.fromkeys(map(_describe_grant, held))) or "which holds nothing"


def _describe_grant(grant: Grant) -> str:
    names = dict.fromkeys(e.namespace for e in grant.scope if isinstance(e, NamespaceScope))
    ends = grant.expires_ms
    until = "" if ends is None else f" until {when(datetime.fromtimestamp(ends / 1000, UTC))}"
    return f"{grant.role} of {', '.join(names) or 'the whole account'}{until}"


def check_owners_left(
    ledger: Ledger, going: Sequence[str], now_ms: int, *, anyway: bool = False
) -> None:
    """Return if enough owners are left without some keys, or the person wants it `anyway`.

    Raises:
        ConfigError: none or one would be left; the message says what that means.
    """
    owners = [key.hex() for key, held in ledger.holders(now_ms).items() if _owns(held)]
    left = [key for key in owners if key not in going]
    if anyway or len(left) == len(owners):
        return
    if not left:
        raise ConfigError(
            "No key would own the account any more: nobody could change it again, and nobody could "
            "read a sealed one. `memrelay keys recovery` makes another key first; --yes goes on."
        )
    if len(left) == 1:
        raise ConfigError(
            f"Only {mask_key(left[0])} would own the account then: who loses it loses the "
            "account. `memrelay keys recovery` makes another key first; --yes goes on."
        )


def _owns(held: Sequence[Grant]) -> bool:
    return any(grant.role == "owner" for grant in held)


def _agree(shell: Shell, keys: Sequence[ChosenKey]) -> None:
    labelled = [] if shell.args.yes else [key for key in keys if key.label is not None]
    if labelled and not sys.stdin.isatty():
        said = "; ".join(f"{key.label} is {key}" for key in labelled)
        raise ConfigError(
            f"Only the relayer says that {said}. If that is right, give the public key, or --yes."
        )
    for key in keys:
        warn(f"to be revoked: {key}")
    for key in labelled:
        shell.confirm(
            f"Only the relayer says that {key.label} is {key.public_key}. Revoke it?",
            otherwise="Nothing was revoked.",
        )
