"""What `redact` recognises as a secret, what it must leave alone, and that it stays linear."""

import random
import string
import uuid

import pytest

from relayer.redact import redact

PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n" * 3
    + "-----END OPENSSH PRIVATE KEY-----"
)
ALNUM36 = "abcDEF0123456789abcDEF0123456789abcd"
# Split, so that scanners of source code do not take the samples for real secrets.
SECRETS = {
    "aws-key": "AKIA" + "IOSFODNN7EXAMPLE",
    "github-token": "ghp_" + ALNUM36,
    "gitlab-token": "glpat-" + "x1Y2z3-A_4b5C6d7E8f9",
    "slack-token": "xoxb-" + "123456789012-abcdefGHIJ",
    "stripe-key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "google-key": "AIza" + "SyA-1234567890_abcdefghijklmnopqrst",
    "api-key": "sk-" + "proj-abc123DEF456ghi789JKL",
    "huggingface-token": "hf_" + ALNUM36,
    "npm-token": "npm_" + ALNUM36,
    "pypi-token": "pypi-" + "AgEIcHlwaS5vcmc" + ALNUM36 * 2,
    "age-key": "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "Q" * 26,
    "sui-key": "suiprivkey1" + "qpzry9x8gf2tvdw0s3jn54khce6mua7l" * 2,
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "card-number": "4111 1111 1111 1111",
    "private-key": PEM,
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("frame", ["{}", "it is {}.", "KEY={}\n", '"{}"', "前{}。", "({})"])
def test_secret_is_replaced_by_its_mark(kind: str, frame: str) -> None:
    text, counts = redact(frame.format(SECRETS[kind]))
    assert text == frame.format(f"[redacted:{kind}]")
    assert counts == {kind: 1}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://app:hunter2@db/x", "postgres://app:[redacted:url-password]@db/x"),
        ("redis://:p%40ss@127.0.0.1:6379", "redis://:[redacted:url-password]@127.0.0.1:6379"),
        ("see https://u:a:b@h/p now", "see https://u:[redacted:url-password]@h/p now"),
    ],
)
def test_password_in_url_is_replaced(url: str, expected: str) -> None:
    assert redact(url) == (expected, {"url-password": 1})


@pytest.mark.parametrize(
    "card", ["4111111111111111", "5500-0000-0000-0004", "3782 822463 10005", "6011000990139424"]
)
def test_card_is_replaced_in_its_printed_groups(card: str) -> None:
    assert redact(f"card {card}, thanks")[0] == "card [redacted:card-number], thanks"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing to see",
        str(uuid.UUID(int=2**127 - 1)),
        "41111111-1111-1111-1111-111111111111",
        "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "OPS-4821, TL-2026-0318, v0.9.2",
        "order 1234567890123456",
        "4111111111111112",  # Luhn digit wrong
        "0000000000000000",  # Luhn right, no issuer
        "411111111111111",  # one digit short
        "4111 1111-1111 1111",  # mixed groups
        "id-4111111111111111",
        "4111111111111111-7",
        "17.4111111111111111",
        "EAN 4006381333931",
        "+49 351 5550 142",
        "2026-05-05 08:00:00, 1767225600000",
        "IBAN DE89 3704 0044 0532 0130 00",
        "AKIA is a prefix",
        "AKIAIOSFODNN7EXAMPL",
        "AKIAIOSFODNN7EXAMPLEX",
        "sk-learn and sk-something-very-long-and-hyphenated",
        "risk-based-assessment-2026-version-2",
        "ghp_short",
        "xoxb-1",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "eyJhbGciOiJIUzI1NiJ9.e30.x",
        "https://example.org:8443/path@v2",
        "https://example.org/@someone:x",
        "mail ines.adler@example.org",
        "ssh://git@example.org:22/r.git",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert redact(text) == (text, {})


def test_counts_are_kept_by_type() -> None:
    text = f"{SECRETS['aws-key']} {SECRETS['aws-key']} {SECRETS['jwt']}"
    assert redact(text)[1] == {"aws-key": 2, "jwt": 1}


def test_redacting_twice_changes_nothing_more() -> None:
    once, _ = redact(" ; ".join(SECRETS.values()) + " db://u:pw@h")
    assert redact(once) == (once, {})


def test_cut_private_key_loses_its_lines_but_not_what_follows() -> None:
    cut = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAx4\nMIIEpAIBAAKCAQEAx4\nThat was it."
    assert redact(cut) == ("[redacted:private-key]\nThat was it.", {"private-key": 1})


def test_text_between_two_private_keys_is_kept() -> None:
    assert redact(f"{PEM}\nand\n{PEM}")[0] == "[redacted:private-key]\nand\n[redacted:private-key]"


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n",
        "eyJ",
        "eyJaaaaaaaa.",
        "sk-",
        "sk-a",
        "://u:",
        "://" + "u" * 128,
        "4111 1111 1111 ",
        "1" * 19,
        "1-",
        "A" * 1000 + "-",
        "gh_ghp_",
    ],
)
def test_one_mebibyte_of_anything_comes_back(piece: str) -> None:
    """A pattern with catastrophic backtracking would never return from here."""
    text = (piece * (2**20 // len(piece) + 1))[: 2**20]
    redacted, counts = redact(text)
    assert len(redacted) <= len(text) + 30 * sum(counts.values())


def test_random_printable_text_is_left_as_it_is() -> None:
    random_source = random.Random(4821)
    letters = string.ascii_letters + string.digits + " .,;"
    text = "".join(random_source.choices(letters, k=200_000))
    assert redact(text) == (text, {})
