"""Lines that begin with who speaks, and lines that only look so."""

from datetime import UTC, datetime

import pytest

from relayer.extraction.labels import parse_labels
from relayer.extraction.message import Message

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)


def said(text: str) -> list[tuple[str, str, str]]:
    return [(m.role, m.speaker, m.text) for m in parse_labels(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USER: a\nASSISTANT: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("[user]: a\n<assistant>: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("**User**: a\n**Assistant**: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("Human: a\n\nAssistant: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("User:\na\n\nAssistant:\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("User: a\nAssistant:\n- b", [("user", "", "a"), ("assistant", "", "- b")]),
        ("### User:\na\n### Assistant:\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("## User\na\n## Assistant\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("**User**\na\n**Assistant**\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("[User]\na\n[Assistant]\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("You said:\na\nChatGPT said:\nb", [("user", "", "a"), ("assistant", "", "b")]),
        ("User (10:00): a\nAssistant (10:01): b", [("user", "", "a"), ("assistant", "", "b")]),
        ("用户：甲\n助手：乙", [("user", "", "甲"), ("assistant", "", "乙")]),
        ("Utilisateur : a\nAssistant : b", [("user", "", "a"), ("assistant", "", "b")]),
        ("उपयोगकर्ता: a\nसहायक: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("Uma  10:00 AM\na\nUgo  10:01 AM\nb", [("user", "Uma", "a"), ("user", "Ugo", "b")]),
        ("Uma, [20.11.2026 10:00]\na\nUgo, [20.11.2026 10:01]\nb",
         [("user", "Uma", "a"), ("user", "Ugo", "b")]),
        ("Uma — Today at 10:00 AM\na\nUgo — 11/20/2026 10:01 AM\nb",
         [("user", "Uma", "a"), ("user", "Ugo", "b")]),
    ],
)  # fmt: skip
def test_who_speaks(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    "stamp",
    [
        "[2026-11-20 10:00] {}: ",
        "[2026-11-20T10:00:00Z] {}: ",
        "2026-11-20 10:00:00 {}: ",
        "2026-11-20 10:00 - {}: ",
        "(2026-11-20 11:00 +01:00) {}: ",
        "20/11/2026, 10:00 - {}: ",
        "[20.11.26, 10:00:00] {}: ",
        "11/20/26, 10:00 AM - {}: ",
        "[Fri, 20 November 2026 10:00] **{}**: ",
        "Nov 20, 2026 10:00 | {}: ",
        "[2026-11-20 10:00] <{}> ",
        "[Fri 2026-11-20 10:00 UTC] {}: ",
        "{} (2026-11-20 10:00): ",
    ],
)
def test_a_time_stands_beside_who_speaks(stamp: str) -> None:
    for word, role, speaker in (("user", "user", ""), ("Uma", "user", "Uma")):
        text = f"{stamp.format(word)}a\n{stamp.format('assistant')}b\n{stamp.format(word)}c"
        expected = [(role, speaker, "a"), ("assistant", "", "b"), (role, speaker, "c")]
        assert said(text) == expected
        assert [message.said_at for message in parse_labels(text)] == [AT, AT, AT]


def test_a_line_may_stand_before_a_chat_with_times() -> None:
    assert said("Our chat:\n[10:00] user: a\n[10:01] Kit: b\n[10:02] Kit: c") == [
        ("unknown", "", "Our chat:"),
        ("user", "", "a"),
        ("user", "Kit", "b"),
        ("user", "Kit", "c"),
    ]
    pasted = "user: Our chat:\n[10:00] user: a\n[10:01] assistant: b"
    assert [message.role for message in parse_labels(pasted)] == ["user"]


def test_a_time_without_a_day_tells_no_moment() -> None:
    assert parse_labels("[10:00] user: a\n10:01 assistant: b") == [
        Message("user", "", "a"),
        Message("assistant", "", "b"),
    ]


@pytest.mark.parametrize("name", ["uma", "+49 151 2345678", "~ Uma K.", "Uma van der Berg"])
def test_names_in_a_chat_with_times_may_look_like_none(name: str) -> None:
    text = f"[10:00] {name}: a\n[10:01] Ugo: b\n[10:02] {name}: c"
    speaker = name.removeprefix("~ ")
    assert said(text) == [("user", speaker, "a"), ("user", "Ugo", "b"), ("user", speaker, "c")]


@pytest.mark.parametrize(
    "text",
    [
        # Dates with what they are about: no name comes again, and no role is among them.
        "[2026-12-03 14:00] Dentist: bring the card\n[2026-12-04 09:30] Car: inspection",
        "2026-12-03 14:00 dentist at Dr. Okoro",
        "10:00 we meet at the door: bring a light",
        # One side alone makes no chat.
        "## User\nI like tea.",
        "Tea  10:00 AM\nis served",
        "System:\n- Debian",
        "Bob (in Berlin): a",
    ],
)
def test_what_only_looks_like_a_label_is_text(text: str) -> None:
    assert said(text) == [("unknown", "", text)]


FIELDS = "Host: ares.example.org\nPort: 2222\nUser: deploy"


@pytest.mark.parametrize("label", ["user", "User", "Anna"])
@pytest.mark.parametrize(
    "fields",
    [FIELDS, "System: Debian 12\nRouter: MikroTik", "Model: R730\nOwner: Bob\nAgent: none"],
)
def test_fields_below_a_heading_are_no_messages(label: str, fields: str) -> None:
    text = f"{label}: Remember my box:\n{fields}\nAssistant: Noted."
    assert [m.text for m in parse_labels(text)] == [f"Remember my box:\n{fields}", "Noted."]
    alone = f"Remember my box:\n{fields}"
    assert said(alone) == [("unknown", "", alone)]


def test_roles_below_a_heading_are_messages() -> None:
    assert said("Our chat:\nUser: a\nAssistant: b\nUser: c") == [
        ("unknown", "", "Our chat:"),
        ("user", "", "a"),
        ("assistant", "", "b"),
        ("user", "", "c"),
    ]


def test_what_a_tool_returned_is_no_field_below_a_heading() -> None:
    text = "user: My box:\nHost: ares\ntool: I prefer rum."
    assert [m.role for m in parse_labels(text)] == ["user", "other"]


def test_a_line_without_a_time_is_no_label_among_lines_with_one() -> None:
    text = "[10:00] user: My box\nHost: ares\nUser: deploy\n[10:01] assistant: Noted."
    assert said(text) == [
        ("user", "", "My box\nHost: ares\nUser: deploy"),
        ("assistant", "", "Noted."),
    ]


def test_a_table_is_no_message() -> None:
    text = "| User: | Assistant: |\n|---|---|\n| a | b |"
    assert said(text) == [("unknown", "", text)]


@pytest.mark.parametrize("day", ["2026-13-01", "0001-01-01", "9999-12-31", "31.02.2026"])
def test_a_day_of_no_calendar_is_no_moment(day: str) -> None:
    (message,) = parse_labels(f"[{day} 10:00] user: a")
    assert message == Message("user", "", "a")
