"""The beginning of a text: when it was said and by whom, and where the text itself begins."""

from datetime import UTC, datetime

import pytest

from relayer.query.heading import Heading, read_heading, speaker_terms, terms_of_speaker

DAY = datetime(2023, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment", "speaker", "role", "rest"),
    [
        ("[8 May 2023] Anna: I went", DAY, "Anna", "", "I went"),
        ("[2023-05-08 10:30] user: hi", DAY.replace(hour=10, minute=30), "", "user", "hi"),
        (
            "2023-05-08 10:30 Anna Berg: yes",
            DAY.replace(hour=10, minute=30),
            "Anna Berg",
            "",
            "yes",
        ),
        ("(2023-05-08) we moved", DAY, "", "", "we moved"),
        ("[8. Mai 2023] Anna: ich war da", DAY, "Anna", "", "ich war da"),
        ("[8 mai 2023] Zoé: bonjour", DAY, "Zoé", "", "bonjour"),
        ("[8 de mayo de 2023] Ana: hola", DAY, "Ana", "", "hola"),
        ("[2023年5月8日] 田中：はい", DAY, "田中", "", "はい"),
        ("User: hello", None, "", "user", "hello"),
        ("Assistant: hello", None, "", "assistant", "hello"),
        ("Benutzer: hallo", None, "", "user", "hallo"),
        ("Anna (assistant): hey", None, "Anna", "assistant", "hey"),
        ("Postgres: use port 5433", None, "Postgres", "", "Postgres: use port 5433"),
    ],
)
def test_reads_when_and_by_whom(
    text: str, moment: datetime | None, speaker: str, role: str, rest: str
) -> None:
    heading = read_heading(text)
    assert (heading.moment, heading.speaker, heading.role) == (moment, speaker, role)
    assert text[heading.end :] == rest


@pytest.mark.parametrize(
    "text",
    [
        "4 July 2023 was the day we moved.",
        "Note: buy milk",
        "[todo] call Anna",
        "[8 May] call Anna",
        "[99 May 2023] call Anna",
        "I said: never again",
        "Anna:",
        "",
    ],
)
def test_other_beginnings_say_nothing(text: str) -> None:
    assert read_heading(text) == Heading()


def test_a_conversation_has_no_single_speaker() -> None:
    assert speaker_terms(read_heading("User: hi\nAssistant: hello"), {}) == []
    assert speaker_terms(read_heading("User: hi\nUser: again"), {}) == ["role:user"]


def test_metadata_says_it_in_place_of_the_text() -> None:
    assert speaker_terms(read_heading("Anna: hi"), {"speaker": "Ben Okri"}) == terms_of_speaker(
        "Ben Okri"
    )
    assert speaker_terms(read_heading("Anna: hi"), {"speaker": "assistant"}) == ["role:assistant"]


def test_an_endless_beginning_is_read_in_linear_time() -> None:
    for text in ("[" * 100_000, "a " * 100_000 + ":", "User: " + "A b c: \n" * 50_000):
        read_heading(text)
