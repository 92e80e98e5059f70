"""Queries for the first or the latest of several."""

import pytest

from relayer.query.order import event_asked, order_asked


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("When did I first go to the dentist?", "first"),
        ("What was the earliest offer?", "first"),
        ("When did Mia swim last?", "latest"),
        ("the most recent film we saw", "latest"),
        ("What is the newest complaint?", "latest"),
        ("Wann war ich zuletzt beim Zahnarzt?", "latest"),
        ("Wann war das erste Treffen?", "first"),
        ("C'était quand, la dernière fois ?", "latest"),
        ("¿Cuándo fue la primera vez?", "first"),
        ("上次看牙是什么时候？", "latest"),
        ("初めて会ったのはいつ？", "first"),
        ("What is her last name?", None),
        ("Where is the first aid kit?", None),
        ("How long did the meeting last?", None),
        ("Did the first or the last one win?", None),
        ("Where do I live?", None),
        ("", None),
    ],
)
def test_words_that_ask_for_an_order(text: str, order: str | None) -> None:
    assert order_asked(text) == order


@pytest.mark.parametrize(
    ("text", "event", "before"),
    [
        ("Where did I shop before the move?", "the move", True),
        ("what did we decide after we moved to Lyon, about the car", "we moved to Lyon", False),
        ("Was aß ich vor dem Umzug?", "dem Umzug", True),
        ("Qu'ai-je mangé après le mariage ?", "le mariage", False),
        ("¿Qué dije antes de la boda?", "la boda", True),
        ("What should I check before running it?", None, False),
        ("Who was named after her?", None, False),
        ("What comes after lunch?", None, False),
    ],
)
def test_events_that_a_query_counts_from(text: str, event: str | None, before: bool) -> None:
    found = event_asked(text)
    assert found == (None if event is None else (event, before))
