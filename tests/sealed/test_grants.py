"""Grants, revocations and their chain: refused at every byte that is changed."""

from typing import Any

import pytest

from relayer.sealed import grants
from relayer.sealed.keys import (
    PublicKey,
    Root,
)
from tests import reference as ref
from tests import scenarios as sc
from tests import scenarios_grants as made
from tests.sealed.altered import (
    ACCOUNT,
    AGENT,
    FOUNDER,
    RELAYER,
    ROOT,
    SECOND,
    TEAM,
    cuts,
    flips,
    refused,
)

FIRST = made.signed_grant(sc.FOUNDER, sc.FOUNDER, "owner", serial=1)


def granted(*objects_: bytes) -> grants.Chain:
    """The chain of signed objects."""
    chain = grants.Chain(ACCOUNT)
    for signed in objects_:
        chain.add(grants.parse_any(signed))
    return chain


def test_a_grant_with_any_bit_changed_or_cut_anywhere_is_refused() -> None:
    signed = made.signed_grant(sc.FOUNDER, sc.AGENT, "writer", keys=[sc.TEAM])
    for broken in [*flips(signed), *cuts(signed)]:
        refused(grants.parse_grant, broken)
        refused(grants.parse_any, broken)


def test_a_revocation_with_any_bit_changed_or_cut_anywhere_is_refused() -> None:
    signed = made.signed_revocation(sc.FOUNDER, sc.AGENT, 2)
    for broken in [*flips(signed), *cuts(signed)]:
        refused(grants.parse_any, broken)


def test_a_box_with_any_bit_changed_does_not_open() -> None:
    grant = grants.parse_grant(made.signed_grant(sc.FOUNDER, sc.AGENT, "writer", keys=[sc.TEAM]))
    for box in [*flips(grant.box), *cuts(grant.box)]:
        changed = grants.Grant(**{**vars(grant), "box": box})
        refused(grants.open_grant, changed, AGENT)


@pytest.mark.parametrize(
    ("role", "keys"),
    [("owner", [ROOT, Root(2, bytes(32))]), ("custodian", [ROOT]), ("writer", [TEAM])],
)
def test_an_issued_grant_opens(role: grants.Role, keys: list[Any]) -> None:
    signed = grants.issue_grant(
        FOUNDER,
        account=ACCOUNT,
        serial=2,
        recipient=AGENT.public_key,
        role=role,
        keys=keys,
        created_ms=sc.NOW,
        expires_ms=sc.NOW + 10,
    )
    grant = grants.parse_grant(signed)
    assert grants.open_grant(grant, AGENT) == keys
    assert grant.whole_account == (role != "writer")
    assert (grant.expired(sc.NOW + 9), grant.expired(sc.NOW + 10)) == (False, True)
    assert granted(FIRST, signed).live(AGENT.public_key, sc.NOW) == [grant]


def test_a_grant_to_a_mixed_order_key_is_not_issued() -> None:
    refused(
        grants.issue_grant,
        FOUNDER,
        account=ACCOUNT,
        serial=2,
        recipient=PublicKey(sc.MIXED_ORDER),
        role="writer",
        keys=[TEAM],
        created_ms=sc.NOW,
    )


def test_an_issuer_that_is_no_text_is_malformed() -> None:
    members = {**made.grant(sc.AGENT, "writer"), "issuer": 1}
    signed = sc.FOUNDER.signed("grant", ref.compact(members))
    assert refused(grants.parse_any, signed) == "malformed object"


def test_a_serial_may_not_be_skipped() -> None:
    later = made.signed_grant(sc.FOUNDER, sc.AGENT, "reader", serial=3)
    assert refused(granted, FIRST, later) == "serials rise by one"


@pytest.mark.parametrize(("role", "recipient"), [("reader", sc.FOUNDER), ("owner", sc.AGENT)])
def test_an_account_begins_with_the_founders_own_root(role: str, recipient: ref.Signer) -> None:
    first = made.signed_grant(sc.FOUNDER, recipient, role, serial=1)
    assert refused(granted, first) == "the first grant gives the founder its own root"


def test_an_account_does_not_begin_with_a_revocation() -> None:
    signed = made.signed_revocation(sc.FOUNDER, sc.AGENT, 1)
    assert refused(granted, signed) == "nothing to revoke yet"


def test_an_owner_revokes_owners_but_not_the_founder() -> None:
    second = made.signed_grant(sc.FOUNDER, sc.SECOND, "owner", serial=2)
    third = made.signed_grant(sc.FOUNDER, sc.THIRD, "owner", serial=3)
    chain = granted(FIRST, second, third, made.signed_revocation(sc.SECOND, sc.THIRD, 4))
    assert chain.live(PublicKey(sc.THIRD.public), sc.NOW) == []
    founder = made.signed_revocation(sc.SECOND, sc.FOUNDER, 5)
    assert refused(chain.add, grants.parse_any(founder)) == "only the founder revokes the founder"


def test_a_revoked_founder_can_still_issue() -> None:
    own = made.signed_revocation(sc.FOUNDER, sc.FOUNDER, 2)
    again = made.signed_grant(sc.FOUNDER, sc.FOUNDER, "owner", serial=3)
    chain = granted(FIRST, own)
    assert chain.live(FOUNDER.public_key, sc.NOW) == []
    chain.add(grants.parse_any(again))
    assert [g.serial for g in chain.live(FOUNDER.public_key, sc.NOW)] == [3]


def test_a_key_with_both_roles_acts_as_owner() -> None:
    """An owner that is also custodian may appoint custodians and revoke owners."""
    chain = granted(
        FIRST,
        made.signed_grant(sc.FOUNDER, sc.SECOND, "custodian", serial=2),
        made.signed_grant(sc.FOUNDER, sc.SECOND, "owner", serial=3),
        made.signed_grant(sc.FOUNDER, sc.THIRD, "owner", serial=4),
        made.signed_grant(sc.SECOND, sc.RELAYER, "custodian", serial=5),
        made.signed_revocation(sc.SECOND, sc.THIRD, 6),
    )
    assert [g.role for g in chain.live(RELAYER.public_key, sc.NOW)] == ["custodian"]


def test_what_a_chain_refuses_leaves_it_as_it_was() -> None:
    chain = granted(FIRST)
    stolen = made.signed_grant(sc.STRANGER, sc.STRANGER, "owner", serial=2)
    refused(chain.add, grants.parse_any(stolen))
    assert (chain.serial, list(chain.grants)) == (1, [FOUNDER.public_key])
    empty = grants.Chain(ACCOUNT)
    refused(empty.add, grants.parse_any(made.signed_grant(sc.FOUNDER, sc.AGENT, "owner", serial=1)))
    assert (empty.serial, empty.founder, empty.grants) == (0, None, {})


def test_a_copy_goes_its_own_way() -> None:
    chain = granted(FIRST, made.signed_grant(sc.FOUNDER, sc.SECOND, "owner", serial=2))
    copy = chain.copy()
    copy.add(grants.parse_any(made.signed_grant(sc.SECOND, sc.AGENT, "reader", serial=3)))
    copy.add(grants.parse_any(made.signed_revocation(sc.FOUNDER, sc.SECOND, 4)))
    assert (chain.serial, copy.serial) == (2, 4)
    assert len(chain.live(SECOND.public_key, sc.NOW)) == 1
    assert chain.live(AGENT.public_key, sc.NOW) == []


def test_a_copy_judges_depth_by_its_own_history() -> None:
    chain = granted(
        FIRST,
        made.signed_grant(sc.FOUNDER, sc.SECOND, "owner", serial=2),
        made.signed_grant(sc.SECOND, sc.THIRD, "owner", serial=3),
        made.signed_grant(sc.THIRD, sc.FOURTH, "owner", serial=4),
    )
    copy = chain.copy()
    chain.add(grants.parse_any(made.signed_grant(sc.FOUNDER, sc.FIFTH, "owner", serial=5)))
    copy.add(grants.parse_any(made.signed_grant(sc.FOURTH, sc.FIFTH, "owner", serial=5)))
    following = grants.parse_any(made.signed_grant(sc.FIFTH, sc.AGENT, "reader", serial=6))
    assert refused(copy.add, following) == "the chain of issuers is too long"
    chain.add(following)


def test_a_join_with_any_bit_changed_or_cut_anywhere_proves_nothing() -> None:
    names: dict[str, Any] = {
        "account": ACCOUNT,
        "issuer": FOUNDER.public_key,
        "recipient": AGENT.public_key,
        "relayer": RELAYER.public_key,
    }
    signed = grants.sign_join(
        AGENT, account=ACCOUNT, issuer=FOUNDER.public_key, relayer=RELAYER.public_key
    )
    grants.verify_join(signed, **names)
    for broken in [b"", *flips(signed), *cuts(signed)]:
        refused(grants.verify_join, broken, **names)
