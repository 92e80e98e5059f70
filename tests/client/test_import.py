"""Importing: what is read of JSON, of text and of pages, and what of it is refused."""

import json
from datetime import UTC, datetime

import pytest

from memrelay.errors import ConfigError
from memrelay.importing.drafts import NESTED, Entry, Fault
from memrelay.importing.files import find
from memrelay.importing.formats import format_of, read
from memrelay.importing.sources import FILE_BYTES_MAX, File
from memrelay.models import Draft
from memrelay.pages import page, read_page
from tests.client.import_scene import (
    MEM0_JSON,
    drafts,
    found,
    lines_of,
    reasons,
    write,
)

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
        ('{"memory": "a", "expiration_date": "2020-13-45"}', "expiration_date is no time"),
        ('{"memory": "a", "expiration_date": 1600000000}', "expiration_date is no time"),
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
