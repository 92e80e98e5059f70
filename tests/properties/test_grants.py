"""Grants: what one implementation issues, the other opens; and both judge any chain alike.

Not here: each rule by itself (`tests/sealed`, `tests/client/test_client_grants.py`, vectors).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memrelay.errors import Invalid
from memrelay.sealed import grants as client
from memrelay.sealed import keys as client_keys
from memrelay.sealed.ledger import Ledger, read_revocation
from relayer.sealed import grants as server
from relayer.sealed.keys import Namespace, NamespaceKey, PublicKey, Root
from relayer.sealed.primitives import CryptoError
from tests import scenarios as sc
from tests.properties.drawn import ACCOUNT, CLIENTS, SERVERS, epochs, few, flipped, many, names

FOUNDER, AGENT = 0, 1
people = st.integers(0, len(SERVERS) - 1)
roles: st.SearchStrategy[server.Role] = st.sampled_from(["owner", "writer", "reader", "custodian"])
expiries = st.none() | st.integers(1, 2**53 - 1)


@dataclass(frozen=True)
class Asked:
    """A grant to issue: names of namespaces, or none for the whole account."""

    role: server.Role
    places: Sequence[tuple[str, int]]
    whole: bool
    expires_ms: int | None

    def server_keys(self) -> Sequence[Root] | Sequence[NamespaceKey]:
        roots = [Root(epoch, sc.ROOT.key) for _, epoch in self.places]
        if self.whole:
            return roots
        return [
            root.namespace_key(ACCOUNT, Namespace(name))
            for root, (name, _) in zip(roots, self.places, strict=True)
        ]

    def client_keys(self) -> Sequence[client.GrantedKey]:
        roots = [client_keys.Root(sc.ROOT.key, epoch) for _, epoch in self.places]
        if self.whole:
            return roots
        return [
            root.namespace_key(ACCOUNT, name)
            for root, (name, _) in zip(roots, self.places, strict=True)
        ]


def _asked(whole: bool) -> st.SearchStrategy[Asked]:
    def unique(place: tuple[str, int]) -> object:
        return place[1] if whole else place

    places = st.lists(st.tuples(names, epochs), min_size=1, max_size=6, unique_by=unique)
    some: st.SearchStrategy[server.Role] = st.sampled_from(["writer", "reader"])
    return st.builds(Asked, roles if whole else some, places, st.just(whole), expiries)


asked = st.booleans().flatmap(_asked)


def issued(grant: Asked, maker: str) -> bytes:
    """The founder's grant to the agent, made by this side."""
    if maker == "server":
        return server.issue_grant(
            SERVERS[FOUNDER],
            account=ACCOUNT,
            serial=2,
            recipient=SERVERS[AGENT].public_key,
            role=grant.role,
            keys=grant.server_keys(),
            created_ms=sc.NOW,
            expires_ms=grant.expires_ms,
        )
    return client.issue_grant(
        CLIENTS[FOUNDER],
        account=ACCOUNT,
        serial=2,
        recipient=CLIENTS[AGENT].public_key,
        role=grant.role,
        keys=grant.client_keys(),
        created_ms=sc.NOW,
        expires_ms=grant.expires_ms,
    )


@few
@given(asked, st.sampled_from(["server", "client"]))
def test_what_one_side_grants_the_other_opens(grant: Asked, maker: str) -> None:
    signed = issued(grant, maker)
    ours, theirs = server.parse_grant(signed), client.read_grant(signed)
    assert server.open_grant(ours, SERVERS[AGENT]) == grant.server_keys()
    assert client.open_grant(theirs, CLIENTS[AGENT]) == tuple(grant.client_keys())
    assert [(e.namespace, e.epoch, e.key_id) for e in ours.scope] == list(map(named, theirs.scope))
    assert (ours.role, ours.expires_ms) == (theirs.role, theirs.expires_ms)
    assert (ours.whole_account, theirs.whole_account) == (grant.whole, grant.whole)


def named(entry: client.NamespaceScope | client.RootScope) -> tuple[str | None, int, bytes]:
    """What the client reads of an entry, in the server's order."""
    if isinstance(entry, client.RootScope):
        return None, entry.epoch, entry.root_id
    return entry.namespace, entry.epoch, entry.key_id


@few
@given(asked, people.filter(lambda who: who != AGENT))
def test_a_grant_is_for_its_recipient_only(grant: Asked, who: int) -> None:
    signed = issued(grant, "server")
    with pytest.raises(CryptoError):
        server.open_grant(server.parse_grant(signed), SERVERS[who])
    with pytest.raises(Invalid):
        client.open_grant(client.read_grant(signed), CLIENTS[who])


@many
@given(asked, st.integers(min_value=0))
def test_no_bit_of_a_grant_can_be_changed(grant: Asked, bit: int) -> None:
    altered = flipped(issued(grant, "server"), bit)
    with pytest.raises(CryptoError):
        server.parse_grant(altered)
    with pytest.raises(Invalid):
        client.read_grant(altered)


@few
@given(asked, asked)
def test_a_box_opens_in_its_own_grant_only(one: Asked, other: Asked) -> None:
    """The founder cannot be made to have given more than was signed, nor a box be moved."""
    box = server.parse_grant(issued(one, "server")).box
    bare = server.parse_grant(issued(other, "server"))
    moved = server.Grant(**{**vars(bare), "box": box})
    with pytest.raises(CryptoError):
        server.open_grant(moved, SERVERS[AGENT])


@dataclass(frozen=True)
class Step:
    """The next object of a chain: a revocation has no role."""

    issuer: int
    recipient: int
    role: server.Role | None
    lives_s: int | None  # from when it was made
    after_s: int
    serial_off: int

    def signed(self, serial: int, now_ms: int) -> bytes:
        issuer, recipient = SERVERS[self.issuer], SERVERS[self.recipient].public_key
        if self.role is None:
            return server.issue_revocation(
                issuer, account=ACCOUNT, serial=serial, recipient=recipient, created_ms=now_ms
            )
        return server.issue_grant(
            issuer,
            account=ACCOUNT,
            serial=serial,
            recipient=recipient,
            role=self.role,
            keys=[Root(1, sc.ROOT.key)],
            created_ms=now_ms,
            expires_ms=None if self.lives_s is None else now_ms + 1000 * self.lives_s,
        )


steps = st.builds(
    Step,
    issuer=people,
    recipient=st.integers(0, 5),
    role=st.sampled_from(["owner", "owner", "custodian", "custodian", "writer", None, None]),
    lives_s=st.none() | st.integers(1, 50),
    after_s=st.integers(0, 20),
    serial_off=st.sampled_from([0] * 9 + [-1]),
)


# Two that chance finds seldom: a chain one too long, and a custodian that revokes an owner.
TOO_LONG = [Step(n, n + 1, "owner", None, 0, 0) for n in range(6)]
BY_CUSTODIAN = [
    Step(FOUNDER, AGENT, "owner", None, 0, 0),
    Step(FOUNDER, 6, "custodian", None, 0, 0),
    Step(6, AGENT, None, None, 0, 0),
]


@settings(few, max_examples=120)
@example(TOO_LONG)
@example(BY_CUSTODIAN)
@given(st.lists(steps, min_size=6, max_size=16))
def test_both_sides_judge_any_chain_alike(drawn: Sequence[Step]) -> None:
    """Each object is accepted by both or by neither, and everybody then holds the same."""
    chain, ledger, now_ms = server.Chain(ACCOUNT), Ledger(ACCOUNT), sc.NOW
    newest = FOUNDER
    for one in (Step(FOUNDER, FOUNDER, "owner", None, 0, 0), *drawn):
        now_ms += 1000 * one.after_s
        # Whoever got something last passes it on as often as not, so that chains grow long.
        step = replace(one, issuer=newest) if one.after_s % 2 else one
        signed = step.signed(chain.serial + 1 + step.serial_off, now_ms)
        taken = accepted_by_server(chain, signed)
        assert taken == accepted_by_client(ledger, signed)
        assert chain.serial == ledger.serial
        newest = step.recipient if taken and step.role in ("owner", "custodian") else newest
        for who in SERVERS:
            ours = [grant.serial for grant in chain.live(PublicKey(who.public_key), now_ms)]
            theirs = [grant.serial for grant in ledger.list_grants_to(who.public_key, now_ms)]
            assert ours == theirs


def accepted_by_server(chain: server.Chain, signed: bytes) -> bool:
    try:
        chain.add(server.parse_any(signed))
    except CryptoError:
        return False
    return True


def accepted_by_client(ledger: Ledger, signed: bytes) -> bool:
    try:
        is_grant = b'"grant":' in signed
        ledger.add(client.read_grant(signed) if is_grant else read_revocation(signed))
    except Invalid:
        return False
    return True
