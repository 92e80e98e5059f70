"""Envelopes and unlock headers: what one implementation makes, the other opens, and nothing else.

Not here: that each rule of a format is kept (`tests/sealed`, `tests/client`, vectors).
"""

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from memrelay.errors import Invalid
from memrelay.sealed import envelope as client
from memrelay.sealed import keys as client_keys
from memrelay.sealed import unlock as client_unlock
from relayer.sealed import envelope as server
from relayer.sealed import unlock as server_unlock
from relayer.sealed.keys import Namespace, NamespaceKey, Root
from relayer.sealed.primitives import CryptoError, from_base64url, to_base64url
from tests import scenarios as sc
from tests.properties.drawn import (
    ACCOUNT,
    CLIENTS,
    SERVERS,
    epochs,
    few,
    flipped,
    many,
    names,
    times_ms,
)

UNLOCK_SECRET = bytes(range(160, 192))

places = st.tuples(
    st.sampled_from([server.MEMORY, server.EPISODE, server.SUMMARY]),
    st.uuids(),
    st.integers(1, 2**32 - 1),
)
Place = tuple[int, uuid.UUID, int]


def both_keys(epoch: int, name: str) -> tuple[NamespaceKey, client_keys.NamespaceKey]:
    """The same key as both sides derive it."""
    return (
        Root(epoch, sc.ROOT.key).namespace_key(ACCOUNT, Namespace(name)),
        client_keys.Root(sc.ROOT.key, epoch).namespace_key(ACCOUNT, name),
    )


def sealed(place: Place, epoch: int, name: str, record: bytes, created_ms: int) -> dict[str, bytes]:
    """The envelope of a record as each side makes it."""
    kind, memory, revision = place
    ours, theirs = both_keys(epoch, name)
    address = server.Address(kind, ACCOUNT, memory, revision)
    where = client.Address(kind, ACCOUNT, memory, revision)
    return {
        "server": server.seal(ours, address, record, created_ms=created_ms),
        "client": client.seal_envelope(where, theirs, record, created_ms=created_ms),
    }


@few
@given(places, epochs, names, st.binary(max_size=3_000), times_ms)
def test_what_one_side_seals_the_other_opens(
    place: Place, epoch: int, name: str, record: bytes, created_ms: int
) -> None:
    kind, memory, revision = place
    ours, theirs = both_keys(epoch, name)
    made = sealed(place, epoch, name, record, created_ms)
    address = server.Address(kind, ACCOUNT, memory, revision)
    assert server.open_envelope(ours, address, made["client"]) == record
    where = client.Address(kind, ACCOUNT, memory, revision)
    assert client.open_envelope(where, theirs, made["server"]) == record
    for stored in made.values():
        assert server.read_header(stored).created_ms == created_ms
        assert client.read_header(stored).created_ms == created_ms
        assert server.blob_id(stored) == client.blob_id(stored)
    # Nothing of a nonce repeats, and nothing but the record's size class shows in the length.
    assert made["server"][100:124] != made["client"][100:124]
    assert len(made["server"]) == len(made["client"])


@many
@given(st.binary(max_size=600), st.integers(min_value=0), st.sampled_from(["server", "client"]))
def test_no_bit_of_an_envelope_can_be_changed(record: bytes, bit: int, maker: str) -> None:
    place = (server.MEMORY, sc.MEMORY, 7)
    altered = flipped(sealed(place, 1, "team", record, sc.NOW)[maker], bit)
    ours, theirs = both_keys(1, "team")
    with pytest.raises(CryptoError):
        server.open_envelope(ours, server.Address(1, ACCOUNT, sc.MEMORY, 7), altered)
    with pytest.raises(Invalid):
        client.open_envelope(client.Address(1, ACCOUNT, sc.MEMORY, 7), theirs, altered)


@few
@given(places, places, epochs, epochs, names, names)
def test_an_envelope_opens_in_its_own_place_only(
    one: Place, other: Place, epoch: int, other_epoch: int, name: str, other_name: str
) -> None:
    stored = sealed(one, epoch, name, b"{}", sc.NOW)["server"]
    ours, theirs = both_keys(other_epoch, other_name)
    if (one, epoch, name) == (other, other_epoch, other_name):
        return
    kind, memory, revision = other
    with pytest.raises(CryptoError):
        server.open_envelope(ours, server.Address(kind, ACCOUNT, memory, revision), stored)
    with pytest.raises(Invalid):
        client.open_envelope(client.Address(kind, ACCOUNT, memory, revision), theirs, stored)


@many
@given(st.integers(0, 300_000), st.integers(0, 300))
def test_padding_is_the_same_on_both_sides_and_grows_in_steps(size: int, more: int) -> None:
    padded = server.pad(bytes(size))
    assert padded == client.pad(bytes(size))
    assert server.unpad(padded) == client.unpad(padded) == bytes(size)
    assert len(padded) % 256 == 0
    assert size + 4 <= len(padded) <= max(256, size + 4 + max(255, (size + 4) // 8))
    assert len(padded) <= len(server.pad(bytes(size + more)))


@many
@given(st.binary(min_size=4, max_size=800))
def test_both_sides_refuse_the_same_padding(padded: bytes) -> None:
    assert accepted(server.unpad, padded) == accepted(client.unpad, padded)


def accepted(unpad: Callable[[bytes], bytes], padded: bytes) -> bytes | None:
    try:
        return unpad(padded)
    except (CryptoError, Invalid):
        return None


unlocked = st.lists(st.tuples(names, epochs), min_size=1, max_size=8, unique=True)


def unlock_header(pairs: list[tuple[str, int]], iat: int, hold_s: int) -> str:
    """The header in which the agent lends these keys."""
    return client_unlock.build_unlock(
        CLIENTS[1],
        client_unlock.Unlock(
            relayer=CLIENTS[-1].public_key,
            account=ACCOUNT,
            sender=CLIENTS[1].public_key,
            issued_ms=iat,
            hold_s=hold_s,
            keys=tuple(both_keys(epoch, name)[1] for name, epoch in pairs),
        ),
        [bindings.crypto_scalarmult_base(UNLOCK_SECRET)],
    )


def opened(header: str, now_ms: int) -> server_unlock.Unlock:
    """What the relayer makes of it."""
    public = bindings.crypto_scalarmult_base(UNLOCK_SECRET)
    key = server_unlock.UnlockKey(UNLOCK_SECRET, public, now_ms)
    return server_unlock.open_unlock(
        header,
        unlock_keys={key.kid: key},
        relayer=SERVERS[-1].public_key,
        account=ACCOUNT,
        sender=SERVERS[1].public_key,
        now_ms=now_ms,
    )


@few
@given(unlocked, st.integers(0, 300), st.integers(-400_000, 400_000))
def test_a_relayer_learns_the_keys_of_a_header_in_its_time(
    pairs: list[tuple[str, int]], hold_s: int, late_ms: int
) -> None:
    header = unlock_header(pairs, sc.NOW, hold_s)
    if abs(late_ms) > server_unlock.SKEW_MS_MAX:
        with pytest.raises(CryptoError):
            opened(header, sc.NOW + late_ms)
        return
    found = opened(header, sc.NOW + late_ms)
    assert found.keys == tuple(both_keys(epoch, name)[0] for name, epoch in pairs)
    assert (found.issued_ms, found.hold_s) == (sc.NOW, hold_s)


@many
@given(st.integers(min_value=0))
def test_no_bit_of_a_header_can_be_changed(bit: int) -> None:
    raw = from_base64url(unlock_header([("team", 1)], sc.NOW, 0))
    with pytest.raises(CryptoError):
        opened(to_base64url(flipped(raw, bit)), sc.NOW)
