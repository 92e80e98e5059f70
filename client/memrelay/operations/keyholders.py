"""Founding an account, and adding and revoking its keys: the operations of owners.

It does not own the formats (`sealed/`) or which keys exist (the grants do).

- A custodian is made in one place, when its caller founds a managed account; no answer of a
  relayer leads here.
- A private key that is made here is returned once and kept nowhere.

Source: SPEC.md §4.1, §4.2, §11.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from memrelay.answers import Answer
from memrelay.errors import ConfigError, Conflict, NotGranted, UntrustedRelayer
from memrelay.exchange import Operation
from memrelay.models import NewAccount, NewKey, Revoked
from memrelay.operations.audit import Audit
from memrelay.operations.reads import to_json_list
from memrelay.sealed.grants import GrantedKey, issue_grant, read_grant
from memrelay.sealed.join_request import JoinRequest
from memrelay.sealed.keys import (
    Identity,
    Root,
    account_id_of,
    account_text,
    normalise_namespace,
    public_key_bytes,
)
from memrelay.sealed.ledger import Keyring, Ledger, issue_revocation
from memrelay.sealed.objects import sign_join, to_base64
from memrelay.session import Call

_SERIAL_ATTEMPTS_MAX = 4  # the first with the serial that is known


@dataclass(frozen=True, kw_only=True)
class ReceiptList(Answer):
    """The receipts of a change, one or several."""

    receipt: str | None = None
    receipts: tuple[str, ...] | None = None


class Keyholders(Audit):
    """All operations: those on memories, and those on who may read them."""

    def create_account(
        self, *, custody: str = "sealed", label: str | None = None, token: str | None = None
    ) -> Operation[NewAccount]:
        """Found the account of this session's identity.

        `sealed`: nobody but its keys can read it. `managed`: the relayer can as well, which
        clients without keys of their own need.
        """
        if custody not in {"sealed", "managed"}:
            raise ConfigError("Custody is sealed or managed.")
        session, founder = self.session, self.session.identity
        if account_id_of(founder.public_key) != session.account:
            raise ConfigError("An account is founded with its founder's own key.")
        relayer = yield from session.relayer_key()
        body: dict[str, Any] = {"grants": self._first_grants(relayer, custody == "managed")}
        body |= {"label": label} if label is not None else {}
        body |= {"token": token} if token is not None else {}
        answer = yield from session.call(
            Call(method="POST", path="/v1/accounts", body=body, names_relayer=True)
        )
        account = NewAccount.from_json({**answer, "private_key": founder.seed_hex()})
        expected = (account_text(session.account), custody, relayer.hex())
        if (account.account_id, account.custody, account.relayer_key) != expected:
            raise UntrustedRelayer("account", "The relayer founded another account than asked.")
        for receipt in ReceiptList.from_json(answer).receipts or ():
            yield from session.note_receipt(receipt, op="grant")
        return account

    def _first_grants(self, relayer: bytes, managed: bool) -> list[str]:
        founder, root = self.session.identity, Root.generate()
        recipients = [(founder.public_key, "owner")]
        if managed:
            recipients.append((relayer, "custodian"))
        return [
            to_base64(
                issue_grant(
                    founder,
                    account=self.session.account,
                    serial=serial,
                    recipient=recipient,
                    role=role,
                    keys=[root],
                    created_ms=self.session.now_ms(),
                )
            )
            for serial, (recipient, role) in enumerate(recipients, 1)
        ]

    def add_key(
        self,
        *,
        namespaces: Iterable[str] | None,
        role: str = "writer",
        label: str | None = None,
        identity: Identity | None = None,
        expires: datetime | timedelta | None = None,
    ) -> Operation[NewKey]:
        """Add a key (a new one unless `identity` is given) that holds only these namespaces.

        `namespaces` None gives the whole account, which an owner needs. `role` is owner, writer or
        reader. The private key of the result is shown nowhere else.
        """
        names = _check_wish(role, namespaces)
        holder = identity or Identity.generate()
        # The join names the relayer once and for all: not one that has a successor by now.
        relayer = (yield from self.session.statement()).relayer
        join = sign_join(
            holder,
            account=self.session.account,
            issuer=self.session.identity.public_key,
            relayer=relayer,
        )
        added = yield from self._add(
            holder.public_key, join, names=names, role=role, label=label, expires=expires
        )
        return replace(added, private_key=holder.seed_hex())

    def admit_key(
        self,
        request: JoinRequest,
        *,
        namespaces: Iterable[str] | None,
        role: str = "writer",
        label: str | None = None,
        expires: datetime | timedelta | None = None,
    ) -> Operation[NewKey]:
        """Add the key that made a request, as `add_key` does; its private key stays where it is.

        Raises:
            Invalid: the request is for another relayer or account, or of another time.
        """
        names = _check_wish(role, namespaces)
        yield from self.check_request(request)
        called = request.label if label is None else label
        return (
            yield from self._add(
                request.recipient,
                request.join,
                names=names,
                role=role,
                label=called,
                expires=expires,
            )
        )

    def check_request(self, request: JoinRequest) -> Operation[None]:
        """Check that a request may be granted here and now.

        Raises:
            Invalid: it is for another relayer or account, or of another time.
        """
        relayer = (yield from self.session.statement()).relayer
        request.check(
            relayers={relayer}, account=self.session.account, now_ms=self.session.now_ms()
        )

    def _add(
        self,
        recipient: bytes,
        join: bytes,
        *,
        names: list[str] | None,
        role: str,
        label: str | None,
        expires: datetime | timedelta | None,
    ) -> Operation[NewKey]:
        expires_ms = self._expires_ms(expires)

        def build(serial: int, keyring: Keyring) -> bytes:
            return issue_grant(
                self.session.identity,
                account=self.session.account,
                serial=serial,
                recipient=recipient,
                role=role,
                keys=_list_granted_keys(keyring, names),
                created_ms=self.session.now_ms(),
                expires_ms=expires_ms,
            )

        extra = {"join": to_base64(join)} | ({} if label is None else {"label": label})
        signed, answer = yield from self._next_serial("/v1/grants", "grant", build, extra)
        grant = read_grant(signed)
        yield from self._confirm(answer, signed, op="grant", ids=[grant.grant])
        self.session.note_change("grant", signed)
        return NewKey(
            account_id=self.session.settings.account_id,
            public_key=recipient.hex(),
            relayer_key=(yield from self.session.statement()).relayer.hex(),
            role=role,
            namespaces=None if names is None else tuple(names),
            grant=grant.grant,
            serial=grant.serial,
            label=label,
        )

    def grants(self) -> Operation[Ledger]:
        """Return the account's grants and revocations as they are now, verified to the founder."""
        self.session.forget_grants()
        return (yield from self.session.ledger())

    def revoke_key(self, public_key: str) -> Operation[Revoked]:
        """Withdraw every grant of a key, from its next request on.

        It still opens copies of what it could read before.
        """
        recipient = public_key_bytes(public_key)

        def build(serial: int, keyring: Keyring) -> bytes:
            return issue_revocation(
                self.session.identity,
                account=self.session.account,
                serial=serial,
                recipient=recipient,
                created_ms=self.session.now_ms(),
            )

        signed, answer = yield from self._next_serial("/v1/revocations", "revocation", build, {})
        yield from self._confirm(answer, signed, op="revoke")
        self.session.note_change("revoke", signed)
        revoked = Revoked.from_json(answer)
        if revoked.recipient != public_key:
            raise UntrustedRelayer("recipient", "The relayer revoked another key than asked.")
        return revoked

    def _next_serial(
        self,
        path: str,
        name: str,
        build: Callable[[int, Keyring], bytes],
        extra: dict[str, Any],
    ) -> Operation[tuple[bytes, Any]]:
        """Send an object under the account's next serial; again if another one took it."""
        for attempt in range(1, _SERIAL_ATTEMPTS_MAX + 1):
            keyring = yield from self.session.keyring()
            if "owner" not in keyring.roles:
                raise NotGranted("Only an owner's key adds and revokes keys.")
            ledger = yield from self.session.ledger()
            signed = build(ledger.serial + 1, keyring)
            body = {name: to_base64(signed), **extra}
            call = Call(method="POST", path=path, body=body, names_relayer=True)
            try:
                answer = yield from self.session.call(call)
            except Conflict as error:
                # Another owner was faster: what this client knows is older than that.
                self.session.forget_grants()
                if attempt == _SERIAL_ATTEMPTS_MAX or "serial" not in error.code:
                    raise
                continue
            return signed, answer
        raise AssertionError("the last attempt returns or raises")

    def _confirm(
        self, answer: Any, signed: bytes, *, op: str, ids: Iterable[str] = ()
    ) -> Operation[None]:
        receipt = ReceiptList.from_json(answer).receipt
        yield from self.session.note_receipt(receipt, op=op, ids=ids, signed=signed)

    def _expires_ms(self, expires: datetime | timedelta | None) -> int | None:
        if expires is None:
            return None
        if isinstance(expires, timedelta):
            return self.session.now_ms() + int(expires.total_seconds() * 1000)
        if expires.utcoffset() is None:
            raise ValueError("A time needs a time zone.")
        return int(expires.timestamp() * 1000)


def _list_granted_keys(keyring: Keyring, names: list[str] | None) -> list[GrantedKey]:
    if names is None:
        return list(keyring.roots())
    if not names:
        raise ConfigError("A key is for at least one namespace.")
    return [key for name in names for key in keyring.namespace_keys(name)]


def _check_wish(role: str, namespaces: Iterable[str] | None) -> list[str] | None:
    """Return the namespaces that a new key is to hold, None for the whole account.

    Raises:
        ConfigError: the role is none, or an owner's is asked for some namespaces.
        Invalid: a namespace is malformed.
    """
    if role not in {"owner", "writer", "reader"}:
        raise ConfigError("A key's role is owner, writer or reader.")
    if role == "owner" and namespaces is not None:
        raise ConfigError("An owner holds the whole account.")
    given = to_json_list("namespaces", namespaces)
    return None if given is None else sorted(set(map(normalise_namespace, given)))
