"""Splitting conversations into messages and sentences."""

import pytest

from relayer.extraction.conversation import Message, heard, messages, own_words, sentences
from tests.extraction.ruled import texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. a b\n\n2. c", [("unknown", "", "a b"), ("unknown", "", "c")]),
        ("1. user: a\n\n2. assistant: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("User: a\nAssistant: b\nc", [("user", "", "a"), ("assistant", "", "b\nc")]),
        ("1. user: a\n\nb\n\n2. c", [("user", "", "a\n\nb"), ("user", "", "c")]),
        ("Maya: a", [("user", "Maya", "a")]),
        ("Maya (assistant): a", [("assistant", "Maya", "a")]),
        ("Anna: a\nBob: b\nNote: c", [("user", "Anna", "a"), ("user", "Bob", "b\nNote: c")]),
        ("a\nBob: b", [("unknown", "", "a\nBob: b")]),
        ("1. tool: a\nuser: b", [("other", "", "a\nuser: b")]),
        ("1. Anna: a\nBob: b", [("user", "Anna", "a\nBob: b")]),
        ("Benutzer: a\nAssistent: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("**User:** a", [("user", "", "a")]),
        ("Tool Result: a\nTOOL RESULT: b", [("other", "", "a"), ("other", "", "b")]),
        ("1. System Message: a\n\n2. user: b", [("other", "", "a"), ("user", "", "b")]),
        ("Tool Usage: a\nTool_Trace: b", [("other", "", "a"), ("other", "", "b")]),
        ("Assistant Reply: a\nUser Message: b", [("assistant", "", "a"), ("user", "", "b")]),
        ("1. user: a\n\n2. AI Assistant: b", [("user", "", "a"), ("assistant", "", "b")]),
        ("1. AI Helper: a", [("unknown", "", "AI Helper: a")]),
        ("Agent Notes: a\nAnna: b", [("assistant", "", "a"), ("user", "Anna", "b")]),
        ("Ai Weiwei: a\nKi Sung (user): b", [("user", "Ai Weiwei", "a"), ("user", "Ki Sung", "b")]),
        ("Tool Result (user): a", [("user", "", "a")]),
        ("Web Search: a", [("unknown", "", "Web Search: a")]),
        (
            "1. tool: a\n\n2. Search Results: b",
            [("other", "", "a"), ("other", "", "Search Results: b")],
        ),
        ("user: a\nSystem requirements: b", [("user", "", "a\nSystem requirements: b")]),
        ("1. a\r\n\r\n2. b", [("unknown", "", "a"), ("unknown", "", "b")]),
        # No labels, no numbers of the format:
        ("Deadline: 3 May", [("unknown", "", "Deadline: 3 May")]),
        ("see: this", [("unknown", "", "see: this")]),
        ("https://example.org", [("unknown", "", "https://example.org")]),
        ("we need\n\n2. b", [("unknown", "", "we need\n\n2. b")]),
        ("intro\n\n1. a\n\n2. b", [("unknown", "", "intro\n\n1. a\n\n2. b")]),
        ("1. a\n\n5. b", [("unknown", "", "a\n\n5. b")]),
        ("", []),
        (" \n\n ", []),
        ("1. \n\n2. b", [("unknown", "", "b")]),
    ],
)
def test_messages(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [(m.role, m.speaker, m.text) for m in messages(text)] == expected


def test_the_roles_of_a_long_conversation_are_known_to_its_end() -> None:
    """Not to message 999: what a tool returned after it was the user's."""
    said = [f"{n}. {'tool' if n % 2 else 'user'}: message {n}" for n in range(1, 1203)]
    found = messages("\n\n".join(said))
    assert [message.role for message in found] == ["other", "user"] * 601
    assert [message.text for message in heard("\n\n".join(said))][-1] == "message 1202"


@pytest.mark.parametrize("role", ["user: ", ""])
def test_a_block_that_crosses_message_1000_does_not_take_it_along(role: str) -> None:
    said = [f"{n}. {role}{n}" for n in range(1, 999)]
    said += [f"999. {role}<memories>", f"1000. {role}I prefer tea.", f"1001. {role}</memories>"]
    assert "I prefer tea." in [message.text for message in heard("\n\n".join(said))]


def test_message_keeps_its_own_numbered_list() -> None:
    text = "1. first\n1. x\n2. y\n\n2. second"
    assert messages(text) == [
        Message("unknown", "", "first\n1. x\n2. y"),
        Message("unknown", "", "second"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "1. user: <x-memories>\n\n2. user: I prefer tea.\n\n3. user: </x-memories>",
        "1. <x-memories>\n\n2. I prefer tea.\n\n3. </x-memories>",
        "user: <x-memories>\nassistant: ok\nuser: I prefer tea.\nuser: </x-memories>",
    ],
)
async def test_a_block_that_crosses_messages_takes_none_along(text: str) -> None:
    assert await texts(text) == ["I prefer tea."]


@pytest.mark.parametrize(
    "text",
    [
        "See these:\nREADME.md\nI prefer tea.",
        "README.md\nI prefer tea.",
        "I read this:\n# AGENTS.md\nI prefer tea.",
    ],
)
async def test_naming_a_file_cuts_nothing_off(text: str) -> None:
    assert "I prefer tea." in await texts(f"1. ok\n\n2. {text}")


@pytest.mark.parametrize("line", ["# SOUL.md", "## ~/kit/AGENTS.md", "File: /a/b/TOOLS.md:"])
async def test_a_file_that_an_agent_is_started_with_is_not_heard(line: str) -> None:
    assert heard(f"1. {line}\nI prefer tea.\n\n2. user: hi") == [Message("user", "", "hi")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It is v3.2.1. Good.", ["It is v3.2.1.", "Good."]),
        ("See relayer/app.py. Then go.", ["See relayer/app.py.", "Then go."]),
        ("We meet at 5 p.m. tomorrow.", ["We meet at 5 p.m. tomorrow."]),
        ("Dr. Smith knows, e.g. this. Yes.", ["Dr. Smith knows, e.g. this.", "Yes."]),
        ("See no. 5 and fig. 3 first.", ["See no. 5 and fig. 3 first."]),
        ("I said no. Then we left.", ["I said no.", "Then we left."]),
        ("Am 3. Mai, z. B. um 9.30 Uhr. Gut.", ["Am 3. Mai, z. B. um 9.30 Uhr.", "Gut."]),
        ("Das dauert ca. 4 Jahre. Ende.", ["Das dauert ca. 4 Jahre.", "Ende."]),
        ("私は緑茶が好きです。東京です！", ["私は緑茶が好きです。", "東京です！"]),
        ("- one\n- two\n3) three", ["one", "two", "three"]),
        ("a line that is\nwrapped here", ["a line that is wrapped here"]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("So... we wait", ["So...", "we wait"]),
        ("price is 1.5 euros", ["price is 1.5 euros"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "```\nI prefer tabs.\n```",
        "```\nI prefer tabs.",
        "~~~python\nI prefer tabs.\n~~~",
        "> I prefer tabs.",
        "<memwal-memories>I prefer tabs.</memwal-memories>",
        "<a><b>I prefer</a> tabs.</b>",
        "$ echo I prefer tabs.",
        "2026-03-01 10:00:00 I prefer tabs.",
        "ERROR I prefer tabs.",
        '{"text": "I prefer tabs."}',
        'Tool result (look_up): {"text": "I prefer tabs."}',
    ],
)
def test_material_of_others_is_cut_out(text: str) -> None:
    assert "tabs" not in own_words(text)


@pytest.mark.parametrize(
    "text", ["use List<String> for it", "a < b and b > c", "<name> is required", "I prefer `tabs`"]
)
def test_lone_angle_brackets_stay(text: str) -> None:
    assert own_words(text) == text


def test_inline_tags_keep_their_content() -> None:
    text = 'We use <b>Redis <i class="x">7</i></b> and <code>pg</code>.<div>I prefer tabs.</div>'
    assert own_words(text).split("\n") == ["We use Redis 7 and pg.", ""]
