"""What a slip at the shell must not do: lose, mangle or answer something else than was asked."""

import io
import json
import platform
import sys
import time
from argparse import Action, ArgumentParser, _SubParsersAction
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, build_parser, main
from memrelay.commands.suggestions import _COMMANDS, _OPTIONS
from memrelay.config import read_profile
from memrelay.secure_files import write_private
from tests.client.doctor_scene import answering
from tests.client.shell_scene import Machine
from tests.processes import RunningRelayer

UNKNOWN = "00000000-0000-7000-8000-000000000000"

GREEN = "Anna prefers green tea."
NEXT = "the next line of a loop"


def parsers_of(commands: Action) -> list[ArgumentParser]:
    """The parsers of the commands that an action chooses from."""
    assert isinstance(commands, _SubParsersAction)
    return list(commands.choices.values())


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What the parser says against arguments."""
    with pytest.raises(SystemExit) as done:
        main(argv, {})
    assert done.value.code == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    return err


class TestArguments:
    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            (["list", "--after", "05/04/2026"], "'05/04/2026' is no time; write 2026-05-04, "),
            (["list", "--before", "2026-13-01"], "'2026-13-01' is no time; write 2026-05-04, "),
            (["remember", "x", "--event-time", "30d"], 'write "30d ago" or "in 30d"'),
            (["remember", "x", "--expires-at", "yesterday"], " is past; write 2026-12-31, "),
            (["remember", "x", "--expires-at", "2026-13-01T00:00:00Z"], "is no time; write 2026"),
            (["edit", "x", "--expires-at", "2020-05-04T09:30:00Z"], "2020-05-04T09:30:00Z is past"),
            (["recall", "x", "--as-of", ""], "'' is no time; write 2026-05-04, "),
            (["recall", "x", "--as-of", "tomorrow"], " is still to come; write 2026-05-04, "),
            (["analyze", "x", "--occurred-at", "soon"], "'soon' is no time; write 2026-05-04, "),
            (["namespaces", "x", "--ttl", "1 month"], "months and years are not all of a length"),
            (["recall", "x", "--half-life", "soon"], "'soon' is no span of time; write 45s, "),
            (["recall", "x", "--limit", "0"], "--limit: a whole number from 1 to 100"),
            (["ask", "x", "--limit", "101"], "--limit: a whole number from 1 to 100"),
            (["list", "--limit", "201"], "--limit: a whole number from 1 to 200"),
            (["review", "--limit", "-1"], "--limit: a whole number from 1 to 200"),
            (["consolidate", "list", "--limit", "0"], "--limit: a whole number from 1 to 200"),
            (["events", "--after", "tea"], "--after: a receipt's number, or the place"),
            (["events", "--after", "-1"], "--after: a receipt's number, or the place of an event"),
            (["get", "x", "--revision", "0"], "--revision: a whole number from 1"),
            (["recall", "x", "--min-relevance", "7"], "--min-relevance: a number from 0 to 1"),
            (["recall", "x", "--min-relevance", "101%"], "a share from 0% to 100%"),
            (["remember", "x", "--tag", "a,,b"], "a tag is empty; write TAG or TAG,TAG"),
            (["recall", "x", "--half-life", "0"], "--half-life: a number more than 0"),
            (["recall", "x", "--max-tokens", "0"], "--max-tokens: a whole number from 1"),
            (["recall", "x", "--recency", "inf"], "--recency: a number from 0 to 100"),
            (["recall", "x", "--writer", "zz"], "--writer: a whole public key"),
            (["list", "--writer", "AB" * 32], "--writer: a whole public key"),
            (["remember", "x", "--wait", "-1"], "--wait: a number from 0"),
            (["import", "x", "--wait", "nan"], "--wait: a number from 0"),
            (["keys", "add", "--expires-days", "-1"], "--expires-days: a number more than 0"),
            (["keys", "add", "--expires-days", "0"], "--expires-days: a number more than 0"),
            (["keys", "add", "--expires-days", "1e10"], "--expires-days: a number more than 0"),
            (["forget", "x", "--profile", ""], "--profile: it is empty"),
            (["keys", "add", "--out", ""], "--out: it is empty"),
            (["import", "x", "--save", ""], "--save: it is empty"),
        ],
    )
    def test_what_is_out_of_range_is_named(
        self, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert said in refused(capsys, *argv)

    def test_a_refusal_is_one_line_that_names_the_help(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = "memrelay: there is no option --bogus (see `memrelay list --help`)\n"
        assert refused(capsys, "list", "--bogus") == told
        told = "memrelay: one argument too many: x (see `memrelay keys add --help`)\n"
        assert refused(capsys, "keys", "add", "x") == told
        told = json.loads(refused(capsys, "list", "--bogus", "--json"))
        assert (told["code"], told["request_id"]) == ("arguments", None)

    def test_a_command_or_action_that_is_missing_is_asked_for(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "no command was named (see `memrelay --help`)" in refused(capsys)
        told = refused(capsys, "keys")
        assert "say which action: list, add, admit, revoke, recovery, recover (see" in told

    def test_the_first_guesses_of_somebody_new_lead_on(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environ = {"XDG_CONFIG_HOME": str(tmp_path)}
        assert main(["init", "http://127.0.0.1:9"], environ) == EXIT_FAILED
        told = capsys.readouterr().err
        assert "does a relayer run there? `memrelay init --local` starts one of your own." in told
        assert main(["init", "http://memory.example"], environ) == EXIT_USAGE
        assert "MEMRELAY_ALLOW_INSECURE=1 allows it" in capsys.readouterr().err
        with pytest.raises(SystemExit) as done:
            main(["help", "recall"], environ)
        assert not done.value.code
        assert capsys.readouterr().out.startswith("usage: memrelay recall")

    def test_one_that_is_much_less_like_it_is_not_offered(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "; did you mean recall? (see" in refused(capsys, "recal", "tea")
        assert "; did you mean --limit? (see" in refused(capsys, "recall", "tea", "--limt", "3")

    def test_a_time_that_is_past_is_told_in_one_sentence(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = refused(capsys, "remember", "x", "--expires-at", "2020-05-04")
        assert "2020-05-04 is 2020-05-04 00:00 " in told
        assert ", which is past; write " in told

    @pytest.mark.parametrize(
        ("argv", "told"),
        [
            (["trust"], "RELAYER_KEY is missing"),
            (["keys", "revoke"], "KEY is missing"),
            (["completion"], "memrelay: {bash,zsh,fish} is missing"),
        ],
    )
    def test_an_argument_that_is_missing_is_named(
        self, argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert f"{told} (see" in refused(capsys, *argv)

    def test_a_setting_without_its_value_is_told_how(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert ": write redact=VALUE (see" in refused(capsys, "settings", "redact", "off")

    def test_an_option_of_all_that_is_mistyped(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "there is no option --help-al; did you mean --help-all" in refused(
            capsys, "--help-al"
        )

    def test_without_a_profile_the_local_memory_comes_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environ = {"XDG_CONFIG_HOME": str(tmp_path)}
        assert main(["recall", "tea"], environ) == EXIT_USAGE
        told = capsys.readouterr().err
        assert told.startswith("memrelay: There is no memory yet: ")
        assert "type `memrelay init --local`" in told

    def test_options_go_behind_the_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        for argv in (["--profile", "x", "list"], ["--profile=x", "list"]):
            assert "--profile goes behind the command" in refused(capsys, *argv)
        assert "--json goes behind the command" in refused(capsys, "keys", "--json", "list")

    @pytest.mark.parametrize("account_id", ["0x12", "ab" * 32, "0x" + "AB" * 32])
    def test_an_account_id_is_described_in_one_way(
        self, account_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environ = {
            "MEMRELAY_URL": "http://127.0.0.1:9",
            "MEMRELAY_ACCOUNT_ID": account_id,
            "MEMRELAY_PRIVATE_KEY": "07" * 32,
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        assert main(["list"], environ) == EXIT_USAGE
        told = "memrelay: An account id is 0x and 64 lower-case hexadecimal digits.\n"
        assert capsys.readouterr().err == told


class TestSuggestions:
    """What other programs call it, and what was mistyped, lead on."""

    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("recal", "recall"),
            ("search", "recall"),
            ("add", "remember"),
            ("delete", "forget"),
            ("rm", "forget"),
            ("ls", "list"),
            ("cat", "get"),
            ("update", "edit"),
            ("login", "init"),
            ("whoami", "status"),
            ("backup", "export"),
            ("RECALL", "recall"),
            ("webhook", "webhooks"),
            ("revoke x", "keys revoke"),
            ("keys rm x", "revoke"),
            ("keys ls", "list"),
            ("agents add coder", "provision"),
            ("agents delete coder", "revoke"),
            ("webhooks delete x", "remove"),
            ("consolidate lst", "list"),
            ("review accept x", "approve"),
            ("list --lmit 5", "--limit"),
            ("list --kind prefrence", "preference"),
            ("recall x --top 5", "--limit"),
            ("recall x --namespce team", "--namespace"),
            ("remember x --tags a", "--tag"),
            ("remember x --ttl 3d", "--expires-at"),
            ("forget x -y", "--yes"),
            ("forget --simulate", "--dry-run"),
            ("recall x --mode=hybird", "hybrid"),
        ],
    )
    def test_what_may_have_been_meant_is_told(
        self, typed: str, meant: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert f"; did you mean {meant}" in refused(capsys, *typed.split())

    @pytest.mark.parametrize("typed", ["xyzzy", "list --xyzzy", "list --kind xyzzy", "q" * 100_000])
    def test_what_is_like_nothing_is_told_no_guess(
        self, typed: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "did you mean" not in refused(capsys, *typed.split())

    def test_every_suggestion_is_there(self) -> None:
        parser = build_parser()
        [commands] = (action for action in parser._actions if action.dest == "==SUPPRESS==")
        parsers = parsers_of(commands)
        groups = [commands, *(action for parser in parsers for action in parser._actions)]
        there = {str(name) for action in groups for name in action.choices or ()}
        there |= {option for parser in parsers for option in parser._option_string_actions}
        inner = [p for a in groups if a.dest == "==SUPPRESS==" for p in parsers_of(a)]
        there |= {option for parser in inner for option in parser._option_string_actions}
        named = {part for name in (*_COMMANDS, *_OPTIONS) for part in name.split()}
        assert named - there == set()


class TestTexts:
    @pytest.mark.parametrize("argv", [["--text", ""], ["--text", " "], []])
    def test_an_edit_takes_nothing_from_standard_input_unasked(
        self, run: Machine, argv: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a loop that reads ids, it would store the next id as the text."""
        memory_id = run.remember(GREEN)
        waiting = io.StringIO(NEXT)
        monkeypatch.setattr(sys, "stdin", waiting)
        assert run("edit", memory_id, *argv, code=EXIT_USAGE) is None
        assert waiting.read() == NEXT
        assert run("get", memory_id)["text"] == GREEN

    def test_an_edit_takes_the_text_behind_the_id(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        assert run("edit", memory_id, "Anna", "prefers", "black tea.")["revision"] == 2
        assert run.lines("get", memory_id) == ["Anna prefers black tea."]
        run.lines("edit", memory_id, "water", "--text", "wine", code=EXIT_USAGE)
        assert "Give the new text once" in run.err

    def test_a_setting_may_be_written_as_an_option_is(self, run: Machine) -> None:
        assert run("settings", "count-recalls=on")["settings"]["count_recalls"] is True

    def test_an_agent_that_is_mistyped_is_not_made(self, run: Machine) -> None:
        run("agents", "provision", "coder")
        run.lines("recall", "tea", "--agent", "codr", code=EXIT_USAGE)
        assert "Did you mean coder? `memrelay agents provision codr " in run.err

    def test_one_thing_is_not_given_two_values(self, run: Machine) -> None:
        memory_id = run.remember(GREEN, "--tag", "tea", "--metadata", "a=1")
        for argv in (
            ["edit", memory_id, "--tag", "t", "--clear", "tags"],
            ["edit", memory_id, "--metadata", "a=2", "--metadata", "a=3"],
            ["remember", "x", "--metadata", "a=1", "--metadata", "a=2"],
            ["recall", "x", "--metadata", "a=1", "--metadata", "a=2"],
        ):
            assert run(*argv, code=EXIT_USAGE) is None
        found = run("get", memory_id)
        assert (found["tags"], found["metadata"]) == (["tea"], {"a": "1"})

    @pytest.mark.parametrize("command", ["remember", "edit"])
    def test_a_long_text_is_told_its_limit(
        self, run: Machine, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory_id = run.remember(GREEN)
        monkeypatch.setattr(sys, "stdin", io.StringIO("tea " * 2**19))
        argv = ["edit", memory_id, "--text", "-"] if command == "edit" else ["remember"]
        assert run(*argv, code=EXIT_USAGE) is None
        assert "longer than 1 MiB" in run.err

    def test_what_a_known_text_does_not_take_is_told(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        assert run("remember", GREEN, "--tag", "tea", "--source", "chat")["duplicate"]
        assert "--tag, --source" in run.err
        assert f"memrelay edit {memory_id} --tag" in run.err
        assert run("get", memory_id)["tags"] == []
        assert run("remember", GREEN)["duplicate"]
        assert run.err == ""
        assert not run("remember", GREEN, "--kind", "decision", "--tag", "tea")["duplicate"]
        assert run.err == ""


class TestKeys:
    def test_a_key_that_cannot_be_kept_is_granted_nothing(self, run: Machine) -> None:
        before = run("keys", "list")
        argv = ["keys", "add", "--namespace", "work", "--out", "/dev/null/k.json"]
        assert run(*argv, code=EXIT_USAGE) is None
        assert run("keys", "list") == before

    def test_a_key_that_is_refused_leaves_no_file(self, run: Machine, tmp_path: Path) -> None:
        out = tmp_path / "agent.json"
        argv = ["keys", "add", "--namespace", "work", "--out", str(out)]
        assert run(*argv, "--label", "x" * 129, code=EXIT_FAILED) is None
        assert not out.exists()
        added = run(*argv)
        values = read_profile(out, missing_ok=False)
        assert (values["namespace"], values["relayer_key"]) == ("work", added["relayer_key"])
        assert main(["remember", GREEN, "--profile", str(out)], {}) == 0

    def test_a_key_that_has_ended_is_shown_so(self, run: Machine) -> None:
        run("keys", "add", "--namespace", "work", "--label", "guest", "--expires-days", "1e-5")
        until = time.monotonic() + 60
        while not any("\texpired\t" in line for line in run.lines("keys", "list")):
            assert time.monotonic() < until
            time.sleep(0.1)

    def test_a_key_is_named_by_what_is_shown_of_it(self, run: Machine) -> None:
        keys = [run("keys", "add", "--namespace", "work")["public_key"] for _ in range(2)]
        assert run("keys", "revoke", "", code=EXIT_USAGE) is None
        assert run("keys", "revoke", keys[0][:4], code=EXIT_NOT_FOUND) is None
        assert "8 digits" in run.err
        assert not any(key["revoked"] for key in run("keys", "list")["keys"])
        run("keys", "revoke", keys[0][:8])
        run("keys", "revoke", f"{keys[1][:4]}…{keys[1][-4:]}")
        revoked = {key["public_key"] for key in run("keys", "list")["keys"] if key["revoked"]}
        assert revoked == set(keys)

    def test_a_new_key_has_the_name_of_who_made_it_and_where(self, run: Machine) -> None:
        made_here = f"@{platform.node().partition('.')[0]}"
        run("keys", "add", "--namespace", "work")
        run("keys", "add", "--namespace", "work", "--label", "")
        run("keys", "add", "--namespace", "work", "--label", "coder")
        labels = [key["label"] for key in run("keys", "list")["keys"]]
        assert sum(label.endswith(made_here) for label in labels) == 2
        assert sorted(labels)[0] == ""
        assert [agent["name"] for agent in run("agents", "list")["agents"]] == ["coder"]

    def test_a_list_says_when_each_was_made_and_which_is_used(self, run: Machine) -> None:
        run("keys", "add", "--namespace", "work", "--label", "guest", "--expires", "30d")
        [own] = [line for line in run.lines("keys", "list") if "\tvalid, this one\t" in line]
        assert "\towner of whole account\t" in own
        [guest] = [line for line in run.lines("keys", "list") if "\tguest\t" in line]
        key, _, state, holds, made, used, ends = guest.split("\t")
        assert used == "-"
        assert (len(key), state, holds) == (9, "valid", "writer of work")
        day = timedelta(days=1)
        made_at, ends_at = (datetime.strptime(t, "%Y-%m-%d %H:%M%z") for t in (made, ends))
        assert 29 * day < ends_at - made_at < 31 * day

    def test_namesakes_are_found_in_the_list(self, run: Machine) -> None:
        for _ in range(2):
            run("keys", "add", "--namespace", "work", "--label", "guest")
        assert run("keys", "revoke", "guest", code=EXIT_FAILED) is None
        assert "memrelay keys list --json" in run.err


class TestFiles:
    def test_lines_replace_a_file_only_by_force(self, run: Machine, tmp_path: Path) -> None:
        out = tmp_path / "all.jsonl"
        out.write_text("of yesterday")
        argv = ["export", "--format", "jsonl", "--out", str(out)]
        assert run(*argv, code=EXIT_USAGE) is None
        assert "--force" in run.err
        assert out.read_text() == "of yesterday"
        assert run(*argv, "--force")["memories"] == 0

    def test_an_archive_replaces_a_file_only_by_force(self, run: Machine, tmp_path: Path) -> None:
        out = tmp_path / "account.memrelay"
        run("export", str(out))
        before = out.read_bytes()
        assert run("export", str(out), code=EXIT_USAGE) is None
        assert "--force" in run.err
        assert out.read_bytes() == before
        run("export", str(out), "--force")
        assert out.read_bytes() != before

    def test_an_archive_says_what_it_holds(self, run: Machine, tmp_path: Path) -> None:
        out = tmp_path / "account.memrelay"
        run.remember(GREEN)
        run.remember("Berta prefers water.")
        run("export", str(out))
        [line] = run.lines("import", str(out), "--dry-run")
        assert "1 account, 1 grant, 2 memories, 1 namespace, " in line

    def test_a_saved_profile_replaces_no_other_key(
        self, run: Machine, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        out, other = tmp_path / "account.memrelay", tmp_path / "other.json"
        run("export", str(out))
        write_private(other, {"private_key": "07" * 32})
        argv = ["import", str(out), "--url", shared_relayer.url, "--save"]
        assert run(*argv, str(other), code=EXIT_USAGE) is None
        assert "holds another key" in run.err
        assert read_profile(other, missing_ok=False) == {"private_key": "07" * 32}


class TestAnswers:
    def test_what_is_no_relayer_has_no_memories_to_miss(
        self, run: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wrong = f"{read_profile(run.profile, missing_ok=False)['url']}/foo"
        with answering({}) as elsewhere:
            for url in (wrong, elsewhere):
                for argv in (["get", UNKNOWN], ["consolidate", "show", UNKNOWN]):
                    where = ["--profile", str(run.profile)]
                    assert main([*argv, *where], {"MEMRELAY_URL": url}) == EXIT_FAILED
                    assert f"{url} has no such route" in capsys.readouterr().err

    def test_errors_are_json_where_answers_are(self, run: Machine) -> None:
        run.remember(GREEN)
        assert run("get", UNKNOWN, code=EXIT_NOT_FOUND) is None
        told = json.loads(run.err)
        assert (told["error"], told["code"]) == ("No such memory.", "not_found")
        assert told["request_id"]
        assert run("edit", UNKNOWN, code=EXIT_USAGE) is None
        assert json.loads(run.err)["code"] == "settings"
        assert run("get", "a/b", code=EXIT_USAGE) is None
        told = json.loads(run.err)
        assert (told["code"], told["request_id"]) == ("arguments", None)

    def test_a_run_that_is_not_there_is_a_run(self, run: Machine) -> None:
        for action in ("show", "undo"):
            for name in ("foo", UNKNOWN):
                assert run("consolidate", action, name, code=EXIT_NOT_FOUND) is None
                assert json.loads(run.err)["error"] == "No such run."

    def test_a_webhook_without_a_name_is_not_made_anew(self, run: Machine) -> None:
        argv = ["webhooks", "add", "https://example.org", "--id", ""]
        assert run(*argv, code=EXIT_NOT_FOUND) is None
        assert run("webhooks", "list")["webhooks"] == []

    def test_receipts_are_told_by_their_numbers(self, run: Machine) -> None:
        ids = [run.remember(f"The note {number}.") for number in range(4)]
        seq = run("receipts")["seq"]
        assert run("receipts") == {"checked": 0, "seq": seq}
        assert run.lines("forget", ids[0]) == [f"{ids[0]}  erased  receipt {seq + 1}"]
        assert run.lines("forget", *ids[:2])[2:] == [f"receipt {seq + 2}"]
        told = run.lines("forget", "--namespace", "default", "--yes")
        assert told == ["2 erased", f"receipt {seq + 3}"]
        assert run.lines("receipts") == [f"3 new receipts followed, up to number {seq + 3}"]

    def test_one_that_is_missing_was_not_found(self, run: Machine) -> None:
        memory_id = run.remember(GREEN)
        for command in ("pin", "forget"):
            run.lines(command, memory_id, UNKNOWN, code=EXIT_NOT_FOUND)
            assert run.err == "memrelay: One was not found.\n"
