"""Agents whose keys are made elsewhere: what each lacks, and which earlier keys end with that.

It does not own carrying that out (`provision.py`), or the form of a request
(`sealed/join_request.py`).
"""

from dataclasses import dataclass

from memrelay.agents.access import (
    Holdings,
    Share,
    Wish,
    apply_wish,
    find_excess,
    find_missing,
    home_of,
    shares_of,
    sum_grants,
)
from memrelay.agents.account import AgentAccount
from memrelay.errors import MemrelayError
from memrelay.sealed.join_request import JoinRequest


@dataclass(frozen=True, kw_only=True)
class Enrolment:
    """The grants that an agent lacks that made its key elsewhere, and the keys that it replaces.

    `moves_from` is the key that its files here have, if these go.
    """

    name: str
    request: JoinRequest
    held: Holdings
    lacking: tuple[Share, ...]
    replaces: tuple[str, ...] = ()
    moves_from: str | None = None

    @property
    def is_done(self) -> bool:
        """True if nothing is to be done."""
        return not (self.lacking or self.replaces or self.moves_from)

    @property
    def state(self) -> str:
        """The agent's state once this is done."""
        if self.is_done:
            return "kept"
        if self.replaces:
            return "rotated"
        return "extended" if self.held else "enrolled"


def list_keys(account: AgentAccount, name: str) -> list[str]:
    """Return every key that an agent has or had, those of its files here last."""
    plan, settings = account.files.plan(name), account.files.settings(name)
    home = home_of(name)
    labelled = [
        key
        for key in account.find_labelled_keys(name)
        if account.ledger.has_granted(home, bytes.fromhex(key))
    ]
    own = [found.public_key for found in (plan and plan.settings, settings) if found]
    replaced = [plan.replaces] if plan and plan.replaces else []
    return list(dict.fromkeys([*labelled, *replaced, *own]))


def plan_enrolment(
    account: AgentAccount, name: str, request: JoinRequest, wish: Wish, is_replacing: bool
) -> Enrolment:
    """Return what an agent lacks that made its key elsewhere; its earlier keys may end with that.

    Raises:
        Invalid: the request is not for this account and time.
        MemrelayError: another key has the name and none is to be replaced, or the key holds more,
            or was revoked.
    """
    ledger, key = account.ledger, request.recipient.hex()
    if ledger.is_revoked(request.recipient):
        raise MemrelayError(
            f"{request} is of a key that was revoked: have `memrelay join --force` run there."
        )
    held = account.sum_grants(name, key)
    if held and home_of(name) not in held:
        raise MemrelayError(f"{request} is of a key that is not the agent {name}'s.")
    keys = [other for other in list_keys(account, name) if other != key]
    is_here = account.files.is_pending_or_kept(name)
    if not held and not is_replacing:
        if is_here or any(account.sum_grants(name, other) for other in keys):
            raise MemrelayError(
                f"{name} has a key already; --replace ends it when the new one is let in."
            )
        account.check_home(name)
    # Also those whose grants ended by this clock: the relayer's may differ.
    live = [other for other in keys if account.sum_grants(name, other, at_ms=0)]
    replaces = live if is_replacing else []
    want = apply_wish(name, wish, _sum_all(account, name, [*replaces, key]))
    if too_much := find_excess(held, want):
        raise MemrelayError(
            f"{name} holds more than that in {', '.join(too_much)}. Only a new key can hold less: "
            f"have `memrelay join --replace` run there, and enrol that with --replace."
        )
    lacking = find_missing(held, want)
    if lacking:
        account.client.check_request(request)
    own = account.files.settings(name)
    is_moving = is_replacing and is_here and (own is None or own.public_key != key)
    return Enrolment(
        name=name,
        request=request,
        held=held,
        lacking=shares_of(lacking),
        replaces=tuple(replaces),
        moves_from=keys[-1] if is_moving else None,
    )


def _sum_all(account: AgentAccount, name: str, keys: list[str]) -> Holdings:
    """Return what keys hold together, so that a new one can hold the same."""
    now_ms = account.client.session.now_ms()
    ledger = account.ledger
    grants = [g for key in keys for g in ledger.list_grants_to(bytes.fromhex(key), now_ms)]
    return sum_grants(name, grants)
