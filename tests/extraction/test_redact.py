"""What `redact` recognises as a secret, what it must leave alone, and that it stays linear."""

import random
import re
import string
import uuid
from collections import Counter
from collections.abc import Iterator
from re import _constants as op
from re import _parser as parser
from typing import Any

import pytest

from relayer.redact import redact
from relayer.secret_kinds import (
    _TOKENS,
    KINDS,
    SHAPES,
    SHORT_SHAPES,
    UNBROKEN_MIN,
    is_basic,
    is_card,
    is_opaque,
)
from tests.redaction import ordinary, samples

SAMPLES = samples()

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


def test_nearly_all_samples_are_caught() -> None:
    """capability 4.26: of 54 kinds of secrets in 807 texts 98 % are replaced by their marks."""
    caught = [sample for sample in SAMPLES if sample.is_caught]
    assert len(caught) >= 0.98 * len(SAMPLES)


def test_no_kind_is_caught_badly() -> None:
    total = Counter(sample.kind for sample in SAMPLES)
    caught = Counter(sample.kind for sample in SAMPLES if sample.is_caught)
    assert len(total) >= 20
    assert min(total.values()) >= 10
    assert [kind for kind, count in total.items() if caught[kind] < 0.9 * count] == []


def test_nothing_of_a_caught_secret_remains() -> None:
    for sample in SAMPLES:
        redacted, _ = redact(sample.text)
        assert redact(redacted) == (redacted, {})
        for _, secret in sample.secrets if sample.is_caught else ():
            parts = {secret[n : n + 8] for n in range(len(secret) - 7)} or {secret}
            assert [p for p in parts if p in redacted and p not in sample.expected] == []


def test_ordinary_lines_are_left_as_they_are() -> None:
    """capability 4.26: 2,056 lines of prose, code and look-alikes stay as they are."""
    lines = ordinary()
    assert len(lines) >= 2000
    assert [line for line in lines if redact(line) != (line, {})] == []


def test_every_sample_names_a_kind_of_ours() -> None:
    assert {mark for sample in SAMPLES for mark, _ in sample.secrets} == KINDS


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
    "string",
    [
        "Server=x;User=sa;Password={};",
        "Server=tcp:db.example.com,1433;Initial Catalog=erp;User ID=sa;Password={};Encrypt=True;",
        "Data Source=db; User ID=sa; Password={}; Pooling=true",
        "Driver={{ODBC Driver 18 for SQL Server}};Server=db;UID=sa;PWD={};",
        "Server=db;Uid=app;Pwd={}",
        "Server=db;Uid=app;Password='{}';Port=3306",
        '{{"Default": "Host=db;Username=app;Password={}"}}',
        '{{\\"Default\\": \\"Host=db;Username=app;Password={}\\"}}',
        "jdbc:sqlserver://db:1433;user=sa;PASSWORD={};encrypt=true",
    ],
)
@pytest.mark.parametrize("password", ["Pa55w0rd!x", "q\\w=e/r", "$ecret#1"])
def test_password_in_a_connection_string_is_replaced(string: str, password: str) -> None:
    expected = string.format("[redacted:url-password]"), {"url-password": 1}
    assert redact(string.format(password)) == expected


@pytest.mark.parametrize(
    ("string", "password"),
    [
        ('Server=db;Uid=app;Password="{}";Port=3306', "Pa55;w0rd&x"),
        ("Server=db;Uid=app;Pwd='{}';Port=3306", "<Pa55>;w0rd"),
        ("Driver=x;UID=sa;PWD={};Server=db", "{Pa55;w0rd}"),
        ("Driver=x;UID=sa;PWD={};Server=db", "{Pa55w0rd!}"),
        ("Driver=x;UID=sa;PWD={};Server=db", "{Tq}}7fzQ9k}"),
        ("Driver=x;UID=sa;PWD={};Server={{db}}", "{pa}} ss;it's}"),
        ("Driver=x;UID=sa;PWD={}", "{my own words}"),
        ("Server=db;Password={};Database=x", "{Tq}7fzQ9k"),
        ("Server=db;Password={};Database=x", "{{Tq}}7f"),
        ("jdbc:x://h/db?user=x&password={}&ssl=1", "{Tq}7fzQ9k"),
        ("Server=db;Password='{}'", "{Tq}7fzQ9k"),
        ("Server=db;Password='{}';Database=x", 'my "pass;word'),
        ('Server=db;Password="{}", he said', 'my ""pass"";word'),
        ("Server=db;Password='{}", "not-closed"),
        ("Server=db;Password='{}';Port=1", "db:1/?Action=connect&User=app&Sign=" + "0aF;" * 40),
        ('Server=db;Password="{}";Port=1', "sv=2022&" + "<b>&" * 1_000),
    ],
)
def test_password_that_holds_what_would_end_it_is_replaced_whole(
    string: str, password: str
) -> None:
    expected = string.format("[redacted:url-password]"), {"url-password": 1}
    assert redact(string.format(password)) == expected


@pytest.mark.parametrize(
    "frame",
    [
        '{{\\"client_secret\\": \\"{}\\"}}',
        '{{\\"api_key\\":\\"{}\\",\\"id\\":1}}',
        '"{{\\\\\\"access_token\\\\\\": \\\\\\"{}\\\\\\"}}"',
        "{{\\'secret\\': \\'{}\\'}}",
    ],
)
def test_labelled_secret_in_escaped_json_is_replaced(frame: str) -> None:
    secret = "JMFK44umiu8UfDG9c8zW" + "j7f2zSQkYroV8K4CJtk2"
    expected = frame.format("[redacted:labelled-secret]"), {"labelled-secret": 1}
    assert redact(frame.format(secret)) == expected


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
        "It starts with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----.",
        "DE89 4111 1111 1111 1111 00",  # Luhn and prefix right, but of an IBAN
        "private_key: Ed25519PrivateKey | Ed448PrivateKeyOrNothing",
        "AWS secret access key: see the vault",
        "Authorization: Basic dXNlcg==",  # no colon, so no password
        "postgres://app:${PASSWORD}@db/x, postgres://app:$PASSWORD@db/x",
        "Server=x;User=sa;Password=${DB_PASSWORD};Pwd={0};Password=<your password>;Password=****;",
        "Pwd={db.password};Pwd={cfg['pw']};Pwd={ask('x')};Pwd={{ db.password }};Password='{0}'",
        "postgres://app:{cfg['pw']}@db/x (Server=x;Pwd={password}), and Server=x;Pwd={password}.",
        """connect("Server=x;Password=" + word + ";User=sa", 'Pwd=x;Password="' + word + '";')""",
        "cd app; PWD=/srv/app make; PWD=$(pwd) make; PWD=~ make; PASSWORD=$(pass db) ./run",
        "if (!ok) { retry(); password = ask(); }",
        "Trusted_Connection=True;Password=;Persist Security Info=False",
        '{\\"client_secret\\": \\"see the vault\\", \\"token_type\\": \\"bearer\\"}',
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert redact(text) == (text, {})


@pytest.mark.parametrize("before", ["line\\n", "a\\t", "key%3D", "bot", "键", "=", "]", "„"])
def test_secret_after_an_escape_or_a_sign_is_found(before: str) -> None:
    if before == "bot":
        before, secret, kind = "/bot", "123456789:AA" + ALNUM36[:33], "telegram-token"
    else:
        secret, kind = SECRETS["github-token"], "github-token"
    assert redact(before + secret) == (f"{before}[redacted:{kind}]", {kind: 1})


@pytest.mark.parametrize(
    ("forged", "expected"),
    [
        ("[redacted:{}]", "[redacted:[redacted:aws-key]]"),
        ("[redacted:aws-key]{}", "[redacted:aws-key][redacted:aws-key]"),
        ("x://[redacted:aws-key]:{}@h", "x://[redacted:aws-key]:[redacted:aws-key]@h"),
    ],
)
def test_a_forged_mark_hides_nothing(forged: str, expected: str) -> None:
    assert redact(forged.format(SECRETS["aws-key"])) == (expected, {"aws-key": 1})


@pytest.mark.parametrize("password", ["[redacted:hunter2]", "[redacted:aws-key]x", "[redacted:]"])
def test_a_password_that_looks_like_a_mark_is_replaced(password: str) -> None:
    assert redact(f"x://u:{password}@h") == ("x://u:[redacted:url-password]@h", {"url-password": 1})


def test_marks_hold_names_of_kinds_only() -> None:
    assert [kind for kind in KINDS if not re.fullmatch("[a-z]+(-[a-z]+)*", kind)] == []


@pytest.mark.parametrize("shape", [shape for shape, _ in SHAPES], ids=lambda s: s.pattern[:24])
def test_nothing_that_repeats_stands_inside_something_that_repeats(shape: re.Pattern[str]) -> None:
    """With this a pattern has no way to try a text in exponentially many ways."""
    assert _depth(parser.parse(shape.pattern, shape.flags)) <= 1


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in SHORT_SHAPES])
def test_a_secret_is_a_long_word_unless_it_may_be_short(
    shape: tuple[re.Pattern[str], Any],
) -> None:
    """So a text without a long word, as most are, is not looked through for these."""
    pattern = shape[0]
    named = {pattern.groupindex[name]: name for name in pattern.groupindex}
    groups = {what[0]: what[3] for what in _groups(parser.parse(pattern.pattern, pattern.flags))}
    assert named
    for group, name in named.items():
        assert groups[group].getwidth()[0] >= UNBROKEN_MIN, name
        assert not _has_blank(groups[group]), name


def _groups(parsed: Any) -> Iterator[Any]:
    for what, how in parsed:
        if what is op.SUBPATTERN:
            yield how
        for part in _parts_of(how):
            yield from _groups(part)


def _has_blank(parsed: Any) -> bool:
    for what, how in parsed:
        if what in (op.ASSERT, op.ASSERT_NOT):
            continue
        if what in (op.ANY, op.NOT_LITERAL) or (what is op.LITERAL and chr(how).isspace()):
            return True
        if what is op.IN and any(map(_is_blank, how)):
            return True
        if any(_has_blank(part) for part in _parts_of(how)):
            return True
    return False


def _is_blank(what: tuple[Any, Any]) -> bool:
    kind, how = what
    if kind is op.RANGE:
        return any(chr(code).isspace() for code in range(how[0], how[1] + 1))
    if kind is op.CATEGORY:
        return how not in (op.CATEGORY_WORD, op.CATEGORY_DIGIT)
    return kind is op.NEGATE or chr(how).isspace()


def _parts_of(how: Any) -> Iterator[Any]:
    if isinstance(how, parser.SubPattern):
        yield how
    elif isinstance(how, list | tuple):
        for each in how:
            yield from _parts_of(each)


def test_a_word_is_tried_as_a_token_only_if_it_can_be_one() -> None:
    """A shape is looked for in one go, and nothing else runs meanwhile: most words must cost no
    more than a look at them, not one for each kind."""
    [shape] = [shape.pattern for shape, _ in SHAPES if "aws_key" in shape.groupindex]
    _, as_long, unnamed, *named = parser.parse(shape, re.ASCII)
    assert as_long[0] is unnamed[0] is op.ASSERT
    assert named
    shortest = min(parser.parse(token, re.ASCII).getwidth()[0] for _, token in _TOKENS)
    assert shortest == 15, "what is looked for first is no longer than any token"


@pytest.mark.parametrize("nested", ["(a+)+", "(?:x(?:a|b*)*)+c", "(?:(?:ab+)|c)*"])
def test_nested_repetition_would_be_seen(nested: str) -> None:
    assert _depth(parser.parse(nested)) > 1


def _depth(node: Any) -> int:
    """How deep parts that may repeat without limit are nested."""
    if isinstance(node, tuple) and node and node[0] in (op.MAX_REPEAT, op.MIN_REPEAT):
        _, most, part = node[1]
        return _depth(part) + (most == op.MAXREPEAT)
    if isinstance(node, list | tuple | parser.SubPattern):
        return max((_depth(part) for part in node), default=0)
    return 0


@pytest.mark.parametrize("digits", ["", "0", "4", "41111111111111111111", "411111111111111a"])
def test_what_is_no_card(digits: str) -> None:
    assert not (digits.isdigit() and is_card(digits))


@pytest.mark.parametrize("value", ["", "!", "dXNlcg==", "ünïcode"])
def test_what_is_no_basic_authorization(value: str) -> None:
    assert not is_basic(value)


def test_random_values_are_opaque_and_names_are_not() -> None:
    draw = random.Random(1)
    values = ["".join(draw.choices(string.ascii_letters + string.digits, k=40)) for _ in range(999)]
    assert sum(map(is_opaque, values)) >= 990
    assert not is_opaque("AbstractSingletonProxyFactoryBean2")
    assert not is_opaque("prod/billing/database/password-2024")
    assert not is_opaque("")


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
        "token=",
        "secret is ",
        "token=" + "." * 64,
        "://a:b@",
        "://a:" + "b" * 500,
        "?password=",
        ";Password='",
        ";Password={",
        ";Password={{",
        ";Password='a",
        ";Password='a;Password=\"a",
        ";Password='a''",
        ";Password={a}}",
        ";PWD=\\",
        'token\\": \\"',
        "\\nsk-",
        "Authorization: Bearer ",
        "Authorization: Basic AAAA",
        "sntrys_eyJ" + "A" * 30,
        "-----BEGIN PRIVATE KEY-----\n> ",
        "-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----",
        "4111-",
        "hooks.slack.com/services/",
        "AKIA" + "A" * 16 + " secret ",
        "a" * 14 + ".atlasv1.",
    ],
)
def test_much_of_anything_comes_back(piece: str) -> None:
    """A pattern with catastrophic backtracking would never return from here."""
    text = (piece * (2**18 // len(piece) + 1))[: 2**18]
    redacted, counts = redact(text)
    assert len(redacted) <= len(text) + 30 * sum(counts.values())


def test_random_printable_text_is_left_as_it_is() -> None:
    random_source = random.Random(4821)
    letters = string.ascii_letters + string.digits + " .,;"
    text = "".join(random_source.choices(letters, k=200_000))
    assert redact(text) == (text, {})
