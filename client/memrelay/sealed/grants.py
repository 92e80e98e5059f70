"""Grants: issuing one, reading one, opening one's own.

It does not own revocations or whether an issuer had the right to issue (`ledger.py`).

- A key leaves this module only after it was checked against the id that the grant names.

Source: SPEC.md §4.1, §4.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid, UntrustedGrant
from memrelay.sealed.keys import (
    Identity,
    NamespaceKey,
    Root,
    account_text,
    check_epoch,
    exchange_public,
    hex_bytes,
    public_key_bytes,
    same,
    settle_namespace,
)
from memrelay.sealed.objects import (
    from_base64,
    integer,
    read_json,
    read_object,
    sign_object,
    text_of,
    to_base64,
    uuid_text,
    write_json,
)

ROLES = ("owner", "writer", "reader", "custodian")
SCOPE_ENTRIES_MAX = 256
CHAIN_GRANTS_MAX = 4

_BOX_MEMBERS = ("account", "grant", "serial", "issuer", "recipient", "keys")
_SEALED_BOX_EXTRA_BYTES = 48

GrantedKey = Root | NamespaceKey


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """A grant's entry for one namespace in one epoch."""

    namespace: str
    epoch: int
    key_id: bytes


@dataclass(frozen=True, slots=True)
class RootScope:
    """A grant's entry for the whole account in one epoch."""

    epoch: int
    root_id: bytes


@dataclass(frozen=True, slots=True)
class Grant:
    """A verified signature over what one key may hold; its chain is judged by `Ledger`."""

    account: str
    grant: str
    serial: int
    issuer: bytes
    recipient: bytes
    role: str
    scope: tuple[NamespaceScope | RootScope, ...]
    created_ms: int
    expires_ms: int | None
    box: bytes = field(repr=False)

    @property
    def whole_account(self) -> bool:
        """True if the grant gives roots."""
        return isinstance(self.scope[0], RootScope)

    def names(self, namespace: str) -> bool:
        """Return whether the grant gives a namespace by name."""
        return any(
            isinstance(entry, NamespaceScope) and entry.namespace == namespace
            for entry in self.scope
        )

    def is_expired(self, at_ms: int) -> bool:
        """Return whether the grant counts no more at this time."""
        return self.expires_ms is not None and self.expires_ms <= at_ms


@dataclass(frozen=True, slots=True)
class Revocation:
    """A verified signature that withdraws every earlier grant of one key."""

    account: str
    serial: int
    issuer: bytes
    recipient: bytes
    created_ms: int


def issue_grant(
    issuer: Identity,
    *,
    account: bytes,
    serial: int,
    recipient: bytes,
    role: str,
    keys: Sequence[GrantedKey],
    created_ms: int,
    expires_ms: int | None = None,
    grant: str | None = None,
) -> bytes:
    """Return a signed grant that boxes `keys` (all roots, or all namespace keys) to `recipient`.

    Raises:
        UntrustedGrant: `role` or `scope`, when the grant would not be valid.
    """
    names: dict[str, Any] = {
        "account": account_text(account),
        "grant": grant or str(uuid4()),
        "serial": serial,
        "issuer": issuer.public_key.hex(),
        "recipient": recipient.hex(),
    }
    inside = {**names, "keys": [to_base64(key.key) for key in keys]}
    box = bindings.crypto_box_seal(write_json(inside), exchange_public(recipient))
    payload = {
        **names,
        "role": role,
        "scope": [_scope_json(key) for key in keys],
        "created": created_ms,
        "expires": expires_ms,
        "box": to_base64(box),
    }
    signed = sign_object("grant", payload, issuer)
    read_grant(signed)
    return signed


def _scope_json(key: GrantedKey) -> dict[str, Any]:
    if isinstance(key, Root):
        return {"epoch": key.epoch, "root_id": key.root_id.hex()}
    return {"ns": key.name, "epoch": key.epoch, "key_id": key.key_id.hex()}


def read_grant(data: bytes) -> Grant:
    """Return a grant whose signature verifies under the issuer that it names.

    Raises:
        UntrustedGrant: the failed check.
    """
    try:
        value = read_object("grant", data, signer="issuer")
        expires = value["expires"]
        grant = Grant(
            account=text_of(value["account"]),
            grant=uuid_text(value["grant"]),
            serial=integer(value["serial"], least=1),
            issuer=public_key_bytes(value["issuer"]),
            recipient=public_key_bytes(value["recipient"]),
            role=text_of(value["role"]),
            scope=_read_scope(value["scope"]),
            created_ms=integer(value["created"]),
            expires_ms=None if expires is None else integer(expires, least=1),
            box=from_base64(value["box"], "box"),
        )
    except Invalid as error:
        raise UntrustedGrant(error.code, f"A grant: {error}") from error
    if grant.role not in ROLES:
        raise UntrustedGrant("role", "A grant has an unknown role.")
    if grant.role in {"owner", "custodian"} and not grant.whole_account:
        raise UntrustedGrant("scope", "Owners and custodians hold roots.")
    return grant


def _read_scope(value: object) -> tuple[NamespaceScope | RootScope, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SCOPE_ENTRIES_MAX:
        raise Invalid("scope", "a scope has 1 to 256 entries.")
    scope = tuple(_read_scope_entry(entry) for entry in value)
    named = {(getattr(entry, "namespace", None), entry.epoch) for entry in scope}
    if len({type(entry) for entry in scope}) != 1 or len(named) != len(scope):
        raise Invalid("scope", "a scope's entries are unique and of one sort.")
    return scope


def _read_scope_entry(entry: object) -> NamespaceScope | RootScope:
    members = set(entry) if isinstance(entry, dict) else set()
    if isinstance(entry, dict) and members == {"epoch", "root_id"}:
        root_id = hex_bytes(entry["root_id"], 32, "root id")
        return RootScope(check_epoch(entry["epoch"]), root_id)
    if isinstance(entry, dict) and members == {"ns", "epoch", "key_id"}:
        name = settle_namespace(text_of(entry["ns"]))
        key_id = hex_bytes(entry["key_id"], 32, "key id")
        return NamespaceScope(name, check_epoch(entry["epoch"]), key_id)
    raise Invalid("scope", "a scope's entries name a namespace or a root.")


def open_grant(grant: Grant, recipient: Identity) -> tuple[GrantedKey, ...]:
    """Return the keys inside a grant to `recipient`, in the order of its scope.

    Raises:
        UntrustedGrant: `recipient`, `box`, `keys` or `key_id`: what did not match.
    """
    if grant.recipient != recipient.public_key:
        raise UntrustedGrant("recipient", "A grant is for another key.")
    inside = _open_box(grant, recipient)
    outside = {
        "account": grant.account,
        "grant": grant.grant,
        "serial": grant.serial,
        "issuer": grant.issuer.hex(),
        "recipient": grant.recipient.hex(),
    }
    if any(inside[name] != value for name, value in outside.items()):
        raise UntrustedGrant("box", "A grant's box was made for another grant.")
    keys = inside["keys"]
    if not isinstance(keys, list) or len(keys) != len(grant.scope):
        raise UntrustedGrant("keys", "A grant has one key for each entry of its scope.")
    return tuple(_open_key(text, entry) for text, entry in zip(keys, grant.scope, strict=True))


def _open_box(grant: Grant, recipient: Identity) -> dict[str, Any]:
    if len(grant.box) <= _SEALED_BOX_EXTRA_BYTES:
        raise UntrustedGrant("box", "A grant's box is too short.")
    try:
        data = bindings.crypto_box_seal_open(
            grant.box, recipient.exchange_public, recipient.exchange_secret
        )
        return read_json(data, _BOX_MEMBERS)
    except (CryptoError, Invalid) as error:
        raise UntrustedGrant("box", "A grant's box does not open.") from error


def _open_key(text: object, entry: NamespaceScope | RootScope) -> GrantedKey:
    try:
        data = from_base64(text, "key")
        if isinstance(entry, RootScope):
            root = Root(data, entry.epoch)
            return _find_match(root, same(root.root_id, entry.root_id))
        named = NamespaceKey(data, entry.epoch, entry.namespace)
        return _find_match(named, same(named.key_id, entry.key_id))
    except Invalid as error:
        raise UntrustedGrant(error.code, f"A grant's box: {error}") from error


def _find_match(key: GrantedKey, matches: bool) -> GrantedKey:
    if not matches:
        raise Invalid("key_id", "a key does not have the id that the grant names.")
    return key
