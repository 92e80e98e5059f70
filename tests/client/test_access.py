"""What an agent holds, what it shall hold, and the grants between the two."""

from datetime import UTC, datetime, timedelta

import pytest

from memrelay.agents.access import (
    Hold,
    Share,
    Wish,
    apply_wish,
    check_apart,
    find_excess,
    find_missing,
    home_of,
    shares_of,
    sum_grants,
)
from memrelay.errors import ConfigError, MemrelayError
from memrelay.sealed.grants import issue_grant, read_grant

SOON = datetime(2030, 1, 1, tzinfo=UTC)
LATER = SOON + timedelta(days=1)


def granted(example, *names, role="writer", expires=None, root=False):
    keys = (
        [example.root] if root else [example.root.namespace_key(example.account, n) for n in names]
    )
    signed = issue_grant(
        example.founder,
        account=example.account,
        serial=2,
        recipient=example.agent.public_key,
        role=role,
        keys=keys,
        created_ms=0,
        expires_ms=expires and int(expires.timestamp() * 1000),
    )
    return read_grant(signed)


def test_an_agents_namespace_has_its_name():
    """capability 2.23: an agent's namespace follows from its name alone, the same everywhere."""
    assert [home_of(name) for name in ("coder", "Coder", "a", "0-_x")] == [
        "coder",
        "coder",
        "a",
        "0-_x",
    ]
    assert home_of("main") == "default"
    assert home_of("x" * 64) == "x" * 64


@pytest.mark.parametrize(
    "name",
    ["", "-a", "_a", "a.b", "../a", "a/b", "a b", "ä", "x" * 65, "a\n", "default", "DEFAULT"],
)
def test_other_names_are_refused(name):
    with pytest.raises(ConfigError):
        home_of(name)


def test_grants_add_up_to_the_strongest_and_longest(example):
    grants = [
        granted(example, "coder", "team", expires=SOON),
        granted(example, "team", role="reader"),
        granted(example, "coder", expires=LATER),
        granted(example, "news", role="reader", expires=SOON),
        granted(example, "news", role="reader"),
        granted(example, "news", role="reader", expires=LATER),
    ]
    expected = {
        "coder": Hold("writer", LATER),
        "team": Hold("writer", SOON),
        "news": Hold("reader", None),
    }
    assert sum_grants("coder", grants) == expected
    assert sum_grants("coder", reversed(grants)) == expected


def test_a_key_of_the_whole_account_is_no_agents(example):
    with pytest.raises(MemrelayError, match="whole account"):
        sum_grants("coder", [granted(example, root=True)])


WRITER, READER = Hold("writer", None), Hold("reader", None)


@pytest.mark.parametrize(
    ("wish", "held", "want"),
    [
        (Wish(), {}, {"coder": WRITER}),
        (Wish(role="reader"), {}, {"coder": READER}),
        (Wish(expires_at=SOON), {}, {"coder": Hold("writer", SOON)}),
        (Wish(shared=("team",)), {}, {"coder": WRITER, "team": WRITER}),
        (Wish(shared=("team", "coder")), {}, {"coder": WRITER, "team": WRITER}),
        (Wish(shared=("team",), role="reader"), {}, {"coder": READER, "team": READER}),
        (Wish(shared=("team",), shared_role="reader"), {}, {"coder": WRITER, "team": READER}),
        # Of an agent that is there, what is not said stays.
        (Wish(), {"coder": READER}, {"coder": READER}),
        (Wish(), {"coder": WRITER, "team": READER}, {"coder": WRITER, "team": READER}),
        (Wish(role="writer"), {"coder": READER, "team": READER}, {"coder": WRITER, "team": WRITER}),
        (Wish(role="reader"), {"coder": WRITER, "team": WRITER}, {"coder": READER, "team": READER}),
        (Wish(role="writer"), {"coder": WRITER, "team": READER}, {"coder": WRITER, "team": READER}),
        (Wish(role="reader"), {"coder": READER, "team": WRITER}, {"coder": READER, "team": READER}),
        (
            Wish(shared=("team",), role="writer"),
            {"coder": WRITER, "team": READER},
            {"coder": WRITER, "team": WRITER},
        ),
        (
            Wish(shared_role="writer"),
            {"coder": WRITER, "team": READER},
            {"coder": WRITER, "team": WRITER},
        ),
        (
            Wish(role="writer", shared_role="reader"),
            {"coder": READER, "team": READER},
            {"coder": WRITER, "team": READER},
        ),
        (
            Wish(shared=("team",)),
            {"coder": WRITER, "team": READER},
            {"coder": WRITER, "team": READER},
        ),
        (Wish(shared=("team",)), {"coder": READER}, {"coder": READER, "team": READER}),
        (
            Wish(shared=("news",)),
            {"coder": WRITER, "team": WRITER},
            {"coder": WRITER, "news": WRITER},
        ),
        (Wish(shared=()), {"coder": WRITER, "team": WRITER}, {"coder": WRITER}),
        # What comes later ends with what is there.
        (
            Wish(shared=("team",)),
            {"coder": Hold("writer", SOON)},
            {"coder": Hold("writer", SOON), "team": Hold("writer", SOON)},
        ),
        (
            Wish(shared=("team",), expires_at=LATER),
            {"coder": Hold("writer", SOON)},
            {"coder": Hold("writer", LATER), "team": Hold("writer", LATER)},
        ),
    ],
)
def test_what_an_agent_shall_hold(wish, held, want):
    assert apply_wish("coder", wish, held) == want


def test_a_malformed_shared_namespace_is_refused():
    with pytest.raises(ConfigError):
        Wish(shared=("team", "\x00"))


def test_only_what_is_lacking_is_granted():
    held = {"coder": WRITER, "team": READER, "old": Hold("writer", SOON)}
    want = {"coder": READER, "team": WRITER, "old": Hold("writer", LATER), "news": READER}
    assert find_missing(held, want) == {"team": WRITER, "news": READER}
    assert find_missing(held, held) == {}


@pytest.mark.parametrize(
    ("current", "wish", "lacking"),
    [
        (SOON, LATER, False),  # a day, within which the same span was given again
        (SOON, LATER + timedelta(seconds=1), True),
        (SOON, SOON - timedelta(days=30), False),
        (SOON, None, True),
        (None, SOON, False),
        (None, None, False),
    ],
)
def test_a_later_end_is_lacking(current, wish, lacking):
    want = {"coder": Hold("writer", wish)}
    assert find_missing({"coder": Hold("writer", current)}, want) == (want if lacking else {})


@pytest.mark.parametrize("name", ["team", "TEAM", "a"])
def test_an_agents_own_namespace_is_nobody_elses(name):
    with pytest.raises(ConfigError, match="Choose another name"):
        check_apart(name, ["default", "team", "a"])


@pytest.mark.parametrize("name", ["main", "tea", "team-a"])
def test_an_agent_of_another_name_is_apart(name):
    check_apart(name, ["default", "team", "main"])


@pytest.mark.parametrize(
    ("held", "want", "names"),
    [
        ({"coder": WRITER}, {"coder": WRITER, "team": WRITER}, []),
        ({"coder": READER}, {"coder": WRITER}, []),
        ({"coder": Hold("writer", SOON)}, {"coder": Hold("writer", LATER)}, []),
        ({"coder": Hold("writer", SOON)}, {"coder": WRITER}, []),
        ({"coder": WRITER}, {"coder": READER}, ["coder"]),
        ({"coder": WRITER, "team": READER}, {"coder": WRITER}, ["team"]),
        ({"coder": WRITER}, {"coder": Hold("writer", SOON)}, ["coder"]),
        ({"coder": Hold("writer", LATER)}, {"coder": Hold("writer", SOON)}, ["coder"]),
    ],
)
def test_what_is_held_too_much(held, want, names):
    assert find_excess(held, want) == names


def test_equal_holds_make_one_grant():
    held = {"coder": WRITER, "news": READER, "team": WRITER, "old": Hold("reader", SOON)}
    assert shares_of(held) == (
        Share(role="writer", namespaces=("coder", "team")),
        Share(role="reader", namespaces=("news",)),
        Share(role="reader", namespaces=("old",), expires_at=SOON),
    )
    assert shares_of({}) == ()
