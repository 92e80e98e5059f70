"""What is sealed comes back as it was, and nothing else is taken for it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from relayer.clock import MOMENT_MS_MAX, from_ms, rfc3339, to_ms, utc_now, whole_ms
from relayer.record import Draft, decode, encode, first_stored_at, is_kept, new_id
from relayer.sealed.keys import Namespace, PublicKey
from relayer.sealed.primitives import CryptoError
from tests.optional import unwrap

WRITER = PublicKey(bytes(range(32)))
DRAFT = Draft(
    text="Anna prefers tea. 猫\u0000",
    namespace=Namespace("team"),
    kind="preference",
    tags=["drinks"],
    source="mail/17",
    event_time=datetime(2031, 5, 4, 9, 30, 0, 250_000, UTC),
    metadata={"room": "4.12"},
    importance="vital",
    confidence="low",
    expires_at=datetime(1969, 1, 1, tzinfo=UTC),
)


def test_round_trip() -> None:
    assert decode(encode(DRAFT, WRITER)) == (DRAFT, WRITER)


@pytest.mark.parametrize("minutes", [-720, -210, 0, 60, 840])
def test_the_time_of_a_turn_comes_back_in_its_zone(minutes: int) -> None:
    there = unwrap(DRAFT.event_time).astimezone(timezone(timedelta(minutes=minutes)))
    turn = replace(DRAFT, event_time=there)
    read, _ = decode(encode(turn, WRITER, episode=True))
    assert read.event_time is not None
    assert (read.event_time, read.event_time.utcoffset()) == (there, there.utcoffset())
    assert encode(turn, WRITER) == encode(DRAFT, WRITER)  # of a memory the moment alone is sealed


@pytest.mark.parametrize("milliseconds", [-62_135_510_400_001, -1, 1, 519, MOMENT_MS_MAX])
def test_a_sealed_time_is_the_one_that_is_shown(milliseconds: int) -> None:
    moment = from_ms(milliseconds)
    assert to_ms(moment) == milliseconds
    assert datetime.fromisoformat(rfc3339(moment)) == moment == whole_ms(moment)
    finer = moment + timedelta(microseconds=987)
    assert rfc3339(finer) == rfc3339(moment) == rfc3339(whole_ms(finer))


def test_a_relayers_own_time_is_in_whole_milliseconds() -> None:
    now = utc_now()
    assert now == whole_ms(now)
    assert now.tzinfo is UTC


def test_unknown_members_are_passed_over() -> None:
    record = {**json.loads(encode(DRAFT, WRITER)), "later": 1}
    assert decode(json.dumps(record).encode()) == (DRAFT, WRITER)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": None},
        {"writer": "zz"},
        {"writer": 7},
        {"event_time": "soon"},
        {"event_time": 2**53 - 1},
        {"event_time": 10**30},
        {"offset": 1440},
        {"offset": "+02:00"},
        {"text": ...},
        {"text": 7},
        {"tags": [["a"]]},
        {"metadata": {"a": [[]]}},
    ],
)
def test_anything_else_is_refused(change: dict[str, Any]) -> None:
    record = {**json.loads(encode(DRAFT, WRITER)), **change}
    record = {k: v for k, v in record.items() if v is not ...}
    with pytest.raises(CryptoError):
        decode(json.dumps(record).encode())


DEEP = b"[" * 10_000


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"1", b"\xff", b'{"v": 1}', DEEP, b'{"v":1,"metadata":' + DEEP]
)
def test_no_record_at_all(record: bytes) -> None:
    with pytest.raises(CryptoError):
        decode(record)


@pytest.mark.parametrize("read", [first_stored_at, is_kept])
@pytest.mark.parametrize("record", [b"", b"[]", b"\xff", DEEP, b'{"kept":' + DEEP])
def test_nothing_else_is_read_of_it(read: Callable[[bytes], Any], record: bytes) -> None:
    with pytest.raises(CryptoError):
        read(record)


def test_ids_are_in_order_of_time_and_of_version_seven() -> None:
    ids = [new_id() for _ in range(100)]
    assert {i.version for i in ids} == {7}
    assert {i.variant for i in ids} == {"specified in RFC 4122"}
    assert len(set(ids)) == 100
    assert [i.bytes[:6] for i in ids] == sorted(i.bytes[:6] for i in ids)
