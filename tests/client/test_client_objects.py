"""Strict JSON, signed objects, statements, joins and receipts of the client (SPEC.md §2, §4)."""

import pytest

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.keys import account_text, hash_256
from memrelay.sealed.objects import (
    from_base64,
    read_json,
    read_object,
    sign_join,
    sign_object,
    write_json,
)
from memrelay.sealed.receipts import NO_HEAD, follow_receipts, read_receipt
from memrelay.sealed.statement import read_statement, read_succession
from tests.relayers_part import read_join

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":1.0}',
        b'{"a":1e3}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":9007199254740992}',
        b'{"a":-9007199254740992}',
        b'{"a":' + b"9" * 6000 + b"}",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":1} x',
        b'{"a":[[[[[[1]]]]]]}',
        b'{"a":' + b"[" * 30000 + b"]" * 30000 + b"}",
        b'{"a":"' + b"x" * 65536 + b'"}',
        b"{'a':1}",
    ],
)
def test_anything_but_strict_json_is_refused(text):
    with pytest.raises(Invalid) as caught:
        read_json(text, ["a"])
    assert caught.value.code == "json"


@pytest.mark.parametrize("text", [b"{}", b'{"b":1}', b'{"a":1,"b":1}'])
def test_members_are_exact(text):
    with pytest.raises(Invalid) as caught:
        read_json(text, ["a"])
    assert caught.value.code == "members"


def test_strict_json_at_its_limits():
    assert read_json(b'{"a":[[[[[1]]]]]}', ["a"]) == {"a": [[[[[1]]]]]}
    assert read_json(b'{"a":9007199254740991}', ["a"]) == {"a": 2**53 - 1}
    assert read_json(b' {"a" : "\\u00e9"} ', ["a"]) == {"a": "é"}


@pytest.mark.parametrize("text", ["YQ", "YQ==\n", "YR==", "Y_==", "YQ= =", "=", 5, None])
def test_base64_is_canonical(text):
    with pytest.raises(Invalid):
        from_base64(text, "key")


def join(example):
    return sign_join(
        example.agent,
        account=example.account,
        issuer=example.founder.public_key,
        relayer=example.relayer.public_key,
    )


def test_a_join_names_account_issuer_and_relayer(example):
    expected = {
        "account": example.account,
        "issuer": example.founder.public_key,
        "relayer": example.relayer.public_key,
    }
    assert read_join(join(example), **expected) == example.agent.public_key
    for name in expected:
        with pytest.raises(Invalid) as caught:
            read_join(join(example), **{**expected, name: bytes(32)})
        assert caught.value.code == "join"


def test_another_signature_or_kind_does_not_verify(example):
    payload = {"relayer": example.relayer.public_key.hex(), "next": "00", "created": 1}
    data = sign_object("relayer-next", payload, example.agent)
    with pytest.raises(Invalid) as caught:
        read_object("relayer-next", data, signer=example.relayer.public_key)
    assert caught.value.code == "signature"
    body = write_json({"v": 1, "account": "a", "issuer": "b", "recipient": "c", "relayer": "d"})
    wrong_kind = body + example.agent.sign(b"memrelay/grant/v1\0" + body)
    with pytest.raises(Invalid) as caught:
        read_object("join", wrong_kind, signer=example.agent.public_key)
    assert caught.value.code == "signature"


def test_every_flipped_bit_of_a_signature_counts(example):
    data = join(example)
    for position in range(len(data) - 64, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(Invalid):
            read_object("join", bytes(changed), signer=example.agent.public_key)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_objects_cut_short_are_refused(example, size):
    with pytest.raises(Invalid):
        read_object("join", join(example)[:size], signer=example.agent.public_key)


def test_another_version_is_refused(example):
    body = write_json({"v": 2, "account": "a", "issuer": "b", "recipient": "c", "relayer": "d"})
    data = body + example.agent.sign(b"memrelay/join/v1\0" + body)
    with pytest.raises(Invalid) as caught:
        read_object("join", data, signer=example.agent.public_key)
    assert caught.value.code == "version"


def statement(signer, relayer, *, issued=NOW_MS, keys=((b"k" * 32, NOW_MS + 1000),), kid=None):
    listed = [
        {"kid": (kid or hash_256(key)[:8]).hex(), "key": key.hex(), "not_after": not_after}
        for key, not_after in keys
    ]
    payload = {"relayer": relayer.public_key.hex(), "issued": issued, "unlock_keys": listed}
    return sign_object("relayer", payload, signer)


def test_a_statement_is_read_under_its_pin(example):
    data = statement(example.relayer, example.relayer)
    for pinned in (None, example.relayer.public_key):
        read = read_statement(data, pinned=pinned, now_ms=NOW_MS)
        assert read.relayer == example.relayer.public_key
        assert read.live_keys(NOW_MS) == (b"k" * 32,)
        assert read.live_keys(NOW_MS + 1000) == ()


def test_at_most_eight_unlock_keys_are_used_the_longest_lived_first(example):
    keys = [(bytes([n]) * 32, NOW_MS + n) for n in range(1, 12)]
    data = statement(example.relayer, example.relayer, keys=keys)
    live = read_statement(data, pinned=None, now_ms=NOW_MS).live_keys(NOW_MS + 2)
    assert [key[0] for key in live] == [11, 10, 9, 8, 7, 6, 5, 4]


def test_statements_of_others_stale_or_false_are_refused(example):
    relayer, agent = example.relayer, example.agent
    cases = {
        "pin": statement(agent, agent),
        "signature": statement(agent, relayer),
        "stale": statement(relayer, relayer, issued=NOW_MS - 600_001),
        "kid": statement(relayer, relayer, kid=bytes(8)),
    }
    for code, data in cases.items():
        with pytest.raises(UntrustedRelayer) as caught:
            read_statement(data, pinned=relayer.public_key, now_ms=NOW_MS)
        assert caught.value.code == code
    future = statement(relayer, relayer, issued=NOW_MS + 600_001)
    with pytest.raises(UntrustedRelayer):
        read_statement(future, pinned=relayer.public_key, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "changes",
    [
        {"unlock_keys": {}},
        {"unlock_keys": [1]},
        {"unlock_keys": [{"kid": "00" * 8, "key": "ab" * 32}]},
        {"unlock_keys": [{"kid": "00" * 8, "key": "ab", "not_after": 1}]},
        {"issued": "now"},
        {"issued": -1},
        {"relayer": "00" * 32},
        {"relayer": 5},
    ],
)
def test_malformed_statements_are_refused(example, changes):
    payload = {"relayer": example.relayer.public_key.hex(), "issued": NOW_MS, "unlock_keys": []}
    data = sign_object("relayer", {**payload, **changes}, example.relayer)
    with pytest.raises(UntrustedRelayer):
        read_statement(data, pinned=None, now_ms=NOW_MS)


def named_next(example, relayer, signer=None):
    payload = {
        "relayer": relayer.public_key.hex(),
        "next": example.agent.public_key.hex(),
        "created": NOW_MS,
    }
    return sign_object("relayer-next", payload, signer or relayer)


def test_only_a_key_itself_names_its_successor(example):
    last, relayer = example.agent.public_key, example.relayer
    keys = read_succession([named_next(example, relayer)], last=last)
    assert keys == (relayer.public_key, last)
    for broken in (
        [named_next(example, relayer, example.founder)],
        [named_next(example, example.agent)],
        [named_next(example, relayer), named_next(example, relayer)],
    ):
        with pytest.raises(UntrustedRelayer):
            read_succession(broken, last=last)
    with pytest.raises(UntrustedRelayer) as caught:
        read_succession([named_next(example, relayer)], last=example.founder.public_key)
    assert caught.value.code == "succession"


def receipt(example, number, head, *, signer=None, **changes):
    payload = {
        "relayer": example.relayer.public_key.hex(),
        "account": account_text(example.account),
        "seq": number,
        "prev": head.hex(),
        "time": NOW_MS,
        "op": "remember",
        "actor": example.agent.public_key.hex(),
        "namespace": "team",
        "epoch": 1,
        "items": [["00000000-0000-4000-8000-000000000001", 1, "blob"]],
        "serial": 2,
    }
    return sign_object("receipt", {**payload, **changes}, signer or example.relayer)


def chain(example, length):
    objects, prev = [], NO_HEAD
    for seq in range(1, length + 1):
        objects.append(receipt(example, seq, prev))
        prev = hash_256(objects[-1])
    return objects


def follow(example, objects, seq=0, head=NO_HEAD):
    return follow_receipts(
        objects,
        relayers=[example.relayer.public_key],
        account=example.account,
        seq=seq,
        head=head,
    )


def test_a_chain_of_receipts_is_followed(example):
    objects = chain(example, 3)
    receipts = follow(example, objects)
    assert [entry.seq for entry in receipts] == [1, 2, 3]
    later = follow(example, objects[2:], seq=2, head=receipts[1].digest)
    assert later == receipts[2:]


def test_a_chain_with_a_gap_a_swap_or_another_link_breaks(example):
    one, two, three = chain(example, 3)
    other = receipt(example, 2, hash_256(one), epoch=2)
    for objects in ([two], [one, three], [one, one], [two, one], [one, other, three]):
        with pytest.raises(UntrustedRelayer) as caught:
            follow(example, objects)
        assert caught.value.code == "chain"


@pytest.mark.parametrize(
    "changes",
    [
        {"account": "0x" + "ab" * 32},
        {"relayer": "ab" * 32},
        {"op": "delete"},
        {"seq": 0},
        {"seq": True},
        {"prev": "00"},
        {"items": [["x", 1, "blob"]]},
        {"items": [["00000000-0000-4000-8000-000000000001", 1]]},
        {"items": {}},
        {"serial": -1},
        {"time": "now"},
        {"namespace": 5},
    ],
)
def test_false_receipts_are_refused(example, changes):
    data = receipt(example, 1, NO_HEAD, **changes)
    with pytest.raises(UntrustedRelayer):
        read_receipt(data, relayer=example.relayer.public_key, account=example.account)


def test_receipts_of_another_signer_are_refused(example):
    data = receipt(example, 1, NO_HEAD, signer=example.agent)
    with pytest.raises(UntrustedRelayer) as caught:
        read_receipt(data, relayer=example.relayer.public_key, account=example.account)
    assert caught.value.code == "signature"
