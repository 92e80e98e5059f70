"""Envelopes: refused at every byte that is changed, and what holds for any record."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.sealed import envelope
from relayer.sealed.keys import (
    AccountId,
    Namespace,
    NamespaceKey,
    Root,
)
from relayer.sealed.primitives import (
    CryptoError,
    to_base64url,
)
from tests import reference as ref
from tests import scenarios as sc
from tests.sealed.altered import ACCOUNT, ADDRESS, RECORD, ROOT, TEAM, cuts, few, flips, refused


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
