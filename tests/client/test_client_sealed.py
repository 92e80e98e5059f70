"""Envelopes, unlock headers and turned vectors of the client (SPEC.md §6, §7, §9)."""

import base64
import math
from typing import Any
from uuid import UUID

import pytest
from nacl import bindings

from memrelay.errors import Invalid
from memrelay.sealed.envelope import (
    Address,
    blob_id,
    open_envelope,
    pad,
    read_header,
    seal_envelope,
    unpad,
)
from memrelay.sealed.keys import NamespaceKey, Root, account_text, hash_256
from memrelay.sealed.objects import to_base64, write_json
from memrelay.sealed.unlock import Unlock, build_unlock
from tests.relayers_part import open_unlock, turn_vector

NOW_MS = 1_700_000_000_000
MEMORY = UUID("00000000-0000-4000-8000-000000000001")


def address_of(example, **changes):
    values = {"type": 1, "account": example.account, "memory": MEMORY, "revision": 1}
    return Address(**{**values, **changes})


@pytest.mark.parametrize("size", [0, 1, 252, 253, 5000, 100_000])
def test_a_record_comes_back(example, size):
    record = bytes(n % 251 for n in range(size))
    envelope = seal_envelope(address_of(example), example.team, record, created_ms=NOW_MS)
    assert open_envelope(address_of(example), example.team, envelope) == record
    assert read_header(envelope).created_ms == NOW_MS


@pytest.mark.parametrize(
    ("size", "plain"), [(0, 256), (252, 256), (253, 512), (2500, 2560), (5000, 5120)]
)
def test_sizes_are_rounded_up(size, plain):
    assert len(pad(bytes(size))) == plain


def test_padding_stays_below_a_tenth_for_long_records():
    for size in range(2600, 60_000, 97):
        assert len(pad(bytes(size))) <= 1.1 * (size + 4)


@pytest.mark.parametrize(
    "plaintext",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\2x",
        b"\0\0\0\1xy",
        b"\xff\xff\xff\xffx",
        b"\0\0\0\0" + b"\0" * 9 + b"1",
    ],
)
def test_damaged_padding_is_refused(plaintext):
    with pytest.raises(Invalid) as caught:
        unpad(plaintext)
    assert caught.value.code == "padding"


def test_equal_records_give_different_envelopes(example):
    first, second = (
        seal_envelope(address_of(example), example.team, b"same", created_ms=NOW_MS)
        for _ in range(2)
    )
    assert blob_id(first) != blob_id(second)
    assert len(first) == 396


def test_every_byte_of_header_and_tag_is_bound(example):
    envelope = seal_envelope(address_of(example), example.team, b"text", created_ms=NOW_MS)
    for position in (*range(124), 200, len(envelope) - 1):
        changed = bytearray(envelope)
        changed[position] ^= 1
        with pytest.raises(Invalid):
            open_envelope(address_of(example), example.team, bytes(changed))


def test_an_envelope_opens_only_in_its_place(example):
    envelope = seal_envelope(address_of(example), example.team, b"text", created_ms=NOW_MS)
    places = {
        "type": address_of(example, type=2),
        "account": address_of(example, account=bytes(32)),
        "memory": address_of(example, memory=UUID(int=1)),
        "revision": address_of(example, revision=2),
    }
    for code, wrong in places.items():
        with pytest.raises(Invalid) as caught:
            open_envelope(wrong, example.team, envelope)
        assert caught.value.code == code
    other = example.root.namespace_key(example.account, "other")
    later = NamespaceKey(example.team.key, 2, "team")
    for code, key in (("key_id", other), ("epoch", later)):
        with pytest.raises(Invalid) as caught:
            open_envelope(address_of(example), key, envelope)
        assert caught.value.code == code


@pytest.mark.parametrize("size", [0, 123, 124, 395])
def test_short_envelopes_are_refused(example, size):
    envelope = seal_envelope(address_of(example), example.team, b"text", created_ms=NOW_MS)
    with pytest.raises(Invalid) as caught:
        open_envelope(address_of(example), example.team, envelope[:size])
    assert caught.value.code == "length"
    with pytest.raises(Invalid):
        read_header(envelope[:size])


def test_types_and_revisions_outside_the_format_are_not_sealed(example):
    for wrong in (
        address_of(example, type=0),
        address_of(example, type=4),
        address_of(example, revision=0),
    ):
        with pytest.raises(Invalid):
            seal_envelope(wrong, example.team, b"", created_ms=NOW_MS)


SECRET = bytes([5]) * 32
PUBLIC = bindings.crypto_scalarmult_base(SECRET)
OTHER_PUBLIC = bindings.crypto_scalarmult_base(bytes([6]) * 32)


def unlock(example, **changes):
    values = {
        "relayer": example.relayer.public_key,
        "account": example.account,
        "sender": example.agent.public_key,
        "issued_ms": NOW_MS,
        "hold_s": 300,
        "keys": (example.team,),
    }
    return Unlock(**{**values, **changes})


def opened(example, header, **changes):
    values = {
        "unlock_secrets": {hash_256(PUBLIC)[:8]: SECRET},
        "relayer": example.relayer.public_key,
        "account": example.account,
        "sender": example.agent.public_key,
        "now_ms": NOW_MS,
    }
    return open_unlock(header, **{**values, **changes})


@pytest.mark.parametrize("keys", [[PUBLIC], [OTHER_PUBLIC, PUBLIC]])
def test_a_header_opens_for_each_holder_of_a_live_key(example, keys):
    header = build_unlock(example.agent, unlock(example), keys)
    assert opened(example, header) == unlock(example)
    assert "=" not in header


def test_a_header_with_fixed_randomness_is_the_same_twice(example):
    fixed: dict[str, Any] = {
        "content_key": b"c" * 32,
        "box_nonces": [b"b" * 24],
        "nonce": b"n" * 24,
    }
    first, second = (
        build_unlock(example.agent, unlock(example), [PUBLIC], **fixed) for _ in range(2)
    )
    assert first == second
    assert first != build_unlock(example.agent, unlock(example), [PUBLIC])


def test_keys_of_a_header_do_not_show(example):
    assert example.team.key.hex() not in repr(unlock(example))


def test_a_header_of_a_forgotten_key_says_so(example):
    header = build_unlock(example.agent, unlock(example), [OTHER_PUBLIC])
    with pytest.raises(Invalid) as caught:
        opened(example, header)
    assert caught.value.code == "unlock_key_unknown"


def rejected(example, header, **changes):
    with pytest.raises(Invalid) as caught:
        opened(example, header, **changes)
    assert caught.value.code == "unlock_rejected"


def test_a_header_from_or_for_somebody_else_is_rejected(example):
    header = build_unlock(example.agent, unlock(example), [PUBLIC])
    rejected(example, header, sender=example.founder.public_key)
    rejected(example, header, relayer=example.founder.public_key)
    rejected(example, header, account=bytes(32))
    lying = build_unlock(example.founder, unlock(example), [PUBLIC])
    rejected(example, lying)
    claimed = build_unlock(
        example.agent, unlock(example, sender=example.founder.public_key), [PUBLIC]
    )
    rejected(example, claimed)


def test_stale_future_and_long_held_headers_are_rejected(example):
    header = build_unlock(example.agent, unlock(example), [PUBLIC])
    rejected(example, header, now_ms=NOW_MS + 300_001)
    rejected(example, header, now_ms=NOW_MS - 300_001)
    assert opened(example, header, now_ms=NOW_MS + 300_000)
    rejected(example, build_unlock(example.agent, unlock(example, hold_s=301), [PUBLIC]))


def forged(example, **changes):
    """A header whose boxes and tag are right, around a payload that is not."""
    payload = {
        "v": 1,
        "relayer": example.relayer.public_key.hex(),
        "account": account_text(example.account),
        "sender": example.agent.public_key.hex(),
        "iat": NOW_MS,
        "hold": 0,
        "keys": [{"ns": "team", "epoch": 1, "key": to_base64(example.team.key)}],
    }
    shared = bindings.crypto_box_beforenm(PUBLIC, example.agent.exchange_secret)
    box = bindings.crypto_box_easy_afternm(b"c" * 32, b"b" * 24, shared)
    head = b"\x01\x01" + hash_256(PUBLIC)[:8] + b"b" * 24 + box
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        write_json({**payload, **changes}), head, b"n" * 24, b"c" * 32
    )
    return base64.urlsafe_b64encode(head + b"n" * 24 + sealed).decode().rstrip("=")


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": None},
        {"hold": -1},
        {"iat": "now"},
        {"extra": 1},
        {"keys": []},
        {"keys": {}},
        {"keys": [1]},
        {"keys": [{"ns": "team", "epoch": 1}]},
        {"keys": [{"ns": "team ", "epoch": 1, "key": "A" * 43 + "="}]},
        {"keys": [{"ns": "team", "epoch": 0, "key": "A" * 43 + "="}]},
        {"keys": [{"ns": "team", "epoch": 1, "key": "AAAA"}]},
        {"relayer": 5},
        {"account": "x"},
        {"sender": ""},
    ],
)
def test_a_sealed_payload_is_still_checked(example, change):
    assert opened(example, forged(example)).hold_s == 0
    rejected(example, forged(example, **change))


def test_a_header_cut_short_anywhere_is_refused(example):
    header = build_unlock(example.agent, unlock(example), [PUBLIC])
    for size in range(len(header)):
        with pytest.raises(Invalid):
            opened(example, header[:size])


def test_a_header_with_any_changed_byte_is_refused(example):
    header = build_unlock(example.agent, unlock(example), [PUBLIC])
    data = bytearray(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        text = base64.urlsafe_b64encode(changed).decode().rstrip("=")
        with pytest.raises(Invalid):
            opened(example, text)


@pytest.mark.parametrize("text", ["", "AA", "A" * 7000, "é", "AQE=", "AQ+/"])
def test_what_is_no_header_is_refused(example, text):
    rejected(example, text)


def test_headers_have_one_to_eight_boxes_and_one_to_64_keys(example):
    for keys in ([], [PUBLIC] * 9):
        with pytest.raises(Invalid):
            build_unlock(example.agent, unlock(example), keys)
    for names in ((), (example.team,) * 65):
        with pytest.raises(Invalid):
            build_unlock(example.agent, unlock(example, keys=names), [PUBLIC])


def test_too_many_namespaces_for_one_header_are_refused(example):
    keys = tuple(example.root.namespace_key(example.account, f"{n:0128d}") for n in range(40))
    with pytest.raises(Invalid) as caught:
        build_unlock(example.agent, unlock(example, keys=keys), [PUBLIC])
    assert caught.value.code == "size"


def test_an_unusable_unlock_key_is_refused(example):
    for wrong in (bytes(32), b"short"):
        with pytest.raises(Invalid):
            build_unlock(example.agent, unlock(example), [wrong])


def test_the_turn_of_the_example(example):
    turned = turn_vector(example.team, "test-model", [n + 1 for n in range(384)])
    assert [round(value, 6) for value in turned[:4]] == [-0.006333, -0.099402, -0.022922, -0.12767]


@pytest.mark.parametrize("size", [1, 2, 3, 6, 300, 384, 1536, 4000])
def test_turning_keeps_angles(example, size):
    left = [math.sin(n + 1) for n in range(size)]
    right = [math.cos(3 * n) for n in range(size)]

    def cosine(a, b):
        dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))

    turned = cosine(turn_vector(example.team, "m", left), turn_vector(example.team, "m", right))
    assert turned == pytest.approx(cosine(left, right), abs=1e-9)


def test_other_namespaces_models_and_epochs_turn_otherwise(example):
    vector = [1.0] * 6
    other = example.root.namespace_key(example.account, "other")
    later = Root(example.root.key, 2).namespace_key(example.account, "team")
    turns = {
        tuple(turn_vector(key, model, vector))
        for key, model in ((example.team, "a"), (example.team, "b"), (other, "a"), (later, "a"))
    }
    assert len(turns) == 4


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan], [math.inf, 1.0], [1.0] * 4001])
def test_vectors_outside_the_format_are_refused(example, vector):
    with pytest.raises(Invalid) as caught:
        turn_vector(example.team, "m", vector)
    assert caught.value.code == "vector"
