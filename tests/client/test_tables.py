"""Lists for people: they fit the terminal, and their short ids are enough for every command."""

import json
import re
from collections.abc import Iterable

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_NOT_FOUND, EXIT_USAGE
from memrelay.commands.ids import find_ids
from memrelay.commands.tables import cut, measure_width, shorten_ids
from memrelay.errors import ServerError
from memrelay.models import MemoryStatus
from tests.client.shell_scene import Machine, show

GREEN = "Anna prefers green tea."
UNKNOWN = "00000000-0000-7000-8000-000000000000"


class TestTables:
    def test_a_pipe_gets_whole_values_between_tabs(self, run: Machine) -> None:
        text = "long" * 2_000
        memory_id = run.remember(f"{text}\nAnd more below.", "--kind", "preference")
        run("pin", memory_id)
        [line] = run.lines("list")
        shown_id, shown, written, kind, _, namespace, marks = line.split("\t")
        assert (shown_id, shown) == (memory_id, f"{text} And more below.")
        assert (kind, namespace, marks) == ("preference", "default", "pinned")
        assert re.fullmatch(r"[-0-9]{10} [0-9]{2}:[0-9]{2}Z", written)

    @pytest.mark.parametrize("columns", [200, 100, 80, 60, 40])
    def test_a_list_fits_the_terminal(self, run: Machine, columns: int) -> None:
        memory_id = run.remember("long " * 200)
        run.remember("茶の好みを覚えている。" * 40)
        heading, wide, long = show(run.profile, columns, "list")
        assert re.match("ID +TEXT", heading)
        assert all(measure_width(line) <= columns for line in (heading, wide, long))
        assert measure_width(long) > columns - 12, "the room is used"
        assert long.startswith(memory_id[:8])
        assert "  long long lo" in long
        assert "…" in long
        assert "…" in wide
        assert ("NAMESPACE" in heading) == (columns >= 100)

    def test_a_short_list_is_not_cut(self, run: Machine) -> None:
        run.remember(GREEN)
        heading, line = show(run.profile, 120, "list")
        assert GREEN in line
        assert "KIND" in heading
        assert "MARKS" not in heading, "no column is empty"

    def test_a_recall_shows_short_ids_and_whole_texts(self, run: Machine) -> None:
        memory_id = run.remember("tea " * 60)
        [line] = show(run.profile, 60, "recall", "tea", "--mode", "keyword")
        assert line.rstrip() == f"100%  {memory_id[:8]}  {'tea ' * 60}".rstrip()

    @pytest.mark.parametrize("columns", [140, 80, 50])
    def test_an_explanation_fits_the_terminal(self, run: Machine, columns: int) -> None:
        run.remember(f"{GREEN} {'And more of it. ' * 20}", "--wait")
        heading, line = show(run.profile, columns, "recall", "green tea", "--explain")
        assert re.match("ID +RELEVANT +TEXT", heading)
        assert heading.split()[-1] == "SCORE" or "MADE OF" in heading
        assert "%  Anna prefers" in re.sub(" +", "  ", line).replace(
            "Anna  prefers", "Anna prefers"
        )
        assert max(map(measure_width, (heading, line))) <= columns

    def test_a_terminal_without_unicode_gets_plain_characters_that_fit(self, run: Machine) -> None:
        run.remember("茶の好みを覚えている。" * 40)
        lines = show(run.profile, 60, "list", PYTHONIOENCODING="ascii")
        assert "\\u8336" in lines[1]
        assert "~" in lines[1]
        assert max(map(len, lines)) <= 60

    @pytest.mark.parametrize(
        ("text", "width", "shown"),
        [
            ("plain", 5, "plain"),
            ("plainer", 5, "plai…"),
            ("茶茶茶", 6, "茶茶茶"),
            ("茶茶茶", 5, "茶茶…"),
            ("茶茶茶", 4, "茶…"),
            ("e\u0301" * 5, 5, "e\u0301" * 5),
            ("a b c", 3, "a…"),
        ],
    )
    def test_wide_characters_count_twice_and_marks_not_at_all(
        self, text: str, width: int, shown: str
    ) -> None:
        assert cut(text, width) == shown
        assert measure_width(shown) <= width

    def test_short_ids_can_be_told_apart(self) -> None:
        ids = [f"019ac3f2-8d4{n}-7000-8000-000000000000" for n in (1, 2)]
        assert shorten_ids(ids) == {ids[0]: "019ac3f2-8d41", ids[1]: "019ac3f2-8d42"}
        assert shorten_ids(ids[:1]) == {ids[0]: "019ac3f2"}
        assert shorten_ids([]) == {}


class TestShortIds:
    def test_eight_digits_are_enough_for_every_command(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        short = memory_id[:8]
        assert run("get", short)["text"] == GREEN
        assert run("get", memory_id[:13].replace("-", "").upper())["id"] == memory_id
        assert run("history", short)["id"] == memory_id
        assert run("edit", short, "--kind", "preference")["revision"] == 2
        assert run("pin", short)["id"] == memory_id
        assert run("unpin", short)["pinned"] is False
        assert run("review", "reject", short)["state"] == "rejected"
        assert run("review", "approve", short)["state"] == "active"
        assert run("forget", short, "--dry-run")["results"][0]["id"] == memory_id
        assert run("forget", short)["id"] == memory_id
        assert run("get", short, code=EXIT_NOT_FOUND) is None

    def test_several_are_named_at_once(self, run: Machine) -> None:
        ids = [run.remember(f"The note {number}.") for number in range(3)]
        short = [*shorten_ids(ids).values()]
        assert {one["id"] for one in run("pin", *short[:2])["results"]} == set(sorted(ids)[:2])
        done = run("forget", *short, "0000000000", code=EXIT_NOT_FOUND)
        assert [one["status"] for one in done["results"]] == [*["erased"] * 3, "not_found"]

    def test_one_that_begins_several_says_which(self, run: Machine) -> None:
        # Within a minute, of three ids two begin with the same eight digits.
        begun: dict[str, list[str]] = {}
        for number in range(3):
            memory_id = run.remember(f"The note {number}.")
            begun.setdefault(memory_id[:8], []).append(memory_id)
        alike, ids = max(begun.items(), key=lambda item: len(item[1]))
        assert run("forget", alike, code=EXIT_USAGE) is None
        assert all(one in run.err for one in ids)
        assert len(run.texts()) == 3

    def test_one_that_is_too_short_is_told_so(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        assert run("forget", memory_id[:7], code=EXIT_USAGE) is None
        assert "give 8 digits of the id, or more" in run.err
        assert run("get", "tea", code=EXIT_NOT_FOUND) is None

    def test_a_run_and_a_webhook_have_short_ids(self, run: Machine) -> None:
        run.remember(GREEN)
        begun = run("consolidate")
        assert run("consolidate", "show", begun["id"][:8])["id"] == begun["id"]
        assert run("consolidate", "show", "0000000000", code=EXIT_NOT_FOUND) is None
        hook = run("webhooks", "add", "https://example.org/")
        assert run("webhooks", "add", "https://example.org/2", "--id", hook["id"][:8])
        [listed] = run("webhooks", "list")["webhooks"]
        assert listed["id"] == hook["id"]
        assert run("webhooks", "remove", hook["id"][:8])["removed"]

    def test_a_key_of_other_namespaces_is_told_of_none(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        other = run.profile.with_name("other.json")
        run("keys", "add", "--namespace", "elsewhere", "--out", str(other))
        run.profile = other
        assert run("get", memory_id[:8], code=EXIT_NOT_FOUND) is None
        assert json.loads(run.err)["code"] == "not_found"

    def test_a_relayer_cannot_swap_what_was_named(self) -> None:
        class Lying(SyncMemoryClient):
            def __init__(self) -> None:
                """Do nothing: it asks nobody."""

            def status(self, ids: Iterable[str]) -> tuple[MemoryStatus, ...]:
                other = (UNKNOWN,)
                return tuple(MemoryStatus(id=i, status="not_found", matches=other) for i in ids)

        with pytest.raises(ServerError, match="do not begin with 01a221ed"):
            find_ids(Lying(), ["01a221ed"])


@pytest.mark.parametrize("columns", [120, 60])
@pytest.mark.parametrize(
    ("command", "heading"),
    [
        ("agents", "AGENT"),
        ("keys", "KEY"),
        ("webhooks", "ID"),
        ("consolidate", "ID"),
        ("namespaces", "NAMESPACE"),
    ],
)
def test_every_list_has_a_heading_and_fits(
    run: Machine, command: str, heading: str, columns: int
) -> None:
    run.remember(GREEN, "--namespace", "a namespace with a name that is as long as one may have it")
    run("agents", "provision", "coder", "--shared", "team", "--expires", "2126-01-01")
    run("webhooks", "add", "https://example.org/", "--only", "team")
    run("consolidate", "--namespace", "a namespace with a name that is as long as one may have it")
    action = [] if command == "namespaces" else ["list"]
    first, *lines = show(run.profile, columns, command, *action)
    assert first.startswith(f"{heading} ")
    assert lines
    assert all(measure_width(line) <= columns for line in (first, *lines))
