"""Keys, names and their spellings: one of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from relayer.sealed import unlock
from relayer.sealed.keys import (
    Identity,
    Namespace,
    NamespaceKey,
    Root,
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
from tests import scenarios as sc
from tests.sealed.altered import ACCOUNT, AGENT, FOUNDER, ROOT, TEAM, few, refused

# Letters, marks that compose, spaces of several kinds and characters that are refused.
_name_parts = st.sampled_from([*"aK 1", *"\u0308\u0323\u00e9\u212b\u3000\u00a0\t\u2066\ud800"])


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
    assert parse_public_key(ACCOUNT.hex()) == bytes(ACCOUNT)
    refused(parse_public_key, text.format(ACCOUNT.hex()))


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
