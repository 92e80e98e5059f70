"""Conversations of other programs: what of their files is heard, in which parts, and when."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from memrelay.importing.conversations import (
    MESSAGE_BYTES_MAX,
    MESSAGES_MAX,
    MESSAGES_MIN,
    Conversation,
    Utterance,
    parts,
)
from memrelay.importing.drafts import DOCUMENT, PRIVATE
from memrelay.importing.formats import format_of, read
from memrelay.importing.sources import File
from tests.client.conversations_scene import (
    BEGUN,
    CHAT,
    CHAT_SAID,
    CLAUDE_CHAT,
    CLAUDE_CODE,
    CODEX,
    GEMINI_CLI,
    GEMINI_HISTORY,
    GEMINI_JSON,
    SESSION,
    altered,
    chat,
    chatgpt,
    claude,
    gemini_page,
    lines,
    node,
    queued,
    said,
    zipped,
)
from tests.client.import_scene import write
from tests.optional import unwrap

NOON = datetime(2025, 11, 20, 12, tzinfo=UTC)

# ChatGPT


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_chatgpt_export_the_branch_that_was_kept_is_heard(tmp_path, packed):
    folder = chatgpt(tmp_path / "export")
    path = zipped(tmp_path / "export.zip", folder) if packed else folder
    (part,), _, reading = queued(path)
    assert part.text == CHAT_SAID
    assert (part.conversation, part.messages) == ("c-1", 5)
    assert part.time == datetime.fromtimestamp(BEGUN + 60, UTC)
    assert [tally.format for tally in reading.tallies] == ["chatgpt"]


def test_an_export_in_several_files_is_read_whole(tmp_path):
    write(tmp_path / "conversations-000.json", [CHAT])
    write(tmp_path / "conversations-001.json", [{**CHAT, "conversation_id": "c-2"}])
    assert [part.conversation for part in queued(tmp_path)[0]] == ["c-1", "c-2"]


def test_without_a_current_node_the_newest_branch_counts(tmp_path):
    nodes = [
        node("root", None),
        node("old", "root", "user", text="OLD", create_time=BEGUN),
        node("new", "root", "user", text="I moved to Faro.", create_time=BEGUN + 1),
    ]
    path = write(tmp_path / "conversations.json", [chat("c", "gone", nodes)])
    assert said(path) == ["1. user: I moved to Faro."]


def test_what_was_marked_not_to_be_remembered_is_not(tmp_path):
    nodes = [node("root", None), node("a", "root", "user", text="SECRET")]
    private = chat("c", "a", nodes, is_do_not_remember=True)
    parts, _, reading = queued(write(tmp_path / "conversations.json", [private]))
    assert parts == []
    assert reading.tallies[0].omitted == {PRIVATE: 1}


HOSTILE_CHATS = [
    5,
    {"mapping": 5},
    {"mapping": {}},
    {"mapping": {"a": 5}, "current_node": "a"},
    {"mapping": {"a": {"parent": "a", "message": None}}, "current_node": "a"},
    {"mapping": {"a": {"parent": ["b"], "message": 5}}, "current_node": "a"},
    chat("c", "a", [node("a", None, "user", text=5)]),
    chat("c", "a", [node("a", None, "user", content={"content_type": "text", "parts": 5})]),
    chat("c", "a", [node("a", None, "user", content=5)]),
    chat("c", "a", [node("a", None, "user", text="x", metadata=5, create_time="soon")]),
    chat("c", "a", [node("a", None, "user", text="\ud83d half")], create_time=1e300),
    chat("c", "", [node("a", None, "user", text="x", create_time=10**400)]),
    chat("c", "", [node("a", None, "user", text="x", create_time=float("nan"))]),
]


def test_a_bad_conversation_does_not_stop_the_rest(tmp_path):
    values = [*HOSTILE_CHATS, CHAT]
    path = write(tmp_path / "conversations.json", json.dumps(values))
    assert CHAT_SAID in said(path, format="chatgpt")


# Claude


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_claude_export_conversations_memories_and_projects_are_read(tmp_path, packed):
    folder = claude(tmp_path / "export")
    path = zipped(tmp_path / "export.zip", folder) if packed else folder
    parts, texts, reading = queued(path)
    assert [part.text for part in parts] == [
        "1. user: I eat no gluten.\n\n2. assistant: No gluten, then.",
        "1. user: We deploy on Fridays.",
    ]
    assert [unwrap(part.time).day for part in parts] == [20, 21]
    assert texts == [
        "Ines leads the kiln team.",
        "Personal: Allergic to latex.",
        "Glaze nine is the house glaze.",
        "Project Kiln: Firmware of the kiln",
        "In Kiln: Answer with code first.",
    ]
    assert [tally.omitted for tally in reading.tallies][-1] == {DOCUMENT: 1}


def test_of_branches_the_one_to_the_current_leaf_counts(tmp_path):
    messages = [
        {"uuid": "1", "sender": "human", "text": "I live in Faro.", "parent_message_uuid": "0"},
        {"uuid": "2", "sender": "assistant", "text": "LEFT", "parent_message_uuid": "1"},
        {"uuid": "3", "sender": "assistant", "text": "Kept.", "parent_message_uuid": "1"},
    ]
    value = {"uuid": "k", "chat_messages": messages, "current_leaf_message_uuid": "3"}
    path = write(tmp_path / "conversations" / "k.json", value)
    assert said(path) == ["1. user: I live in Faro.\n\n2. assistant: Kept."]


# Gemini


def test_activity_as_json_is_put_back_into_conversations(tmp_path):
    path = write(tmp_path / "Takeout/My Activity/Gemini Apps/MyActivity.json", GEMINI_JSON)
    assert said(path) == [
        "1. user: 포르투에 살아요\n\n2. assistant: 반가워요",
        "1. user: My brother works in Faro.\n\n2. assistant: Faro is lovely.\n\n"
        "3. user: and which train goes there?\n\n"
        "4. assistant: The Alfa goes there.\n\N{NO-BREAK SPACE} At ten",
    ]


WRITTEN = {
    "Nov 20, 2025, 2:30:05\u202fPM CET": "2025-11-20T13:30:05+00:00",
    "20.11.2025, 14:30:05 MEZ": "2025-11-20T13:30:05+00:00",
    "20 nov. 2025, 14:30:05 UTC": "2025-11-20T14:30:05+00:00",
    "20 de nov. de 2025, 14:30:05 BRT": "2025-11-20T17:30:05+00:00",
    "2025/11/20 14:30:05 JST": "2025-11-20T05:30:05+00:00",
    "2025年11月20日 14:30:05 GMT+08:00": "2025-11-20T06:30:05+00:00",
    "2025. 11. 20. 오후 2:30:05 KST": "2025-11-20T05:30:05+00:00",
    "20 Kas 2025 14:30:05 GMT+3": "2025-11-20T11:30:05+00:00",
    "Nov 20, 2025, 12:30:05 AM XYZ": "2025-11-20T00:30:05+00:00",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_activity_as_html_is_dated_in_any_language(tmp_path, written):
    asked = "Prompted&nbsp;My mother Rosa<br>turns 70."
    cell = f"{asked}<br>{written}<br><p>Happy <b>birthday</b>!</p>"
    page = gemini_page(cell, f"Gave feedback: GOOD<br>{written}<br>", "no time at all")
    (part,), _, _ = queued(write(tmp_path / "MyActivity.html", page))
    assert part.text == (
        "1. user: My mother Rosa\n\N{NO-BREAK SPACE} turns 70.\n\n2. assistant: Happy birthday!"
    )
    assert unwrap(part.time).astimezone(UTC).isoformat() == WRITTEN[written]


def test_a_history_of_gemini_is_read_without_what_was_deleted(tmp_path):
    path = write(tmp_path / "Takeout/Gemini/conversation_1.txt", GEMINI_HISTORY)
    assert said(path) == ["1. user: I play the cello.\n\n2. assistant: Lovely."]


def test_of_a_takeout_archive_only_gemini_is_read(tmp_path):
    folder = tmp_path / "all"
    write(folder / "Takeout/My Activity/Gemini Apps/MyActivity.json", GEMINI_JSON)
    write(folder / "Takeout/archive_browser.html", "<html><body>Your archive</body></html>")
    write(folder / "Takeout/Drive/notes.json", {"a": 1})
    parts, _, reading = queued(zipped(tmp_path / "takeout.zip", folder))
    assert len(parts) == 2
    assert len(reading.tallies) == 1


# Coding agents


def test_of_a_session_of_claude_code_only_people_and_last_answers_are_heard(tmp_path):
    home = tmp_path / ".claude"
    project = home / "projects/-home-ines-kiln"
    write(project / f"{SESSION}.jsonl", CLAUDE_CODE + '{"type":"assistant","half a line')
    sidechain = {"type": "user", "isSidechain": True, "sessionId": SESSION, "message": {}}
    write(project / SESSION / "subagents/agent-1.jsonl", lines(sidechain))
    write(project / SESSION / "tool-results/a.txt", "RESULT")
    write(project / "memory/MEMORY.md", "# Index\n\n- [Deploys](deploys.md)\n")
    fact = "---\nname: deploys\ndescription: when\n---\n\nKiln deploys on Fridays.\n"
    write(project / "memory/deploys.md", fact)
    for other in ("CLAUDE.md", "settings.json", "history.jsonl"):
        write(home / other, "{}")
    for place in (home, home / "projects"):
        parts, texts, _ = queued(place)
        assert [part.text for part in parts] == [
            "1. user: We use uv, not pip.\n\n2. assistant: Switched to uv.",
            "1. user: Staging is Heron.",
        ]
        assert texts == ["Kiln deploys on Fridays."]


def test_a_copy_of_a_session_is_known_by_its_time_and_words(tmp_path):
    write(tmp_path / "a.jsonl", CLAUDE_CODE)
    write(tmp_path / "b.jsonl", CLAUDE_CODE.replace(SESSION, SESSION.replace("1", "2")))
    parts, _, _ = queued(tmp_path)
    assert len(parts) == 4
    assert len({(part.identity, part.text) for part in parts}) == 2


def test_a_session_is_known_however_long_its_first_line_is(tmp_path):
    long = CLAUDE_CODE.replace("We use uv, not pip.", "We use uv. " + "x" * 100_000)
    path = write(tmp_path / "a.jsonl", long.split("\n", 1)[1])
    parts, _, reading = queued(path)
    assert reading.tallies[0].format == "claude-code"
    assert parts[0].text.startswith("1. user: We use uv.")


@pytest.mark.parametrize("form", CODEX)
def test_of_a_session_of_codex_every_form_is_heard_once(tmp_path, form):
    write(tmp_path / "sessions/2025/11/20/rollout-2025-11-20T10-00-00-s.jsonl", CODEX[form])
    write(tmp_path / "config.toml", "")
    write(tmp_path / "memories/raw_memories.md", "- RAW")
    (part,), texts, reading = queued(tmp_path)
    assert part.text == "1. user: CI runs on ARM.\n\n2. assistant: On ARM."
    assert (part.conversation, reading.tallies[0].format, texts) == ("s-1", "codex", [])
    assert part.time == datetime(2025, 11, 20, 10, 0, 3, tzinfo=UTC)


def test_of_a_session_of_gemini_cli_the_last_form_of_a_message_counts(tmp_path):
    write(tmp_path / "tmp/kiln/chats/session-2025-11-20T10-00-22aa.jsonl", GEMINI_CLI)
    messages = [{"id": "1", "type": "user", "content": "The boat is called Marlin."}]
    older = {"sessionId": "1", "projectHash": "d", "messages": messages}
    write(tmp_path / "tmp/old/chats/session-old.json", json.dumps(older, indent=2))
    assert set(said(tmp_path)) == {
        "1. user: The key hangs behind the door.\n\n2. assistant: Behind the door.",
        "1. user: The boat is called Marlin.",
    }


# Transcripts

USER = {"role": "user", "content": "I ride a cargo bike."}
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "Good."}]}
TRANSCRIPTS = {
    "list.json": json.dumps([{"role": "system", "content": "SYSTEM"}, USER, ANSWER]),
    "lines.jsonl": lines(USER, {"role": "tool", "content": "TOOL"}, ANSWER),
    "object.json": json.dumps({"messages": [USER, ANSWER]}, indent=1),
    "many.jsonl": lines({"messages": [USER, ANSWER]}, {"messages": [ANSWER]}),
    "openclaw.jsonl": lines(
        {"type": "session", "id": "s", "cwd": "/w"},
        {"type": "message", "message": {**USER, "timestamp": 1763632801000}},
        {"type": "message", "message": ANSWER},
    ),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_messages_in_the_usual_form_are_a_conversation(tmp_path, name):
    (part,), _, reading = queued(write(tmp_path / name, TRANSCRIPTS[name]))
    assert part.text == "1. user: I ride a cargo bike.\n\n2. assistant: Good."
    assert reading.tallies[0].format == "transcript"


# What stands where something else was expected

EXPORTS = {
    "chatgpt": [CHAT],
    "claude": [CLAUDE_CHAT],
    "gemini": [*GEMINI_JSON[:2], GEMINI_HISTORY],
    "claude-code": list(map(json.loads, CLAUDE_CODE.splitlines()))[:4],
    "codex": [json.loads(line) for form in CODEX.values() for line in form.splitlines()],
    "gemini-cli": list(map(json.loads, GEMINI_CLI.splitlines())),
    "transcript": [{"messages": [USER, ANSWER]}, USER],
}


@pytest.mark.parametrize("format", EXPORTS)
def test_no_odd_value_ends_the_reading(tmp_path, format):
    """Each file has one conversation altered in one place, and whole ones around it."""
    values = EXPORTS[format]
    path = tmp_path / "a.jsonl"
    for number, value in enumerate(values):
        for other in altered(value):
            path.write_text(lines(*values[:number], other, *values[number + 1 :]))
            for what in read(File(path, path.name), format):
                if isinstance(what, Conversation):
                    list(parts(what, UTC))
            format_of(File(path, path.name))


# Parts


def conversation(*messages: Utterance) -> Conversation:
    return Conversation("1", "c", messages)


def talk(number: int, *, minutes: int = 1) -> list[Utterance]:
    times = (NOON + timedelta(minutes=minutes * n) for n in range(number))
    return [
        Utterance("assistant" if n % 2 else "user", f"Message {n}.", time)
        for n, time in enumerate(times)
    ]


def test_a_part_has_no_more_messages_than_a_model_keeps_apart():
    sizes = [part.messages for part in parts(conversation(*talk(35)), UTC)]
    assert sizes == [MESSAGES_MIN] * 3 + [5]
    answers = [
        Utterance("user", "A question."),
        *(Utterance("assistant", f"Answer {n}.") for n in range(30)),
    ]
    assert [part.messages for part in parts(conversation(*answers), UTC)] == [MESSAGES_MAX]


@pytest.mark.usefixtures("eight_hours_west")
def test_a_part_is_of_one_day_of_this_machines_zone():
    early = datetime(2025, 11, 20, 7, 30, tzinfo=UTC)  # half an hour before midnight there
    said = [Utterance("user", "I moved today.", early), Utterance("user", "And here I am.", NOON)]
    first, last = parts(conversation(*said), None)
    assert [unwrap(part.time).isoformat() for part in (first, last)] == [
        "2025-11-19T23:30:00-08:00",
        NOON.astimezone().isoformat(),
    ]


def test_a_part_is_of_one_day_of_the_zone_given():
    messages = talk(4, minutes=6 * 60)
    assert [part.messages for part in parts(conversation(*messages), UTC)] == [2, 2]
    east = timezone(timedelta(hours=12))
    found = list(parts(conversation(*messages), east))
    assert [part.messages for part in found] == [4]
    assert unwrap(found[0].time).utcoffset() == timedelta(hours=12)


def test_a_message_without_a_time_is_of_the_one_before():
    messages = (
        Utterance("user", "One."),
        Utterance("user", "Two.", NOON),
        Utterance("assistant", "Three."),
    )
    (part,) = parts(conversation(*messages), UTC)
    assert (part.messages, part.time) == (3, NOON)


@pytest.mark.parametrize("word", ["kiln ", "glaze\n", "陶芸", "🏺"])
def test_a_message_of_any_length_goes_on_in_the_next_part(word):
    text = "".join(f"{word}{n}." for n in range(30_000))
    found = list(parts(conversation(Utterance("user", text, NOON)), UTC))
    heard = "".join(part.text for part in found)
    assert sum(len(part.text.encode()) for part in found) >= len(text.encode())
    assert all(len(part.text.encode()) < 64 * 1024 for part in found)
    assert all(f"{n}." in heard for n in (0, 15_000, 29_999))
    assert len(text.encode()) > 4 * MESSAGE_BYTES_MAX


def test_what_was_injected_is_not_heard_again():
    text = "<memwal-memories>RECALLED</memwal-memories>\nI live in Porto."
    (part,) = parts(conversation(Utterance("user", text, NOON)), UTC)
    assert part.text == "1. user: I live in Porto."
    assert list(parts(conversation(Utterance("assistant", "Only an answer.", NOON)), UTC)) == []


def test_conversations_come_in_the_order_in_which_they_took_place(tmp_path):
    def at(id: str, time: float) -> object:
        nodes = [node("r", None), node("a", "r", "user", text=f"I am {id}.", create_time=time)]
        return chat(id, "a", nodes)

    day = 24 * 60 * 60
    chats = [at("third", BEGUN + 2 * day), at("first", BEGUN), at("second", BEGUN + day)]
    path = write(tmp_path / "conversations.json", chats)
    assert [part.conversation for part in queued(path)[0]] == ["first", "second", "third"]
    since = datetime.fromtimestamp(BEGUN + day, UTC)
    assert [part.conversation for part in queued(path, since=since)[0]] == ["second", "third"]
