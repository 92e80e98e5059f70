"""What the rules find in the demo's conversation and in marked ones."""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import groupby

import pytest

from bench import extraction
from tests.extraction.ruled import DEMO, ROOT, demo_rows, texts

MARKS = ROOT / "bench" / "data" / "extraction"


def demo_marks() -> list[str]:
    """The sentences that somebody would want back in a month, marked by hand."""
    lines = (MARKS / "demo_facts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["sentence"] for line in lines]


def demo_questions() -> list[dict[str, str]]:
    lines = (DEMO / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def demo_facts(label: str) -> dict[str, list[str]]:
    """Return the facts by namespace; `label` is put before each message."""
    found: dict[str, list[str]] = {}
    for (_, namespace), rows in groupby(
        demo_rows(), lambda row: (row["session"], row["namespace"])
    ):
        said = [label.format_map(row) + row["text"] for row in rows]
        text = "\n\n".join(f"{n}. {message}" for n, message in enumerate(said, start=1))
        found.setdefault(namespace, []).extend(await texts(text))
    return found


def test_demo_conversation_is_what_it_says() -> None:
    rows = demo_rows()
    assert len(rows) >= 48
    assert {row["agent"] for row in rows} == {"researcher", "coder"}
    assert {row["namespace"] for row in rows} == {"researcher", "coder", "team"}
    times = [datetime.fromisoformat(row["at"]) for row in rows]
    assert times == sorted(times)
    assert {time.year for time in times} == {2026}
    assert all(set(row) == set(rows[0]) for row in rows)
    assert len(demo_questions()) >= 10


@pytest.mark.parametrize("label", ["", "{role}: ", "{speaker} ({role}): "])
async def test_demo_questions_are_answerable_without_a_model(
    label: str, record_property: Callable[[str, object], None]
) -> None:
    """capability 3.20: nothing but the relayer itself is needed to remember a conversation."""
    found = await demo_facts(label)
    for question in demo_questions():
        facts = found[question["namespace"]]
        assert any(question["expect"] in fact for fact in facts), question["question"]
    facts = [fact for facts in found.values() for fact in facts]
    marks = demo_marks()
    junk = [fact for fact in facts if not any(mark in fact for mark in marks)]
    missed = [mark for mark in marks if not any(mark in fact for fact in facts)]
    record_property("facts", len(facts))
    record_property("junk_share", len(junk) / len(facts))
    record_property("missed_share", len(missed) / len(marks))
    assert len(junk) / len(facts) <= 0.05, junk
    assert len(missed) / len(marks) <= 0.1, missed


@pytest.mark.parametrize(
    ("name", "kept_min", "junk_max"),
    [("demo", 0.9, 0.05), ("other", 0.8, 0.1), ("held out", 0.9, 0.15)],
)
async def test_marked_facts_are_kept_and_little_else(
    name: str, kept_min: float, junk_max: float
) -> None:
    """The figures of `bench.extraction`, every window of it, without recall.

    The last conversation shaped no rule. What a user states there counts as junk where nobody
    marked it; of what was marked, less than a tenth may be lost.
    """
    turns, facts = (extraction.lines(path) for path in extraction.CONVERSATIONS[name])
    kept: list[str] = []
    for _, rows in groupby(turns, lambda turn: turn["session"]):
        session = list(rows)
        for at in range(0, len(session), extraction.WINDOW):
            kept += await texts(extraction.numbered(session[at : at + extraction.WINDOW]))
    marks = [fact["sentence"] for fact in facts]
    assert all(fact["sentence"] in turns[fact["turn"] - 1]["text"] for fact in facts)
    junk = [text for text in kept if not any(mark in text or text in mark for mark in marks)]
    missed = [mark for mark in marks if not any(mark in text for text in kept)]
    assert len(missed) <= (1 - kept_min) * len(marks), missed
    assert len(junk) <= junk_max * len(kept), junk


async def test_poisoned_page_of_the_demo_leaves_no_fact() -> None:
    facts = [fact for facts in (await demo_facts("")).values() for fact in facts]
    assert any("attacker.example.org" in row["text"] for row in demo_rows())
    assert not any("attacker" in fact or "invoices" in fact for fact in facts)
