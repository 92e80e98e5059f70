"""The text of a request to be let in: what it survives, and what is said when it did not."""

import pytest

from memrelay.errors import Invalid
from memrelay.sealed.join_request import (
    JoinRequest,
    make_fingerprint,
    read_requests,
    write_request,
)
from memrelay.sealed.keys import Identity

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def text(example):
    return make_text(example)


def make_text(example, *, account: bytes | None = None, label: str = "anna@laptop") -> str:
    return write_request(
        example.agent,
        relayer=example.relayer.public_key,
        account=account,
        created_ms=NOW_MS,
        expires_ms=NOW_MS + HOUR_MS,
        label=label,
    )


def read_one(text: str) -> JoinRequest:
    (request,) = read_requests(text)
    return request


def refused(text: str) -> str:
    with pytest.raises(Invalid) as caught:
        read_requests(text)
    return caught.value.code


def test_it_is_short_and_holds_no_private_key(example, text):
    request = read_one(text)
    assert len(text) < 400
    assert request.label == "anna@laptop"
    assert request.recipient == example.agent.public_key
    assert request.account is None
    assert example.agent.seed_hex() not in request.join.hex()


def test_it_names_the_account_that_was_given(example):
    assert read_one(make_text(example, account=example.account)).account == example.account


@pytest.mark.parametrize(
    "carry",
    [
        lambda text: "\n".join(text[at : at + 60] for at in range(0, len(text), 60)),
        lambda text: "\r\n> ".join(text[at : at + 7] for at in range(0, len(text), 7)),
        lambda text: f"Please let me in: **{text}** Thank you!",
        lambda text: f"`{text}`\n-- \nAnna",
        "\u200b".join,
        str.upper,
    ],
    ids=["wrapped", "quoted", "in-a-sentence", "marked", "with-invisible-spaces", "upper-case"],
)
def test_a_chat_does_not_harm_it(text, carry):
    assert read_one(carry(text)) == read_one(text)


def test_wherever_it_is_cut_it_says_so(text):
    begun = len("memrelay-join:")
    codes = {refused(text[:end]) for end in range(begun, len(text))}
    assert codes == {"request.cut"}
    assert {refused(text[:end]) for end in range(begun)} == {"request.none"}
    assert refused(text[1:]) == "request.none"


def test_no_character_can_be_altered(text):
    begun = len("memrelay-join:")
    for at in range(begun, len(text)):
        other = "b" if text[at] == "a" else "a"
        assert refused(text[:at] + other + text[at + 1 :]) in {
            "request.altered",
            "request.cut",  # its length says so
            "request.version",
        }


def test_a_character_that_none_has_is_no_cut(text):
    assert refused(text[:50] + "1" + text[51:]) == "request.altered"


def test_another_key_cannot_take_its_place(example, text):
    other = Identity(bytes(range(32, 64)))
    forged = write_request(
        other,
        relayer=example.relayer.public_key,
        account=None,
        created_ms=NOW_MS,
        expires_ms=NOW_MS + HOUR_MS,
        label="anna@laptop",
    )
    assert refused(text[:100] + forged[100:]) == "request.altered"


def test_of_several_it_says_which(example, text):
    assert [request.label for request in read_requests(f"{text}\n# a note\n{text}")] == (
        ["anna@laptop"] * 2
    )
    with pytest.raises(Invalid, match=r"^Request 2 of 3 was cut"):
        read_requests(f"{text}\n{text[:-9]}\n{text}")


@pytest.mark.parametrize("label", ["", "é" * 40, "a\x1b[31mb", "日本" * 20])
def test_a_label_fits_and_steers_no_terminal(example, label):
    found = read_one(make_text(example, label=label)).label
    assert found.isprintable()
    assert len(found.encode()) <= 64
    assert label.startswith(found[:1])


def test_what_is_too_long_is_not_read(text):
    assert refused(text + " " * 1024 * 1024) == "request.long"


def check(request: JoinRequest, example, **changes) -> str:
    where = {
        "relayers": {example.relayer.public_key},
        "account": example.account,
        "now_ms": NOW_MS,
    }
    with pytest.raises(Invalid) as caught:
        request.check(**where | changes)
    return caught.value.code


def test_it_counts_for_one_relayer_account_and_time(example, text):
    request = read_one(text)
    request.check(relayers={example.relayer.public_key}, account=example.account, now_ms=NOW_MS)
    assert check(request, example, relayers={example.founder.public_key}) == "request.relayer"
    assert check(request, example, now_ms=NOW_MS + HOUR_MS) == "request.stale"
    assert check(request, example, now_ms=NOW_MS - HOUR_MS) == "request.early"
    bound = read_one(make_text(example, account=bytes(32)))
    assert check(bound, example) == "request.account"


def test_a_fingerprint_is_short_and_anothers_differs(example):
    found = make_fingerprint(example.agent.public_key)
    assert len(found) == 19
    assert found != make_fingerprint(example.founder.public_key)
