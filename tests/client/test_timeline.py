"""`memrelay timeline`: memories under the day, week or month they are of."""

import re
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from memrelay.cli import EXIT_USAGE
from memrelay.commands.tables import measure_width
from tests.client.shell_scene import Machine, show

STORED, MOVED, SIGNED = "Anna prefers green tea.", "We moved to Porto.", "We signed the lease."


@pytest.fixture
def filled(run: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two memories of events, stored out of their order, and one that is of no event; in UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield _fill(run)
    time.tzset()


def _fill(run: Machine) -> Machine:
    run.remember(MOVED, "--event-time", "2026-05-04T09:00:00Z", "--kind", "event", "--tag", "home")
    run.remember(STORED)
    run.remember(SIGNED, "--event-time", "2026-04-30T09:00:00Z", "--kind", "event")
    return run


def periods(value: Any) -> dict[str, list[str]]:
    return {
        one["period"]: [memory["text"] for memory in one["memories"]] for one in value["periods"]
    }


def test_event_times_come_before_times_of_storing(filled: Machine) -> None:
    value = filled("timeline")
    newest, *others = periods(value).items()
    assert newest[1] == [STORED]
    assert others == [("2026-05-04", [MOVED]), ("2026-04-30", [SIGNED])]
    assert (value["by"], value["truncated"]) == ("day", False)
    oldest = list(periods(filled("timeline", "--oldest-first")).values())
    assert oldest == [[SIGNED], [MOVED], [STORED]]


def test_weeks_and_months_part_memories_otherwise(filled: Machine) -> None:
    assert list(periods(filled("timeline", "--by", "week")))[1:] == ["2026-W19", "2026-W18"]
    assert list(periods(filled("timeline", "--by", "month")))[1:] == ["2026-05", "2026-04"]
    filled.remember("We painted it.", "--event-time", "2026-05-10T23:59:00Z")
    assert periods(filled("timeline", "--by", "week"))["2026-W19"] == ["We painted it.", MOVED]


def test_filters_are_those_of_list(filled: Machine) -> None:
    assert periods(filled("timeline", "--tag", "home")) == {"2026-05-04": [MOVED]}
    early = filled("timeline", "--before", "2026-05-01", "--kind", "event")
    assert periods(early) == {"2026-04-30": [SIGNED]}
    assert periods(filled("timeline", "--namespace", "work")) == {}
    filled.lines("timeline", "--namespace", "work")
    assert "Nothing is stored in the namespace work yet." in filled.err


def test_a_bound_is_said(filled: Machine) -> None:
    value = filled("timeline", "--limit", "2")
    assert value["truncated"] is True
    assert list(periods(value).values()) == [[STORED], [SIGNED]]
    filled.lines("timeline", "--limit", "2")
    assert filled.err == (
        "memrelay: Only the last 2 memories stored; --limit, --after or --before show others.\n"
    )
    filled.lines("timeline", "--limit", "3")
    assert filled.err == ""


def test_a_memory_out_of_recall_is_marked(filled: Machine) -> None:
    rejected = filled.remember("The moon is a cheese.")
    filled("review", "reject", rejected)
    lines = show(filled.profile, 80, "timeline", "--state", "rejected")
    assert "(rejected) The moon is a cheese." in lines[1]
    assert filled.lines("timeline", "--state", "rejected")[0].split("\t")[4] == "rejected"


def test_a_pipe_gets_a_line_for_each_memory(filled: Machine) -> None:
    line = filled.lines("timeline", "--oldest-first")[0]
    name, moment, memory_id, text, marks = line.split("\t")
    assert (name, moment, text, marks) == ("2026-04-30", "2026-04-30 09:00Z", SIGNED, "")
    assert filled("get", memory_id)["text"] == SIGNED


@pytest.mark.parametrize("columns", [100, 40])
@pytest.mark.parametrize("by", ["day", "week", "month"])
def test_it_fits_the_terminal(filled: Machine, columns: int, by: str) -> None:
    filled.remember("A long story in\nmany lines. " * 20, "--event-time", "2026-05-04T10:00:00Z")
    filled.remember("茶の好みを覚えている。" * 20, "--event-time", "2026-05-04T11:00:00Z")
    lines = show(filled.profile, columns, "timeline", "--by", by, TZ="UTC")
    assert max(map(measure_width, lines)) <= columns
    texts = [
        line for line in lines if re.match(r"  [-0-9 ]*[0-9]{2}:[0-9]{2}  [0-9a-f-]{8,}  ", line)
    ]
    assert len(texts) == 5
    assert {line[:10] for line in lines if line[:1] == "2"} >= {
        "day": {"2026-05-04", "2026-04-30"},
        "week": {"2026-W19 f", "2026-W18 f"},
        "month": {"2026-05  3", "2026-04  1"},
    }[by]


def test_a_day_is_that_of_this_machines_zone(filled: Machine) -> None:
    filled.remember("Late.", "--event-time", "2026-05-04T22:30:00Z")
    lines = show(filled.profile, 80, "timeline", "--before", "2026-06-01", TZ="Europe/Berlin")
    assert lines[0] == "2026-05-05 Tuesday  1 memory"
    assert lines[1].startswith("  00:30  ")


def test_lists_show_times_of_this_machines_zone_too(
    filled: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_utc = filled.lines("list")[0].split("\t")
    values = [memory["created_at"] for memory in filled("list")["memories"]]
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        here = filled.lines("list")[0].split("\t")
        assert [memory["created_at"] for memory in filled("list")["memories"]] == values
    time.tzset()
    [at] = [n for n, (one, other) in enumerate(zip(in_utc, here, strict=True)) if one != other]
    assert here[at].endswith("+05:30")
    assert in_utc[at].endswith("Z")
    assert datetime.fromisoformat(here[at]) == datetime.fromisoformat(in_utc[at])


def test_a_day_that_was_said_west_of_utc_is_that_day(run: Machine) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        run("analyze", "User: Our wedding is on 12 June 2027.", "--occurred-at", "2026-01-10 14:00")
        run("analyze", "User: I signed the lease yesterday.", "--occurred-at", "2026-03-10 14:00")
        run("analyze", "User: The trial ended on 9 January 2025.", "--occurred-at", "2026-07-01")
        assert list(periods(run("timeline"))) == ["2027-06-12", "2026-03-09", "2025-01-09"]
        found = run("list", "--since", "2027-06-12", "--until", "2027-06-13")
        assert len(found["memories"]) == 1
    time.tzset()


def test_yesterday_counts_from_now(run: Machine) -> None:
    before = datetime.now().astimezone().date()
    run("analyze", "User: I signed the lease yesterday.")
    [day] = periods(run("timeline"))
    after = datetime.now().astimezone().date()
    assert before <= date.fromisoformat(day) + timedelta(days=1) <= after


@pytest.mark.parametrize(
    "argv", [["--limit", "0"], ["--limit", "10001"], ["--by", "year"], ["--svg", "x"]]
)
def test_bounds_are_checked(run: Machine, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("timeline", *argv)
    assert ended.value.code == EXIT_USAGE
