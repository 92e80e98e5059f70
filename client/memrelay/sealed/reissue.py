"""The objects of a rotation: revocations, then the same again for everybody in every live epoch.

It does not own keys' choice, requests (`operations/rotation.py`) or what makes a grant valid
(`ledger.py`).

Source: SPEC.md §16.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from memrelay.sealed.grants import Grant, GrantedKey, NamespaceScope, issue_grant
from memrelay.sealed.keys import Identity, Root
from memrelay.sealed.ledger import Ledger, issue_revocation

SCOPE_ENTRIES_MAX = 64  # of one grant here: the object stays short whatever the names are


@dataclass(frozen=True, kw_only=True)
class Reissue:
    """The grants and revocations of one rotation, in the order of its serials.

    `own` is the id of the grant by which the rotator itself goes on.
    """

    epoch: int
    serial: int
    revocations: tuple[bytes, ...]
    grants: tuple[bytes, ...]
    own: str


@dataclass(frozen=True, kw_only=True)
class _Share:
    """The namespaces that a key holds in one role until one time; none means the whole account."""

    role: str
    expires_ms: int | None
    names: frozenset[str] | None

    def keys(self, account: bytes, roots: Sequence[Root]) -> Iterator[Sequence[GrantedKey]]:
        """Yield the keys of as many grants as it takes; each has every epoch."""
        if self.names is None:
            yield list(roots)
            return
        names = sorted(self.names)
        step = max(1, SCOPE_ENTRIES_MAX // len(roots))
        for start in range(0, len(names), step):
            some = names[start : start + step]
            yield [root.namespace_key(account, name) for name in some for root in roots]


@dataclass
class _Pen:
    """Signs grants under consecutive serials."""

    issuer: Identity
    account: bytes
    serial: int
    now_ms: int
    grants: list[bytes] = field(default_factory=list)

    def write(self, recipient: bytes, share: _Share, keys: Sequence[GrantedKey]) -> str:
        self.serial += 1
        grant = str(uuid4())
        signed = issue_grant(
            self.issuer,
            account=self.account,
            serial=self.serial,
            recipient=recipient,
            role=share.role,
            keys=keys,
            created_ms=self.now_ms,
            expires_ms=share.expires_ms,
            grant=grant,
        )
        self.grants.append(signed)
        return grant


def reissue(
    ledger: Ledger,
    issuer: Identity,
    *,
    account: bytes,
    roots: Sequence[Root],
    withdrawn: Sequence[bytes],
    relayer: bytes,
    now_ms: int,
) -> Reissue:
    """Return revocations of `withdrawn`, and for every other key what it holds, under `roots`.

    Roles and expiries stay. A custodian other than `relayer` gets nothing: it is elsewhere, or was
    here under an earlier key. `roots` are those of every epoch that is to be alive, oldest first.
    """
    revocations = tuple(
        issue_revocation(issuer, account=account, serial=serial, recipient=key, created_ms=now_ms)
        for serial, key in enumerate(withdrawn, ledger.serial + 1)
    )
    pen = _Pen(issuer, account, ledger.serial + len(revocations), now_ms)
    own = ""
    for recipient, held in ledger.holders(now_ms).items():
        for share in _shares(held, relayer) if recipient not in withdrawn else ():
            for keys in share.keys(account, roots):
                grant = pen.write(recipient, share, keys)
                own = grant if recipient == issuer.public_key else own
    return Reissue(
        epoch=roots[-1].epoch,
        serial=pen.serial,
        revocations=revocations,
        grants=tuple(pen.grants),
        own=own,
    )


def _shares(held: Sequence[Grant], relayer: bytes) -> list[_Share]:
    names: dict[tuple[str, int | None, bool], set[str]] = {}
    for grant in held:
        if grant.role == "custodian" and grant.recipient != relayer:
            continue
        group = names.setdefault((grant.role, grant.expires_ms, grant.whole_account), set())
        group |= {e.namespace for e in grant.scope if isinstance(e, NamespaceScope)}
    return [
        _Share(role=role, expires_ms=expires_ms, names=None if whole else frozenset(named))
        for (role, expires_ms, whole), named in names.items()
    ]
