"""Chains of grants and revocations: who may issue what, judged by both implementations.

Not here: a grant's own form (`sealed.py`).

- The input is a programme: four bytes make one object, signed by whom they say.
- A client may see but some of the objects, so it alone accepts gaps in their numbers. Of a whole
  chain, both accept the same, and then everybody holds the same.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial

from memrelay.errors import Invalid
from memrelay.sealed import grants as client_grants
from memrelay.sealed import ledger
from relayer.sealed import grants
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.primitives import CryptoError
from tests import reference as ref
from tests.fuzz.loop import Parser

PEOPLE = [ref.Signer(ref.drawn(f"person {number}")) for number in range(6)]
ACCOUNT = ref.account_of(PEOPLE[0].public)
ROOTS = [ref.Root(ref.drawn("root"))]
ROLES = ("owner", "writer", "reader", "custodian")
REVOCATION, SUCCESSOR, SAME_SERIAL = 4, 5, 0x80
OBJECTS_MAX = 8
NOW_MS = 1_000
KINDS: Mapping[str, Callable[[bytes], client_grants.Grant | client_grants.Revocation]] = {
    "grant": client_grants.read_grant,
    "revoke": ledger.read_revocation,
}


def _chain(programme: bytes) -> None:
    chain, history = grants.Chain(AccountId(ACCOUNT)), ledger.Ledger(ACCOUNT)
    serial = 1
    for at in range(0, min(len(programme), 4 * OBJECTS_MAX) - 3, 4):
        who, what, *when = programme[at : at + 4]
        issuer, recipient = PEOPLE[(who >> 4) % 6], PEOPLE[(who & 15) % 6]
        if what % 6 == SUCCESSOR:
            signed = ref.named_next(issuer, recipient, created=0)
            assert _accepts(chain.learn, signed) == _accepts(history.learn, signed)
            continue
        kind, signed = _signed(issuer, recipient, what, serial, *when)
        theirs = _accepts(lambda s: chain.add(grants.parse_any(s)), signed)
        ours = _accepts(partial(_add, history, kind), signed)
        if ours and chain.founder is None:
            return  # only a client goes on without the first grant, which it need not see
        assert theirs == ours, "they judge an object differently"
        serial += theirs and not what & SAME_SERIAL
        _compare(chain, history)


@lru_cache(4096)
def _signed(
    issuer: ref.Signer, recipient: ref.Signer, what: int, serial: int, made: int, lives: int
) -> tuple[str, bytes]:
    if what % 6 == REVOCATION:
        members = ref.revocation_members(
            issuer.public, recipient.public, account=ACCOUNT, serial=serial, created=made
        )
        return "revoke", issuer.signed("revoke", ref.compact(members))
    members = ref.grant_members(
        issuer.public,
        recipient,
        ROOTS,
        account=ACCOUNT,
        serial=serial,
        role=ROLES[what % 6],
        created=made,
        expires=made + 8 * lives if lives else None,
        ephemeral=ref.drawn("ephemeral"),
    )
    return "grant", issuer.signed("grant", ref.compact(members))


def _add(history: ledger.Ledger, kind: str, signed: bytes) -> None:
    history.add(KINDS[kind](signed))


def _accepts(judge: Callable[[bytes], object], signed: bytes) -> bool:
    try:
        judge(signed)
    except (CryptoError, Invalid):
        return False
    return True


def _compare(chain: grants.Chain, history: ledger.Ledger) -> None:
    assert chain.serial == history.serial
    for person in PEOPLE:
        theirs = [g.serial for g in chain.live(PublicKey(person.public), NOW_MS)]
        ours = [g.serial for g in history.list_grants_to(person.public, NOW_MS)]
        assert theirs == ours, "somebody holds something else"


def _seeds() -> Iterator[bytes]:
    first = bytes([0x00, 0, 0, 0])
    yield first
    for what in range(6):
        yield first + bytes([0x01, 0, 1, 0, 0x12, what, 2, 9, 0x10, 4, 3, 0, 0x01, 4, 4, 0])
    yield first + bytes([0x01, 3, 1, 0, 0x12, 5, 0, 0, 0x12, 3, 2, 0, 0x21, 4, 3, 0])


PARSER = Parser((grants, ledger), _seeds, _chain)
