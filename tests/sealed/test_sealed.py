"""What the relayer's cryptography refuses, at every byte, and what holds for any input.

It does not own single values and single broken rules, which are vectors (`test_vectors.py`).
"""

import json
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from relayer.sealed import envelope, grants, index, objects, receipts, unlock
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    PublicKey,
    Root,
    account_id,
    parse_account,
    parse_namespace,
    parse_public_key,
)
from relayer.sealed.primitives import (
    CryptoError,
    aead_open,
    aead_seal,
    exchange_public_key,
    from_base64,
    from_base64url,
    random_key,
    to_base64,
    to_base64url,
    verify_signature,
)
from relayer.sealed.turn import DIMENSION_MAX, derive_turn
from tests import reference as ref
from tests import scenarios as sc
from tests import scenarios_grants as made
from tests import scenarios_signed, scenarios_unlock

# Derandomised: the same examples on every machine, and none kept on disk.
few = settings(max_examples=40, deadline=None, derandomize=True, database=None)

ACCOUNT = AccountId(sc.ACCOUNT)
TEAM = NamespaceKey(Namespace("team"), 1, sc.TEAM.key)
ROOT = Root(1, sc.ROOT.key)
FOUNDER, AGENT, SECOND, STRANGER, RELAYER = (
    Identity(signer.seed) for signer in (sc.FOUNDER, sc.AGENT, sc.SECOND, sc.STRANGER, sc.RELAYER)
)
ADDRESS = envelope.Address(envelope.MEMORY, ACCOUNT, sc.MEMORY, 7)
RECORD = sc.TEXT.encode()


def flips(data: bytes) -> Iterator[bytes]:
    """The data with one bit changed, once in every byte."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def cuts(data: bytes) -> Iterator[bytes]:
    """Every proper beginning of the data."""
    for size in range(len(data)):
        yield data[:size]


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The message with which a call is refused."""
    with pytest.raises(CryptoError) as caught:
        call(*arguments, **named)
    return str(caught.value)


# Envelopes


@pytest.fixture
def sealed() -> bytes:
    return envelope.seal(TEAM, ADDRESS, RECORD, created_ms=sc.NOW)


def test_an_envelope_with_any_bit_changed_does_not_open(sealed: bytes) -> None:
    for changed in flips(sealed):
        refused(envelope.open_envelope, TEAM, ADDRESS, changed)


def test_an_envelope_cut_anywhere_does_not_open(sealed: bytes) -> None:
    for cut in cuts(sealed):
        refused(envelope.open_envelope, TEAM, ADDRESS, cut)
    refused(envelope.open_envelope, TEAM, ADDRESS, sealed + b"\0")


@pytest.mark.parametrize(
    "address",
    [
        envelope.Address(envelope.EPISODE, ACCOUNT, sc.MEMORY, 7),
        envelope.Address(envelope.MEMORY, AccountId(sc.OTHER_ACCOUNT), sc.MEMORY, 7),
        envelope.Address(envelope.MEMORY, ACCOUNT, uuid.UUID(int=0), 7),
        envelope.Address(envelope.MEMORY, ACCOUNT, sc.MEMORY, 6),
    ],
)
def test_the_right_blob_in_the_wrong_row_is_refused(
    sealed: bytes, address: envelope.Address
) -> None:
    message = refused(envelope.open_envelope, TEAM, address, sealed)
    assert message == "the envelope belongs to another row"


@pytest.mark.parametrize(
    "key",
    [
        ROOT.namespace_key(ACCOUNT, Namespace("notes")),
        ROOT.namespace_key(AccountId(sc.OTHER_ACCOUNT), Namespace("team")),
        Root(2, ROOT.key).namespace_key(ACCOUNT, Namespace("team")),
        NamespaceKey(Namespace("team"), 2, TEAM.key),
    ],
)
def test_a_key_of_another_namespace_account_or_epoch_is_refused(
    sealed: bytes, key: NamespaceKey
) -> None:
    message = refused(envelope.open_envelope, key, ADDRESS, sealed)
    assert message == "the envelope belongs to another key"


@pytest.mark.parametrize(
    "plaintext",
    [
        pytest.param(ref.padded(RECORD) + bytes(256), id="padded-too-far"),
        pytest.param(ref.padded(RECORD)[:-1] + b"\1", id="last-byte"),
        pytest.param(ref.padded(RECORD)[:21] + b"\1" + bytes(234), id="first-byte"),
        pytest.param(ref.u32(253) + bytes(252), id="one-beyond"),
        pytest.param(b"\xff" * 256, id="far-beyond"),
        pytest.param(ref.padded(bytes(253)) + b"\0", id="odd-size"),
    ],
)
def test_padding_has_one_form_only(plaintext: bytes) -> None:
    stored = ref.envelope(
        sc.TEAM,
        plaintext,
        account=ACCOUNT,
        memory=sc.MEMORY,
        revision=7,
        created=sc.NOW,
        nonce=bytes(range(24)),
    )
    assert refused(envelope.open_envelope, TEAM, ADDRESS, stored) == "bad padding"


def test_equal_records_never_give_equal_envelopes(sealed: bytes) -> None:
    assert envelope.seal(TEAM, ADDRESS, RECORD, created_ms=sc.NOW) != sealed


@few
@given(record=st.binary(max_size=20_000), revision=st.integers(1, 2**32 - 1))
def test_any_record_comes_back(record: bytes, revision: int) -> None:
    address = envelope.Address(envelope.SUMMARY, ACCOUNT, sc.MEMORY, revision)
    stored = envelope.seal(TEAM, address, record, created_ms=sc.NOW)
    assert envelope.open_envelope(TEAM, address, stored) == record
    assert len(stored) == 124 + len(ref.padded(record)) + 16
    header = envelope.read_header(stored)
    assert (header.address, header.epoch, header.created_ms) == (address, 1, sc.NOW)


@few
@given(size=st.integers(0, 2_000_000))
def test_padding_hides_the_length_and_costs_little(size: int) -> None:
    length = len(envelope.pad(bytes(size)))
    assert length % 256 == 0
    assert 0 <= length - (size + 4) < max(256, 0.1 * length)


@few
@given(padded=st.binary(min_size=4, max_size=600))
def test_what_unpads_is_what_pad_makes(padded: bytes) -> None:
    try:
        record = envelope.unpad(padded)
    except CryptoError:
        return
    assert envelope.pad(record) == padded


def test_a_blob_id_is_a_hash_in_one_spelling() -> None:
    name = envelope.blob_id(b"stored")
    assert envelope.blob_hash(name) == ref.hash_256(b"stored")
    for spelling in (
        name + "=",
        name[:-1],
        name[:-1] + "é",
        "",
        to_base64url(bytes(31)),
        name + "A",
    ):
        refused(envelope.blob_hash, spelling)


# Keys and names


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_keys_have_32_bytes(seed: bytes) -> None:
    refused(Identity, seed)
    refused(Root, 1, seed)
    refused(NamespaceKey, Namespace("team"), 1, seed)
    refused(exchange_public_key, seed)
    refused(verify_signature, seed, b"", bytes(64))
    refused(aead_seal, seed, b"", associated=b"", nonce=bytes(24))
    refused(aead_open, seed, bytes(16), associated=b"", nonce=bytes(24))
    assert len(random_key()) == 32
    assert random_key() != random_key()


@pytest.mark.parametrize("epoch", [0, -1, 2**32])
def test_an_epoch_is_a_u32_from_1(epoch: int) -> None:
    refused(Root, epoch, bytes(32))
    refused(NamespaceKey, Namespace("team"), epoch, bytes(32))


@pytest.mark.parametrize("size", [0, 23, 25])
def test_nonces_and_tags_have_their_size(size: int) -> None:
    refused(aead_seal, bytes(32), b"", associated=b"", nonce=bytes(size))
    refused(aead_open, bytes(32), bytes(16), associated=b"", nonce=bytes(size))
    refused(aead_open, bytes(32), bytes(15), associated=b"", nonce=bytes(24))


def test_no_secret_shows_in_a_repr() -> None:
    unlock_key = unlock.generate_unlock_key(not_after_ms=sc.NOW)
    secrets = {FOUNDER: FOUNDER.seed, ROOT: ROOT.key, TEAM: TEAM.key}
    assert FOUNDER.exchange_private_key
    assert TEAM.seal
    for holder, secret in [*secrets.items(), (unlock_key, unlock_key.private_key)]:
        assert repr(secret) not in repr(holder)
        assert secret.hex() not in repr(holder)


@pytest.mark.parametrize("encoded", [sc.MIXED_ORDER, sc.TORSION, sc.NON_CANONICAL_ONE, bytes(32)])
def test_a_key_that_cannot_be_an_exchange_key_is_refused(encoded: bytes) -> None:
    refused(exchange_public_key, encoded)


def test_a_mixed_order_key_would_pass_for_a_signer() -> None:
    """Why registration converts the key: the signature alone does not tell."""
    secret = AGENT.seed + sc.MIXED_ORDER
    for number in range(200):
        message = str(number).encode()
        signature = bindings.crypto_sign(message, secret)[:64]
        try:
            verify_signature(sc.MIXED_ORDER, message, signature)
        except CryptoError:
            continue  # one in eight verifies
        refused(exchange_public_key, sc.MIXED_ORDER)
        return
    pytest.fail("no signature of the mixed-order key verified")


@pytest.mark.parametrize(
    "text",
    ["{}", "0X{}", "0x{}\n", " 0x{}", "0x{}0", "", "0x", "0x" + "AB" * 32, "0x" + "٠" * 64],
)
def test_an_account_has_one_spelling(text: str) -> None:
    assert parse_account("0x" + ACCOUNT.hex()) == ACCOUNT
    refused(parse_account, text.format(ACCOUNT.hex()))


@pytest.mark.parametrize("text", ["0x{}", "{}\n", " {}", "{}0", "", "AB" * 32, "٠" * 64])
def test_a_public_key_has_one_spelling(text: str) -> None:
    assert parse_public_key(ACCOUNT.hex()) == ACCOUNT
    refused(parse_public_key, text.format(ACCOUNT.hex()))


# Letters, marks that compose, spaces of several kinds and characters that are refused.
_name_parts = st.sampled_from([*"aK 1", *"\u0308\u0323\u00e9\u212b\u3000\u00a0\t\u2066\ud800"])


@few
@given(name=st.lists(_name_parts, max_size=12).map("".join) | st.text("a ", min_size=120))
def test_a_namespace_is_refused_or_settled_at_once(name: str) -> None:
    try:
        settled = parse_namespace(name)
    except CryptoError:
        return
    assert parse_namespace(settled) == settled
    assert settled.encode().decode() == settled


@few
@given(data=st.binary(max_size=80))
def test_base64_comes_back(data: bytes) -> None:
    assert from_base64(to_base64(data)) == data
    assert from_base64url(to_base64url(data)) == data


@pytest.mark.parametrize(
    "text", ["A", "AB==", "AA=", "AA", "A A=", "AA==\n", "AA==AA==", "_-8=", "é"]
)
def test_base64_has_one_spelling(text: str) -> None:
    refused(from_base64, text)


@pytest.mark.parametrize("text", ["A", "AB", "AA==", "A A", "AA\n", "+/8", "é", "AA.A"])
def test_base64url_has_one_spelling(text: str) -> None:
    refused(from_base64url, text)


# Index


@few
@given(text=st.text(max_size=60), spaces=st.text(alphabet=" \t\n\r\u00a0\u3000", min_size=1))
def test_white_space_does_not_make_another_fact(text: str, spaces: str) -> None:
    def mark(said: str) -> bytes:
        return index.fingerprint(TEAM, kind="fact", event_time_ms=None, text=said)

    assert mark(spaces + spaces.join(text.split()) + spaces) == mark(text)


def test_a_memory_is_found_by_words_tags_source_and_metadata() -> None:
    found = index.postings(
        TEAM,
        words=["tea"] * 20 + ["anna"],
        tags=["drinks", "drinks"],
        source="chat",
        metadata={"room": "2"},
    )
    assert found == {
        index.token(TEAM, "w", "tea"): 15,
        index.token(TEAM, "w", "anna"): 1,
        index.token(TEAM, "t", "drinks"): 1,
        index.token(TEAM, "s", "chat"): 1,
        index.metadata_token(TEAM, "room", "2"): 1,
    }
    assert index.postings(TEAM, words=[]) == {}


@few
@given(term=st.text(max_size=20))
def test_a_token_is_a_signed_64_bit_integer_of_its_field_and_key(term: str) -> None:
    other = ROOT.namespace_key(ACCOUNT, Namespace("notes"))
    fields: tuple[index.Field, ...] = ("w", "t", "s", "m")
    tokens = {index.token(key, field, term) for key in (TEAM, other) for field in fields}
    assert len(tokens) == 8
    assert all(-(2**63) <= token < 2**63 for token in tokens)


def test_lengths_are_rounded_up_in_steps_of_at_most_a_half() -> None:
    steps = sorted({index.rounded_length(words) for words in range(5000)})
    assert steps[:11] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    assert all(words <= index.rounded_length(words) <= max(1, 1.5 * words) for words in range(5000))
    assert all(3 * low >= 2 * high for low, high in pairwise(steps[1:]))


# Turned vectors


@few
@given(size=st.integers(1, 300), count=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_a_turn_keeps_every_angle_and_can_be_undone(size: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    turn = derive_turn(TEAM, "test-model", size)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = turn.apply(vectors)
    assert turned.dtype == np.float32
    np.testing.assert_allclose(turned @ turned.T, unit @ unit.T, atol=5e-6)
    np.testing.assert_allclose(turn.undo(turned), unit, atol=5e-6)
    np.testing.assert_allclose(turn.apply(vectors * 3.5), turned, atol=5e-6)


def test_a_turn_does_not_change_its_input() -> None:
    vectors = np.ones((1, 8), dtype=np.float32)
    turn = derive_turn(TEAM, "test-model", 8)
    turn.undo(turn.apply(vectors))
    assert (vectors == 1).all()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 3e38])
def test_a_vector_of_any_length_becomes_a_unit_vector(scale: float) -> None:
    turned = derive_turn(TEAM, "test-model", 6).apply(np.full((1, 6), scale, dtype=np.float32))
    assert np.linalg.norm(turned) == pytest.approx(1, abs=1e-6)


def test_another_key_model_or_size_turns_otherwise() -> None:
    other = ROOT.namespace_key(ACCOUNT, Namespace("notes"))
    vector = np.ones((1, 64), dtype=np.float32)
    results = [
        derive_turn(key, model, 64).apply(vector)
        for key, model in ((TEAM, "a"), (TEAM, "b"), (other, "a"))
    ]
    for one, two in pairwise([*results, results[0]]):
        assert abs(float((one @ two.T)[0, 0])) < 0.7
    orders = [derive_turn(TEAM, "a", size).orders[:, :64] for size in (64, 65)]
    assert not np.array_equal(*orders)


@pytest.mark.parametrize("size", [-1, 0, DIMENSION_MAX + 1])
def test_a_turn_has_1_to_4000_dimensions(size: int) -> None:
    refused(derive_turn, TEAM, "test-model", size)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0, 2.0, 3.0]],
        [1.0, 2.0, 3.0, 4.0],
        [[1.0, 2.0, 3.0, float("nan")]],
        [[1.0, 2.0, 3.0, float("inf")]],
        [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]],
    ],
)
def test_what_has_no_direction_is_not_turned(vectors: list[Any]) -> None:
    refused(derive_turn(TEAM, "m", 4).apply, np.array(vectors, dtype=np.float32))


# Strict JSON and signed objects


def strictly(value: Any) -> Any:
    return objects.strict_json(json.dumps(value).encode())


_leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_values = st.recursive(
    _leaves | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


@few
@given(value=st.dictionaries(_text, _values, max_size=3))
def test_strict_json_reads_what_has_a_depth_of_6_at_most(value: dict[str, Any]) -> None:
    if depth(value) <= 6:
        assert strictly(value) == value
    else:
        assert refused(strictly, value) == "nested too deeply"


@few
@given(payload=st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ua1e.-N').map(str.encode))
def test_strict_json_fails_in_one_way_only(payload: bytes) -> None:
    try:
        value = objects.strict_json(payload)
    except CryptoError:
        return
    assert strictly(value) == value


@pytest.mark.parametrize("version", [True, 0, 2, None, "1", [1]])
def test_only_version_1_is_known(version: Any) -> None:
    payload = json.dumps({"v": version, "a": 1}).encode()
    assert refused(objects.strict_object, payload, frozenset("a")) == "unknown version"


def test_an_object_is_read_as_the_bytes_that_were_signed() -> None:
    payload = b'{ "b" : [ ] ,\n "v" : 1, "a" : "\\u0061" }'
    signed = sc.RELAYER.signed("state", payload)
    opened = objects.open_object(signed, "state", RELAYER.public_key, frozenset("ab"))
    assert opened == {"a": "a", "b": []}


def test_an_object_with_any_bit_changed_or_cut_anywhere_does_not_verify() -> None:
    signed = objects.sign_object(RELAYER, "state", {"a": "Küche"})
    for broken in [*flips(signed), *cuts(signed), signed + b"\0"]:
        refused(objects.open_object, broken, "state", RELAYER.public_key, frozenset("a"))


def test_objects_have_64_kib_at_most() -> None:
    text = "x" * (objects.PAYLOAD_BYTES_MAX - len('{"v":1,"a":""}'))
    signed = objects.sign_object(RELAYER, "state", {"a": text})
    key, members = RELAYER.public_key, frozenset("a")
    assert objects.open_object(signed, "state", key, members) == {"a": text}
    refused(objects.sign_object, RELAYER, "state", {"a": text + "x"})
    longer = sc.RELAYER.signed("state", ref.compact({"v": 1, "a": text + "x"}))
    assert refused(objects.open_object, longer, "state", key, members) == "bad object length"


# Grants


def granted(*objects_: bytes) -> grants.Chain:
    """The chain of signed objects."""
    chain = grants.Chain(ACCOUNT)
    for signed in objects_:
        chain.add(grants.parse_any(signed))
    return chain


FIRST = made.signed_grant(sc.FOUNDER, sc.FOUNDER, "owner", serial=1)


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
    names = {
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


# Receipts and statements


def test_any_bit_changed_in_any_receipt_breaks_the_chain() -> None:
    chain = list(scenarios_signed._receipt_chain())
    start = {"seq": 0, "head": receipts.FIRST_PREVIOUS}
    assert receipts.verify_chain(chain, RELAYER.public_key, **start)[0] == 3
    for at, signed in enumerate(chain):
        for broken in [*flips(signed), signed[:-1]]:
            changed = [*chain[:at], broken, *chain[at + 1 :]]
            refused(receipts.verify_chain, changed, RELAYER.public_key, **start)


def test_a_chain_can_be_followed_in_parts() -> None:
    chain = list(scenarios_signed._receipt_chain())
    whole = receipts.verify_chain(chain, RELAYER.public_key, seq=0, head=receipts.FIRST_PREVIOUS)
    seq, head = receipts.verify_chain(
        chain[:2], RELAYER.public_key, seq=0, head=receipts.FIRST_PREVIOUS
    )
    assert head == receipts.chain_hash(chain[1])
    assert receipts.verify_chain(chain[2:], RELAYER.public_key, seq=seq, head=head) == whole


@pytest.mark.parametrize(
    "changes",
    [
        {"time": -1},
        {"epoch": 0},
        {"epoch": 2**32},
        {"namespace": " team"},
        {"namespace": 1},
        {"op": 1},
        {"op": ["forget"]},
        {"items": {"a": 1}},
        {"items": ["abc"]},
        {"items": [[str(sc.MEMORY), -1, "a"]]},
        {"items": [[str(sc.MEMORY), 1, 2]]},
        {"account": None},
        {"prev": 1},
    ],
    ids=str,
)
def test_a_receipt_with_a_member_out_of_form_is_refused(changes: dict[str, Any]) -> None:
    signed = scenarios_signed._receipt(1, bytes(32), **changes)
    refused(receipts.open_receipt, signed, RELAYER.public_key)


# Unlock headers

UNLOCK_KEYS = {
    key.kid: key
    for key in (
        unlock.UnlockKey(secret, public, sc.NOW)
        for secret, public in zip(
            scenarios_signed.UNLOCK_SECRETS, scenarios_signed.UNLOCK_KEYS, strict=True
        )
    )
}


def opened(raw: bytes, **changes: Any) -> unlock.Unlock:
    given_: dict[str, Any] = {
        "unlock_keys": UNLOCK_KEYS,
        "relayer": RELAYER.public_key,
        "account": ACCOUNT,
        "sender": AGENT.public_key,
        "now_ms": sc.NOW,
    }
    return unlock.open_unlock(to_base64url(raw), **{**given_, **changes})


@pytest.fixture(params=[1, 2])
def header(request: pytest.FixtureRequest) -> bytes:
    content = ref.compact(scenarios_unlock.payload())
    return scenarios_unlock.header(content, to=scenarios_signed.UNLOCK_KEYS[: request.param])


def test_an_unlock_with_any_bit_changed_does_not_open(header: bytes) -> None:
    assert [key.key for key in opened(header).keys] == [TEAM.key]
    for changed in flips(header):
        refused(opened, changed)


def test_an_unlock_cut_anywhere_does_not_open(header: bytes) -> None:
    for cut in cuts(header):
        refused(opened, cut)


def test_a_header_too_short_for_its_payload_is_not_mistaken_for_an_unknown_key(
    header: bytes,
) -> None:
    """A client answers 421 by fetching the statement again: that cannot help here."""
    end = 2 + 80 * header[1] + 24 + 16
    with pytest.raises(unlock.UnknownUnlockKey):
        opened(header[:end], unlock_keys={})
    with pytest.raises(CryptoError) as caught:
        opened(header[: end - 1], unlock_keys={})
    assert not isinstance(caught.value, unlock.UnknownUnlockKey)


@pytest.mark.parametrize(
    "changes",
    [
        {"relayer": STRANGER.public_key},
        {"account": account_id(STRANGER.public_key)},
        {"sender": STRANGER.public_key},
        {"sender": PublicKey(sc.MIXED_ORDER)},
        {"now_ms": sc.NOW - 10_000 + 300_001},
        {"now_ms": sc.NOW - 10_000 - 300_001},
    ],
)
def test_an_unlock_is_for_one_relayer_account_sender_and_time(
    header: bytes, changes: dict[str, Any]
) -> None:
    refused(opened, header, **changes)


@pytest.mark.parametrize("same", [{}, {"key": to_base64(bytes(32))}], ids=["same", "other"])
def test_a_namespace_is_unlocked_once(same: dict[str, str]) -> None:
    entry = scenarios_unlock.payload()["keys"][0]
    content = scenarios_unlock.payload(keys=[entry, {**entry, **same}])
    header = scenarios_unlock.header(ref.compact(content))
    assert refused(opened, header) == "a key is unlocked twice"


@pytest.mark.parametrize("count", [0, 65])
def test_an_unlock_has_1_to_64_keys(count: int) -> None:
    entries = [{"ns": "n", "epoch": n + 1, "key": ""} for n in range(count)]
    content = scenarios_unlock.payload(keys=entries)
    header = scenarios_unlock.header(ref.compact(content))
    assert refused(opened, header) == "bad number of unlocked keys"


def test_a_header_has_6_kib_at_most() -> None:
    content = ref.compact(scenarios_unlock.payload())
    room = unlock.HEADER_CHARACTERS_MAX * 3 // 4 - len(scenarios_unlock.header(content))
    largest = scenarios_unlock.header(content[:-1] + b" " * room + b"}")
    assert len(to_base64url(largest)) == unlock.HEADER_CHARACTERS_MAX
    assert opened(largest).hold_s == 60
    larger = scenarios_unlock.header(content[:-1] + b" " * (room + 1) + b"}")
    assert refused(opened, larger) == "the unlock is too large"


def test_a_fresh_unlock_key_opens_what_is_boxed_to_it() -> None:
    key = unlock.generate_unlock_key(not_after_ms=sc.NOW)
    content = ref.compact(scenarios_unlock.payload())
    header = scenarios_unlock.header(content, to=[key.public_key])
    assert opened(header, unlock_keys={key.kid: key}).keys[0].key == TEAM.key
    with pytest.raises(unlock.UnknownUnlockKey):
        opened(header)
    assert unlock.generate_unlock_key(not_after_ms=sc.NOW).private_key != key.private_key
