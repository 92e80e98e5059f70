"""The grants and revocations of one account, judged as a whole, and the keys they give.

It does not own the objects' bytes (`grants.py`, `objects.py`) or requests.

- It believes no relayer: every right follows from signatures that lead back to the founder, whose
  key hashes to the account id.
- Objects are judged in the order of their serials, each against those before it; one that is not
  valid stops everything.
- An account's history never gets shorter: `Keyring` users remember the highest serial and epoch.

Source: SPEC.md §4.1, §4.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memrelay.errors import Invalid, NotGranted, UntrustedGrant, UntrustedRelayer
from memrelay.sealed.grants import (
    CHAIN_GRANTS_MAX,
    Grant,
    NamespaceScope,
    Revocation,
    open_grant,
    read_grant,
)
from memrelay.sealed.keys import (
    Identity,
    NamespaceKey,
    Root,
    account_id_of,
    account_text,
    normalise_namespace,
    public_key_bytes,
)
from memrelay.sealed.objects import integer, read_object, sign_object, text_of
from memrelay.sealed.statement import read_named

_ISSUING_ROLES = frozenset({"owner", "custodian"})


def issue_revocation(
    issuer: Identity, *, account: bytes, serial: int, recipient: bytes, created_ms: int
) -> bytes:
    """Return a signed object that withdraws every earlier grant of `recipient`."""
    payload = {
        "account": account_text(account),
        "serial": serial,
        "issuer": issuer.public_key.hex(),
        "recipient": recipient.hex(),
        "created": created_ms,
    }
    return sign_object("revoke", payload, issuer)


def read_revocation(data: bytes) -> Revocation:
    """Return a revocation whose signature verifies under the issuer that it names.

    Raises:
        UntrustedGrant: the failed check.
    """
    try:
        value = read_object("revoke", data, signer="issuer")
        return Revocation(
            account=text_of(value["account"]),
            serial=integer(value["serial"], least=1),
            issuer=public_key_bytes(value["issuer"]),
            recipient=public_key_bytes(value["recipient"]),
            created_ms=integer(value["created"]),
        )
    except Invalid as error:
        raise UntrustedGrant(error.code, f"A revocation: {error}") from error


@lru_cache(12_000)  # who administers an account's keys reads the same objects again and again
def _read(kind: str, data: bytes) -> Grant | Revocation:
    read: dict[str, Callable[[bytes], Grant | Revocation]] = {
        "grant": read_grant,
        "revoke": read_revocation,
    }
    if kind not in read:
        raise UntrustedGrant("kind", "A grant has an unknown kind.")
    return read[kind](data)


@dataclass(frozen=True, slots=True)
class _Authority:
    """One right to issue: the role it comes from and its distance from the founder, in grants."""

    role: str
    depth: int


class Ledger:
    """The valid grants and revocations of one account, as far as this key may see them."""

    def __init__(self, account: bytes) -> None:
        self._account = account
        self._grants: list[tuple[Grant, int]] = []  # with the length of the shortest chain
        # The same by recipient and by namespace: an account may have thousands.
        self._granted: dict[bytes, list[tuple[Grant, int]]] = {}
        self._naming: dict[str, list[Grant]] = {}
        self._withdrawn: dict[bytes, int] = {}  # the serial of each key's newest revocation
        self._successors: dict[bytes, bytes] = {}  # of relayers, as they named them themselves
        self.serial = 0
        self.complete = True  # whether every serial from 1 on was seen

    @classmethod
    def of(
        cls,
        account: bytes,
        objects: Iterable[tuple[str, bytes]],
        succession: Iterable[bytes] = (),
    ) -> "Ledger":
        """Return the ledger of (kind, signed object) pairs, in any order.

        `succession` are the `relayer-next` objects that custodians' grants to their successors
        rest on.

        Raises:
            UntrustedGrant: the first check that failed.
        """
        entries = [_read(kind, data) for kind, data in objects]
        ledger = cls(account)
        for data in succession:
            ledger.learn(data)
        for entry in sorted(entries, key=lambda entry: entry.serial):
            ledger.add(entry)
        return ledger

    def append(self, kind: str, data: bytes) -> Grant | Revocation:
        """Judge, keep and return the next signed object.

        Raises:
            UntrustedGrant: the first check that failed.
        """
        entry = _read(kind, data)
        self.add(entry)
        return entry

    def learn(self, data: bytes) -> None:
        """Take note of the successor that a relayer names in a `relayer-next` object.

        Raises:
            UntrustedGrant: `successor`, when it named another one before; or the failed check.
        """
        try:
            relayer, named = read_named(data)
        except UntrustedRelayer as error:
            raise UntrustedGrant(error.code, str(error)) from error
        if self._successors.setdefault(relayer, named) != named:
            raise UntrustedGrant("successor", "A relayer names one successor.")

    def add(self, entry: Grant | Revocation) -> None:
        """Judge and keep the next object; serials rise.

        Raises:
            UntrustedGrant: `account`, `serial`, `issuer`, `chain` or `role`: the failed rule.
        """
        if entry.account != account_text(self._account):
            raise UntrustedGrant("account", "A grant is of another account.")
        if entry.serial <= self.serial:
            raise UntrustedGrant("serial", "Two grants have the same serial.")
        if isinstance(entry, Grant):
            self._keep(entry, self._judge_grant(entry))
        else:
            self._judge_revocation(entry)
            self._withdrawn[entry.recipient] = entry.serial
        self.complete = self.complete and entry.serial == self.serial + 1
        self.serial = entry.serial

    def _keep(self, grant: Grant, depth: int) -> None:
        self._grants.append((grant, depth))
        self._granted.setdefault(grant.recipient, []).append((grant, depth))
        for name in {e.namespace for e in grant.scope if isinstance(e, NamespaceScope)}:
            self._naming.setdefault(name, []).append(grant)

    def _judge_grant(self, grant: Grant) -> int:
        authorities = list(self._authorities(grant))
        if not authorities:
            raise UntrustedGrant("issuer", "A grant's issuer had no right to issue it.")
        if grant.role == "custodian":
            owners = [entry for entry in authorities if entry.role == "owner"]
            if not owners and self._successors.get(grant.issuer) == grant.recipient:
                # The same relayer under its next key: it stands where it stood.
                return min(entry.depth for entry in authorities)
            authorities = owners
            if not authorities:
                raise UntrustedGrant("role", "Only an owner makes a custodian.")
        depth = 1 + min(entry.depth for entry in authorities)
        if depth > CHAIN_GRANTS_MAX:
            raise UntrustedGrant("chain", "A chain of issuers is at most 4 grants long.")
        return depth

    def _judge_revocation(self, revocation: Revocation) -> None:
        roles = {entry.role for entry in self._authorities(revocation)}
        if not roles:
            raise UntrustedGrant("issuer", "A revocation's issuer had no right to revoke.")
        if "owner" not in roles and self._is_owner(revocation.recipient, revocation.created_ms):
            raise UntrustedGrant("role", "A custodian revokes no owner.")
        if self._founder(revocation.recipient) and not self._founder(revocation.issuer):
            raise UntrustedGrant("role", "Only the founder revokes the founder.")

    def _authorities(self, entry: Grant | Revocation) -> Iterator[_Authority]:
        if self._founder(entry.issuer):
            yield _Authority("owner", 0)
        for grant, depth in self._granted.get(entry.issuer, ()):
            if (
                grant.role in _ISSUING_ROLES
                and not self._is_withdrawn(grant)
                and not grant.is_expired(entry.created_ms)
            ):
                yield _Authority(grant.role, depth)

    def _founder(self, public_key: bytes) -> bool:
        return account_id_of(public_key) == self._account

    def _is_owner(self, public_key: bytes, at_ms: int) -> bool:
        held = self.list_grants_to(public_key, at_ms)
        return self._founder(public_key) or any(grant.role == "owner" for grant in held)

    def _is_withdrawn(self, grant: Grant) -> bool:
        return self._withdrawn.get(grant.recipient, 0) > grant.serial

    def list_grants_to(self, public_key: bytes, at_ms: int) -> list[Grant]:
        """Return the grants that count for a key at this time."""
        return [
            grant
            for grant, _ in self._granted.get(public_key, ())
            if not self._is_withdrawn(grant) and not grant.is_expired(at_ms)
        ]

    def names(self, namespace: str, at_ms: int, *, but: bytes) -> bool:
        """Return whether a key, `but` not this one, holds a namespace by name at this time."""
        return any(
            not self._is_withdrawn(grant) and not grant.is_expired(at_ms)
            for grant in self._naming.get(namespace, ())
            if grant.recipient != but
        )

    def has_granted(self, namespace: str, public_key: bytes) -> bool:
        """Return whether a key was ever granted a namespace by name, even if not any more."""
        return any(grant.names(namespace) for grant, _ in self._granted.get(public_key, ()))

    def holders(self, at_ms: int) -> dict[bytes, list[Grant]]:
        """Return every key that holds anything at this time, with the grants that count for it."""
        held = {key: self.list_grants_to(key, at_ms) for key in self.recipients()}
        return {key: grants for key, grants in held.items() if grants}

    def recipients(self) -> list[bytes]:
        """Return every key that was ever granted anything, in order of its first grant."""
        return list(self._granted)

    def is_revoked(self, public_key: bytes) -> bool:
        """Return whether a key was ever withdrawn."""
        return public_key in self._withdrawn

    def hides_from(self, public_key: bytes) -> bool:
        """Return whether a founder is not even shown the grant that the account begins with."""
        return self._founder(public_key) and all(grant.serial != 1 for grant, _ in self._grants)

    def is_managed_by(self, relayer: bytes, at_ms: int) -> bool:
        """Return whether this relayer is a custodian of the account."""
        return any(grant.role == "custodian" for grant in self.list_grants_to(relayer, at_ms))

    def keyring(self, identity: Identity, at_ms: int) -> "Keyring":
        """Return the keys that `identity` holds at this time.

        Raises:
            UntrustedGrant: a grant to `identity` does not open or holds another key.
        """
        keyring = Keyring(self._account)
        held = self.list_grants_to(identity.public_key, at_ms)
        oldest = oldest_epoch(held)
        for grant in held:
            keyring.roles.add(grant.role)
            for key in open_grant(grant, identity):
                if key.epoch >= oldest:
                    keyring.add(key)
        return keyring


def oldest_epoch(held: Sequence[Grant]) -> int:
    """Return the oldest epoch that is alive: the lowest that the newest of these grants names."""
    if not held:
        return 0
    newest = max(held, key=lambda grant: grant.serial)
    return min(entry.epoch for entry in newest.scope)


class Keyring:
    """The keys that one identity holds: roots by epoch, namespace keys by name and epoch."""

    def __init__(self, account: bytes) -> None:
        self._account = account
        self._roots: dict[int, Root] = {}
        self._named: dict[tuple[str, int], NamespaceKey] = {}
        self.roles: set[str] = set()

    def add(self, key: Root | NamespaceKey) -> None:
        """Keep a key.

        Raises:
            UntrustedGrant: `keys`, when two grants give different keys for the same place.
        """
        if isinstance(key, Root):
            known: Root | NamespaceKey = self._roots.setdefault(key.epoch, key)
        else:
            known = self._named.setdefault((key.name, key.epoch), key)
        if known != key:
            raise UntrustedGrant("keys", "Two grants give different keys for the same epoch.")

    @property
    def epoch(self) -> int:
        """The newest epoch of any key, 0 without one."""
        return max((*self._roots, *(epoch for _, epoch in self._named)), default=0)

    @property
    def whole_account(self) -> bool:
        """True if the identity holds a root."""
        return bool(self._roots)

    @property
    def names(self) -> tuple[str, ...]:
        """The namespaces of named keys; a root opens any other as well."""
        return tuple(sorted({name for name, _ in self._named}))

    def roots(self) -> tuple[Root, ...]:
        """Return the roots of every live epoch, oldest first.

        Raises:
            NotGranted: this identity holds none.
        """
        if not self._roots:
            raise NotGranted("This key does not hold the whole account.")
        return tuple(root for _, root in sorted(self._roots.items()))

    def namespace_keys(self, namespace: str) -> tuple[NamespaceKey, ...]:
        """Return the keys of a namespace in every live epoch, oldest first.

        Raises:
            NotGranted: no grant covers it.
        """
        name = normalise_namespace(namespace)
        keys = {
            epoch: root.namespace_key(self._account, name) for epoch, root in self._roots.items()
        }
        keys |= {epoch: key for (held, epoch), key in self._named.items() if held == name}
        if not keys:
            raise NotGranted(f"This key holds no grant for the namespace {name!r}.")
        return tuple(key for _, key in sorted(keys.items()))

    def __repr__(self) -> str:
        return f"Keyring(roots={sorted(self._roots)}, names={self.names})"
