"""Days that a text mentions, counted from its moment, meet those that a question names."""

from datetime import UTC, datetime

import pytest

from relayer.query.periods import TERMS_MAX, mention_terms, moment_of_saying, periods, span_terms

SAID = datetime(2023, 12, 5, 14, tzinfo=UTC)  # a Tuesday
ASKED = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("I went there yesterday.", "What happened on 4 December?"),
        ("We met last Friday at the lake.", "Whom did I meet on 1 December 2023?"),
        ("I moved. It was two weeks ago. I like it.", "What was on 21 November?"),
        ("Gestern war ich im Kino.", "Was war am 4. Dezember?"),
        ("Hier j'étais chez le dentiste.", "Qu'est-ce qui s'est passé le 4 décembre ?"),
        ("Ayer fui al médico.", "¿Qué pasó el 4 de diciembre?"),
        ("昨天我去了医院。", "2023年12月4日发生了什么"),
        ("昨日、歯医者に行きました。", "2023年12月4日に何がありましたか"),
        ("We go camping next month.", "What is planned for January 2024?"),
        ("I went there yesterday.", "What happened in December?"),
        ("I went there yesterday.", "What happened in 2023?"),
    ],
)
def test_a_question_meets_a_relative_day(text: str, question: str) -> None:
    asked = span_terms(periods(question, ASKED))
    assert set(asked) & set(mention_terms(text, SAID)), asked


def test_another_day_of_the_month_is_not_met() -> None:
    asked = span_terms(periods("What happened on 3 December?", ASKED))
    assert not set(asked) & set(mention_terms("I went there yesterday.", SAID))


def test_a_text_of_many_days_has_a_bounded_number_of_terms() -> None:
    text = "\n".join(f"Done on {day} May {year}." for year in range(1990, 2020) for day in (1, 9))
    assert len(mention_terms(text, SAID)) == TERMS_MAX


def test_days_count_from_when_a_text_was_said() -> None:
    """A fact that was dated by its own "yesterday" does not count a day twice."""
    day_before = datetime(2023, 12, 4, tzinfo=UTC)
    assert moment_of_saying(day_before, SAID, "I went there yesterday.") == SAID
    assert moment_of_saying(day_before, SAID, "I went there.") == day_before
    assert moment_of_saying(None, SAID, "I went there.") == SAID
