"""Keys, names and keyed hashes of the client (SPEC.md §2, §3, §8)."""

import pytest
from nacl import bindings

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.keys import (
    Identity,
    Root,
    account_bytes,
    account_text,
    exchange_public,
    hex_bytes,
    mac,
    normalise_namespace,
    public_key_bytes,
)
from tests.relayers_part import (
    fingerprint,
    idempotency_tag,
    idempotency_text,
    length_bucket,
    term_frequency,
    token,
)

SMALL_ORDER = "0100000000000000000000000000000000000000000000000000000000000000"
NOT_A_POINT = "0200000000000000000000000000000000000000000000000000000000000000"


def test_the_example_of_the_specification(example):
    assert example.founder.public_key.hex() == (
        "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    )
    assert account_text(example.account) == (
        "0x160179a1565ea7cff27ead23f54cc7f50893bf58155cd7285156e57afa31c3ac"
    )
    assert example.team.key.hex() == (
        "f15c3b83b53b2f3a886569385f5b622dd681de7fd5fee4caeca62968e3f18ffd"
    )
    assert example.team.key_id.hex() == (
        "6cf9172560edc19c0b8fce863656e615edda33d06793053d50dd06efe9c6e3c2"
    )
    assert token(example.team.subkey("index"), "w", "remember") == 5293496355168704132
    assert (
        fingerprint(example.team.subkey("fingerprint"), "fact", None, "Anna prefers tea.").hex()
        == "df484411cb7bf973ca40e27b5b4d91cd"
    )


def test_a_mac_of_another_size_is_another_value():
    key = bytes(32)
    assert mac(32, key, "x", b"y")[:8] != mac(8, key, "x", b"y")


def test_parts_of_a_mac_do_not_run_together():
    key = bytes(32)
    values = {mac(16, key, "l", *parts) for parts in ((), (b"",), (b"ab",), (b"a", b"b"))}
    assert len(values) == 4


@pytest.mark.parametrize("size", [0, 16, 31, 33, 64])
def test_keys_of_another_length_are_refused(size):
    with pytest.raises(Invalid, match="32 bytes"):
        mac(32, bytes(size), "x")
    with pytest.raises(Invalid, match="32 bytes"):
        Identity(bytes(size))
    with pytest.raises(Invalid, match="32 bytes"):
        Root(bytes(size), 1)


def test_key_types_hide_themselves(example):
    seed = bytes(range(32)).hex()
    for key in (example.founder, example.root, example.team):
        shown = f"{key!r} {key}"
        assert seed not in shown
        assert "20212223" not in shown
        assert example.team.key.hex() not in shown


def test_private_keys_do_not_appear_in_errors():
    wrong = "ab" * 31 + "zz"
    with pytest.raises(ConfigError) as caught:
        Identity.from_hex(wrong)
    assert wrong not in str(caught.value)


def test_the_exchange_key_of_both_halves_is_the_same(example):
    assert exchange_public(example.founder.public_key) == example.founder.exchange_public


@pytest.mark.parametrize("text", [SMALL_ORDER, NOT_A_POINT, "00" * 32, "ff" * 32])
def test_public_keys_without_an_exchange_key_are_refused(text):
    with pytest.raises(Invalid) as caught:
        public_key_bytes(text)
    assert caught.value.code == "public_key"


def test_a_key_with_a_part_of_small_order_is_refused(example):
    """Signatures can verify under such a key, but it has no exchange key."""
    torsion = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    mixed = bindings.crypto_core_ed25519_add(example.founder.public_key, torsion)
    assert bindings.crypto_core_ed25519_is_valid_point(example.founder.public_key)
    with pytest.raises(Invalid) as caught:
        exchange_public(mixed)
    assert caught.value.code == "public_key"


@pytest.mark.parametrize("text", ["AB" * 32, "ab" * 31, " " + "ab" * 32, "0x" + "ab" * 31, 5, None])
def test_hex_is_strict(text):
    with pytest.raises(Invalid):
        hex_bytes(text, 32, "key")


@pytest.mark.parametrize("text", ["16" * 32, "0x" + "AB" * 32, "0X" + "ab" * 32, "0x", 7])
def test_account_ids_are_strict(text):
    with pytest.raises(Invalid):
        account_bytes(text)


@pytest.mark.parametrize("epoch", [0, -1, 2**32, True, 1.0])
def test_epochs_are_whole_numbers_from_one(epoch):
    with pytest.raises(Invalid):
        Root(bytes(32), epoch)


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("team", "team"),
        ("  team ", "team"),
        ("e\u0301quipe", "\u00e9quipe"),
        ("a b", "a b"),
        ("日本", "日本"),
        ("x" * 128, "x" * 128),
        (" " + "x" * 128 + " ", "x" * 128),
    ],
)
def test_names_are_normalised(name, normal):
    assert normalise_namespace(name) == normal


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "x" * 129,
        "a\x00b",
        "a\nb",
        "\tteam",
        "a\x7f",
        "a\u2028b",
        "a\u2029b",
        "a\u202eb",
        "a\u202ab",
        "\u2066a",
        "a\u2069",
        "a\ud800",
        "te\u200bam",
        "te\u200dam",
        "a\u0378",  # unassigned
        "\u00a0team",
        "team\u3000",
    ],
)
def test_names_are_refused(name):
    with pytest.raises(Invalid) as caught:
        normalise_namespace(name)
    assert caught.value.code == "namespace"


def test_namespaces_epochs_and_accounts_have_keys_of_their_own(example):
    other = Root(example.root.key, 2)
    keys = {
        example.team.key,
        example.root.namespace_key(example.account, "Team").key,
        other.namespace_key(example.account, "team").key,
        example.root.namespace_key(bytes(32), "team").key,
    }
    assert len(keys) == 4


def test_tokens_of_other_fields_differ(example):
    index = example.team.subkey("index")
    assert len({token(index, field, "tea") for field in "wtsm"}) == 4
    with pytest.raises(Invalid):
        token(index, "x", "tea")


def test_fingerprints_fold_white_space_but_not_case(example):
    key = example.team.subkey("fingerprint")
    base = fingerprint(key, "fact", None, "Anna prefers tea.")
    assert fingerprint(key, "fact", None, "  Anna\n\tprefers  tea. ") == base
    assert fingerprint(key, "fact", None, "anna prefers tea.") != base
    assert fingerprint(key, "event", None, "Anna prefers tea.") != base
    assert fingerprint(key, "fact", 0, "Anna prefers tea.") != base


def test_idempotency_tags_depend_on_every_part(example):
    key = example.team.subkey("idempotency")
    writer, other = example.agent.public_key, example.founder.public_key
    tags = {
        idempotency_tag(key, writer, "/v1/remember", 0, "k"),
        idempotency_tag(key, other, "/v1/remember", 0, "k"),
        idempotency_tag(key, writer, "/v1/analyze", 0, "k"),
        idempotency_tag(key, writer, "/v1/remember", 1, "k"),
        idempotency_tag(key, writer, "/v1/remember", 0, "l"),
    }
    assert len(tags) == 5
    assert idempotency_text(key, "a") == idempotency_text(key, "a") != idempotency_text(key, "b")


def test_lengths_are_rounded_up():
    assert [length_bucket(n) for n in (0, 1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 25, 33, 49)] == (
        [1, 1, 2, 3, 4, 6, 6, 8, 12, 16, 24, 32, 48, 64]
    )
    assert [term_frequency(n) for n in (1, 15, 16, 1000)] == [1, 15, 15, 15]
