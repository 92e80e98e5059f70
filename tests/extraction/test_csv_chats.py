"""Conversations in tables of separated values."""

import pytest

from relayer.extraction.csv_chats import csv_messages
from relayer.extraction.transcripts import transcript_problem
from tests.extraction.ruled import texts

PORTO = "I live in Porto, near the river."
SAID = [("user", "", PORTO), ("assistant", "", "Noted.")]


def said(text: str) -> list[tuple[str, str, str]] | None:
    found = csv_messages(text)
    return None if found is None else [(one.role, one.speaker, one.text) for one in found]


@pytest.mark.parametrize(
    "text",
    [
        f'role,content\nuser,"{PORTO}"\nassistant,Noted.\n',
        f"role,content\nuser,{PORTO}\nassistant,Noted.\n",
        f"Role;Message\nuser;{PORTO}\nassistant;Noted.",
        f"sender\ttext\nhuman\t{PORTO}\nAI\tNoted.\n",
        f'"id","author","body"\n"1","user","{PORTO}"\n"2","assistant","Noted."\n',
        f"from | said\nuser | {PORTO}\nbot | Noted.\n",
        f"user,{PORTO}\nassistant,Noted.",
        f'content,role\n"{PORTO}",user\n\nNoted.,assistant\n',
    ],
)
async def test_roles_and_texts(text: str) -> None:
    assert said(text) == SAID
    assert await texts(text) == [PORTO]
    assert await texts(text.replace("\n", "\r\n")) == [PORTO]
    assert transcript_problem(text) is None


def test_people_and_times() -> None:
    text = 'Time,Speaker,Utterance\n2026-01-02 10:00,Anna,"I live\nin ""Porto""."\n,Bo,Me too.\n'
    found = csv_messages(text)
    assert found is not None
    assert [(one.role, one.speaker, one.text) for one in found] == [
        ("user", "Anna", 'I live\nin "Porto".'),
        ("user", "Bo", "Me too."),
    ]
    assert [one.said_at and one.said_at.isoformat() for one in found] == [
        "2026-01-02T10:00:00+00:00",
        None,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "role,content\nuser\n",
        'role,content\nuser,"I live in Porto.\n',
        'role,content\nuser,"I live" in Porto.\n',
        "role,content\n",
        "role,content\n\n\n",
    ],
)
def test_a_table_that_cannot_be_read_is_told(text: str) -> None:
    assert csv_messages(text) is None
    assert "table of messages" in (transcript_problem(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "name,city\nAnna,Porto\n",
        "Shopping, tea\nmilk, eggs\n",
        "I told the user, and the text, of it.",
        "user, who is that\nme, of course, and you too\nAnna, too",
        "user,alone",
        "x" * 2000 + ",role,content",
        "",
    ],
)
def test_other_texts_are_no_tables_of_messages(text: str) -> None:
    assert csv_messages(text) is None
    assert transcript_problem(text) is None
