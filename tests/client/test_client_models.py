"""Answers and errors of the relayer, as values."""

import pickle
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from memrelay.answers import Answer, rfc3339
from memrelay.errors import (
    BadRequest,
    Conflict,
    MemrelayError,
    NotAuthenticated,
    NotFound,
    NotOffered,
    RateLimited,
    ServerError,
    Unavailable,
    UntrustedRelayer,
    server_error,
)
from memrelay.models import (
    Draft,
    KeyInfo,
    Memory,
    NewAccount,
    NewKey,
    Recalled,
    Remembered,
    secrets_in,
)

MEMORY = {
    "id": "m",
    "namespace": "team",
    "text": "Anna prefers tea.",
    "tags": ["a"],
    "metadata": {"k": "v"},
    "created_at": "2026-05-04T09:30:00.000Z",
    "pinned": False,
    "stale": False,
    "seen_count": 1,
    "distance": 1,
    "score": 0.5,
}


def test_answers_keep_what_they_know_and_ignore_the_rest():
    answer = {"results": [{**MEMORY, "later": 1}], "total": 1, "degraded": False, "new": {}}
    found = Recalled.from_json(answer)
    memory = found.results[0]
    assert (memory.text, memory.tags, memory.distance) == ("Anna prefers tea.", ("a",), 1.0)
    assert memory.created_at == datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
    assert found.dropped_count == 0


def test_a_read_answer_is_like_one_that_was_made():
    """Reading goes past the constructor, so no answer may do more in it than set its fields."""
    read = Recalled.from_json(
        {"results": [{"id": "m", "namespace": "team", "text": "x"}], "total": 1}
    )
    made = Recalled(results=(Memory(id="m", namespace="team", text="x"),), total=1)
    assert (read, hash(read), repr(read)) == (made, hash(made), repr(made))
    assert vars(read) == vars(made)
    assert pickle.loads(pickle.dumps(read)) == replace(read) == made
    with pytest.raises(FrozenInstanceError):
        setattr(read, "total", 2)  # noqa: B010 - a type checker knows that it is refused
    kinds = Answer.__subclasses__()
    assert Recalled in kinds
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert not hasattr(kind, "__post_init__")
        assert not hasattr(kind, "__slots__")
        assert all(item.default_factory is MISSING for item in fields(kind))


def test_only_what_may_be_null_is():
    nullable = {"text", "kind", "event_time", "metadata", "revision", "distance", "explain"}
    memory = Memory.from_json({**MEMORY, **dict.fromkeys(nullable)})
    assert {name for name in nullable if getattr(memory, name) is None} == nullable


def test_answers_become_the_apis_json_again():
    shown = Memory.from_json(MEMORY).to_json()
    assert {name: value for name, value in shown.items() if value is not None} == MEMORY
    assert {"source", "event_time", "expires_at"} <= set(shown)
    listed = Memory.from_json({"id": "m", "namespace": "team", "text": "x"}).to_json()
    assert not {"distance", "score", "explain"} & set(listed)


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"text": 5},
        {"tags": "a"},
        {"tags": [1]},
        {"distance": "near"},
        {"distance": True},
        {"created_at": "yesterday"},
        {"created_at": "2026-05-04T09:30:00"},
        {"metadata": []},
        {"seq": True},
        {"seq": "1"},
        {"revision": 1.5},
        {"seen_count": None},
        {"pinned": None},
        {"pinned": 1},
        {"kind": True},
        {"metadata": "a"},
        {"score": False},
        {"score": "0.5"},
        {"explain": []},
        {"explain": {"parts": {}, "matched": None}},
    ],
)
def test_malformed_answers_are_refused(change):
    with pytest.raises(ServerError) as caught:
        Memory.from_json({**MEMORY, **change})
    assert caught.value.code == "answer.malformed"
    assert "Anna" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "x", {}, {"id": "m", "status": "done"}])
def test_missing_members_are_refused(value):
    with pytest.raises(ServerError):
        Remembered.from_json(value)


def test_no_namespaces_and_all_namespaces_differ():
    key = {"public_key": "k", "role": "owner", "namespaces": None}
    assert KeyInfo.from_json(key).namespaces is None
    assert KeyInfo.from_json({**key, "namespaces": []}).namespaces == ()


def test_private_keys_of_results_do_not_show():
    account = NewAccount(
        account_id="a", public_key="p", custody="sealed", relayer_key="r", private_key="secret"
    )
    key = NewKey(
        account_id="a",
        public_key="p",
        relayer_key="r",
        role="writer",
        namespaces=None,
        grant="g",
        serial=2,
        private_key="secret",
    )
    for value in (account, key):
        assert "secret" not in repr(value)
        assert "private_key" not in value.to_json()


def test_times_are_written_in_utc_with_milliseconds():
    east = timezone(timedelta(hours=2))
    when = datetime(2026, 5, 4, 11, 30, 0, 1500, tzinfo=east)
    assert rfc3339(when) == "2026-05-04T09:30:00.001Z"
    assert rfc3339(when, zoned=True) == "2026-05-04T11:30:00.001+02:00"
    assert rfc3339(when.astimezone(UTC), zoned=True) == "2026-05-04T09:30:00.001Z"
    long_ago = when.astimezone(timezone(-timedelta(hours=7, minutes=52, seconds=58)))
    assert rfc3339(long_ago, zoned=True) == "2026-05-04T01:37:00.001-07:53"
    assert rfc3339("2026-05-04") == "2026-05-04"
    with pytest.raises(ValueError, match="time zone"):
        rfc3339(datetime(2026, 5, 4))


def test_a_text_is_no_list_of_tags():
    with pytest.raises(ValueError, match="tags is a list"):
        Draft(text="x", tags="release")


def test_a_draft_sends_only_what_was_given():
    assert Draft(text="x").body() == {"text": "x"}
    when = datetime(2026, 5, 4, tzinfo=UTC)
    assert Draft(text="x", tags=("a",), event_time=when).body() == {
        "text": "x",
        "tags": ["a"],
        "event_time": "2026-05-04T00:00:00.000Z",
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, NotAuthenticated),
        (404, NotFound),
        (409, Conflict),
        (429, RateLimited),
        (501, NotOffered),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (500, ServerError),
        (302, ServerError),
        (418, ServerError),
    ],
)
def test_each_status_has_its_error(status, kind):
    error = server_error(status, {"message": "No.", "code": "c", "request_id": "r"}, {})
    assert type(error) is kind
    assert (error.status, error.code, error.request_id) == (status, "c", "r")
    assert str(error) == f"No. ({status} c, request r)"


@pytest.mark.parametrize("body", [None, [], "<html>", {}, {"message": None}])
def test_answers_that_are_no_errors_of_ours_still_become_one(body):
    error = server_error(500, body, {})
    assert (error.code, error.request_id) == ("http.500", None)


def test_an_error_is_one_short_line():
    error = server_error(400, {"message": "a\nb\x1b[31m" + "x" * 999, "code": "c\n"}, {})
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("2", 2.0), (" 7 ", 7.0), ("-1", None), ("Fri, 1 Jan", None), ("9" * 30, 86_400.0)],
)
def test_retry_after_is_seconds_within_reason(header, seconds):
    assert server_error(429, {}, {"retry-after": header}).retry_after_s == seconds


def test_a_wrong_clock_is_told():
    error = server_error(401, {}, {"x-auth-error": "ERR_TIMESTAMP_OUT_OF_BOUNDS"})
    assert "clock" in str(error)


def test_every_error_has_one_root():
    assert issubclass(UntrustedRelayer, MemrelayError)
    assert issubclass(ServerError, MemrelayError)


def test_secrets_that_an_answer_does_not_count_are_none():
    assert secrets_in({"aws-key": 2, "card": "many", "other": [], "any": True}) == 2
    assert secrets_in(None) == 0
