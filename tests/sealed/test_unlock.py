"""Unlock headers: refused at every byte that is changed, and for whom they are."""

from typing import Any

import pytest

from relayer.sealed import unlock
from relayer.sealed.keys import (
    PublicKey,
    account_id,
)
from relayer.sealed.primitives import (
    CryptoError,
    to_base64,
    to_base64url,
)
from tests import reference as ref
from tests import scenarios as sc
from tests import scenarios_signed, scenarios_unlock
from tests.sealed.altered import ACCOUNT, AGENT, RELAYER, STRANGER, TEAM, cuts, flips, refused

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
