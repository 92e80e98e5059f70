"""`memrelay stats`: what is counted, over which memories, and how it is drawn."""

import sys
import time as clock
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_USAGE
from memrelay.commands.charts import draw_bar, draw_sparkline
from memrelay.commands.stats import describe_counts
from memrelay.commands.tables import measure_width
from memrelay.errors import NotFound
from memrelay.local_time import to_local
from memrelay.models import Counts
from tests.client.shell_scene import Machine, show

TODAY = date(2026, 5, 10)


@pytest.fixture
def filled(run: Machine) -> Machine:
    """Five memories in two namespaces, of which one is out of recall."""
    run.remember("Anna prefers green tea.", "--kind", "preference")
    run.remember("We ship on Fridays.", "--kind", "decision", "--namespace", "work")
    rejected = run.remember("The moon is a cheese.")
    run("review", "reject", rejected)
    run.remember("The bakery closes at noon.")
    run.remember("The harbour opens at six.")
    return run


def counts(value: Any, group: str, name: str, number: str = "memory_count") -> dict[str, int]:
    return {one[name]: one[number] for one in value[group]}


def test_memories_are_counted_by_day_writer_kind_and_namespace(filled: Machine) -> None:
    value = filled("stats")
    assert counts(value, "kinds", "kind") == {"fact": 2, "preference": 1, "decision": 1}
    assert counts(value, "namespaces", "name", "active_count") == {"default": 3, "work": 1}
    assert counts(value, "namespaces", "name") == {"default": 4, "work": 1}
    assert (value["active_count"], value["memory_count"]) == (4, 5)
    [by] = value["writers"]
    assert by["memory_count"] == 4
    assert len(value["days"]) == 30
    assert sum(counts(value, "days", "day").values()) == 4
    assert (value["counted"], value["truncated"], value["counted_since"]) == (4, False, None)
    assert value["recalls"] is None, "nobody chose to count them"


def test_each_agent_is_counted_by_its_name(filled: Machine) -> None:
    filled("agents", "provision", "coder")
    filled("remember", "The build is green.", "--agent", "coder")
    value = filled("stats")
    assert counts(value, "writers", "name")["coder"] == 1
    assert (value["active_count"], value["counted"]) == (5, 5)
    own = filled("stats", "--agent", "coder")
    assert (own["active_count"], own["counted"]) == (1, 1), "nothing of others' namespaces"


def test_one_namespace_is_counted_alone(filled: Machine) -> None:
    value = filled("stats", "--namespace", "work")
    assert (value["active_count"], value["counted"]) == (1, 1)
    assert counts(value, "kinds", "kind") == {"decision": 1}
    assert filled("stats", "--namespace", "elsewhere")["counted"] == 0
    filled.lines("stats", "--namespace", "elsewhere")
    assert "Nothing is stored in the namespace elsewhere yet." in filled.err


def test_a_bound_is_said_and_keeps_the_newest_of_all_namespaces(filled: Machine) -> None:
    filled.remember("We ship on Mondays.", "--kind", "decision", "--namespace", "work")
    value = filled("stats", "--limit", "2")
    assert counts(value, "kinds", "kind") == {"decision": 1, "fact": 1}
    assert (value["counted"], value["truncated"], value["active_count"]) == (2, True, 5)
    assert value["counted_since"] is not None
    assert len(value["days"]) == 1, "of the days before, nothing is known"
    filled.lines("stats", "--limit", "2")
    assert "the newest 2 memories are counted; --limit N counts others." in filled.err
    filled.lines("stats", "--limit", "5")
    assert filled.err == ""


def test_many_names_are_cut_short_on_a_terminal_alone(run: Machine) -> None:
    for number in range(14):
        run.remember("A note.", "--namespace", f"room{number}")
    assert show(run.profile, 80, "stats").count("and 2 more") == 1
    assert sum(line.startswith("namespaces\t") for line in run.lines("stats")) == 14


def test_more_than_a_page_is_counted(run: Machine) -> None:
    with run.client() as client:
        client.remember_many([{"text": f"Note {number}."} for number in range(230)])
    assert run("stats")["counted"] == 230
    assert run("stats", "--limit", "229")["truncated"] is True
    assert run("stats", "--limit", "230")["truncated"] is False


def test_a_pipe_gets_a_line_for_each_count(filled: Machine) -> None:
    lines = filled.lines("stats", "--days", "2")
    assert [line.split("\t")[0] for line in lines[:2]] == ["days", "days"]
    assert "kinds\tfact\t2" in lines
    assert lines[-2:] == ["namespaces\tdefault\t3", "namespaces\twork\t1"]


@pytest.mark.parametrize("columns", [120, 40, 20])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_charts_fit_the_terminal(filled: Machine, columns: int, encoding: str) -> None:
    lines = show(filled.profile, columns, "stats", PYTHONIOENCODING=encoding)
    assert max(map(measure_width, lines)) <= columns
    text = "\n".join(lines)
    assert ("█" in text) == (encoding == "utf-8")
    assert ("#" in text) == (encoding == "ascii")
    assert "settings count_recalls=on" in " ".join(text.split())
    assert "decision" in text


class TestRecalls:
    """Counts of recalls are shown where an owner chose to have them."""

    @pytest.fixture
    def counted(self, filled: Machine) -> Machine:
        assert filled("settings", "count_recalls=on")["settings"]["count_recalls"] is True
        for query in ("Which tea does Anna prefer?", "tea"):
            filled("recall", query, "--mode", "keyword", "--limit", "1")
        filled("recall", "When do we ship?", "--mode", "keyword", "--namespace", "work")
        return filled

    def test_what_they_used_most_and_never_is_shown(self, counted: Machine) -> None:
        value = counted("stats")
        most = value["recalls"]["most"]
        assert [(one["text"], one["recall_count"]) for one in most] == [
            ("Anna prefers green tea.", 2),
            ("We ship on Fridays.", 1),
        ]
        assert value["recalls"]["never_recalled_count"] == 2
        assert counts(value, "kinds", "kind", "never_recalled_count") == {
            "fact": 2,
            "preference": 0,
            "decision": 0,
        }
        lines = counted.lines("stats")
        assert f"recalls\t{most[0]['id']}\t2" in lines
        assert "kinds_never_recalled\tfact\t2" in lines

    @pytest.mark.parametrize("columns", [120, 40, 20])
    def test_it_fits_the_terminal(self, counted: Machine, columns: int) -> None:
        lines = show(counted.profile, columns, "stats")
        assert max(map(measure_width, lines)) <= columns
        text = " ".join(" ".join(lines).split())
        assert "Recalled most since" in text
        assert ": 2 of 4. They are in: memrelay list --never-recalled" in text

    def test_a_key_of_one_namespace_is_told_of_that_one(self, counted: Machine) -> None:
        counted("agents", "provision", "coder")
        counted("remember", "The build is green.", "--agent", "coder")
        own = counted("stats", "--agent", "coder")["recalls"]
        assert (own["most"], own["never_recalled_count"]) == ([], 1)

    def test_a_memory_that_is_gone_by_then_has_no_text(
        self, counted: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            raise NotFound("No such memory.", status=404, code="not_found")

        monkeypatch.setattr(SyncMemoryClient, "get", refuse)
        assert [one["text"] for one in counted("stats")["recalls"]["most"]] == [None, None]

    def test_get_tells_the_count_of_one_memory(self, counted: Machine) -> None:
        tea, ship = (counted("recall", one)["results"][0]["id"] for one in ("tea", "harbour"))
        found = counted("get", tea)
        assert found["recall_count"] >= 3
        told = show(counted.profile, 80, "get", tea)
        times, day = found["recall_count"], found["last_recalled_on"]
        assert told[-1] == f"Recalled {times} times, last on {day} (UTC)."
        assert counted.lines("get", tea) == ["Anna prefers green tea."], "a pipe gets the text"
        counted("settings", "count_recalls=off")
        counted("settings", "count_recalls=on")
        assert show(counted.profile, 80, "get", ship)[-1].startswith("Never recalled")

    def test_list_shows_those_that_none_showed(self, counted: Machine) -> None:
        assert sorted(counted.texts("--never-recalled")) == [
            "The bakery closes at noon.",
            "The harbour opens at six.",
        ]
        assert counted.texts("--never-recalled", "--kind", "decision") == []

    def test_a_list_of_what_is_not_counted_says_how_to_begin(self, filled: Machine) -> None:
        assert filled("list", "--never-recalled", code=EXIT_USAGE) is None
        assert "An owner begins with: memrelay settings count_recalls=on" in filled.err

    def test_the_doctor_says_it_and_counts_nothing(self, counted: Machine) -> None:
        before = counted("stats")["recalls"]
        found = counted("doctor")["findings"]
        assert [one["detail"] for one in found if one["check"] == "recalls"] == [
            "counted for each memory, as `memrelay settings` says"
        ]
        assert counted("stats")["recalls"] == before


def test_an_empty_account_has_no_chart(run: Machine) -> None:
    assert show(run.profile, 80, "stats") == ["0 memories in recall, 0 out of it"]
    assert run("stats")["counted"] == 0


@pytest.mark.parametrize("command", ["stats", "timeline"])
def test_a_picture_without_its_library_is_refused(
    run: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(command, "--svg", str(tmp_path / "x.svg"), code=EXIT_USAGE) is None
    assert "client[charts]" in run.err
    assert not list(tmp_path.glob("*.svg"))


@pytest.mark.parametrize(
    "argv", [["--days", "0"], ["--days", "367"], ["--limit", "0"], ["--svg", "profile.json"]]
)
def test_bounds_are_checked(run: Machine, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("stats", *argv)
    assert ended.value.code == EXIT_USAGE


class TestDays:
    @staticmethod
    def days(periods: list[int], since: datetime | None) -> list[dict[str, Any]]:
        counts = Counts(
            memory_count=sum(periods),
            repeated_count=0,
            counted_since=since,
            periods=tuple(periods),
            writers=(),
            kinds=(),
        )
        found: list[dict[str, Any]] = describe_counts([], counts, TODAY)["days"]
        return found

    def test_days_without_a_memory_are_there(self) -> None:
        days = self.days([0, 1, 0, 0, 2], None)
        assert [day["memory_count"] for day in days] == [0, 1, 0, 0, 2]
        assert (days[0]["day"], days[-1]["day"]) == ("2026-05-06", "2026-05-10")

    def test_days_before_the_last_that_was_counted_are_left_out(self) -> None:
        noon = datetime(2026, 5, 10, 12, tzinfo=UTC)
        days = self.days([0, 1, 0, 0, 2], noon - timedelta(days=3))
        assert [day["memory_count"] for day in days] == [1, 0, 0, 2]
        assert len(self.days([0, 0], noon - timedelta(days=9))) == 2

    def test_a_clock_ahead_leaves_today(self) -> None:
        tomorrow = datetime(2026, 5, 12, 12, tzinfo=UTC)
        assert self.days([0, 3], tomorrow) == [{"day": "2026-05-10", "memory_count": 3}]


def test_a_day_begins_at_midnight_here(filled: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of Berlin changed within these days."""
    asked: list[str] = []
    original = SyncMemoryClient.counts

    def note(client: SyncMemoryClient, bounds: list[datetime], **more: Any) -> Counts:
        asked.extend(bound.isoformat() for bound in bounds)
        return original(client, bounds, **more)

    monkeypatch.setattr(SyncMemoryClient, "counts", note)
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        clock.tzset()
        value = filled("stats", "--days", "366")
    clock.tzset()
    assert len(asked) == 366
    assert {bound[10:] for bound in asked} == {"T00:00:00+01:00", "T00:00:00+02:00"}
    assert sum(counts(value, "days", "day").values()) == 4


def test_a_single_one_is_seen_beside_many() -> None:
    assert draw_sparkline([0, 1, 500, 1000]) == "▁▂▅█"
    assert draw_sparkline([0, 0]) == "▁▁"
    assert draw_sparkline([]) == ""
    assert draw_bar(1, 1000, 20) == "█"
    assert draw_bar(0, 0, 20) == ""
    assert draw_bar(1000, 1000, 20) == "█" * 20


def test_times_at_the_ends_of_the_calendar_are_shown() -> None:
    for moment in (datetime.min, datetime.max):
        assert to_local(moment.replace(tzinfo=UTC)).year == moment.year
