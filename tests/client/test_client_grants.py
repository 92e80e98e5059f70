"""Grants, revocations and the judging of their chains (SPEC.md §4.1, §4.2)."""

import json
from itertools import pairwise

import pytest
from nacl import bindings

from memrelay.errors import NotGranted, UntrustedGrant
from memrelay.sealed.grants import open_grant, read_grant
from memrelay.sealed.keys import Identity, Root, account_text
from memrelay.sealed.ledger import Ledger, _read, read_revocation
from memrelay.sealed.objects import from_base64, sign_object, to_base64, write_json
from tests.client.signed import NOW_MS, grant, ledger, revoke


def seeded(number):
    return Identity(bytes([number]) * 32)


def refused(example, *objects):
    with pytest.raises(UntrustedGrant) as caught:
        ledger(example, *objects)
    return caught.value.code


def resigned(data, signer, **changes):
    """The same grant with changed members, signed again."""
    payload = json.loads(data[:-64])
    payload.pop("v")
    return sign_object("grant", {**payload, **changes}, signer)


def test_the_example_gives_the_agent_its_namespace_only(example):
    book = ledger(
        example,
        grant(example, 1, example.founder, example.founder),
        grant(example, 2, example.founder, example.agent, "writer", keys=[example.team]),
    )
    assert (book.serial, book.complete) == (2, True)
    keyring = book.keyring(example.agent, NOW_MS)
    assert keyring.namespace_keys(" team ") == (example.team,)
    assert keyring.names == ("team",)
    with pytest.raises(NotGranted):
        keyring.namespace_keys("other")
    with pytest.raises(NotGranted):
        keyring.roots()
    assert book.keyring(example.founder, NOW_MS).namespace_keys("team") == (example.team,)
    assert book.keyring(seeded(9), NOW_MS).epoch == 0


def test_a_whole_account_grant_covers_every_name_but_names_none(example):
    data = grant(example, 1, example.founder, example.agent, "reader")
    keyring = ledger(example, data).keyring(example.agent, NOW_MS)
    assert (keyring.names, keyring.roots(), keyring.roles) == ((), (example.root,), {"reader"})
    assert keyring.namespace_keys("other")


def test_a_namespace_is_named_by_grants_that_count(example):
    book = [
        grant(example, 1, example.founder, example.founder),
        grant(
            example,
            2,
            example.founder,
            example.agent,
            "reader",
            keys=[example.team],
            expires_ms=NOW_MS + 5,
        ),
    ]
    withdrawn = revoke(example, 3, example.founder, example.agent)
    own, agent = example.founder.public_key, example.agent.public_key
    given = ledger(example, *book)
    assert given.names("team", NOW_MS, but=own)
    assert not given.names("team", NOW_MS, but=agent)
    assert not given.names("team", NOW_MS + 5, but=own)
    assert not given.names("other", NOW_MS, but=agent), "a root names nothing"
    assert not ledger(example, *book, withdrawn).names("team", NOW_MS, but=own)


def test_keys_do_not_show_in_a_keyring_or_grant(example):
    data = grant(example, 1, example.founder, example.founder)
    keyring = ledger(example, data).keyring(example.founder, NOW_MS)
    assert example.root.key.hex() not in repr(keyring)
    assert "box" not in repr(read_grant(data))


def test_a_chain_of_four_is_the_longest(example):
    links = [example.founder, *(seeded(n) for n in range(1, 6))]
    chain = [
        grant(example, serial, issuer, recipient)
        for serial, (issuer, recipient) in enumerate(pairwise(links), 1)
    ]
    assert ledger(example, *chain[:4]).serial == 4
    assert refused(example, *chain) == "chain"


def test_objects_may_arrive_in_any_order(example):
    one = grant(example, 1, example.founder, seeded(1))
    two = grant(example, 2, seeded(1), seeded(2))
    assert ledger(example, two, one).serial == 2


def test_strangers_writers_and_later_owners_cannot_issue(example):
    writer, owner = seeded(1), seeded(2)
    first = grant(example, 1, example.founder, writer, "writer")
    assert refused(example, grant(example, 1, writer, seeded(3))) == "issuer"
    assert refused(example, first, grant(example, 2, writer, seeded(3))) == "issuer"
    late = grant(example, 3, example.founder, owner)
    assert refused(example, grant(example, 2, owner, seeded(3)), late) == "issuer"


def test_an_expired_owner_issues_no_more_but_what_it_issued_stays(example):
    owner = seeded(1)
    brief = grant(example, 1, example.founder, owner, expires_ms=NOW_MS + 10)
    early = grant(example, 2, owner, seeded(2), created_ms=NOW_MS + 9)
    late = grant(example, 3, owner, seeded(3), created_ms=NOW_MS + 10)
    book = ledger(example, brief, early)
    assert book.list_grants_to(owner.public_key, NOW_MS + 10) == []
    assert len(book.list_grants_to(seeded(2).public_key, NOW_MS + 10)) == 1
    assert refused(example, brief, early, late) == "issuer"


def test_a_revocation_withdraws_earlier_grants_only(example):
    owner = seeded(1)
    objects = [
        grant(example, 1, example.founder, owner),
        grant(example, 2, owner, seeded(2)),
        revoke(example, 3, example.founder, owner),
    ]
    book = ledger(example, *objects)
    assert book.list_grants_to(owner.public_key, NOW_MS) == []
    assert len(book.list_grants_to(seeded(2).public_key, NOW_MS)) == 1
    assert refused(example, *objects, grant(example, 4, owner, seeded(3))) == "issuer"
    again = ledger(example, *objects, grant(example, 4, example.founder, owner))
    assert len(again.list_grants_to(owner.public_key, NOW_MS)) == 1


def test_a_revocation_needs_an_issuer_with_the_right(example):
    writer = seeded(1)
    first = grant(example, 1, example.founder, writer, "writer")
    assert refused(example, first, revoke(example, 2, writer, example.founder)) == "issuer"


@pytest.mark.parametrize(
    "changes",
    [{"serial": 0}, {"account": 5}, {"recipient": "00" * 32}, {"created": None}],
)
def test_malformed_revocations_are_refused(example, changes):
    payload = {
        "account": account_text(example.account),
        "serial": 1,
        "issuer": example.founder.public_key.hex(),
        "recipient": example.agent.public_key.hex(),
        "created": NOW_MS,
    }
    data = sign_object("revoke", {**payload, **changes}, example.founder)
    assert read_revocation(sign_object("revoke", payload, example.founder)).serial == 1
    with pytest.raises(UntrustedGrant):
        read_revocation(data)


def test_custodians_come_from_owners_and_stay_below_them(example):
    custodian, owner, writer = seeded(1), seeded(2), seeded(3)
    base = [
        grant(example, 1, example.founder, custodian, "custodian"),
        grant(example, 2, custodian, owner),
        grant(example, 3, custodian, writer, "writer"),
    ]
    book = ledger(example, *base)
    assert book.is_managed_by(custodian.public_key, NOW_MS)
    assert not book.is_managed_by(owner.public_key, NOW_MS)
    another = grant(example, 4, custodian, seeded(4), "custodian")
    assert refused(example, *base, another) == "role"
    assert refused(example, *base, revoke(example, 4, custodian, owner)) == "role"
    assert refused(example, *base, revoke(example, 4, custodian, example.founder)) == "role"
    assert ledger(example, *base, revoke(example, 4, custodian, writer)).serial == 4
    assert ledger(example, *base, grant(example, 4, owner, seeded(4), "custodian")).serial == 4


def test_serials_rise(example):
    one = grant(example, 1, example.founder, seeded(1))
    same = grant(example, 1, example.founder, seeded(2))
    assert refused(example, one, same) == "serial"
    assert not ledger(example, one, grant(example, 3, example.founder, seeded(2))).complete


def test_what_was_verified_is_not_verified_again(example):
    objects = [grant(example, n, example.founder, seeded(n)) for n in range(1, 6)]
    assert ledger(example, *objects).serial == 5
    verified = _read.cache_info().misses
    later = grant(example, 6, example.founder, seeded(6))
    assert ledger(example, *objects, later).serial == 6
    assert _read.cache_info().misses == verified + 1
    altered = objects[0][:-1] + bytes([objects[0][-1] ^ 1])
    for _ in range(2):
        assert refused(example, altered, *objects[1:]) == "signature"


def test_grants_of_another_account_are_refused(example):
    data = grant(example, 1, example.founder, example.founder)
    with pytest.raises(UntrustedGrant) as caught:
        Ledger.of(bytes(32), [("grant", data)])
    assert caught.value.code == "account"


@pytest.mark.parametrize(
    "changes",
    [
        {"serial": 0},
        {"serial": True},
        {"role": "admin"},
        {"scope": []},
        {"scope": [{"epoch": 1}]},
        {"scope": [{"epoch": 0, "root_id": "ab" * 32}]},
        {"scope": [{"epoch": 1, "root_id": "ab" * 32}] * 2},
        {"scope": [{"epoch": n, "root_id": "ab" * 32} for n in range(1, 258)]},
        {"scope": [{"ns": "team ", "epoch": 1, "key_id": "ab" * 32}]},
        {"scope": [{"ns": "team", "epoch": 1, "key_id": "ab" * 32}]},  # an owner holds roots
        {"grant": "not-a-uuid"},
        {"recipient": "00" * 32},
        {"created": -1},
        {"expires": "never"},
        {"box": "!"},
    ],
)
def test_malformed_grants_are_refused(example, changes):
    data = grant(example, 1, example.founder, example.founder)
    with pytest.raises(UntrustedGrant):
        read_grant(resigned(data, example.founder, **changes))


def test_scopes_of_both_sorts_do_not_mix(example):
    mixed = [
        {"epoch": 1, "root_id": "ab" * 32},
        {"ns": "team", "epoch": 1, "key_id": "ab" * 32},
    ]
    data = grant(example, 1, example.founder, example.founder, "writer")
    with pytest.raises(UntrustedGrant) as caught:
        read_grant(resigned(data, example.founder, scope=mixed))
    assert caught.value.code == "scope"


def test_a_grant_signed_by_somebody_else_is_refused(example):
    data = grant(example, 1, example.founder, example.founder)
    with pytest.raises(UntrustedGrant) as caught:
        read_grant(resigned(data, example.agent))
    assert caught.value.code == "signature"


def test_a_box_of_another_grant_is_refused(example):
    one = grant(example, 1, example.founder, example.agent)
    two = grant(example, 2, example.founder, example.agent)
    moved = resigned(two, example.founder, box=json.loads(one[:-64])["box"])
    with pytest.raises(UntrustedGrant) as caught:
        open_grant(read_grant(moved), example.agent)
    assert caught.value.code == "box"


def test_keys_must_have_the_ids_that_the_scope_names(example):
    data = grant(example, 1, example.founder, example.agent)
    wrong = resigned(data, example.founder, scope=[{"epoch": 1, "root_id": "ab" * 32}])
    with pytest.raises(UntrustedGrant) as caught:
        open_grant(read_grant(wrong), example.agent)
    assert caught.value.code == "key_id"
    named = grant(example, 1, example.founder, example.agent, "writer", keys=[example.team])
    scope = [{"ns": "other", "epoch": 1, "key_id": "ab" * 32}]
    with pytest.raises(UntrustedGrant) as caught:
        open_grant(read_grant(resigned(named, example.founder, scope=scope)), example.agent)
    assert caught.value.code == "key_id"


@pytest.mark.parametrize(
    "change",
    [
        {"keys": []},
        {"keys": ["AA=="]},
        {"keys": "AA=="},
        {"keys": [1]},
        {"serial": 2},
        {"extra": 1},
        {"recipient": "ab" * 32},
    ],
)
def test_a_box_with_other_contents_is_refused(example, change):
    data = grant(example, 1, example.founder, example.agent)
    outside = json.loads(data[:-64])
    names = ("account", "grant", "serial", "issuer", "recipient")
    inside = {name: outside[name] for name in names}
    inside["keys"] = [to_base64(example.root.key)]
    box = bindings.crypto_box_seal(write_json(inside | change), example.agent.exchange_public)
    changed = resigned(data, example.founder, box=to_base64(box))
    with pytest.raises(UntrustedGrant):
        open_grant(read_grant(changed), example.agent)


def test_a_damaged_or_foreign_box_is_refused(example):
    data = grant(example, 1, example.founder, example.agent)
    box = from_base64(json.loads(data[:-64])["box"], "box")
    for wrong in (b"", box[:48], box[:-1], bytes([box[0] ^ 1]) + box[1:]):
        changed = resigned(data, example.founder, box=to_base64(wrong))
        with pytest.raises(UntrustedGrant) as caught:
            open_grant(read_grant(changed), example.agent)
        assert caught.value.code == "box"
    with pytest.raises(UntrustedGrant) as caught:
        open_grant(read_grant(data), example.founder)
    assert caught.value.code == "recipient"


def test_two_keys_for_one_place_are_refused(example):
    other = Root(bytes(32), 1)
    book = ledger(
        example,
        grant(example, 1, example.founder, example.founder),
        grant(example, 2, example.founder, example.founder, keys=[other]),
    )
    with pytest.raises(UntrustedGrant) as caught:
        book.keyring(example.founder, NOW_MS)
    assert caught.value.code == "keys"


def test_every_live_epoch_has_its_key(example):
    second = Root(bytes([7]) * 32, 2)
    book = ledger(
        example, grant(example, 1, example.founder, example.founder, keys=[second, example.root])
    )
    keyring = book.keyring(example.founder, NOW_MS)
    assert [key.epoch for key in keyring.namespace_keys("team")] == [1, 2]
    assert keyring.epoch == 2
    assert keyring.whole_account


def test_a_custodian_cannot_be_issued_for_a_namespace(example):
    with pytest.raises(UntrustedGrant) as caught:
        grant(example, 1, example.founder, example.relayer, "custodian", keys=[example.team])
    assert caught.value.code == "scope"
