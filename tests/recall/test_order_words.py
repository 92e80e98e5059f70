"""Whether a query asks for the first or the latest of several."""

import pytest

from relayer.query.order import order_asked


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
