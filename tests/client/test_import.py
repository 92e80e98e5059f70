"""Importing: what is read from files, and what becomes of it at a real relayer."""

import io
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.errors import ConfigError
from memrelay.importing.files import FILE_BYTES_MAX, File, find, format_of, read
from memrelay.importing.found import NESTED, Entry, Fault
from memrelay.models import Draft
from memrelay.pages import page, read_page
from tests.processes import running_relayer

MEMORY_MD = """\
# MEMORY.md - Long-term memory

<!-- kept by the agent,
- not a memory -->
## Preferences
- Anna drinks green tea in the morning,
  never coffee.
  - except on Sundays
- peanuts

## Projects

The staging server moved to Frankfurt. Deploy with:

```sh
# no heading
- no bullet

make deploy
```

Contacts at the hosting company:
- Jo Keller answers at night
- Max

| server | city |
|---|---|
| staging | Frankfurt |

1. The first rule of the lab

---
A last line about `<!-- comments` in the text.
"""

MEMSEARCH_MD = """\
# 2026-05-06

## Session 09:15

### 09:17
<!-- session:8c1e turn:t1 transcript:/home/anna/.openclaw/agents/main/sessions/8c1e.jsonl -->
- Anna asked how to rotate the signing key.
- The agent explained both steps.

### 10:02
<!-- session:9d2f  transcript:C:\\\\My sessions\\\\9d2f of Anna.jsonl  -->
- Anna decided on weekly backups.
"""

SESSION_MD = """\
# Session: 2026-05-05 12:10:00 Europe/Berlin

- **Session Key**: agent:main:main
- **Session ID**: 3d2f
- **Source**: webchat

## Conversation Summary

user: where do we eat?
assistant: at the harbour
"""

EPISODE_MD = """\
---
timestamp: 2026-04-08T14:32:10Z
tags: [email, move]
summary: "Anna asked to write to Jo about \\"the move\\"."
participants: [user, assistant]
confidence: medium
source: 2026-04-08_raw.md
---
**Details:**
- Recipient: Jo
- Outcome: sent
"""

STRANGER = {"MEMRELAY_PRIVATE_KEY": "07" * 32}  # a key that the account does not know

MEM0_JSON = {
    "results": [
        {
            "id": "m1",
            "memory": "Dev works on bridges.",
            "hash": "5d",
            "metadata": {"type": "work", "level": 3, "nothing": None},
            "created_at": "2024-09-03T10:16:05.490548-07:00",
            "updated_at": None,
            "user_id": "dev",
            "run_id": "r7",
            "categories": ["engineering"],
        },
        {"id": "m2", "memory": " "},
        {"id": "m3", "memory": "A pass for the pool.", "expiration_date": "2024-01-01"},
        "no object",
    ]
}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def found(path: Path, format: str | None = None, **options):
    """What is read of a file or folder, as `(name, format, what)`."""
    return [
        (file.name, format or format_of(file), what)
        for file in find([str(path)])[0]
        for what in read(file, format or format_of(file), **options)
    ]


def drafts(path: Path, format: str | None = None, **options) -> list[Draft]:
    return [what.draft for _, _, what in found(path, format, **options) if isinstance(what, Entry)]


def lines_of(text: str) -> list[str]:
    return io.StringIO(text, newline="\n").readlines()


def reasons(path: Path, format: str | None = None) -> list[tuple[str, str]]:
    faults = [what for _, _, what in found(path, format) if isinstance(what, Fault)]
    return [(fault.place, fault.reason) for fault in faults]


# Markdown


def test_bullets_and_paragraphs_keep_what_belongs_to_them(tmp_path):
    texts = [draft.text for draft in drafts(write(tmp_path / "MEMORY.md", MEMORY_MD))]
    assert texts == [
        "Anna drinks green tea in the morning,\n  never coffee.\n  - except on Sundays",
        "Preferences: peanuts",
        "The staging server moved to Frankfurt. Deploy with:\n\n"
        "```sh\n# no heading\n- no bullet\n\nmake deploy\n```",
        "Jo Keller answers at night",
        "Contacts at the hosting company: Max",
        "| server | city |\n|---|---|\n| staging | Frankfurt |",
        "The first rule of the lab",
        "A last line about `<!-- comments` in the text.",
    ]


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


# JSON and text


@pytest.mark.parametrize("shape", ["results", "list", "lines"])
def test_an_export_of_mem0_keeps_dates_categories_and_ids(tmp_path, shape):
    entries = MEM0_JSON["results"]
    if shape == "lines":
        path = write(tmp_path / "mem0.jsonl", "\n".join(map(json.dumps, entries)))
    else:
        path = write(tmp_path / "mem0.json", MEM0_JSON if shape == "results" else entries)
    ((_, format, entry), *faults) = found(path)
    assert format == "mem0"
    assert entry.draft == Draft(
        text="Dev works on bridges.",
        tags=("engineering",),
        source=f"import:{path.name}",
        event_time=datetime.fromisoformat("2024-09-03T10:16:05.490548-07:00"),
        metadata={"type": "work", "level": "3", "user_id": "dev", "run_id": "r7", "mem0_id": "m1"},
    )
    expected = ["the text is empty", "it has expired", "not an object"]
    assert [fault.reason for _, _, fault in faults] == expected
    assert [fault.expired for _, _, fault in faults] == [False, True, False]
    assert faults[0][2].place == ("2" if shape == "lines" else "#2")


def test_results_of_memwal_keep_their_blob_ids(tmp_path):
    result = {"blob_id": "b1", "text": "Dev likes sushi.", "distance": 0.1}
    path = write(
        tmp_path / "recalled.json",
        {"results": [{**result, "created_at": "2026-01-01T00:00:00Z"}, result], "total": 2},
    )
    first, second = drafts(path)
    assert {format for _, format, _ in found(path)} == {"memwal"}
    assert first.event_time == datetime(2026, 1, 1, tzinfo=UTC)
    assert second.event_time is None
    assert first.metadata == {"memwal_blob_id": "b1"}


def test_lines_take_a_drafts_fields(tmp_path):
    line = {"text": "a", "kind": "event", "event_time": "2026-05-04", "metadata": {"n": 1}}
    (draft,) = drafts(write(tmp_path / "x.jsonl", json.dumps(line) + "\n\n"))
    assert (draft.kind, draft.metadata) == ("event", {"n": "1"})
    assert draft.event_time == datetime(2026, 5, 4, tzinfo=UTC)


def test_text_gives_a_memory_a_paragraph(tmp_path):
    path = write(tmp_path / "notes.txt", "\n\nOne\nline more.\n \n\n\nTwo - # no heading.\r\n")
    whats = [what for _, _, what in found(path)]
    assert [(what.place, what.draft.text) for what in whats] == [
        ("3", "One\nline more."),
        ("8", "Two - # no heading."),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("words", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "not an object with a text"),
        ('{"text": ""}', "the text is empty"),
        ('{"text": "\\ud800"}', "it holds half a character"),
        ('{"text": "a", "event_time": "soon"}', "event_time is no time"),
        ('{"text": "a", "event_time": "0001-01-01T00:00:00Z"}', "event_time is no time"),
        ('{"text": null}', "not an object with a text"),
        ('{"text": "a", "kind": 1}', "kind is text"),
        ('{"text": "a", "tags": "b"}', "tags is a list of texts"),
        ('{"text": "a", "tags": [1]}', "tags is a list of texts"),
        ('{"text": "a", "metadata": []}', "metadata is an object"),
        ('{"text": "a", "expires_at": "2024-01-01T00:00:00Z"}', "it has expired"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_without_its_words(tmp_path, line, reason):
    path = write(tmp_path / "x.jsonl", '{"text": "before"}\n' + line + '\n{"text": "after"}\n')
    assert reasons(path) == [("2", reason)]
    assert [draft.text for draft in drafts(path)] == ["before", "after"]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "x" * ((1 << 20) + 1)},
        {"kind": "thought"},
        {"importance": "huge"},
        {"confidence": "none"},
        {"tags": [""]},
        {"tags": ["x" * 129]},
        {"tags": [str(n) for n in range(33)]},
        {"source": "x" * 513},
        {"metadata": {"x": "y" * (8192 - len('{"x":""}') + 1)}},
        {"metadata": {str(n): "" for n in range(65)}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_a_relayer_would_refuse_is_told_before(tmp_path, fields):
    path = write(tmp_path / "x.jsonl", json.dumps({"text": "a", **fields}))
    ((place, _),) = reasons(path)
    assert place == "1"


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * (9 << 20))
    assert reasons(path) == [("1", "the line is longer than 8 MiB; the rest was not read")]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.json", b'{"results": [', "not JSON"),
        ("x.json", b'{"results": 5}', "no list of memories"),
        ("semantic/x.json", b"{", "not JSON"),
        ("x.md", b"- caf\xe9", "not UTF-8 text"),
        ("semantic/x.json", b"[1]", "not an object"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_fault(tmp_path, name, content, reason):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert reasons(path) == [("1", reason)]


PAGE_OF_TWO = f"""\
---
id: "{"0" * 36}"
metadata: {{"a": VALUE}}
---

A text

---
id: "{"1" * 36}"
---

Another
"""
DEEP, DEEPER = "[" * 600 + "]" * 600, "[" * 100_000


in_files = pytest.mark.parametrize(
    ("name", "content", "rest"),
    [
        ("notes.md", "---\ntags: VALUE\n---\n- a note of some words\n", ["a note of some words"]),
        ("dated.md", "---\ndate: VALUE\n---\n- a note of some words\n", ["a note of some words"]),
        ("2026.md", "---\ntimestamp: VALUE\nsummary: VALUE\n---\nDetails\n", []),
        ("semantic/x.json", '{"a": {"b": VALUE}}', []),
        ("page.md", PAGE_OF_TWO, ["Another"]),
        ("x.jsonl", '{"text": "a", "metadata": {"b": VALUE}}\n{"text": "b"}\n', ["b"]),
        ("mem0.json", '[{"memory": "a", "created_at": VALUE}]', []),
    ],
    ids=["tags", "date", "episode", "semantic", "page", "lines", "mem0"],
)


@pytest.mark.parametrize("value", [DEEP, DEEPER], ids=["deep", "deeper"])
@in_files
def test_what_is_nested_too_deeply_is_a_bad_entry(tmp_path, name, content, rest, value):
    path = write(tmp_path / name, content.replace("VALUE", value))
    after = write(tmp_path / "z" / "after.txt", "A file after it.")
    whats = [
        what for file in find([str(path), str(after)])[0] for what in read(file, format_of(file))
    ]
    texts = {what.draft.text for what in whats if isinstance(what, Entry)}
    assert {"A file after it.", *rest} <= texts
    deeper = [what for what in whats if isinstance(what, Fault)] if value == DEEPER else []
    assert all(what.reason in {"not JSON", NESTED, "metadata is an object"} for what in deeper)


@in_files
def test_no_depth_of_nesting_ends_the_reading(tmp_path, name, content, rest):
    path = tmp_path / name
    for depth in range(800, 1000):
        write(path, content.replace("VALUE", "[" * depth + "]" * depth))
        whats = list(read(File(path, name), format_of(File(path, name))))
        texts = {what.draft.text for what in whats if isinstance(what, Entry)}
        assert texts.issuperset(rest)
        assert whats


def test_a_fact_that_is_nested_too_deeply_does_not_stop_the_rest(tmp_path):
    path = write(tmp_path / "semantic" / "x.json", f'{{"a": 1, "b": {DEEP}, "c": 2}}')
    assert [draft.text for draft in drafts(path)] == ["X: a: 1", "X: c: 2"]
    assert reasons(path) == [("#2", NESTED)]


def test_a_page_of_any_size_can_be_read(tmp_path):
    path = tmp_path / "x.md"
    record = {"id": "00000000-0000-7000-8000-000000000001", "text": ("x" * 1000 + "\n") * 1000}
    path.write_text(page([record] * 70))
    assert path.stat().st_size > FILE_BYTES_MAX
    assert [draft.text for draft in drafts(path)] == [record["text"]] * 70


def test_a_line_without_end_of_a_page_is_one_fault(tmp_path):
    path = write(tmp_path / "x.md", f'---\nid: "{"0" * 36}"\n---\n\n{"x" * (3 << 20)}\n')
    ((_, reason),) = reasons(path)
    assert "2 MiB" in reason


def test_a_file_too_large_to_be_read_at_once_is_one_fault(tmp_path):
    path = tmp_path / "x.md"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    ((_, reason),) = reasons(path, "markdown")
    assert "64 MiB" in reason


def test_a_forced_format_wins_over_what_the_file_looks_like(tmp_path):
    path = write(tmp_path / "x.md", "# A\n\n- one\n- two\n")
    assert [draft.text for draft in drafts(path, "text")] == ["# A", "- one\n- two"]
    assert reasons(write(tmp_path / "y.json", [{"text": "a"}]), "mem0") == [
        ("#1", "not an object with a memory")
    ]


def test_paths_must_be_there_and_hold_something(tmp_path):
    write(tmp_path / "empty/picture.png", "no text")
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(ConfigError):
            find([str(path)])
    file = write(tmp_path / "a.md", "- a")
    assert find([str(file), str(tmp_path / "a.md")]) == ([File(file, "a.md")], 0)


# Pages


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "two\n\nparagraphs\n",
        '---\nid: "00000000-0000-7000-8000-000000000000"\n---\n\nno other memory',
        "\\---\n---  \n\\\\---",
        "\n\nlines around\n\n\n",
        "kind: event\n---",
        "returns\r\nand\rreturns",
        "a\u2028b\x0bc\x85d\u00e9",
    ],
)
def test_every_text_comes_back_from_a_page(text):
    record = {"id": "00000000-0000-7000-8000-000000000001", "kind": "fact", "text": text}
    other = {**record, "text": "another"}
    back = [value for _, value in read_page(lines_of(page([record, other, record])))]
    assert back == [record, other, record]


def test_a_page_may_be_edited_by_hand():
    edited = '---\r\nkind: preference\r\ntags: ["a"]\r\n---\r\n\r\nTyped by hand.\r\n'
    ((line, record),) = read_page(lines_of(edited))
    assert (line, record) == (
        1,
        {"kind": "preference", "tags": ["a"], "text": "Typed by hand."},
    )


# At a relayer


@pytest.fixture
def profile(shared_relayer, tmp_path, capsys):
    """The profile of an account of this test's own."""
    path = tmp_path / "profile" / "profile.json"
    assert main(["init", shared_relayer.url, "--profile", str(path)], {}) == EXIT_OK
    capsys.readouterr()
    return str(path)


def run(capsys, *argv: str) -> tuple[int, dict, str]:
    code = main([*argv, "--json"], {})
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def numbers(result: dict) -> tuple[int, int, int]:
    return result["stored"], result["known"], result["failed"]


def test_a_workspace_is_imported_once(profile, tmp_path, capsys):
    """capability 2.10: import indexes folders, recall searches them, status counts them."""
    folder = tmp_path / "workspace"
    write(folder / "MEMORY.md", MEMORY_MD)
    write(folder / ".memsearch/memory/2026-05-06.md", MEMSEARCH_MD)
    argv = ("import", str(folder), "--profile", profile)
    code, result, err = run(capsys, *argv, "--wait")
    assert (code, numbers(result)) == (EXIT_OK, (11, 0, 0))
    assert err == "", "nobody at a terminal watches"
    assert [(file["file"], file["format"], file["stored"]) for file in result["files"]] == [
        (".memsearch/memory/2026-05-06.md", "memsearch", 3),
        ("MEMORY.md", "openclaw", 8),
    ]
    code, result, _ = run(capsys, *argv)
    assert (code, numbers(result)) == (EXIT_OK, (0, 11, 0))
    _, status, _ = run(capsys, "status", "--profile", profile)
    assert [entry["memory_count"] for entry in status["namespaces"]] == [11]
    _, recalled, _ = run(capsys, "recall", "weekly backups", "--profile", profile)
    memory = recalled["results"][0]
    assert memory["text"] == "Anna decided on weekly backups."
    assert memory["event_time"] == "2026-05-06T10:02:00.000Z"
    assert memory["source"] == "import:.memsearch/memory/2026-05-06.md#9d2f"
    assert memory["metadata"] == {"session": "9d2f", "transcript": "9d2f of Anna.jsonl"}


def test_what_is_imported_can_be_audited_searched_and_deleted(profile, tmp_path, capsys):
    """capability 3.21: list and receipts audit what is stored, recall searches, forget deletes."""
    path = write(tmp_path / "facts.txt", "The harbour opens at six.\n\nThe bakery closes at noon.")
    assert run(capsys, "import", str(path), "--profile", profile)[0] == EXIT_OK
    _, listed, _ = run(capsys, "list", "--profile", profile)
    assert {memory["source"] for memory in listed["memories"]} == {"import:facts.txt"}
    _, receipts, _ = run(capsys, "receipts", "--profile", profile)
    assert receipts["checked"] > 0
    _, before, _ = run(capsys, "recall", "harbour", "--profile", profile)
    wrong = next(m["id"] for m in before["results"] if "harbour" in m["text"])
    assert run(capsys, "forget", wrong, "--profile", profile)[0] == EXIT_OK
    _, after, _ = run(capsys, "recall", "harbour", "--profile", profile)
    assert wrong not in {memory["id"] for memory in after["results"]}
    _, receipts, _ = run(capsys, "receipts", "--profile", profile)
    assert receipts["checked"] == 1
    code, result, _ = run(capsys, "import", str(path), "--profile", profile)
    assert (code, numbers(result)) == (EXIT_OK, (1, 1, 0))


def test_bad_entries_do_not_stop_the_rest(profile, tmp_path, capsys):
    lines = [{"text": f"Fact number {n} of the list."} for n in range(45)]
    lines[7]["metadata"] = {"a\0b": "which only a relayer looks at"}
    lines[9]["text"] = " "
    lines[11]["expires_at"] = "2024-01-01T00:00:00Z"
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    code, result, err = run(capsys, "import", str(path), "--profile", profile)
    assert (code, numbers(result), result["expired"]) == (EXIT_FAILED, (42, 0, 3), 1)
    assert {failure["place"] for failure in result["failures"]} == {"8", "10", "46"}
    assert "facts.jsonl:46: not JSON" in err
    assert "facts.jsonl:8: refused" in err
    assert "Fact number" not in err
    assert "no JSON\n" not in err.replace("not JSON", "")


def test_a_dry_run_sends_nothing_and_needs_no_account(tmp_path, capsys):
    folder = write(tmp_path / "notes/MEMORY.md", MEMORY_MD).parent
    assert main(["import", str(folder), "--dry-run"], {}) == EXIT_OK
    out, err = capsys.readouterr()
    assert out == "MEMORY.md (openclaw): 8 found\n8 found; nothing was stored\n"
    assert err == ""
    assert main(["import", str(folder), "--dry-run", "--verbose"], {}) == EXIT_OK
    assert "MEMORY.md:6  preference  Preferences  Anna drinks" in capsys.readouterr().out
    code, result, _ = run(capsys, "import", str(folder), "--dry-run")
    assert (code, result["entries"], numbers(result)) == (EXIT_OK, 8, (0, 0, 0))


@pytest.mark.parametrize(
    "argv",
    [
        ["import", "MISSING", "--dry-run"],
        ["import", "FOLDER"],
    ],
)
def test_wrong_paths_and_settings_are_usage_errors(tmp_path, argv, capsys):
    write(tmp_path / "folder/a.md", "- a note about nothing")
    places = {"MISSING": str(tmp_path / "missing"), "FOLDER": str(tmp_path / "folder")}
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert main([places.get(one, one) for one in argv], environ) == EXIT_USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("offset", ["2", "+2:00", "+15:00", "+02:60", "Berlin"])
def test_an_offset_is_hours_and_minutes(offset, capsys):
    with pytest.raises(SystemExit) as done:
        main(["import", "x", f"--utc-offset={offset}"], {})
    assert done.value.code == EXIT_USAGE
    assert "+02:00" in capsys.readouterr().err


def test_days_of_another_offset_are_stored_as_such(profile, tmp_path, capsys):
    path = write(tmp_path / "2026-05-04.md", "- The release was on Friday.")
    argv = ("import", str(path), "--profile", profile, "--utc-offset=-05:30", "--namespace", "log")
    assert numbers(run(capsys, *argv)[1]) == (1, 0, 0)
    _, listed, _ = run(capsys, "list", "--namespace", "log", "--profile", profile)
    assert listed["memories"][0]["event_time"] == "2026-05-04T05:30:00.000Z"


def test_an_import_that_was_killed_is_run_again(profile, tmp_path, capsys):
    lines = [json.dumps({"text": f"Fact {n} of many."}) for n in range(400)]
    path = write(tmp_path / "facts.jsonl", "\n".join(lines))
    argv = ["import", str(path), "--profile", profile]
    with (
        SyncMemoryClient.from_profile(profile) as memory,
        subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv], stdout=subprocess.DEVNULL
        ) as process,
    ):
        while process.poll() is None and memory.stats().memory_count < 20:
            pass
        os.kill(process.pid, signal.SIGKILL)
    code, result, _ = run(capsys, *argv)
    stored, known, failed = numbers(result)
    assert (code, stored + known, failed) == (EXIT_OK, 400, 0)
    assert known >= 20
    with SyncMemoryClient.from_profile(profile) as memory:
        assert memory.stats().memory_count == 400


def test_a_relayer_that_is_away_is_told_with_how_far_it_got(profile, tmp_path, capsys):
    values = json.loads(Path(profile).read_text())
    environ = {"MEMRELAY_URL": "http://127.0.0.1:9", "MEMRELAY_CUSTODY": "managed"}
    path = write(tmp_path / "a.txt", "One paragraph that nobody takes.")
    assert values["url"] != environ["MEMRELAY_URL"]
    assert main(["import", str(path), "--profile", profile], environ) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == "a.txt (text): 0 stored, 0 known already\n0 stored, 0 known already\n"
    assert "the same command goes on with the rest." in err
    assert "nobody takes" not in err


def test_an_import_that_can_never_go_on_does_not_promise_to(profile, tmp_path, capsys):
    path = write(tmp_path / "a.txt", "One paragraph that nobody takes.")
    assert main(["import", str(path), "--profile", profile, "--json"], STRANGER) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert numbers(json.loads(out)) == (0, 0, 0)
    assert "goes on" not in err


@pytest.fixture
def key(profile, tmp_path, capsys):
    """Makes profiles of keys that hold the namespace `open` only."""

    def make(role: str) -> str:
        path = str(tmp_path / f"{role}.json")
        argv = ["keys", "add", "--namespace", "open", "--role", role, "--out", path]
        assert main([*argv, "--profile", profile], {}) == EXIT_OK
        capsys.readouterr()
        return path

    return make


def test_a_namespace_that_is_not_granted_does_not_stop_the_rest(key, tmp_path, capsys):
    lines = [{"text": f"Fact number {n} of the list.", "namespace": "open"} for n in range(45)]
    for number in (3, 30, 44):
        lines[number]["namespace"] = "closed"
    path = write(tmp_path / "facts.jsonl", "\n".join(map(json.dumps, lines)))
    code, result, err = run(capsys, "import", str(path), "--profile", key("writer"))
    assert (code, numbers(result)) == (EXIT_FAILED, (42, 0, 3))
    assert {failure["place"] for failure in result["failures"]} == {"4", "31", "45"}
    assert "facts.jsonl:4: refused: This key holds no grant for the namespace 'closed'." in err
    assert "goes on" not in err


def test_a_key_that_may_not_write_is_told_once_by_the_relayer(
    key, shared_relayer, tmp_path, capsys
):
    path = write(tmp_path / "facts.txt", "\n\n".join(f"Fact number {n}." for n in range(19)))
    reader = key("reader")
    before = shared_relayer.log.read_text().count("/v1/remember")
    code, result, err = run(capsys, "import", str(path), "--profile", reader)
    assert (code, numbers(result)) == (EXIT_FAILED, (0, 0, 19))
    assert err.count("refused") == 19
    # Once for all of them, and once for the first alone.
    assert shared_relayer.log.read_text().count("/v1/remember") <= before + 2


def test_secrets_that_were_taken_out_are_counted(profile, tmp_path, capsys):
    text = f"The key is AKIA{'ABCDEFGH' * 2}, the other AKIA{'HGFEDCBA' * 2}.\n\nNo secret at all."
    argv = ["import", str(write(tmp_path / "a.txt", text)), "--profile", profile]
    assert main(argv, {}) == EXIT_OK
    assert "2 stored, 0 known already, 2 secrets redacted\n" in capsys.readouterr().out
    _, result, _ = run(capsys, *argv)
    assert (numbers(result), result["redacted"]) == ((0, 2, 0), 0)


def test_waiting_in_vain_comes_after_the_totals(fresh_database, model_dir, tmp_path, capsys):
    nobody = {"RELAYER_EMBEDDING_BASE_URLS": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none"}
    path = write(tmp_path / "a.txt", "One paragraph that is never found by meaning.")
    profile = str(tmp_path / "profile.json")
    with running_relayer(
        tmp_path / "data",
        model_dir,
        database_url=fresh_database.url,
        RELAYER_EMBEDDING_MODEL="nothing",
        **nobody,
    ) as relayer:
        assert main(["init", relayer.url, "--profile", profile], {}) == EXIT_OK
        capsys.readouterr()
        argv = ["import", str(path), "--profile", profile]
        code, result, err = run(capsys, *argv, "--wait", "0.5")
        assert (code, numbers(result)) == (EXIT_FAILED, (1, 0, 0))
        assert "still under way" in err
        assert run(capsys, *argv)[:1] == (EXIT_OK,)


def test_files_that_were_left_out_are_counted(tmp_path, capsys):
    write(tmp_path / "MEMORY.md", MEMORY_MD)
    for other in ("AGENTS.md", "notes/a.txt", "picture.png", ".hidden/b.md"):
        write(tmp_path / other, "no memory")
    assert main(["import", str(tmp_path), "--dry-run"], {}) == EXIT_OK
    assert capsys.readouterr().err == "memrelay: Left out: 2 other files; to import one, name it.\n"
    assert run(capsys, "import", str(tmp_path), "--dry-run")[1]["left_out"] == 2
