"""The times of what is imported: at the beginning of headings and notes, and named by words."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from memrelay.importing.relative import resolve_day
from memrelay.importing.times import split_time
from tests.client.import_scene import drafts, write
from tests.optional import unwrap

FRIDAY = date(2026, 11, 20)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
CLOCKS = {
    "14:00 - call with Uma": ("14:00", "call with Uma"),
    "9:05 standup": ("09:05", "standup"),
    "2:30 PM": ("14:30", ""),
    "12:15 a.m. – rain": ("00:15", "rain"),
    "2pm tea": ("14:00", "tea"),
    "at 5pm: gym": ("17:00", "gym"),
    "Session 16:45": ("16:45", ""),
    "🕑 14:00 tea": ("14:00", "tea"),
    "[14:00] planning": ("14:00", "planning"),
    "14:00–15:30 call": ("14:00", "call"),
    "14h30 réunion": ("14:30", "réunion"),
    "14.30 Uhr Termin": ("14:30", "Termin"),
    "下午2点 会议": ("14:00", "会议"),
    "14時30分 会議": ("14:30", "会議"),
    "오후 2시 30분 회의": ("14:30", "회의"),
    "2026-11-20 14:00 — call": ("14:00", "call"),
    "Friday 2026-11-20": ("00:00", ""),
    "2026-11-20T09:10:11Z deploy": ("09:10", "deploy"),
    "Notes (2026-11-20)": ("00:00", "Notes"),
}


@pytest.mark.parametrize("heading", CLOCKS)
def test_a_time_at_the_beginning_of_a_heading_is_taken_off(heading):
    when, title = split_time(heading, MIDNIGHT, UTC)
    assert unwrap(when).date() == FRIDAY
    assert (f"{when:%H:%M}", title) == CLOCKS[heading]


@pytest.mark.parametrize(
    "heading",
    [
        "25:00 train",
        "3:1 ratio",
        "3.14 release",
        "5h workout",
        "10 servers",
        "9:99",
        "16:9 screens",
    ],
)
def test_other_figures_are_no_time(heading):
    assert split_time(heading, MIDNIGHT, UTC) == (MIDNIGHT, heading)


@pytest.mark.parametrize(
    ("heading", "hour"),
    [
        ("14:00 UTC sync", 14),
        ("14:00 +05:30 sync", 8),
        ("14:00 UTC+1 sync", 13),
        ("14:00 (GMT-10) sync", 0),
        ("14:00 (Europe/Berlin) sync", 13),
        ("14:00 (Nowhere/Atlantis) sync", 14),
    ],
)
def test_a_time_has_the_zone_that_stands_behind_it(heading, hour):
    when, title = split_time(heading, MIDNIGHT, UTC)
    assert (unwrap(when).astimezone(UTC).hour, title) == (hour, "sync")


def test_without_a_day_a_time_stays_in_its_heading():
    assert split_time("14:00 - call", None, UTC) == (None, "14:00 - call")


def test_times_of_a_daily_note_count_for_what_follows(tmp_path):
    text = (
        "# 2026-11-20\n\n## 14:00 - call with Uma\n- the crown comes on Monday\n\n"
        "## 9:05 standup\n- the build is slow today\n\n"
        "- 18:10 fed the cat at last\n- **19:20** — locked the shed\n- no time at all here\n"
    )
    zone = timezone(timedelta(hours=2))
    path = write(tmp_path / "memory/2026-11-20.md", text)
    found = [(f"{one.event_time:%H:%M}", one.tags) for one in drafts(path, zone=zone)]
    assert found == [
        ("14:00", ("call with Uma",)),
        ("09:05", ("standup",)),
        ("18:10", ("standup",)),
        ("19:20", ("standup",)),
        ("09:05", ("standup",)),
    ]


NAMED = {
    "Dentist next Friday": "2026-11-27",
    "last Friday it rained": "2026-11-13",
    "this Friday we ship": "2026-11-20",
    "We moved two weeks ago": "2026-11-06",
    "a couple of weeks ago": "2026-11-06",
    "the day before yesterday": "2026-11-18",
    "Gestern war Uma da": "2026-11-19",
    "Wir treffen uns morgen": "2026-11-21",
    "vor drei Wochen umgezogen": "2026-10-30",
    "Freitag nächster Woche": "2026-11-27",
    "Hier soir, on a mangé dehors": "2026-11-19",
    "il y a deux mois": "2026-09-20",
    "vendredi prochain": "2026-11-27",
    "Ayer fui al médico": "2026-11-19",
    "el viernes que viene": "2026-11-27",
    "hace 3 años": "2023-11-20",
    "Mañana viajo a Oporto": "2026-11-21",
    "due settimane fa": "2026-11-06",
    "há dois dias": "2026-11-18",
    "próxima segunda-feira": "2026-11-23",
    "две недели назад": "2026-11-06",
    "wczoraj": "2026-11-19",
    "dün geldi": "2026-11-19",
    "iki hafta önce": "2026-11-06",
    "hôm qua tôi đi": "2026-11-19",
    "เมื่อวานนี้ไปหาหมอ": "2026-11-19",
    "昨天去了上海": "2026-11-19",
    "下周五开会": "2026-11-27",
    "两个月后": "2027-01-20",
    "来週の金曜日": "2026-11-27",
    "10日前に着いた": "2026-11-10",
    "어제 만났다": "2026-11-19",
    "다음 주 월요일": "2026-11-23",
}


@pytest.mark.parametrize("text", NAMED)
def test_words_name_a_day_seen_from_the_day_of_the_note(text):
    assert resolve_day(text, FRIDAY) == date.fromisoformat(NAMED[text])


@pytest.mark.parametrize(
    "text",
    [
        "no day at all",
        "yesterday and tomorrow",
        "We built it in two weeks",
        "last week was long",
        "Guten Morgen zusammen",
        "Hier habe ich nichts",
        "corre por la mañana",
        "10日前完成",
        "9999 years ago",
        "yesterday " + "and on " * 1000,
    ],
)
def test_what_names_no_one_day_is_left_alone(text):
    assert resolve_day(text, FRIDAY) is None


@pytest.mark.parametrize("text", ["yesterday " * 400, "9" * 4000, "la " * 1300, "昨天" * 2000])
def test_long_notes_take_linear_work(text):
    assert resolve_day(text, FRIDAY) in {None, FRIDAY - timedelta(days=1)}


def test_a_named_day_is_the_event_of_a_dated_note_alone(tmp_path):
    text = "- Uma called yesterday about the crown\n- She calls about the crown again\n"
    note_time = drafts(write(tmp_path / "memory/2026-11-20.md", text))
    days = [f"{one.event_time:%Y-%m-%d}" for one in note_time]
    assert days == ["2026-11-19", "2026-11-20"]
    assert {one.event_time for one in drafts(write(tmp_path / "MEMORY.md", text))} == {None}
