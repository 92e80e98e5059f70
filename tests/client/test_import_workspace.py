"""What agents' workspaces have beside memories: templates, marks of state, reports, summaries."""

from datetime import UTC, datetime

import pytest

from memrelay.importing.drafts import REPORT, SUMMARY, SUPERSEDED, TEMPLATE, Entry, Omission
from memrelay.importing.files import find
from memrelay.importing.templates import DIGESTS
from tests.client.import_scene import MEMSEARCH_MD, drafts, found, write
from tests.generate_templates import TARGET, module

# A line of the template in each of its markups; the rest of it is known by digests alone.
TEMPLATE_MD = """\
# USER.md - User Model

Use one directive per entry:

```md
<!-- observed: YYYY-MM-DD | status: active -->

- Prefer concise progress updates during implementation work.
```

## Directives

<!-- observed: YYYY-MM-DD | status: active -->

- Prefer ...

## Related

- [Agent workspace](/concepts/agent-workspace)
"""
LABELS_MD = """\
# USER.md - About Your Human

- **Name:** Ines
- **What to call them:**
- **Pronouns:** they/them
- **Timezone:**
  Asia/Tokyo
- **Mein Feld:** _(noch leer)_
- **Tea:** (green)

## Context

She fires clay in a kiln.
"""
DIRECTIVES_MD = """\
## Reports

<!-- observed: 2026-05-10 | status: superseded -->

- Prefer long reports on the kiln.

<!-- observed: 2026-07-27 | status: active -->

- Prefer short reports on the kiln.

<!-- observed: 2026-08-02 | status: active -->

- Prefer concise progress updates during implementation work.

## Old

<!-- observed: 2025-01-01 | status: superseded -->

- Never write to Bram before nine.

## Behind

<!-- observed: 2026-09-01 | status: active -->

- Always answer Bram in Dutch.

<!-- observed: 2026-02-01 | status: superseded -->

- Always answer Bram in German. <!-- importance: 3 -->
"""


def omitted(path, **options) -> list[tuple[str, str]]:
    whats = [what for _, _, what in found(path, **options)]
    return [(what.place, what.reason) for what in whats if isinstance(what, Omission)]


def test_a_template_that_nobody_filled_in_gives_no_memory(tmp_path):
    path = write(tmp_path / "USER.md", TEMPLATE_MD)
    assert drafts(path) == []
    assert omitted(path) == [("3", TEMPLATE), ("15", TEMPLATE), ("19", TEMPLATE)]


def test_what_was_filled_in_is_kept(tmp_path):
    path = write(tmp_path / "USER.md", LABELS_MD)
    assert [draft.text for draft in drafts(path)] == [
        "**Name:** Ines",
        "**Pronouns:** they/them",
        "**Timezone:**\n  Asia/Tokyo",
        "**Tea:** (green)",
        "She fires clay in a kiln.",
    ]


def test_the_generated_digests_are_the_generators():
    assert TARGET.read_text() == module(DIGESTS)


def test_directives_keep_their_day_and_what_they_took_the_place_of(tmp_path):
    path = write(tmp_path / "USER.md", DIRECTIVES_MD)
    entries = [what for _, _, what in found(path) if isinstance(what, Entry)]
    assert [
        (entry.draft.text, f"{entry.draft.event_time:%m-%d}", [one.text for one in entry.earlier])
        for entry in entries
    ] == [
        ("Prefer short reports on the kiln.", "07-27", ["Prefer long reports on the kiln."]),
        ("Prefer concise progress updates during implementation work.", "08-02", []),
        ("Always answer Bram in Dutch.", "09-01", ["Always answer Bram in German."]),
    ]
    assert entries[0].earlier[0].event_time == datetime(2026, 5, 10, tzinfo=UTC)
    assert omitted(path) == [("19", SUPERSEDED)]


def test_promotions_are_of_the_day_of_their_note_and_reports_are_none(tmp_path):
    write(
        tmp_path / "MEMORY.md",
        "## Promoted From Short-Term Memory (2026-09-10)\n\n"
        "<!-- openclaw-memory-promotion:k -->\n- The kiln got a new thermocouple. [score=0.912"
        " signals=4 recalls=3 avg=0.870 source=memory/2026-09-02.md:3-3] <!-- trigger: kiln -->\n",
    )
    write(
        tmp_path / "memory/2026-09-02.md",
        "- Glaze nine ran off the shelf.\n\n## Light Sleep\n"
        "<!-- openclaw:dreaming:light:start -->\n- Candidate: Glaze nine ran off the shelf.\n"
        "<!-- openclaw:dreaming:light:end -->\n",
    )
    write(tmp_path / "memory/dreaming/deep/2026-09-03.md", "- Ranked 3 candidates for promotion.")
    promoted, noted = drafts(tmp_path)
    assert (promoted.text, promoted.tags) == ("The kiln got a new thermocouple.", None)
    assert promoted.event_time == noted.event_time == datetime(2026, 9, 2, tzinfo=UTC)
    assert omitted(tmp_path) == [("5", REPORT)]
    assert find([str(tmp_path)])[1] == 1


def test_a_users_own_file_is_tagged_with_its_user(tmp_path):
    write(tmp_path / "MEMORY.md", "- The kiln has three shelves.")
    write(tmp_path / "users/prof_9f2/USER.md", "- Always answer Bram in Dutch.")
    _, own = drafts(tmp_path)
    assert own.tags == ("user:prof_9f2",)
    assert own.source == "import:users/prof_9f2/USER.md"


HERMES_MD = (
    "Ships with make ship\n- staging first\n§\nCites § 12 of the code.\n § \n\n§\nTea, not coffee."
)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_entries_of_hermes_are_parted_by_lines_of_a_lone_sign(tmp_path, ending):
    path = write(tmp_path / "memories/MEMORY.md", "")
    path.write_bytes(HERMES_MD.replace("\n", ending).encode())
    places = [(what.place, what.draft.text) for _, _, what in found(path)]
    assert places == [
        ("1", "Ships with make ship\n- staging first"),
        ("4", "Cites § 12 of the code."),
        ("8", "Tea, not coffee."),
    ]
    assert {format for _, format, _ in found(path)} == {"hermes"}


def test_a_single_entry_of_hermes_is_known_by_its_folder(tmp_path):
    text = "Deploys:\n- staging first\n- then production\n"
    assert [one.text for one in drafts(write(tmp_path / "memories/USER.md", text))] == [
        text.strip()
    ]
    assert len(drafts(write(tmp_path / "USER.md", text))) == 2


SUMMARY_MD = """

## Memory Compact 21:40

# Summary
## Keys
- Anna learnt how the signing key is rotated.
"""


def test_a_summary_of_memsearch_is_left_out_beside_what_it_sums_up(tmp_path):
    later = "\n### 22:00\n<!-- session:9d2f turn:t9 -->\n- Anna went home by tram.\n"
    write(tmp_path / ".memsearch/memory/2026-05-06.md", MEMSEARCH_MD + SUMMARY_MD + later)
    write(tmp_path / ".memsearch/PROJECT.md", "# Project Memory\n\n- The kiln code is frozen.")
    texts = [draft.text for draft in drafts(tmp_path, with_logs=True)]
    assert "Anna went home by tram." in texts
    assert "The kiln code is frozen." in texts
    assert not [text for text in texts if "learnt" in text]
    assert [reason for _, reason in omitted(tmp_path)] == [SUMMARY]


def test_a_summary_of_memsearch_alone_is_all_there_is(tmp_path):
    path = write(tmp_path / "memory/2026-05-07.md", f"# 2026-05-07\n{SUMMARY_MD}")
    (draft,) = drafts(path)
    assert (draft.text, draft.kind) == ("Anna learnt how the signing key is rotated.", "summary")
    assert draft.event_time == datetime(2026, 5, 7, tzinfo=UTC)
    write(tmp_path / "memory/2026-05-06.md", MEMSEARCH_MD)
    assert len(drafts(tmp_path, with_logs=True)) == 3


TABLES = {
    "| Name | Role |\n|---|:-:|\n| Ines | lead |\n| Bram | |\n": [
        "Name: Ines; Role: lead",
        "Name: Bram",
    ],
    "Name | Role\n--- | ---\nInes | lead \\| glazes\n": ["Name: Ines; Role: lead | glazes"],
    "| Setting | Value |\n|---|---|\n| timezone | Asia/Tokyo |\n": ["timezone: Asia/Tokyo"],
    "Team:\n\n| | **Role** |\n|---|---|\n| Ines | lead |\n": ["Team: Ines; Role: lead"],
    "The team at the kiln:\n| a | b |\n|--|--|\n| one | two |\nand words behind it\n": [
        "a: one; b: two",
        "and words behind it",
    ],
    "- Team at the kiln\n  | a | b |\n  |--|--|\n  | 1 | 2 |\n- next of the list\n": [
        "Team at the kiln\n  a: 1; b: 2",
        "next of the list",
    ],
    "> | a | b |\n> |---|---|\n> | one | two |\n": ["a: one; b: two"],
    "| no | table |\n| for | want of a line |\n": ["| no | table |\n| for | want of a line |"],
    "```\n| a | b |\n|---|---|\n```\n": ["```\n| a | b |\n|---|---|\n```"],
    "| a | b |\n|---|---|\n": [],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_a_table_is_a_memory_with_its_columns_names(tmp_path, table):
    assert [draft.text for draft in drafts(write(tmp_path / "notes.md", table))] == TABLES[table]
