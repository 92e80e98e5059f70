"""The signature of a request and the headers beside it, each rule alone: form, clock, address."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relayer.errors import NotAuthenticated, UpgradeRequired
from relayer.http.checks import (
    SignedHeaders,
    check_clock,
    check_session,
    check_signature,
    parse_headers,
    path_to_verify,
)
from relayer.sealed.keys import Identity
from tests.signing import signed_headers

IDENTITY = Identity(bytes(range(32)))
ACCOUNT = "0x" + "5a" * 32
NONCE = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
NOW = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
BODY = b'{"query":"tea"}'
PATH = "/v1/recall?a=%2F"


def raw(**changes: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of one good request, some of them changed or (None) left out."""
    good = signed_headers(
        IDENTITY, "POST", PATH, BODY, account=ACCOUNT, timestamp_s=NOW_S, nonce=NONCE
    )
    named = good | {"x-" + name.replace("_", "-"): value for name, value in changes.items()}
    return [(k.encode(), v.encode("latin-1")) for k, v in named.items() if v is not None]


def parsed(
    headers: list[tuple[bytes, bytes]],
    *,
    method: str = "POST",
    path: str = PATH,
    body: bytes = BODY,
) -> tuple[SignedHeaders, bytes]:
    """The headers, and the text that they would sign of this request."""
    request = parse_headers(headers)
    return request, request.message(method, path, body)


# 1. The form of the headers


def test_the_signed_text_is_the_dot_joined_fields() -> None:
    request, message = parsed(raw())
    digest = "2a11718dabeb816651a539d7a2bb91e9faa4a6b91f95aaac726c3c40aa2f13f0"
    text = f"1777887000.POST./v1/recall?a=%2F.{digest}.{NONCE}.{ACCOUNT}"
    assert message.decode() == text
    check_signature(request, message)


def test_without_an_account_the_last_field_is_empty() -> None:
    headers = signed_headers(IDENTITY, "GET", "/v1/settings", timestamp_s=NOW_S, nonce=NONCE)
    del headers["x-account-id"]
    request, message = parsed(
        [(k.encode(), v.encode()) for k, v in headers.items()],
        method="GET",
        path="/v1/settings",
        body=b"",
    )
    assert request.account is None
    assert message.endswith(b"." + NONCE.encode() + b".")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of nothing
    assert f".{empty}.".encode() in message
    check_signature(request, message)


@pytest.mark.parametrize(
    "changes",
    [
        {"public_key": None},
        {"public_key": ""},
        {"public_key": "ab" * 31},
        {"public_key": "ab" * 33},
        {"public_key": "AB" * 32},
        {"public_key": "0x" + "ab" * 31},
        {"public_key": "ab" * 32 + "\n"},
        {"public_key": "g" * 64},
        {"signature": None},
        {"signature": "ab" * 63},
        {"signature": "ab" * 65},
        {"signature": "AB" * 64},
        {"timestamp": None},
        {"timestamp": ""},
        {"timestamp": "-1"},
        {"timestamp": "+1777887000"},
        {"timestamp": "1777887000.0"},
        {"timestamp": " 1777887000"},
        {"timestamp": "1_777_887_000"},
        {"timestamp": "\xb2777887000"},
        {"timestamp": "1" * 13},
        {"nonce": NONCE + "x"},
        {"nonce": NONCE.replace("-", "")},
        {"nonce": "{" + NONCE + "}"},
        {"nonce": "urn:uuid:" + NONCE},
        {"nonce": NONCE + "." + ACCOUNT, "account_id": ""},
        {"account_id": "5a" * 32},
        {"account_id": "0x" + "5A" * 32},
        {"account_id": "0X" + "5a" * 32},
        {"account_id": "0x" + "5a" * 31},
        {"account_id": ACCOUNT + "." + ACCOUNT},
        {"account_id": ACCOUNT + "\n"},
    ],
)
def test_a_malformed_header_is_refused_before_any_text_is_built(changes: dict[str, Any]) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        parsed(raw(**changes))
    assert caught.value.cause == "headers"


@pytest.mark.parametrize("nonce", [None, ""])
def test_a_missing_nonce_means_a_client_too_old(nonce: str | None) -> None:
    with pytest.raises(UpgradeRequired):
        parsed(raw(nonce=nonce))


def test_an_upper_case_nonce_is_the_same_nonce() -> None:
    headers = signed_headers(
        IDENTITY, "POST", PATH, BODY, account=ACCOUNT, timestamp_s=NOW_S, nonce=NONCE.upper()
    )
    request, message = parsed([(k.encode(), v.encode()) for k, v in headers.items()])
    check_signature(request, message)
    assert request.nonce == uuid.UUID(NONCE)


@pytest.mark.parametrize(
    "name",
    ["x-public-key", "x-signature", "x-timestamp", "x-nonce", "x-account-id", "x-seal-session",
     "X-Memrelay-Unlock"],
)  # fmt: skip
def test_a_repeated_header_is_refused_even_with_one_value(name: str) -> None:
    header = next((h for h in raw() if h[0] == name.encode()), (name.encode(), b"a"))
    others = [h for h in raw() if h[0] != header[0]]
    with pytest.raises(NotAuthenticated):
        parsed([*others, header, (header[0].upper(), header[1])])


def test_headers_that_sign_nothing_may_repeat() -> None:
    parsed([*raw(), (b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-for", b"5.6.7.8")])


# 2. The clock


@pytest.mark.parametrize("off_s", [-300, 0, 300])
def test_the_clock_may_be_300_seconds_off(off_s: int) -> None:
    check_clock(parse_headers(raw()), NOW + timedelta(seconds=off_s))


@pytest.mark.parametrize("off_s", [-301, 301, -(10**9), 10**9])
def test_a_clock_further_off_is_told_by_a_header(off_s: int) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_clock(parse_headers(raw()), NOW + timedelta(seconds=off_s))
    assert caught.value.headers == {"x-auth-error": "ERR_TIMESTAMP_OUT_OF_BOUNDS"}


# 3. The signature


def test_a_good_signature_passes() -> None:
    check_signature(*parsed(raw()))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, {"method": "PUT"}),
        ({}, {"method": "post"}),
        ({}, {"path": "/v1/recall?a=/"}),
        ({}, {"path": "/v1/recall?a=%2f"}),
        ({}, {"path": "/v1/recall"}),
        ({}, {"path": "/api/recall?a=%2F"}),
        ({}, {"body": BODY + b" "}),
        ({}, {"body": b""}),
        ({"timestamp": str(NOW_S + 1)}, {}),
        ({"timestamp": "0" + str(NOW_S)}, {}),
        ({"nonce": NONCE.upper()}, {}),
        ({"nonce": str(uuid.UUID(int=4))}, {}),
        ({"account_id": ""}, {}),
        ({"account_id": "0x" + "5b" * 32}, {}),
        ({"public_key": Identity(bytes(32)).public_key.hex()}, {}),
        ({"public_key": "00" * 32}, {}),  # a point of small order
        ({"public_key": "ff" * 32}, {}),  # no point at all
        ({"signature": "00" * 64}, {}),
        ({"signature": "ff" * 64}, {}),
    ],
)
def test_a_signature_over_anything_else_is_refused(
    changes: dict[str, Any], where: dict[str, Any]
) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_signature(*parsed(raw(**changes), **where))
    assert caught.value.cause == "signature"


# What is signed of the address


@pytest.mark.parametrize(
    ("scope", "signed"),
    [
        ({"path": "/v1/a b", "raw_path": b"/v1/a%20b", "query_string": b""}, "/v1/a%20b"),
        ({"path": "/v1/x", "raw_path": b"/v1/x", "query_string": b"q=%C3%A9+"}, "/v1/x?q=%C3%A9+"),
        ({"path": "/v1/x", "raw_path": b"/v1/x?q=1", "query_string": b"q=1"}, "/v1/x?q=1"),
        ({"path": "/v1/x", "query_string": b"q"}, "/v1/x?q"),
        ({"path": "/v1/x"}, "/v1/x"),
        ({"path": "/v1/x", "raw_path": b"/v1/x?", "query_string": b""}, "/v1/x"),
        ({"path": "/v1/x", "raw_path": b"/v1/x??", "query_string": b"?"}, "/v1/x??"),
        ({"path": "/v1/x", "raw_path": None}, "/v1/x"),
        ({"path": "//x", "raw_path": b"//x", "query_string": b"a=//b?c"}, "//x?a=//b?c"),
    ],
)
def test_path_and_query_are_signed_as_sent(scope: dict[str, object], signed: str) -> None:
    assert path_to_verify(scope) == signed


# 7. The session header (its own rules: test_sui.py)


def test_no_session_header_is_no_session() -> None:
    check_session(None, IDENTITY.public_key, NOW)


def test_a_bad_session_header_is_not_told_apart() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check_session("e30=", IDENTITY.public_key, NOW)
    assert caught.value.cause == "session"
    assert caught.value.headers == {}
