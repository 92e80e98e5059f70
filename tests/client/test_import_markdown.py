"""What is read of Markdown and of the layouts that programs keep it in."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from memrelay.importing.files import find
from memrelay.models import Draft
from tests.client.import_scene import (
    EPISODE_MD,
    MEMORY_MD,
    MEMSEARCH_MD,
    SESSION_MD,
    drafts,
    found,
    write,
)


def test_bullets_and_paragraphs_keep_what_belongs_to_them(tmp_path):
    texts = [draft.text for draft in drafts(write(tmp_path / "MEMORY.md", MEMORY_MD))]
    assert texts == [
        "Anna drinks green tea in the morning,\n  never coffee.\n  - except on Sundays",
        "Preferences: peanuts",
        "The staging server moved to Frankfurt. Deploy with:\n\n"
        "```sh\n# no heading\n- no bullet\n\nmake deploy\n```",
        "Jo Keller answers at night",
        "Contacts at the hosting company: Max",
        "server: staging; city: Frankfurt",
        "The first rule of the lab",
        "A last line about `<!-- comments` in the text.",
    ]


COMMENTS = [
    ("a <!-- b --> c", "a  c"),
    ("<!-- a --><!-- b -->c", "c"),
    ("a <!-- b <!-- c", "a <!-- b <!-- c"),
    ("<!-- a --> b <!-- c", "b <!-- c"),
    ("a <!-- b --> c <!--", "a  c <!--"),
    ("<!-- a <!-- b --> c --> d", "c --> d"),
    ("a <!-->", "a <!-->"),
    ("say `<!-- b -->` <!-- c --> first", "say `<!-- b -->`  first"),
    ("<!--\n- one\n--> two", "two"),
]


@pytest.mark.parametrize(("text", "left"), COMMENTS)
def test_comments_are_left_out(tmp_path, text, left):
    path = write(tmp_path / "notes.md", f"{text}\n")
    assert [draft.text for draft in drafts(path)] == [left]


HOSTILE = {
    "comments that do not end": ("x " + "<!--" * (1 << 18), 1),
    "comments without a word": ("x " + "<!---->" * (1 << 18), 1),
    "ends of comments": ("x " + "-->" * (1 << 18), 1),
    "a long heading": (f"# {'a' * (4 << 20)}\n" + "- four words of it\n" * 10_000, 10_000),
    "a long lead": (f"{'a' * (1 << 19)}:\n" + "- four words of it\n" * 10_000, 10_001),
    "a long anchor": (
        f"<!-- session:{'a' * (4 << 20)} -->\n" + "- four words of it\n" * 10_000, 10_000,
    ),
    "many tags": (
        f"---\ntags: [{'a, ' * (1 << 20)}b]\n---\n" + "- four words of it\n" * 10_000, 10_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_note_takes_linear_work(tmp_path, text):
    """A quadratic step would take minutes for each of these."""
    path = write(tmp_path / "notes.md", HOSTILE[text][0])
    assert len(found(path)) == HOSTILE[text][1]


def test_headings_become_tags_kinds_and_sources(tmp_path):
    found = drafts(write(tmp_path / "MEMORY.md", MEMORY_MD))
    assert [draft.tags for draft in found][:7] == [
        ("Preferences",),
        ("Preferences",),
        ("Projects",),
        ("Projects", "Contacts at the hosting company"),
        ("Projects", "Contacts at the hosting company"),
        ("Projects",),
        ("Projects",),
    ]
    assert [draft.kind for draft in found][:3] == ["preference", "preference", None]
    assert found[0].source == "import:MEMORY.md#Preferences"
    assert {draft.event_time for draft in found} == {None}


def test_places_are_line_numbers(tmp_path):
    path = write(tmp_path / "notes.md", "---\ntags: a, b\n---\n# T\n\n- one thing here now\n")
    ((_, format, entry),) = found(path)
    assert (format, entry.place) == ("markdown", "6")
    assert entry.draft.tags == ("a", "b", "T")


def test_a_daily_log_of_memsearch_keeps_its_sessions(tmp_path):
    write(tmp_path / ".memsearch/memory/2026-05-06.md", MEMSEARCH_MD)
    first, second, third = found(tmp_path)
    assert {first[1], second[1], third[1]} == {"memsearch"}
    draft = first[2].draft
    assert draft.text == "Anna asked how to rotate the signing key."
    assert draft.event_time == datetime(2026, 5, 6, 9, 17, tzinfo=UTC)
    assert draft.source == "import:.memsearch/memory/2026-05-06.md#8c1e"
    assert draft.metadata == {"session": "8c1e", "turn": "t1", "transcript": "8c1e.jsonl"}
    assert second[2].draft.metadata == draft.metadata
    assert third[2].draft.metadata == {"session": "9d2f", "transcript": "9d2f of Anna.jsonl"}
    assert draft.kind == "episodic"
    assert draft.tags is None


def test_times_without_an_offset_are_those_of_the_one_given(tmp_path):
    path = write(tmp_path / "2026-05-06.md", MEMSEARCH_MD)
    zone = timezone(timedelta(hours=2))
    assert [draft.event_time for draft in drafts(path, zone=zone)] == [
        datetime(2026, 5, 6, 7, 17, tzinfo=UTC),
        datetime(2026, 5, 6, 7, 17, tzinfo=UTC),
        datetime(2026, 5, 6, 8, 2, tzinfo=UTC),
    ]


def test_a_workspace_of_openclaw_gives_its_memories_only(tmp_path):
    write(tmp_path / "MEMORY.md", MEMORY_MD)
    write(tmp_path / "memory/2026-05-04.md", "# 2026-05-04\n\n- The release is on Friday.\n")
    write(tmp_path / "memory/2026-05-05-lunch.md", SESSION_MD)
    for other in ("AGENTS.md", "SOUL.md", "skills/x/SKILL.md", "memory/.dreams/d.md"):
        write(tmp_path / other, "- You are an agent, and this is no memory.")
    outside = write(tmp_path.parent / f"{tmp_path.name}-outside/x.md", "- not in the workspace")
    (tmp_path / "memory/linked.md").symlink_to(outside)
    files, left_out = find([str(tmp_path)])
    names = {file.name for file in files}
    assert names == {"MEMORY.md", "memory/2026-05-04.md", "memory/2026-05-05-lunch.md"}
    assert left_out == 3
    day, session = (draft for draft in drafts(tmp_path) if draft.kind == "episodic")
    assert day.event_time == datetime(2026, 5, 4, tzinfo=UTC)
    assert session.text == "user: where do we eat?\nassistant: at the harbour"
    assert session.event_time == datetime(2026, 5, 5, 10, 10, tzinfo=UTC)
    expected = {"session": "3d2f", "session_key": "agent:main:main", "source": "webchat"}
    assert session.metadata == expected


@pytest.mark.parametrize("zone", ["Nowhere/Atlantis", "../../etc/passwd", "Europe", "/"])
def test_a_zone_that_is_not_known_counts_as_none(tmp_path, zone):
    text = SESSION_MD.replace("Europe/Berlin", zone)
    (draft,) = drafts(write(tmp_path / "memory/2026-05-05-lunch.md", text))
    assert draft.event_time == datetime(2026, 5, 5, 12, 10, tzinfo=UTC)


def test_an_episode_of_memoryclaw_is_one_memory(tmp_path):
    write(tmp_path / "episodes/2026-04-08_14-32-10_move.md", EPISODE_MD)
    write(tmp_path / "logs/2026-04-08_raw.md", "raw words of a conversation, no memory")
    ((name, format, entry),) = found(tmp_path)
    assert (name, format) == ("episodes/2026-04-08_14-32-10_move.md", "memoryclaw")
    assert entry.draft == Draft(
        text='Anna asked to write to Jo about "the move".\n- Recipient: Jo\n- Outcome: sent',
        kind="episodic",
        tags=("email", "move"),
        source="import:episodes/2026-04-08_14-32-10_move.md",
        event_time=datetime(2026, 4, 8, 14, 32, 10, tzinfo=UTC),
        metadata={"participants": "user, assistant", "log": "2026-04-08_raw.md"},
        confidence="medium",
    )


def test_semantic_files_of_memoryclaw_are_facts(tmp_path):
    write(
        tmp_path / "semantic/contacts.md",
        "# Contacts\n- Jo: jo@example.org\n- Max:\n    phone: 12345\n    city: Bremen\n",
    )
    write(
        tmp_path / "semantic/_pending.md",
        "- Jo role: lead (confidence: low, source: a_raw.md, added: 2026-04-09T10:00:00Z)\n",
    )
    write(tmp_path / "semantic/preferences.json", {"editor": {"name": "vim", "plugins": ["a"]}})
    by_text = {draft.text: draft for draft in drafts(tmp_path)}
    assert set(by_text) == {
        "Jo role: lead",
        "Contacts: Jo: jo@example.org",
        "Contacts: Max:\n    phone: 12345\n    city: Bremen",
        "Preferences: editor: name: vim; plugins: a",
    }
    pending = by_text["Jo role: lead"]
    assert (pending.confidence, pending.metadata) == ("low", {"log": "a_raw.md"})
    assert pending.event_time == datetime(2026, 4, 9, 10, tzinfo=UTC)
    assert by_text["Contacts: Jo: jo@example.org"].kind == "semantic"
    assert by_text["Preferences: editor: name: vim; plugins: a"].kind == "preference"
