"""Grants, revocations and joins: who may read and write what, provable from the founder's key.

Source: SPEC §4.1–4.2. Not here: where grants are stored and who may post one
(`tenants/granting.py`).

- A grant is believed because its chain ends at the key that hashes to the account id, never
  because a database says so.
- A key inside a box is used only after it hashes to the id that the signed scope names.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from nacl import bindings
from nacl.exceptions import CryptoError as NaclCryptoError

from relayer.sealed.keys import (
    EPOCH_MAX,
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    PublicKey,
    Root,
    account_id,
    account_text,
    parse_account,
    parse_public_key,
    settled_namespace,
)
from relayer.sealed.objects import (
    claims_of,
    integer_member,
    open_claimed,
    open_object,
    sign_object,
    strict_json,
    text_member,
    uuid_member,
)
from relayer.sealed.primitives import (
    CryptoError,
    exchange_public_key,
    from_base64,
    to_base64,
)
from relayer.sealed.succession import open_next

Role = Literal["owner", "writer", "reader", "custodian"]
CHAIN_DEPTH_MAX: Final = 4
SCOPE_ENTRIES_MAX: Final = 256
_GRANT: Final = frozenset(
    "account grant serial issuer recipient role scope created expires box".split()
)
_REVOKE: Final = frozenset(["account", "serial", "issuer", "recipient", "created"])
_JOIN: Final = frozenset(["account", "issuer", "recipient", "relayer"])
_BOX: Final = frozenset(["account", "grant", "serial", "issuer", "recipient", "keys"])


@dataclass(frozen=True)
class ScopeEntry:
    """One key that a grant gives: a namespace's in an epoch, or (namespace None) a root."""

    namespace: Namespace | None
    epoch: int
    key_id: bytes


@dataclass(frozen=True)
class Grant:
    """The parsed payload of a `grant` whose signature verified; `signed` are its stored bytes."""

    account: AccountId
    grant: uuid.UUID
    serial: int
    issuer: PublicKey
    recipient: PublicKey
    role: Role
    scope: tuple[ScopeEntry, ...]
    created_ms: int
    expires_ms: int | None
    box: bytes
    signed: bytes

    @property
    def whole_account(self) -> bool:
        """Return true if it gives roots rather than named namespaces."""
        return self.scope[0].namespace is None

    def expired(self, now_ms: int) -> bool:
        """Return true if its time is over."""
        return self.expires_ms is not None and self.expires_ms <= now_ms


@dataclass(frozen=True)
class Revocation:
    """The parsed payload of a `revoke` whose signature verified."""

    account: AccountId
    serial: int
    issuer: PublicKey
    recipient: PublicKey
    created_ms: int
    signed: bytes


def issue_grant(
    issuer: Identity,
    *,
    account: AccountId,
    serial: int,
    recipient: PublicKey,
    role: Role,
    keys: Sequence[Root] | Sequence[NamespaceKey],
    created_ms: int,
    expires_ms: int | None = None,
    grant: uuid.UUID | None = None,
) -> bytes:
    """Return a signed grant of these keys to `recipient`, boxed to it."""
    repeated: dict[str, Any] = {
        "account": account_text(account),
        "grant": str(grant or uuid.uuid4()),
        "serial": serial,
        "issuer": issuer.public_key.hex(),
        "recipient": recipient.hex(),
    }
    inside = {**repeated, "keys": [to_base64(k.key) for k in keys]}
    box = bindings.crypto_box_seal(json.dumps(inside).encode(), exchange_public_key(recipient))
    members = {
        **repeated,
        "role": role,
        "scope": [_scope_json(k) for k in keys],
        "created": created_ms,
        "expires": expires_ms,
        "box": to_base64(box),
    }
    return sign_object(issuer, "grant", members)


def _scope_json(key: Root | NamespaceKey) -> dict[str, Any]:
    if isinstance(key, Root):
        return {"epoch": key.epoch, "root_id": key.root_id.hex()}
    return {"ns": key.namespace, "epoch": key.epoch, "key_id": key.key_id.hex()}


def parse_grant(signed: bytes) -> Grant:
    """Return a grant whose own signature and form hold; its chain is `verify_chain`'s business.

    Raises:
        CryptoError: signature, members, types or ranges are wrong.
    """
    return _grant(signed, claims_of(signed))


def _grant(signed: bytes, claims: dict[str, Any]) -> Grant:
    issuer, m = open_claimed(signed, claims, "grant", _GRANT)
    role = text_member(m["role"])
    if role not in get_args(Role):
        raise CryptoError("unknown role")
    scope = _parse_scope(m["scope"])
    if role in ("owner", "custodian") and scope[0].namespace is not None:
        raise CryptoError("owners and custodians hold roots")
    recipient = parse_public_key(text_member(m["recipient"]))
    exchange_public_key(recipient)
    return Grant(
        account=parse_account(text_member(m["account"])),
        grant=uuid_member(m["grant"]),
        serial=integer_member(m["serial"], low=1),
        issuer=issuer,
        recipient=recipient,
        role=role,  # type: ignore[arg-type]  # narrowed by the membership check above
        scope=scope,
        created_ms=integer_member(m["created"], low=0),
        expires_ms=None if m["expires"] is None else integer_member(m["expires"], low=1),
        box=from_base64(text_member(m["box"])),
        signed=signed,
    )


def _parse_scope(value: Any) -> tuple[ScopeEntry, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SCOPE_ENTRIES_MAX:
        raise CryptoError("bad scope")
    entries = tuple(_scope_entry(item) for item in value)
    if len({(e.namespace, e.epoch) for e in entries}) != len(entries):
        raise CryptoError("a scope names nothing twice")
    if len({e.namespace is None for e in entries}) != 1:
        raise CryptoError("a scope gives roots or namespaces, not both")
    return entries


def _scope_entry(item: Any) -> ScopeEntry:
    if not isinstance(item, dict):
        raise CryptoError("bad scope entry")
    if item.keys() == {"epoch", "root_id"}:
        return ScopeEntry(None, _epoch(item), _key_id(item["root_id"]))
    if item.keys() != {"ns", "epoch", "key_id"}:
        raise CryptoError("bad scope entry")
    namespace = settled_namespace(text_member(item["ns"]))
    return ScopeEntry(namespace, _epoch(item), _key_id(item["key_id"]))


def open_grant(grant: Grant, recipient: Identity) -> list[Root] | list[NamespaceKey]:
    """Return the keys of a grant whose chain was verified.

    Raises:
        CryptoError: not for this recipient, the box belongs to another grant, or a key does not
            match the id that the scope commits to.
    """
    if recipient.public_key != grant.recipient:
        raise CryptoError("the grant is for another key")
    inside = _open_box(grant.box, recipient)
    repeated = {
        "account": account_text(grant.account),
        "grant": str(grant.grant),
        "serial": grant.serial,
        "issuer": grant.issuer.hex(),
        "recipient": grant.recipient.hex(),
    }
    keys = inside.pop("keys")
    if inside != repeated:
        raise CryptoError("the box belongs to another grant")
    if not isinstance(keys, list) or len(keys) != len(grant.scope):
        raise CryptoError("the box holds other keys than the scope names")
    raw = [from_base64(text_member(k)) for k in keys]
    if grant.whole_account:
        return [_match_root(e, k) for e, k in zip(grant.scope, raw, strict=True)]
    return [_match_namespace_key(e, k) for e, k in zip(grant.scope, raw, strict=True)]


def _open_box(box: bytes, recipient: Identity) -> dict[str, Any]:
    if len(box) <= bindings.crypto_box_SEALBYTES:
        raise CryptoError("bad box length")
    try:
        plaintext = bindings.crypto_box_seal_open(
            box, recipient.exchange_public_key, recipient.exchange_private_key
        )
    except NaclCryptoError:
        raise CryptoError("the box does not open") from None
    inside = strict_json(plaintext)
    if inside.keys() != _BOX:
        raise CryptoError("missing or unknown members")
    return inside


def _match_root(entry: ScopeEntry, key: bytes) -> Root:
    root = Root(entry.epoch, key)
    if root.root_id != entry.key_id:
        raise CryptoError("a key does not match its id")
    return root


def _match_namespace_key(entry: ScopeEntry, key: bytes) -> NamespaceKey:
    assert entry.namespace is not None
    namespace_key = NamespaceKey(entry.namespace, entry.epoch, key)
    if namespace_key.key_id != entry.key_id:
        raise CryptoError("a key does not match its id")
    return namespace_key


def issue_revocation(
    issuer: Identity, *, account: AccountId, serial: int, recipient: PublicKey, created_ms: int
) -> bytes:
    """Return a signed revocation of everything `recipient` was given before `serial`."""
    return sign_object(
        issuer,
        "revoke",
        {
            "account": account_text(account),
            "serial": serial,
            "issuer": issuer.public_key.hex(),
            "recipient": recipient.hex(),
            "created": created_ms,
        },
    )


def parse_revocation(signed: bytes) -> Revocation:
    """Return a revocation whose own signature and form hold.

    Raises:
        CryptoError: signature, members, types or ranges are wrong.
    """
    return _revocation(signed, claims_of(signed))


def _revocation(signed: bytes, claims: dict[str, Any]) -> Revocation:
    issuer, m = open_claimed(signed, claims, "revoke", _REVOKE)
    return Revocation(
        account=parse_account(text_member(m["account"])),
        serial=integer_member(m["serial"], low=1),
        issuer=issuer,
        recipient=parse_public_key(text_member(m["recipient"])),
        created_ms=integer_member(m["created"], low=0),
        signed=signed,
    )


def sign_join(
    recipient: Identity,
    *,
    account: AccountId | None,
    issuer: PublicKey | None,
    relayer: PublicKey,
) -> bytes:
    """Return the proof that `recipient` agrees to be added to this account at this relayer.

    Without an account or issuer it agrees to any.
    """
    members = {
        "account": None if account is None else account_text(account),
        "issuer": None if issuer is None else issuer.hex(),
        "recipient": recipient.public_key.hex(),
        "relayer": relayer.hex(),
    }
    return sign_object(recipient, "join", members)


def verify_join(
    signed: bytes,
    *,
    account: AccountId,
    issuer: PublicKey,
    recipient: PublicKey,
    relayer: PublicKey,
) -> None:
    """Return when `recipient` itself signed that it joins this account through this issuer here.

    Raises:
        CryptoError: another signature, or another account, issuer, recipient or relayer.
    """
    m = open_object(signed, "join", recipient, _JOIN)
    allowed = {
        "account": (account_text(account), None),
        "issuer": (issuer.hex(), None),
        "recipient": (recipient.hex(),),
        "relayer": (relayer.hex(),),
    }
    if any(m[name] not in values for name, values in allowed.items()):
        raise CryptoError("the join names something else")


class Chain:
    """An account's grants and revocations by serial, each verified against those before it.

    Feed it with `add`; whatever it accepted is valid for ever at its serial. `live` then tells
    what a key holds now.
    """

    def __init__(self, account: AccountId) -> None:
        self.account = account
        self.serial = 0
        self.epoch = 0  # the newest that any grant names
        self.bytes = 0  # of all its objects
        self.items: list[Grant | Revocation] = []  # the one of serial n has the place n - 1
        # An account may have thousands, and each change copies the chain: what is held is not.
        self.grants: dict[PublicKey, tuple[Grant, ...]] = {}
        self.uuids: set[uuid.UUID] = set()
        # Namespace (None: a root) and epoch → the grants that name its key, with the key's id.
        self.naming: dict[tuple[Namespace | None, int], tuple[tuple[Grant, bytes], ...]] = {}
        self.revoked_at: dict[PublicKey, int] = {}
        self.key_ids: dict[tuple[Namespace, int], bytes] = {}  # as grants name them first
        self.founder: PublicKey | None = None
        self._successors: dict[PublicKey, PublicKey] = {}
        self._depths: dict[int, int] = {}  # by serial, as judged when the grant was accepted

    def copy(self) -> "Chain":
        """Return a chain that can be continued without changing this one."""
        other = Chain(self.account)
        other.serial, other.founder = self.serial, self.founder
        other.epoch, other.bytes = self.epoch, self.bytes
        other.items = list(self.items)
        other.grants, other.naming = dict(self.grants), dict(self.naming)
        other.uuids = set(self.uuids)
        other.revoked_at = dict(self.revoked_at)
        other.key_ids = dict(self.key_ids)
        other._successors = dict(self._successors)
        other._depths = dict(self._depths)
        return other

    def learn(self, signed: bytes) -> None:
        """Take note that a custodian named its successor, by its `relayer-next` object.

        Raises:
            CryptoError: it does not verify, or the same custodian named another one before.
        """
        named = open_next(signed)
        if self._successors.setdefault(named.relayer, named.next) != named.next:
            raise CryptoError("a relayer names one successor")

    def add(self, item: Grant | Revocation) -> None:
        """Accept the next grant or revocation.

        Raises:
            CryptoError: a rule of SPEC §4.1 is broken; the chain is then unchanged.
        """
        if item.account != self.account:
            raise CryptoError("another account's object")
        if item.serial != self.serial + 1:
            raise CryptoError("serials rise by one")
        if isinstance(item, Grant):
            self._depths[item.serial] = self._check_grant(item)
            self.grants[item.recipient] = (*self.grants.get(item.recipient, ()), item)
            self.uuids.add(item.grant)
            self.epoch = max(self.epoch, *(entry.epoch for entry in item.scope))
            for entry in item.scope:
                place = entry.namespace, entry.epoch
                self.naming[place] = (*self.naming.get(place, ()), (item, entry.key_id))
                if entry.namespace is not None:
                    self.key_ids.setdefault((entry.namespace, entry.epoch), entry.key_id)
        else:
            self._check_revocation(item)
            self.revoked_at[item.recipient] = item.serial
        self.items.append(item)
        self.bytes += len(item.signed)
        self.serial = item.serial

    def live(self, key: PublicKey, now_ms: int) -> list[Grant]:
        """Return the unexpired grants of `key` above its last revocation."""
        return [grant for grant in self.grants.get(key, ()) if self.is_live(grant, now_ms)]

    def is_live(self, grant: Grant, now_ms: int) -> bool:
        """Return true if a grant of this chain counts at this time."""
        floor = self.revoked_at.get(grant.recipient, 0)
        return grant.serial > floor and not grant.expired(now_ms)

    def leaves_out(self, grant: Grant, now_ms: int) -> bool:
        """Return true if a grant ends epochs whose keys its recipient uses until it counts."""
        live = self.live(grant.recipient, now_ms)
        return bool(live) and oldest_epoch([grant]) > oldest_epoch(live)

    def oldest_alive(self, now_ms: int) -> int:
        """Return the oldest epoch whose keys anybody still uses; the newest where nobody does."""
        held = [live for key in self.grants if (live := self.live(key, now_ms))]
        return min(map(oldest_epoch, held), default=self.epoch)

    def left_behind(self, now_ms: int) -> set[PublicKey]:
        """Return the keys whose live grants do not give all they name in the newest epoch, too."""
        behind = set()
        for key in self.grants:
            entries = [entry for grant in self.live(key, now_ms) for entry in grant.scope]
            renewed = {entry.namespace for entry in entries if entry.epoch == self.epoch}
            if {entry.namespace for entry in entries} - renewed:
                behind.add(key)
        return behind

    def _check_grant(self, grant: Grant) -> int:
        """Return the number of grants from the founder to this one, itself included.

        Raises:
            CryptoError: its issuer may not issue it.
        """
        if self.founder is None:
            self._check_first(grant)
            return 1
        if grant.issuer == self.founder:
            return 1
        rights = self._rights(grant.issuer, grant.created_ms)
        if grant.role == "custodian":
            owned = [g for g in rights if g.role == "owner"]
            if not owned and self._successors.get(grant.issuer) == grant.recipient:
                # The same relayer under its next key: it stands where it stood.
                return min(self._depths[g.serial] for g in rights)
            if not (rights := owned):
                raise CryptoError("only owners appoint a custodian")
        depth = 1 + min(self._depths[g.serial] for g in rights)
        if depth > CHAIN_DEPTH_MAX:
            raise CryptoError("the chain of issuers is too long")
        return depth

    def _check_first(self, grant: Grant) -> None:
        if account_id(grant.issuer) != self.account:
            raise CryptoError("the first issuer is not the founder")
        if grant.recipient != grant.issuer or grant.role != "owner":
            raise CryptoError("the first grant gives the founder its own root")
        self.founder = grant.issuer

    def _check_revocation(self, revocation: Revocation) -> None:
        if self.founder is None:
            raise CryptoError("nothing to revoke yet")
        if revocation.issuer == self.founder:
            return
        rights = self._rights(revocation.issuer, revocation.created_ms)
        if revocation.recipient == self.founder:
            raise CryptoError("only the founder revokes the founder")
        held = self.live(revocation.recipient, revocation.created_ms)
        owns = any(g.role == "owner" for g in held)
        if owns and all(g.role == "custodian" for g in rights):
            raise CryptoError("a custodian revokes no owner")

    def _rights(self, issuer: PublicKey, at_ms: int) -> list[Grant]:
        """Return the grants by which a key may issue at that time; the founder needs none.

        Raises:
            CryptoError: there is none.
        """
        rights = [g for g in self.live(issuer, at_ms) if g.role in ("owner", "custodian")]
        if not rights:
            raise CryptoError("the issuer may not issue")
        return rights


def oldest_epoch(grants: Sequence[Grant]) -> int:
    """Return the oldest epoch whose keys a holder of these grants uses, by the newest grant."""
    newest = max(grants, key=lambda grant: grant.serial)
    return min(entry.epoch for entry in newest.scope)


def parse_any(signed: bytes) -> Grant | Revocation:
    """Return a grant or a revocation, told apart by their members.

    Raises:
        CryptoError: neither.
    """
    claims = claims_of(signed)
    return _grant(signed, claims) if "grant" in claims else _revocation(signed, claims)


def _epoch(item: dict[str, Any]) -> int:
    return integer_member(item["epoch"], low=1, high=EPOCH_MAX)


def _key_id(value: Any) -> bytes:
    return parse_public_key(text_member(value))
