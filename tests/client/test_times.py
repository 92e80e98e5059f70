"""Times and spans as people type them: one way for every option, in the zone of the machine."""

import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from memrelay.cli import EXIT_OK, EXIT_USAGE, build_parser, main
from memrelay.commands.times import parse_span, read_time
from tests.client.shell_scene import Machine

NOW = datetime(2026, 11, 28, 19, 30, 5, 123, tzinfo=UTC)  # a Saturday, 20:30 in Berlin
PAST, ANY, FUTURE = -1, 0, 1


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in this zone."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", getattr(request, "param", "Europe/Berlin"))
        time.tzset()
        yield
    time.tzset()


def refusal(text: str, leaning: int = ANY, now: datetime = NOW) -> str:
    with pytest.raises(ArgumentTypeError) as refused:
        read_time(text, now=now, leaning=leaning)
    return str(refused.value)


@pytest.mark.usefixtures("zone")
class TestForms:
    @pytest.mark.parametrize(
        ("text", "time"),
        [
            ("2026-05-04", "2026-05-04T00:00:00+02:00"),
            ("2026-5-4", "2026-05-04T00:00:00+02:00"),
            ("2026-11-28 14:00", "2026-11-28T14:00:00+01:00"),
            ("2026-11-28T14:00", "2026-11-28T14:00:00+01:00"),
            ("2026-11-28 14:00:09", "2026-11-28T14:00:09+01:00"),
            ("2026-11-28 2pm", "2026-11-28T14:00:00+01:00"),
            ("2026-11-28 12am", "2026-11-28T00:00:00+01:00"),
            ("2026-11-28 14:00 +05:30", "2026-11-28T14:00:00+05:30"),
            ("2026-11-28 14:00 UTC", "2026-11-28T14:00:00+00:00"),
            ("2026-11-28T14:00Z", "2026-11-28T14:00:00+00:00"),
            ("now", "2026-11-28T20:30:05+01:00"),
            ("today", "2026-11-28T00:00:00+01:00"),
            ("Yesterday", "2026-11-27T00:00:00+01:00"),
            ("tomorrow  9:00", "2026-11-29T09:00:00+01:00"),
            ("tomorrow at 9am", "2026-11-29T09:00:00+01:00"),
            ("18:15", "2026-11-28T18:15:00+01:00"),
            ("last saturday", "2026-11-21T00:00:00+01:00"),
            ("last friday 14:00", "2026-11-27T14:00:00+01:00"),
            ("next saturday", "2026-12-05T00:00:00+01:00"),
            ("3 days ago", "2026-11-25T20:30:05+01:00"),
            ("3d ago", "2026-11-25T20:30:05+01:00"),
            ("an hour ago", "2026-11-28T19:30:05+01:00"),
            ("1.5h ago", "2026-11-28T19:00:05+01:00"),
            ("in 2 weeks", "2026-12-12T20:30:05+01:00"),
            ("2 weeks from now", "2026-12-12T20:30:05+01:00"),
            ("in 1h30m", "2026-11-28T22:00:05+01:00"),
            ("2 weeks and 3 days ago", "2026-11-11T20:30:05+01:00"),
            ("last week", "2026-11-21T20:30:05+01:00"),
            ("next month", "2026-12-28T20:30:05+01:00"),
            ("in 3 months", "2027-02-28T20:30:05+01:00"),
            ("1 year ago", "2025-11-28T20:30:05+01:00"),
        ],
    )
    def test_a_form_is_a_time_here(self, text: str, time: str) -> None:
        for leaning in (PAST, ANY, FUTURE):
            found = read_time(text, now=NOW, leaning=leaning)
            assert (found, found.time) == (time, datetime.fromisoformat(time))
            assert found.time.tzinfo is UTC
            assert found.note is not None

    @pytest.mark.parametrize(
        ("text", "past", "future"),
        [
            ("30d", "2026-10-29T20:30:05+01:00", "2026-12-28T20:30:05+01:00"),
            ("90 minutes", "2026-11-28T19:00:05+01:00", "2026-11-28T22:00:05+01:00"),
            ("saturday 9:00", "2026-11-21T09:00:00+01:00", "2026-12-05T09:00:00+01:00"),
            ("monday", "2026-11-23T00:00:00+01:00", "2026-11-30T00:00:00+01:00"),
        ],
    )
    def test_what_may_be_past_or_to_come_is_what_the_option_is_for(
        self, text: str, past: str, future: str
    ) -> None:
        assert read_time(text, now=NOW, leaning=PAST) == past
        assert read_time(text, now=NOW, leaning=FUTURE) == future
        assert " may be past or to come: write " in refusal(text)

    @pytest.mark.parametrize(
        "text", ["2026-05-04T09:30:00+02:00", "2026-05-04 09:30:00.5z", "2026-05-04t09:30:00-0800"]
    )
    def test_rfc_3339_goes_on_as_it_was_written(self, text: str) -> None:
        found = read_time(text, now=NOW, leaning=ANY)
        assert (found, found.note) == (text, None)

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                " ",
                "soon",
                "30",
                "9",
                "d",
                "-1d",
                "30 moons",
                "5ms",
                "1.5 months ago",
                "1e3 days",
            ),
            *("05/04/2026", "4.5.2026", "2026-13-01", "2026-02-30", "2026-05-04 25:00", "13pm"),
            *(
                "2026-05-04 9",
                "2026",
                "2026-05",
                "20260504",
                "someday",
                "in",
                "ago",
                "in ago",
                "last",
            ),
            *("next 2 weeks", "in 3 days ago", "999999999 years ago", "99999999 weeks ago"),
            *("0001-01-01", "2026-05-04T09:30:00+25:00", "٣ days ago", "2026-05-04 14:00 +01:75"),
            "a" * 1_000_000,
        ],
    )
    def test_what_is_no_time_is_told_the_forms(self, text: str) -> None:
        assert refusal(text).endswith('yesterday, "tomorrow 9:00", "3 days ago" or "in 2 weeks"')

    def test_a_zone_wants_a_date(self) -> None:
        assert "a zone goes with a whole date" in refusal("tomorrow 9:00 UTC")


@pytest.mark.usefixtures("zone")
class TestSummerTime:
    def test_a_time_that_comes_twice_wants_its_offset(self) -> None:
        told = "the clock shows 02:30 twice that day: add the offset, +02:00 or +01:00"
        assert refusal("2026-10-25 02:30") == told
        first = read_time("2026-10-25 02:30 +02:00", now=NOW, leaning=ANY)
        assert first.time == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)

    def test_a_time_that_is_skipped_is_none(self) -> None:
        assert "the clock skips 02:30 that day" in refusal("2026-03-29 02:30")

    def test_days_keep_the_time_on_the_clock_and_hours_are_exact(self) -> None:
        now = datetime(2026, 10, 25, 11, tzinfo=UTC)  # 12:00, nine hours after the change
        for text, hour in (("1 day ago", 10), ("24 hours ago", 11)):
            found = read_time(text, now=now, leaning=PAST)
            assert found.time == datetime(2026, 10, 24, hour, tzinfo=UTC)

    def test_a_day_counted_into_a_gap_goes_on_behind_it(self) -> None:
        now = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)  # 2:30, which there is not the day after
        found = read_time("in 1 day", now=now, leaning=FUTURE)
        assert found == "2026-03-29T03:30:00+02:00"

    @pytest.mark.parametrize("zone", ["Asia/Beirut"], indirect=True)
    def test_a_day_begins_at_its_first_moment(self) -> None:
        """There the clock goes from midnight to one."""
        found = read_time("2024-03-31", now=NOW, leaning=ANY)
        assert found == "2024-03-31T01:00:00+03:00"

    @pytest.mark.parametrize("zone", ["America/Sao_Paulo"], indirect=True)
    def test_an_offset_that_cannot_be_written_is_not(self) -> None:
        """Long ago it had seconds."""
        assert read_time("1900-01-01", now=NOW, leaning=ANY).endswith(":28+00:00")


class TestSpans:
    @pytest.mark.parametrize(
        ("text", "span"),
        [
            ("45s", timedelta(seconds=45)),
            ("30m", timedelta(minutes=30)),
            ("12h", timedelta(hours=12)),
            ("90d", timedelta(days=90)),
            ("4w", timedelta(weeks=4)),
            ("1h30m", timedelta(minutes=90)),
            ("2 weeks", timedelta(weeks=2)),
            ("1.5 days", timedelta(hours=36)),
        ],
    )
    def test_a_span_is_read(self, text: str, span: timedelta) -> None:
        assert parse_span(text) == span

    @pytest.mark.parametrize("text", ["", "30", "0d", "-1d", "soon", "1 month", "999999999w"])
    def test_what_is_no_span_is_refused(self, text: str) -> None:
        with pytest.raises(ArgumentTypeError):
            parse_span(text)

    def test_a_number_has_the_unit_of_its_option(self) -> None:
        parse = build_parser().parse_args
        for text, days in (("14", 14.0), ("2 weeks", 14.0), ("36h", 1.5)):
            assert parse(["recall", "x", "--recency", "1", "--half-life", text]).half_life == days
            assert parse(["keys", "add", "--expires-days", text]).expires_days == days
        assert parse(["remember", "x", "--wait", "2m"]).wait == 120
        assert parse(["remember", "x", "--wait"]).wait == 60


class TestCommands:
    @pytest.mark.parametrize(
        "argv",
        [
            *(
                ["recall", "x", f"--{name}"]
                for name in ("after", "before", "since", "until", "as-of")
            ),
            *(["list", f"--{name}"] for name in ("after", "before", "since", "until")),
            *(["forget", f"--{name}"] for name in ("after", "before")),
            ["ask", "x", "--as-of"],
            ["remember", "x", "--event-time"],
            ["edit", "x", "--event-time"],
            ["analyze", "x", "--occurred-at"],
            ["import", "x", "--since"],
        ],
        ids=" ".join,
    )
    def test_every_option_of_a_time_takes_every_form(self, argv: list[str]) -> None:
        for text in ("2026-05-04", "2026-05-04 14:00", "2026-05-04T14:00:00Z", "yesterday 9:00"):
            assert build_parser().parse_args([*argv, text])
        assert build_parser().parse_args([*argv, "3 days ago"])

    @pytest.mark.parametrize(
        "argv",
        [
            *(["remember", "x", "--expires-at"], ["edit", "x", "--expires-at"]),
            *(["keys", "add", "--expires"], ["agents", "provision", "x", "--expires"]),
            ["agents", "rotate", "x", "--expires"],
        ],
        ids=" ".join,
    )
    def test_an_expiry_is_to_come(
        self, argv: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for text in ("2126-05-04", "2126-05-04T14:00:00Z", "tomorrow 9:00", "in 2 weeks", "30d"):
            assert build_parser().parse_args([*argv, text])
        for text in ("yesterday", "2020-05-04T14:00:00Z", "2 weeks ago"):
            with pytest.raises(SystemExit) as done:
                main([*argv, text], {})
            assert done.value.code == EXIT_USAGE
            assert " is past; write 2026-12-31, " in capsys.readouterr().err

    def test_people_are_told_how_a_time_was_read(
        self, run: Machine, eight_hours_west: None
    ) -> None:
        run.lines("remember", "The fair is over.", "--event-time", "2026-05-04 14:00")
        told = "--event-time 2026-05-04 14:00 is 2026-05-04 14:00 -08:00 (PST)."
        assert run.err == f"memrelay: {told}\n"
        [stored] = run("list", "--since", "2026-05-04", "--until", "2026-05-05")["memories"]
        assert stored["event_time"] == "2026-05-04T22:00:00.000Z"
        assert run.err == ""
        run.lines("list", "--since", "2026-05-04T22:00:00Z")
        assert run.err == ""
        assert run("list", "--since", "2026-05-04T22:00:01Z")["memories"] == []

    def test_an_expiry_is_kept_as_it_was_told(self, run: Machine) -> None:
        memory_id = run.remember("The ticket is valid.", "--expires-at", "2126-12-31 12:00 UTC")
        assert run("get", memory_id)["expires_at"] == "2126-12-31T12:00:00.000Z"
        assert run("recall", "ticket", "--as-of", "1h")["results"] == []
        assert (
            main(["recall", "ticket", "--as-of", "now", "--profile", str(run.profile)]) == EXIT_OK
        )
