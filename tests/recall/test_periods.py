"""The spans of time that a question names."""

import random
import sys
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from relayer.query.period_words import _ANY_PHRASE, _PHRASES, _plain, tokens
from relayer.query.periods import _FORMS, _NAMING, _Item, _replace, periods

WEDNESDAY = datetime(2024, 5, 15, 10, tzinfo=UTC)


def spans(text: str, now: datetime = WEDNESDAY) -> str:
    """The periods of a text as `first/last` day or one day; `…` is the beginning of time."""
    found = []
    for start, end in periods(text, now):
        assert start.tzinfo is end.tzinfo is UTC
        assert start.time() == end.time() == datetime.min.time()
        first, last = start.date(), end.date() - timedelta(days=1)
        begin = "…" if first == date.min else str(first)
        found.append(begin if first == last else f"{begin}/{last}")
    return " ".join(found)


ENGLISH = [
    ("What did I do yesterday?", "2024-05-14"),
    ("the day before yesterday", "2024-05-13"),
    ("today's meeting", "2024-05-15"),
    ("this morning", "2024-05-15"),
    ("What did Anna say last night?", "2024-05-14"),
    ("the day after tomorrow", "2024-05-17"),
    ("last week", "2024-05-06/2024-05-12"),
    ("this week", "2024-05-13/2024-05-19"),
    ("this month", "2024-05-01/2024-05-31"),
    ("next month", "2024-06-01/2024-06-30"),
    ("last quarter", "2024-01-01/2024-03-31"),
    ("last year", "2023-01-01/2023-12-31"),
    ("last weekend", "2024-05-11/2024-05-12"),
    ("over the weekend", "2024-05-11/2024-05-12 2024-05-18/2024-05-19"),
    ("two weeks ago", "2024-04-29/2024-05-05"),
    ("3 days ago", "2024-05-12"),
    ("a year ago", "2023-01-01/2023-12-31"),
    ("in the last two weeks", "2024-05-01/2024-05-15"),
    ("in May", "2024-05-01/2024-05-31"),
    ("in june?", "2023-06-01/2023-06-30"),
    ("in may?", "2024-05-01/2024-05-31"),
    ("next May", "2025-05-01/2025-05-31"),
    ("last May", "2023-05-01/2023-05-31"),
    ("last March", "2024-03-01/2024-03-31"),
    ("in May 2023", "2023-05-01/2023-05-31"),
    ("in mid-May 2023", "2023-05-01/2023-05-31"),
    ("in Dec. 2023", "2023-12-01/2023-12-31"),
    ("May last year", "2023-05-01/2023-05-31"),
    ("last year in May", "2023-05-01/2023-05-31"),
    ("last year in may", "2023-05-01/2023-05-31"),
    ("June and July 2022", "2023-06-01/2023-06-30 2022-07-01/2022-07-31"),
    ("in May and June", "2024-05-01/2024-05-31 2023-06-01/2023-06-30"),
    ("in May and June 2023", "2024-05-01/2024-05-31 2023-06-01/2023-06-30"),
    ("What happened May 8th?", "2024-05-08"),
    ("on the 8th of June", "2023-06-08"),
    ("what happened may 8th", "2024-05-08"),
    ("the 8th may", "2024-05-08"),
    ("on 8 may", "2024-05-08"),
    ("on may 8", "2024-05-08"),
    ("8 June", "2023-06-08"),
    ("8 May 2023", "2023-05-08"),
    ("on May 8, 2023", "2023-05-08"),
    ("on Monday, 8 May 2023", "2023-05-08"),
    ("on 2023-05-08", "2023-05-08"),
    ("at 2023-05-08T13:56:00Z", "2023-05-08"),
    ("on 25/05/2023 (or 05/25/2023)", "2023-05-25"),
    ("in 2022", "2022-01-01/2022-12-31"),
    ("the goals for 2022", "2022-01-01/2022-12-31"),
    ("in 2022 and 2023", "2022-01-01/2022-12-31 2023-01-01/2023-12-31"),
    ("summer 2022", "2022-06-01/2022-08-31"),
    ("the winter of 2022", "2022-12-01/2023-02-28"),
    ("last summer", "2023-06-01/2023-08-31"),
    ("next winter", "2024-12-01/2025-02-28"),
    ("Q3 2024", "2024-07-01/2024-09-30"),
    ("in Q3", "2023-07-01/2023-09-30"),
    ("the third quarter of 2023", "2023-07-01/2023-09-30"),
    ("since March", "2024-03-01/2024-05-15"),
    ("since yesterday", "2024-05-14/2024-05-15"),
    ("since Friday", "2024-05-10/2024-05-15"),
    ("after 8 May 2023", "2023-05-09/2024-05-15"),
    ("before June 2023", "…/2023-05-31"),
    ("until June 2023", "…/2023-06-30"),
    ("between May and July 2023", "2023-05-01/2023-07-31"),
    ("May – July 2023", "2023-05-01/2023-07-31"),
    ("from May 2023 to January", "2023-05-01/2024-01-31"),
    ("between November and February", "2023-11-01/2024-02-29"),
    ("between November and February 2023", "2022-11-01/2023-02-28"),
    ("from 3 to 8 May 2023", "2023-05-03/2023-05-08"),
    ("from 2021 to 2023", "2021-01-01/2023-12-31"),
    ("on Monday", "2024-05-13 2024-05-20"),
    ("on Wednesday", "2024-05-15 2024-05-22"),
    ("last Monday", "2024-05-13"),
    ("last Wednesday", "2024-05-08"),
    ("this Friday", "2024-05-17"),
    ("next Monday", "2024-05-20"),
    ("Monday last week", "2024-05-06"),
    ("last week Monday", "2024-05-06"),
    ("the weekend of 11 May 2023", "2023-05-13/2023-05-14"),
    ("the first weekend of October 2023", "2023-10-07/2023-10-08"),
    ("the last weekend of October 2023", "2023-10-28/2023-10-29"),
    ("the first week of August 2023", "2023-08-01/2023-08-07"),
    ("the last two weeks of August 2023", "2023-08-18/2023-08-31"),
    ("the week before August 3, 2023", "2023-07-24/2023-07-30"),
    ("two weeks before August 11, 2023", "2023-07-24/2023-07-30"),
    ("the Monday before July 24, 2023", "2023-07-17"),
    ("over the weekend before 4th October, 2023", "2023-09-30/2023-10-01"),
    ("the weekend after October 4, 2023", "2023-10-07/2023-10-08"),
]
GERMAN = [
    ("Was habe ich gestern Abend gesagt?", "2024-05-14"),
    ("vorgestern", "2024-05-13"),
    ("heute Morgen", "2024-05-15"),
    ("Was steht morgen an?", "2024-05-16"),
    ("letzte Nacht", "2024-05-14"),
    ("letzte Woche", "2024-05-06/2024-05-12"),
    ("im vergangenen Monat", "2024-04-01/2024-04-30"),
    ("dieses Jahr", "2024-01-01/2024-12-31"),
    ("vorletztes Jahr", "2022-01-01/2022-12-31"),
    ("letztes Jahr im Mai", "2023-05-01/2023-05-31"),
    ("Was habe ich am Wochenende gemacht?", "2024-05-11/2024-05-12 2024-05-18/2024-05-19"),
    ("vor zwei Wochen", "2024-04-29/2024-05-05"),
    ("vor einem Jahr", "2023-01-01/2023-12-31"),
    ("in den letzten drei Tagen", "2024-05-12/2024-05-15"),
    ("seit zwei Wochen", "2024-05-01/2024-05-15"),
    ("vor Juni 2023", "…/2023-05-31"),
    ("bis Juni 2023", "…/2023-06-30"),
    ("seit März", "2024-03-01/2024-05-15"),
    ("nach dem 8. Mai 2023", "2023-05-09/2024-05-15"),
    ("Ende März 2022", "2022-03-01/2022-03-31"),
    ("im Mai", "2024-05-01/2024-05-31"),
    ("am 8. Mai", "2024-05-08"),
    ("am Montag, den 8. Mai 2023", "2023-05-08"),
    ("Was war am 08.05.2023?", "2023-05-08"),
    ("am 8.5.2023.", "2023-05-08"),
    ("vom 3. bis 8. Mai 2023", "2023-05-03/2023-05-08"),
    ("zwischen Mai und Juli 2023", "2023-05-01/2023-07-31"),
    ("von Mai bis Juli 2023", "2023-05-01/2023-07-31"),
    ("im Jahr 2022", "2022-01-01/2022-12-31"),
    ("Was habe ich 2022 gemacht?", "2022-01-01/2022-12-31"),
    ("im Sommer 2022", "2022-06-01/2022-08-31"),
    ("im Winter 2022/23", "2022-12-01/2023-02-28"),
    ("im dritten Quartal 2023", "2023-07-01/2023-09-30"),
    ("in KW 19", "2024-05-06/2024-05-12"),
    ("KW 1 2025", "2024-12-30/2025-01-05"),
    ("letzten Montag", "2024-05-13"),
    ("zwei Wochen vor dem 11. August 2023", "2023-07-24/2023-07-30"),
]
FRENCH = [
    ("Qu'est-ce que j'ai dit hier ?", "2024-05-14"),
    ("aujourd’hui", "2024-05-15"),
    ("la semaine dernière", "2024-05-06/2024-05-12"),
    ("le mois prochain", "2024-06-01/2024-06-30"),
    ("ce mois-ci", "2024-05-01/2024-05-31"),
    ("l’an dernier", "2023-01-01/2023-12-31"),
    ("il y a deux semaines", "2024-04-29/2024-05-05"),
    ("en mars avec Anna", "2024-03-01/2024-03-31"),
    ("le 1er mai 2023", "2023-05-01"),
    ("en fevrier 2023", "2023-02-01/2023-02-28"),
    ("de mai à juillet 2023", "2023-05-01/2023-07-31"),
    ("mars dernier", "2024-03-01/2024-03-31"),
    ("au mois de mai", "2024-05-01/2024-05-31"),
    ("en mai de l'année dernière", "2023-05-01/2023-05-31"),
    ("les deux dernières semaines", "2024-05-01/2024-05-15"),
    ("l'été dernier", "2023-06-01/2023-08-31"),
    ("depuis mars", "2024-03-01/2024-05-15"),
]
SPANISH = [
    ("¿Qué dije ayer?", "2024-05-14"),
    ("mañana", "2024-05-16"),
    ("pasado mañana", "2024-05-17"),
    ("esta mañana", "2024-05-15"),
    ("la semana pasada", "2024-05-06/2024-05-12"),
    ("el mes que viene", "2024-06-01/2024-06-30"),
    ("el año pasado", "2023-01-01/2023-12-31"),
    ("hace dos semanas", "2024-04-29/2024-05-05"),
    ("el 8 de mayo de 2023", "2023-05-08"),
    ("antes de junio de 2023", "…/2023-05-31"),
    ("entre mayo y julio de 2023", "2023-05-01/2023-07-31"),
    ("el fin de semana pasado", "2024-05-11/2024-05-12"),
    ("el lunes pasado", "2024-05-13"),
]
CHINESE = [
    ("昨天我说了什么？", "2024-05-14"),
    ("前天", "2024-05-13"),
    ("明天", "2024-05-16"),
    ("上周", "2024-05-06/2024-05-12"),
    ("这个月", "2024-05-01/2024-05-31"),
    ("去年", "2023-01-01/2023-12-31"),
    ("前年", "2022-01-01/2022-12-31"),
    ("去年五月", "2023-05-01/2023-05-31"),
    ("安娜在2023年5月8日说了什么", "2023-05-08"),
    ("二〇二三年十一月二十一日", "2023-11-21"),
    ("五月八号", "2024-05-08"),
    ("2023年5月", "2023-05-01/2023-05-31"),
    ("三个月前", "2024-02-01/2024-02-29"),
    ("两周前", "2024-04-29/2024-05-05"),
    ("上周一", "2024-05-06"),
    ("周三", "2024-05-15 2024-05-22"),
    ("2023年夏天", "2023-06-01/2023-08-31"),
    ("2024年第三季度", "2024-07-01/2024-09-30"),
    ("2023年5月到7月", "2023-05-01/2023-07-31"),
    ("2023年5月以来", "2023-05-01/2024-05-15"),
    ("2023年5月之前", "…/2023-04-30"),
]
JAPANESE = [
    ("昨日何を話しましたか？", "2024-05-14"),
    ("先週", "2024-05-06/2024-05-12"),
    ("来月", "2024-06-01/2024-06-30"),
    ("昨年", "2023-01-01/2023-12-31"),
    ("一昨年", "2022-01-01/2022-12-31"),
    ("去年の5月", "2023-05-01/2023-05-31"),
    ("２０２３年５月８日", "2023-05-08"),
    ("2週間前", "2024-04-29/2024-05-05"),
    ("三か月前", "2024-02-01/2024-02-29"),
    ("3日前", "2024-05-12"),
    ("先週の月曜日", "2024-05-06"),
    ("2022年の夏", "2022-06-01/2022-08-31"),
    ("5月から7月まで", "2024-05-01/2024-07-31"),
    ("2023年5月まで", "…/2023-05-31"),
]


@pytest.mark.parametrize(
    ("text", "expected"), [*ENGLISH, *GERMAN, *FRENCH, *SPANISH, *CHINESE, *JAPANESE]
)
def test_a_named_time(text: str, expected: str) -> None:
    assert spans(text) == expected


MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre"
    " diciembre",
    "short": "jan feb mar apr may jun jul aug sep oct nov dec",
}
WEEKDAYS = {
    "last": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "letzten": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "dernier": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "pasado": "lunes martes miércoles jueves viernes sábado domingo",
}


@pytest.mark.parametrize("names", MONTHS.values(), ids=MONTHS)
def test_every_month(names: str) -> None:
    for number, name in enumerate(names.split(), start=1):
        for spelled in (name, name.lower()):
            assert spans(f"{spelled} 2023").startswith(f"2023-{number:02}-01/2023-{number:02}-"), (
                name
            )


@pytest.mark.parametrize(("last", "names"), WEEKDAYS.items(), ids=WEEKDAYS)
def test_every_weekday(last: str, names: str) -> None:
    for number, name in enumerate(names.split()):
        text = f"{last} {name}" if last in ("last", "letzten") else f"{name} {last}"
        monday = 13 if number < WEDNESDAY.weekday() else 6
        assert spans(text) == f"2024-05-{monday + number:02}", name


NAMELESS = """
    may I ask you something|May I ask you something?|He may have said it|what may happen
    this may be wrong|the next may fail|the past may haunt us|Why does log in may fail?
    it may 2 times|We may second the motion|room 8. May I go?|in the end may I
    June 8 people came|room 8. June left|the top 8 may join|June and April said|a letter from June
    March on!|They march in the street|march 8 kilometres|wait a second|at second base
    What did April say?|Does June like tea?|Jan is here|Theresa May spoke|Mayo Clinic in Mayo
    the fall of Rome|spring boot|Mars rover|the Sun|you wed her
    version 2.14.1|in 2.14.1|OPS-2023|ticket OPS-2023-05|on OPS-2023-05-08|v2023|in v2023
    src/2023/05/08.md|OpenClaw 2026.9.6|192.168.2023|id 20230508|https://x.org/2023/05/08|room 2022
    Windows 2000|port 2022|Raum 2022|2023|#2023|in #2023
    2023 euros|in 2023 euros|$2023|2023€|in 1999 items|1999 items|of 1999 items|after 2000 steps
    since 2000 people|von 2000 Metern|1,999|in 2023%|in 3023|in 1234
    in the morning|every morning|Monday|every Monday|on Mondays|half past ten|at 10:30
    over the weekend before the wedding
    last chance|this time|next step|the last one|these days|the year|a week|5 days|in 5 days
    for two weeks|before lunch|after the race|since then|until tomorrows|from A to B
    between you and me|from 3 to 8|May 2 be|08/05/2023|31 February 2023|2023-02-30|99.99.2023
    2023-13-01|May 45|32 May|9999-12-31|0000-00-00|KW 60|Q5 2024|Q3
    Guten Morgen|am Morgen|Morgen|Was ist hier passiert?|hier|letzte Chance|dieses Mal
    vor allem|vor dem Haus|im Sommer|bis dahin|montags
    por la mañana|dernière chance|mars la planète|esta casa
    以前天气|目前天气怎么样|一周一次|每周一|前端|上司|本来|月亮|来る|明るい|日本|先生|何年ですか|毎週月曜日
    何曜日にデプロイしますか?|黒曜石の指輪はどこ?|それは何曜?|荣曜
"""


@pytest.mark.parametrize(
    "text", [t.strip() for t in NAMELESS.replace("\n", "|").split("|") if t.strip()]
)
def test_what_names_no_time(text: str) -> None:
    assert spans(text) == ""


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        (datetime(2024, 1, 1, tzinfo=UTC), "last month", "2023-12-01/2023-12-31"),
        (datetime(2024, 1, 1, tzinfo=UTC), "yesterday", "2023-12-31"),
        (datetime(2024, 1, 10, tzinfo=UTC), "this winter", "2023-12-01/2024-02-29"),
        (datetime(2024, 1, 10, tzinfo=UTC), "in Q4", "2023-10-01/2023-12-31"),
        (datetime(2024, 3, 31, tzinfo=UTC), "one month ago", "2024-02-01/2024-02-29"),
        (datetime(2023, 6, 1, tzinfo=UTC), "on 29 February", "2020-02-29"),
        (datetime(2024, 2, 29, tzinfo=UTC), "a year ago", "2023-01-01/2023-12-31"),
        (datetime(2024, 5, 19, tzinfo=UTC), "last week", "2024-05-06/2024-05-12"),
        (datetime(2024, 5, 20, tzinfo=UTC), "last week", "2024-05-13/2024-05-19"),
        (datetime(2024, 5, 1, tzinfo=UTC), "in May", "2024-05-01/2024-05-31"),
        (datetime(2024, 4, 30, tzinfo=UTC), "in May", "2023-05-01/2023-05-31"),
        (datetime(2024, 12, 31, tzinfo=UTC), "in KW 1", "2024-12-30/2025-01-05"),
        # A day is one of UTC, whatever zone `now` is given in.
        (datetime(2024, 5, 15, 1, tzinfo=timezone(timedelta(hours=2))), "today", "2024-05-14"),
    ],
)
def test_the_day_of_the_question_counts(now: datetime, text: str, expected: str) -> None:
    assert spans(text, now) == expected


def test_times_that_lie_ahead_are_no_since() -> None:
    assert spans("since next May") == "2025-05-01/2025-05-31"


def test_at_most_four_in_the_order_of_the_text_and_each_once() -> None:
    assert spans("today, yesterday, today, in 2019, in 2020, in 2021") == (
        "2024-05-15 2024-05-14 2019-01-01/2019-12-31 2020-01-01/2020-12-31"
    )


def test_any_row_of_words_gives_ordered_spans() -> None:
    pieces = [text for text, _ in [*ENGLISH, *GERMAN, *FRENCH, *SPANISH, *CHINESE, *JAPANESE]]
    words = sorted({word for text in pieces for word in text.split()} | {"999", "0", "31", "2100"})
    chosen = random.Random(1)
    for _ in range(3000):
        text = " ".join(chosen.choices(words, k=8))
        found = periods(text, WEDNESDAY)
        assert len(found) <= 4, text
        assert all(start < end for start, end in found), text


HOSTILE = """
    May|in May|8 May 2023|1.1.|a|5|il y a|il y|一二三四|2023年|前|上|月曜|'|-|M.|bis|May &|﷽
    two weeks before|on Monday|between May and|L'|2023-|in der letzten|-ci|la manana
"""


@pytest.mark.parametrize("joint", [" ", ""])
@pytest.mark.parametrize("text", [t.strip() for t in HOSTILE.strip().replace("\n", "|").split("|")])
def test_hostile_texts_take_linear_work(text: str, joint: str) -> None:
    """Twice the text takes about twice the function calls; see also the test below."""
    half = joint.join([text] * 4096).encode()[: 8 * 2**10].decode(errors="ignore")
    assert _calls(half + joint + half) <= 2.1 * _calls(half) + 500


def _calls(text: str) -> int:
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        periods(text, WEDNESDAY)
    finally:
        sys.setprofile(before)
    return count


def test_no_form_repeats_a_word() -> None:
    """A form without a repetition looks at a bounded number of words from each of them."""
    for form, _ in _FORMS:
        assert not set("*+{") & set(form), form


def test_without_a_kind_that_names_a_time_no_form_makes_a_period() -> None:
    """So a question without such a word, as most are, need not be looked through for them."""
    others = sorted({kind for form, _ in _FORMS for kind in form} - _NAMING - set("P()[]?:|\\"))
    chosen = random.Random(7)
    for _ in range(3000):
        row = [_Item(chosen.choice(others), chosen.randrange(1, 32)) for _ in range(8)]
        for form, read in _FORMS:
            row = _replace(row, form, read, WEDNESDAY.date())
        assert not any(item.period for item in row), row


def test_no_phrase_is_passed_over() -> None:
    said = """il y a|fin de semana|pasado manana|esta manana|am Morgen|jeden morgen|guten Morgen
    schonen Morgen|la manana|las mananas|目前|heute Morgen|gestern morgen|ubermorgen Morgen
    que viene|antes del|después de|第3季度|第2四半期|前年"""
    phrases = [_plain(phrase) for phrase in said.replace("\n", "|").split("|")]
    for pattern, _ in _PHRASES:
        assert any(pattern.search(phrase) for phrase in phrases), pattern
    for phrase in phrases:
        assert _ANY_PHRASE.search(phrase), phrase


def test_a_run_between_blanks_is_one_word() -> None:
    assert [token.kind for token in tokens("x" * 16384)] == ["x"]
    assert [token.kind for token in tokens("5." * 8192)] == ["x", "."]


@pytest.mark.parametrize("year", [1, 2, 900, 9998, 9999])
@pytest.mark.parametrize(
    "text",
    [
        "999 years ago", "tea 999 years before the last 999 years", "in 999 years", "last century",
        "next week", "last week", "the weekend", "yesterday", "tomorrow", "last May", "next May",
    ],
)  # fmt: skip
def test_the_calendar_has_an_end(text: str, year: int) -> None:
    for month, day in ((1, 1), (12, 31)):
        for start, end in periods(text, datetime(year, month, day, tzinfo=UTC)):
            assert start < end
