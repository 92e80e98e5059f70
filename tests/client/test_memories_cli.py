"""Seeing, correcting and forgetting from a shell, against a real relayer."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, EXIT_USAGE, main
from memrelay.commands.differences import WORDS_MAX, list_changed_fields, word_diff
from memrelay.models import Memory
from memrelay.plurals import format_count, format_size
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.shell_scene import Machine
from tests.conftest import database_copy
from tests.life import until
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server
from tests.processes import running_relayer

UNKNOWN = "00000000-0000-7000-8000-000000000000"
GREEN, BLACK = "Anna prefers green tea.", "Anna prefers black tea."
CTRL = "A title\x1b[2J and \u202eturned words"


@pytest.fixture(params=["sealed", "managed"])
def custody(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_user_audits_searches_corrects_and_deletes(run: Machine) -> None:
    """capability 3.21: people audit, search, correct and delete what is kept, fact by fact."""
    wrong = run.remember("The bakery closes at noon.", "--tag", "town")
    run.remember("The harbour opens at six.")
    assert [m["text"] for m in run("list", "--tag", "town")["memories"]] == [
        "The bakery closes at noon."
    ]
    [found] = run("recall", "bakery", "--mode", "keyword")["results"]
    assert found["id"] == wrong
    assert run("edit", wrong, "--text", "The bakery closes at one.")["revision"] == 2
    history = run("history", wrong)
    assert [one["text"] for one in history["revisions"]] == [
        "The bakery closes at one.",
        "The bakery closes at noon.",
    ]
    assert run("receipts")["checked"] >= 4
    assert run("forget", wrong)["erased"]
    assert not run("recall", "bakery", "--mode", "keyword")["results"]
    assert run("get", wrong, code=EXIT_NOT_FOUND) is None
    assert run("forget", "--namespace", "default", "--yes")["erased"] == 1
    assert run("list")["memories"] == []
    assert run("receipts")["checked"] == 2


class TestSeeing:
    def test_a_new_account_has_no_such_memory(self, run: Machine) -> None:
        """And lacks nothing else: its key may read whatever comes."""
        for command in (("get",), ("history",), ("edit", "--text", BLACK)):
            assert run(command[0], UNKNOWN, *command[1:], code=EXIT_NOT_FOUND) is None
            assert json.loads(run.err)["code"] == "not_found"

    def test_people_are_told_that_nothing_was_found(self, run: Machine) -> None:
        run.remember(GREEN, "--namespace", "Team/red")
        run("keys", "add", "--namespace", "granted", "--out", str(run.profile.with_name("new")))
        for argv in (["list", "--tag", "none"], ["recall", "xyzzy", "--mode", "keyword"]):
            assert run.lines(*argv, "--namespace", " Team/red") == []
            assert run.err == "memrelay: Nothing found.\n"
            assert run.lines(*argv) == []
            assert run.err == "memrelay: Nothing found.\n"
            for name in ("nowhere", "granted"):
                assert run.lines(*argv, "--namespace", name) == []
                assert run.err == f"memrelay: Nothing is stored in the namespace {name} yet.\n"
            run(*argv, "--namespace", "nowhere")
            assert run.err == ""
        assert len(run.lines("list", "--namespace", "Team/red")) == 1
        assert run.err == ""

    def test_a_list_has_pages_and_filters(self, run: Machine) -> None:
        for number in range(3):
            run.remember(f"The note {number}.", "--source", f"s{number % 2}")
        page = run("list", "--limit", "2")
        assert run.lines("list", "--limit", "2")
        assert f"--cursor {page['next_cursor']}" in run.err
        rest = run("list", "--limit", "2", "--cursor", page["next_cursor"])
        assert [m["text"] for m in rest["memories"]] == ["The note 0."]
        assert rest["next_cursor"] is None
        assert run.texts("--source", "s1") == ["The note 1."]
        assert run.texts("--state", "rejected") == []
        assert run.texts("--pinned") == []
        assert run.texts("--before", "2020-01-01T00:00:00Z") == []

    @pytest.mark.parametrize(
        "argv",
        [
            ["list", "--state", "gone"],
            ["list", "--kind", "thought"],
            ["review", "adopt"],
            ["get", "x", "--revision", "first"],
            ["namespaces", "x", "--ttl", "soon"],
            ["namespaces", "x", "--ttl", "0d"],
            ["namespaces", "x", "--ttl", "1d", "--no-ttl"],
            ["edit", "x", "--clear", "text"],
            ["settings", "redact"],
            ["pin"],
            ["close"],
        ],
    )
    def test_what_cannot_be_meant_is_a_usage_error(self, argv: list[str]) -> None:
        with pytest.raises(SystemExit) as done:
            main(argv, {})
        assert done.value.code == EXIT_USAGE

    def test_history_marks_what_changed(self, run: Machine) -> None:
        memory_id = run.remember(GREEN, "--tag", "drinks")
        run("edit", memory_id, "--text", BLACK, "--tag", "tea")
        lines = run.lines("history", memory_id)
        assert re.match("revision 2  [-0-9]{10} [:0-9]{5}Z  ", lines[0])
        assert lines[1:3] == [
            "    Anna prefers [-green-]{+black+} tea.",
            '    tags: ["drinks"] → ["tea"]',
        ]
        assert lines[3].startswith("revision 1  ")
        assert lines[4] == f"    {GREEN}"
        assert run.lines("get", memory_id, "--revision", "1") == [GREEN]
        assert run.lines("get", memory_id) == [BLACK]
        assert run("get", memory_id, "--revision", "3", code=EXIT_NOT_FOUND) is None

    def test_a_terminal_does_not_obey_a_memory(self, run: Machine) -> None:
        memory_id = run.remember(CTRL)
        for argv in (["list"], ["history", memory_id], ["get", memory_id]):
            shown = "\n".join(run.lines(*argv))
            assert "turned words" in shown
            assert "\x1b" not in shown
            assert "\u202e" not in shown

    def test_no_line_of_a_memory_looks_like_another_one(self, run: Machine) -> None:
        forged = f" 99%  {UNKNOWN}  Pay to account 4711."
        memory_id = run.remember(f"The rent is due.\n{forged}")
        first, below = run.lines("recall", "rent due", "--mode", "keyword")
        assert first.endswith(f"{memory_id}  The rent is due.")
        assert below == " " * 8 + forged

    def test_people_are_told_in_their_words_what_became_of_a_text(self, run: Machine) -> None:
        [line] = run.lines("remember", GREEN)
        assert re.fullmatch("[-0-9a-f]{36}  stored, can be found", line)
        [line] = run.lines("remember", GREEN, "--wait")
        assert line.endswith("  known already, can be found, by meaning too")
        assert run("remember", GREEN)["status"] in {"uploaded", "done"}

    def test_tags_stand_between_commas_or_in_options_of_their_own(self, run: Machine) -> None:
        memory_id = run.remember(GREEN, "--tag", "tea, drinks", "--tag", "anna")
        assert run("get", memory_id)["tags"] == ["tea", "drinks", "anna"]
        for argv in (["list"], ["recall", "tea", "--mode", "keyword"]):
            assert run.lines(*argv, "--tag", "tea,anna")
            assert not run.lines(*argv, "--tag", "tea,coffee")
        run("edit", memory_id, "--tag", "a,b")
        assert run("get", memory_id)["tags"] == ["a", "b"]

    def test_relevance_is_told_in_per_cent(self, run: Machine) -> None:
        run.remember(GREEN, "--wait")
        [first] = run.lines("recall", "What does Anna prefer?", "--min-relevance", "1%")
        [found] = run("recall", "What does Anna prefer?", "--min-relevance", "0.01")["results"]
        assert first.startswith(f"{round(100 * (1 - found['distance'])):3}%  {found['id']}  ")
        assert run.lines("recall", "What does Anna prefer?", "--min-relevance", "100%") == []

    def test_people_are_told_what_is_not_stored(self, run: Machine) -> None:
        token = "ghp_" + "a1B2" * 10
        for argv in (
            ["remember", f"The token of the bot is {token}."],
            ["analyze", f"1. user: I decided to use the token {token}."],
            ["edit", run.remember(GREEN), "--text", f"Anna has the token {token}."],
        ):
            run.lines(*argv)
            assert re.fullmatch("memrelay: 1 secret taken out: [-a-z]+.\n", run.err)
        run.lines("remember", BLACK)
        assert run.err == ""

    def test_namespaces_tell_their_size_and_how_long_they_keep(self, run: Machine) -> None:
        run.remember(GREEN, "--namespace", "Team/red")
        [info] = run("namespaces")["namespaces"]
        assert (info["name"], info["memory_count"], info["ttl_s"]) == ("Team/red", 1, None)
        assert run("namespaces", "Team/red", "--ttl", "30d")["ttl_s"] == 30 * 86_400
        [line] = run.lines("namespaces")
        name, count, texts, _, written, keeps, index = line.split("\t")
        assert (name, count, keeps, index) == ("Team/red", "1", "30 days", "searchable")
        assert (texts[-6:], written[-1]) == (" bytes", "Z")
        for span, said in (("1d", "1 day"), ("36h", "36 hours"), ("90m", "90 minutes")):
            assert run.lines("namespaces", "Team/red", "--ttl", span) == [
                f"Team/red: its memories are erased {said} after they were stored"
            ]
        assert run.lines("namespaces", "Team/red", "--no-ttl") == [
            "Team/red: its memories are kept"
        ]
        assert run("namespaces")["namespaces"][0]["ttl_s"] is None
        assert run("namespaces", "nowhere", "--ttl", "30d", code=EXIT_NOT_FOUND) is None
        for argv in (["namespaces", "Team/red"], ["namespaces", "--ttl", "30d"]):
            assert run(*argv, code=EXIT_USAGE) is None

    def test_an_index_is_sealed_and_goes_on_finding(self, run: Machine) -> None:
        run.remember(GREEN, "--namespace", "Team/red", "--wait")
        [said] = run.lines("namespaces", "Team/red", "--index", "sealed")
        assert said.startswith("Team/red: its index is sealed.")
        assert _found_by_all(run, GREEN, "--namespace", "Team/red")[0] == GREEN
        run.remember(BLACK, "--namespace", "Team/red")
        assert set(_found_by_all(run, GREEN, "--namespace", "Team/red")) == {GREEN, BLACK}
        assert run("namespaces")["namespaces"][0]["index"] == "sealed"
        assert run("namespaces", "nowhere", "--index", "sealed", code=EXIT_NOT_FOUND) is None

    def test_usage_is_told(self, run: Machine) -> None:
        run.remember(GREEN, "--wait")  # its vector counts, too
        used = run("usage")
        assert used["memory_count"] == 1
        assert used["storage_bytes"] > 0
        assert used["index_bytes"] > 1_500  # a row, and one for each word
        lines = run.lines("usage")
        assert lines[0] == "1 memory"
        assert lines[1] == (
            f"{format_size(used['storage_bytes'])} of texts,"
            f" {format_size(used['index_bytes'])} of their index, of 10 GiB together"
        )
        done = format_count(used["grant_count"], "time")
        assert f"keys were granted or revoked {done}, of {used['grants_max']} at most" in lines


def _found_by_all(run: Machine, *asked: str) -> list[str]:
    """Return texts that are found by all of an index: a recall does not wait long for it."""
    answers: list[Any] = []

    def is_whole() -> bool:
        answers.append(run("recall", *asked))
        return not answers[-1]["degraded"]

    until(is_whole, "the index is loaded")
    return [memory["text"] for memory in answers[-1]["results"]]


class TestCorrecting:
    def test_text_comes_from_an_option_or_standard_input(
        self, run: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory_id = run.remember(GREEN)
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{BLACK}\n"))
        run("edit", memory_id, "--text", "-")
        assert run("get", memory_id)["text"] == BLACK
        run("edit", memory_id, "--text", GREEN)
        assert run("get", memory_id)["text"] == GREEN

    def test_only_what_is_named_changes(self, run: Machine) -> None:
        memory_id = run.remember(GREEN, "--tag", "a", "--source", "chat")
        run("edit", memory_id, "--kind", "preference", "--metadata", "k=v")
        run("edit", memory_id, "--clear", "source", "--importance", "vital")
        found = run("get", memory_id)
        assert (found["text"], found["tags"], found["kind"]) == (GREEN, ["a"], "preference")
        assert (found["source"], found["importance"]) == (None, "vital")
        assert (found["metadata"], found["revision"]) == ({"k": "v"}, 3)

    def test_what_others_changed_is_not_overwritten(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        run("edit", memory_id, "--text", BLACK)
        argv = ["edit", memory_id, "--text", "Anna prefers water.", "--revision", "1"]
        assert run(*argv, code=EXIT_FAILED) is None
        assert "memory.revision" in run.err
        assert run("get", memory_id)["text"] == BLACK

    def test_an_edit_of_nothing_is_a_usage_error(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        assert run("edit", memory_id, code=EXIT_USAGE) is None
        assert run("edit", UNKNOWN, "--text", BLACK, code=EXIT_NOT_FOUND) is None
        assert run.lines("edit", memory_id, "--text", GREEN) == [f"{memory_id}  says that already"]
        assert run("get", memory_id)["revision"] == 1

    def test_pins_come_and_go(self, run: Machine) -> None:
        ids = [run.remember(text) for text in (GREEN, BLACK)]
        assert [one["pinned"] for one in run("pin", *ids)["results"]] == [True, True]
        assert run("unpin", ids[0])["pinned"] is False
        assert run.texts("--pinned") == [BLACK]
        assert run("pin", UNKNOWN, code=EXIT_NOT_FOUND) is None

    def test_of_several_each_is_told_what_became_of_it(self, run: Machine) -> None:
        first, last = (run.remember(text) for text in (GREEN, BLACK))
        done = run("pin", first, UNKNOWN, last, code=EXIT_NOT_FOUND)["results"]
        assert [one["id"] for one in done] == [first, UNKNOWN, last]
        assert [one.get("pinned") for one in done] == [True, None, True]
        assert "404" in done[1]["error"]
        lines = run.lines("review", "resolve", first, UNKNOWN, code=EXIT_FAILED)
        assert lines[0] == f"{first}  {first} speaks against no other memory."
        assert lines[1].startswith(f"{UNKNOWN}  ")
        assert "2 could not be changed" in run.err

    def test_what_is_doubtful_waits_for_review(self, run: Machine) -> None:
        assert run.lines("review") == []
        assert run.err == "memrelay: Nothing waits to be looked at.\n"
        run("settings", "low_confidence=review")
        [fact] = run("analyze", "Perhaps I prefer green tea over coffee.")["facts"]
        assert (fact["confidence"], fact["review"]) == ("low", "pending")
        assert run.texts() == []
        [doubtful] = run("review")["memories"]
        assert (doubtful["id"], doubtful["reason"]) == (fact["id"], "pending")
        head, text = run.lines("review")
        assert head.endswith("pending")
        assert text == f"    {fact['text']}"
        assert run("review", "resolve", fact["id"], code=EXIT_USAGE) is None
        run("review", "approve", fact["id"])
        assert run.texts() == [fact["text"]]
        assert run("review")["memories"] == []

    async def test_a_contradiction_is_resolved(
        self,
        postgres: EmbeddedPostgres,
        template: str,
        model_dir: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        async with database_copy(postgres, template) as copy:
            with (
                openai_server() as model,
                running_relayer(
                    tmp_path / "data",
                    model_dir,
                    database_url=copy.url,
                    OPENAI_BASE_URL=model.base_url,
                    OPENAI_API_KEY=API_KEY,
                    RELAYER_LLM_MODEL=CHAT_MODEL,
                ) as relayer,
            ):
                self.resolve(model, relayer.url, Machine(tmp_path / "thinking.json", capsys))

    @staticmethod
    def resolve(model: OpenAIServer, url: str, run: Machine) -> None:
        run("init", url)
        run("settings", "contradictions=review")
        old = run.remember("Anna lives in Oslo.")
        fact: dict[str, Any] = {"text": "Anna lives in Bergen.", "said_by": "user", "kind": "fact"}
        fact |= {"importance": "standard", "confidence": "high", "contradicts": 1}
        model.script(Step(content=json.dumps({"facts": [fact]})))
        [new] = run("analyze", "By the way, Anna lives in Bergen.")["facts"]
        assert (new["contradicts"], new["superseded"]) == ([old], [])
        [doubtful] = run("review")["memories"]
        assert (doubtful["id"], doubtful["reason"]) == (new["id"], "contradiction")
        assert [other["id"] for other in doubtful["others"]] == [old]
        assert run.lines("review")[2] == f"    against {old}  Anna lives in Oslo."
        assert run("review", "resolve", new["id"])["review"] is None
        assert run("review")["memories"] == []
        assert run.texts() == ["Anna lives in Bergen."]
        assert run("get", old)["superseded_by"] == new["id"]

    def test_review_approves_and_rejects(self, run: Machine) -> None:
        ids = [run.remember(text) for text in (GREEN, BLACK)]
        run("review", "reject", *ids)
        assert run.texts() == []
        assert run.texts("--state", "rejected") == [BLACK, GREEN]
        run("review", "approve", ids[0])
        assert run.texts() == [GREEN]
        for argv in (["approve"], ["list", ids[0]], ["resolve", ids[0]]):
            assert run("review", *argv, code=EXIT_USAGE) is None
        assert run("review", "approve", UNKNOWN, code=EXIT_NOT_FOUND) is None
        nothing = f"{ids[0]}  waits for nothing: it is recalled as it is"
        assert run.lines("review", "approve", ids[0]) == [nothing]
        assert run.lines("review", "reject", ids[1]) == [f"{ids[1]}  was rejected before"]
        told = run.lines("review", "approve", *ids)
        assert told == [nothing, f"{ids[1]}  approved"]
        assert run.lines("pin", ids[0]) == [f"{ids[0]}  pinned"]
        assert run.lines("pin", ids[0]) == [f"{ids[0]}  was pinned already"]

    def test_settings_are_shown_and_changed(self, run: Machine) -> None:
        assert "redact = on" in run.lines("settings")
        changed = run("settings", "redact=off", "consolidate_every_h=24")["settings"]
        assert (changed["redact"], changed["consolidate_every_h"]) == (False, 24)
        assert run("settings")["settings"] == changed
        for wrong in ("redact=maybe", "colour=blue", "consolidate_every_h=often"):
            assert run("settings", wrong, code=EXIT_USAGE) is None
        assert run("settings")["settings"] == changed


class TestForgetting:
    def test_one_that_was_forgotten_may_be_forgotten_again(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        first, again = run("forget", memory_id), run("forget", memory_id)
        assert (first["id"], first["erased"], again["erased"]) == (memory_id, True, True)
        assert first["receipt"]
        assert again["receipt"] is None
        assert run("forget", UNKNOWN, code=EXIT_NOT_FOUND) is None

    def test_several_ids_are_told_one_by_one(self, run: Machine) -> None:
        ids = [run.remember(text) for text in (GREEN, BLACK)]
        tried = run("forget", *ids, "--dry-run")
        assert (tried["matched"], tried["erased"], run.texts()) == (2, 0, [BLACK, GREEN])
        told = run.lines("forget", *ids, UNKNOWN, "--dry-run", code=EXIT_NOT_FOUND)
        assert told == [
            f"{ids[0]}\t{GREEN}\twould be erased",
            f"{ids[1]}\t{BLACK}\twould be erased",
            f"{UNKNOWN}\t\tnot found",
        ]
        done = run("forget", *ids, UNKNOWN, code=EXIT_NOT_FOUND)
        assert [one["status"] for one in done["results"]] == ["erased", "erased", "not_found"]
        assert "One was not found" in run.err
        assert run.lines("forget", *ids)[:2] == [f"{one}  was erased before" for one in ids]

    def test_more_than_was_named_needs_a_yes(self, run: Machine) -> None:
        run.remember(GREEN, "--tag", "tea")
        run.remember("Berta prefers water.")
        for argv in (["--tag", "tea"], ["--namespace", "default"]):
            assert run("forget", *argv, code=EXIT_USAGE) is None
            assert "--yes" in run.err
        first, last = run.lines("forget", "--tag", "tea", "--dry-run")
        assert first.split("\t")[1] == GREEN
        assert last == "1 memory would be erased"
        assert run("forget", "--namespace", "default", "--dry-run")["matched"] == 2
        assert len(run.texts()) == 2
        assert run("forget", "--tag", "tea", "--yes")["erased"] == 1
        assert run.texts() == ["Berta prefers water."]

    @pytest.mark.parametrize(("answer", "left"), [("n", 1), ("", 1), ("y", 0)])
    def test_a_person_is_asked_first(self, run: Machine, answer: str, left: int) -> None:
        run.remember(GREEN)
        argv = [sys.executable, "-m", "memrelay", "forget", "--namespace", "default"]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*argv, "--profile", str(run.profile)],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.write(ours, f"{answer}\n".encode())
        _, err = process.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        assert "all of default (1 memory)" in err
        assert process.returncode == (EXIT_FAILED if left else EXIT_OK)
        assert len(run.texts()) == left

    @pytest.mark.parametrize(
        "argv",
        [
            [],
            ["--yes"],
            ["--dry-run"],
            ["ID", "--namespace", "default"],
            ["ID", "--kind", "fact"],
        ],
    )
    def test_what_to_forget_is_said_in_one_way(self, run: Machine, argv: list[str]) -> None:
        memory_id = run.remember(GREEN)
        argv = [memory_id if one == "ID" else one for one in argv]
        assert run("forget", *argv, code=EXIT_USAGE) is None
        assert run.texts() == [GREEN]

    def test_the_account_is_closed_by_its_name(self, run: Machine) -> None:
        run.remember(GREEN)
        with run.client() as memory:
            account_id = memory.settings.account_id
        assert run("close", f"0x{'ab' * 32}", "--yes", code=EXIT_USAGE) is None
        assert run("close", account_id, code=EXIT_USAGE) is None
        assert run.texts() == [GREEN]
        closed = run("close", account_id, "--yes")
        assert (closed["account_id"], closed["closed"]) == (account_id, True)
        assert run("list", code=EXIT_FAILED) is None


def test_a_text_that_only_looks_like_a_transcript_is_told(run: Machine) -> None:
    assert run.lines("analyze", '[{"role": "user", "content": "I moved to Ghent."}') == [
        "0 facts, looked for by rules: no language model is set"
    ]
    assert run.err.startswith("memrelay: The text is JSON without messages, or only nearly JSON.")
    run.lines("analyze", "ok, thanks")
    assert run.err == ""


class TestDifferences:
    @pytest.mark.parametrize(
        ("older", "newer", "shown"),
        [
            ("a b c", "a b c", "a b c"),
            ("a b c", "a x c", "a [-b-]{+x+} c"),
            ("", "a", "{+a+}"),
            ("a b", "b", "[-a -]b"),
            ("a\nb", "a\nc", "a\n[-b-]{+c+}"),
        ],
    )
    def test_words_that_went_and_came(self, older: str, newer: str, shown: str) -> None:
        assert word_diff(older, newer) == shown

    def test_a_long_text_is_not_compared(self) -> None:
        long = "a " * (WORDS_MAX + 1)
        assert word_diff("b", long) == long

    def test_fields_that_stayed_are_not_shown(self) -> None:
        older = Memory(id=str(uuid.uuid4()), namespace="x", text="a", kind="fact", source="s")
        assert list(list_changed_fields(older, older)) == []
        newer = replace(older, text="b", kind="event", source=None)
        assert list(list_changed_fields(older, newer)) == ["kind: fact → event", "source: s → none"]
