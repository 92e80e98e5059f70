"""Records of mem0 and of the MCP memory server, and pages of larger answers."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.importing.drafts import ASSISTANT, Omission, end_of
from tests.client.conversations_scene import altered, lines
from tests.client.import_scene import drafts, found, reasons, write


def dry_run(capsys, *paths) -> tuple[int, dict[str, Any], str]:
    code = main(["import", *map(str, paths), "--dry-run", "--json"], {})
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def answer(number: int, **more) -> dict[str, Any]:
    return {
        "results": [{"id": str(n), "memory": f"Fact {n} of many."} for n in range(number)]
    } | more


# Pages


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({"count": 101, "next": "http://x/?page=2", "previous": None}, "3 of 101"),
        ({"total": 101}, "3 of 101"),
        ({"next": "http://x/?page=2"}, "3 of more"),
        ({"has_more": True}, "3 of more"),
    ],
)
def test_a_page_of_more_is_told_with_what_to_type(tmp_path, capsys, more, held):
    path = write(tmp_path / "mem0.json", answer(3, **more))
    code, result, err = dry_run(capsys, path)
    assert (code, result["entries"], result["incomplete"]) == (EXIT_FAILED, 3, ["mem0.json"])
    assert f"mem0.json holds {held}: it is a page of mem0's answer." in err
    assert 'page=2, page_size=100) and on, until "next" is null' in err
    assert "Fact" not in err


def test_all_pages_together_are_no_part(tmp_path, capsys):
    first = write(tmp_path / "1.json", answer(2, count=3, next="http://x/?page=2"))
    last = write(tmp_path / "2.json", answer(1, count=3, next=None, previous="http://x/?page=1"))
    code, result, err = dry_run(capsys, first, last)
    assert (code, result["entries"], result["incomplete"], err) == (EXIT_OK, 3, [], "")
    assert dry_run(capsys, last)[:1] == (EXIT_FAILED,)


@pytest.mark.parametrize("more", [{"count": 3, "next": None}, {"total": 3}, {}, {"count": True}])
def test_a_whole_answer_is_no_page(tmp_path, capsys, more):
    code, result, err = dry_run(capsys, write(tmp_path / "mem0.json", answer(3, **more)))
    assert (code, result["incomplete"], err) == (EXIT_OK, [], "")


def test_as_many_as_mem0_gives_by_itself_may_not_be_all(tmp_path, capsys):
    code, result, err = dry_run(capsys, write(tmp_path / "mem0.json", answer(20)))
    assert (code, result["incomplete"]) == (EXIT_OK, [])
    assert result["files"][0]["page"] == {"held": 20, "total": None, "is_certain": False}
    assert "there may be others" in err
    assert "top_k=100000" in err
    for number in (19, 21):
        assert dry_run(capsys, write(tmp_path / "other.json", answer(number)))[2] == ""
    assert dry_run(capsys, write(tmp_path / "all.json", answer(20, count=20)))[2] == ""


def test_a_page_of_another_program_is_told_too(tmp_path, capsys):
    results = [{"blob_id": "b", "text": "Dev likes sushi."}]
    path = write(tmp_path / "recalled.json", {"results": results, "total": 7})
    code, _, err = dry_run(capsys, path)
    assert code == EXIT_FAILED
    assert "holds 1 of 7: it is a page of an answer." in err


# mem0


def test_a_memory_of_mem0_lives_through_its_last_day():
    zone = timezone(timedelta(hours=2))
    assert end_of("2026-11-28", zone) == datetime(2026, 11, 28, 22, tzinfo=UTC)
    assert end_of("2026-11-28T10:00:00Z", zone) == datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert end_of("soon", zone) is None


def test_what_expires_today_is_still_imported(tmp_path):
    today = datetime.now(UTC).date()
    passes = [
        {
            "memory": "A pass for the pool.",
            "expiration_date": (today + timedelta(days=n)).isoformat(),
        }
        for n in (-2, 0)
    ]
    (draft,) = drafts(write(tmp_path / "mem0.json", passes))
    assert isinstance(draft.expires_at, datetime)
    assert draft.expires_at.date() == today + timedelta(days=1)


def test_only_what_the_user_said_of_mem0s_messages_is_a_memory(tmp_path):
    messages = [
        {"memory": "I moved to Porto.", "role": "user", "created_at": "2026-11-20T10:00:00Z"},
        {"memory": "Nice!", "role": "assistant"},
        {"memory": "Dentist next Friday.", "created_at": "2026-11-20T10:00:00Z"},
        {"memory": "tool output", "role": "tool"},
    ]
    path = write(tmp_path / "mem0.json", {"results": messages})
    first, second = drafts(path)
    assert (first.text, first.metadata) == ("I moved to Porto.", {"role": "user"})
    assert second.event_time == datetime(2026, 11, 27, tzinfo=UTC)
    omitted = [what for _, _, what in found(path) if isinstance(what, Omission)]
    assert omitted == [Omission("#2", ASSISTANT), Omission("#4", ASSISTANT)]


# The MCP memory server

GRAPH = (
    {
        "type": "entity",
        "name": "Ines",
        "entityType": "person",
        "observations": ["Speaks Dutch", "ines leads the kiln team", 5],
    },
    {"type": "entity", "name": "Brasa", "entityType": "company", "observations": []},
    {"type": "relation", "from": "Ines", "to": "Brasa", "relationType": "works_at"},
)
GRAPH_TEXTS = [
    "Ines: Speaks Dutch",
    "ines leads the kiln team",
    "Brasa: company",
    "Ines works at Brasa",
]


def test_entities_and_relations_are_memories(tmp_path):
    path = write(tmp_path / "memory.jsonl", lines(*GRAPH))
    read = drafts(path)
    assert [draft.text for draft in read] == GRAPH_TEXTS
    assert read[0].tags == ("Ines", "person")
    assert read[0].source == "import:memory.jsonl#Ines"
    assert {format for _, format, _ in found(path)} == {"mcp-memory"}


def test_a_graph_as_the_server_answers_it_is_read_too(tmp_path):
    graph = {"entities": GRAPH[:2], "relations": GRAPH[2:]}
    path = write(tmp_path / "memory.json", json.dumps(graph, indent=2))
    assert [draft.text for draft in drafts(path)] == GRAPH_TEXTS


@pytest.mark.parametrize(
    "line", ["5", '{"type": "entity"}', '{"type": "relation", "from": 1}', "{"]
)
def test_a_bad_line_of_a_graph_is_named(tmp_path, line):
    path = write(tmp_path / "memory.jsonl", lines(GRAPH[0]) + line + "\n" + lines(GRAPH[2]))
    assert [place for place, _ in reasons(path)] == ["2"]
    assert [draft.text for draft in drafts(path)] == [*GRAPH_TEXTS[:2], GRAPH_TEXTS[3]]


RECORDS = {
    "mem0": {"memory": "a", "role": "user", "created_at": "2026-11-20", "expiration_date": None}
    | {"categories": ["b"], "metadata": {"c": "d"}, "id": "e"},
    "memwal": {"text": "a", "blob_id": "b", "created_at": "2026-11-20"},
    "mcp-memory": {"entities": [GRAPH[0]], "relations": [GRAPH[2]]},
}


@pytest.mark.parametrize("format", RECORDS)
def test_no_odd_value_ends_the_reading(tmp_path, format):
    for other in altered(RECORDS[format]):
        for value in (other, {"results": [other]}, {"results": other, "count": other}):
            path = write(tmp_path / "a.json", value)
            found(path, format)
            found(path)
