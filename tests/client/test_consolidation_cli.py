"""Consolidation from a shell: begun, looked at, taken back, against a real relayer."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE
from tests.client.shell_scene import Machine

UNKNOWN = "00000000-0000-7000-8000-000000000000"
TEA = "Anna prefers green tea in the morning."
TEA_AGAIN = "Anna really prefers green tea in the morning."


@pytest.fixture(params=["sealed", "managed"])
def custody(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_run_is_listed_and_undone(run: Machine) -> None:
    """capability 3.16: consolidation runs on demand, says all that it did, and is taken back."""
    run.remember(TEA, "--wait")
    kept = run.remember(TEA_AGAIN, "--wait")
    monday = datetime.now(UTC) - timedelta(weeks=9)
    monday -= timedelta(days=monday.weekday())
    for n, what in enumerate(("roof", "door", "rent", "lift", "garden")):
        moment = (monday + timedelta(hours=n)).isoformat()
        text = f"Anna met the landlord about the {what}."
        run.remember(text, "--kind", "episodic", "--event-time", moment)
    before = {m["id"] for m in run("list")["memories"]}
    planned = run("consolidate", "--dry-run")
    assert sorted(a["action"] for a in planned["actions"]) == ["merge", "summary"]
    assert run("consolidate", "list")["consolidations"] == []

    begun = run("consolidate")
    shown = run("consolidate", "show", begun["id"])
    assert begun == shown, "it waits, and tells what it did"
    assert (shown["merged"], shown["summaries"], shown["stale"], shown["procedures"]) == (
        1,
        1,
        0,
        0,
    )
    actions = {action["action"]: action for action in shown["actions"]}
    assert actions["merge"]["memory_id"] == kept
    summary = actions["summary"]["memory_id"]
    assert "the rent" in run("get", summary)["text"]
    assert summary in {m["id"] for m in run("recall", "landlord")["results"]}
    assert TEA not in run.texts()
    assert run("verify")["ok"]
    assert len(run.lines("consolidate", "show", begun["id"])) == 3
    [listed] = run.lines("consolidate", "list")
    assert listed.startswith(begun["id"])
    assert "1 merged, 0 stale, 1 summarised, 0 proposed" in listed

    undone = run("consolidate", "undo", begun["id"])
    assert (undone["undone"], undone["skipped"], undone["state"]) == (2, 0, "undone")
    assert {m["id"] for m in run("list")["memories"]} == before
    assert run("get", summary, code=EXIT_NOT_FOUND) is None
    assert run("consolidate", "undo", begun["id"])["undone"] == 0
    assert run("verify")["ok"]


def test_people_are_told_what_a_run_did(run: Machine) -> None:
    run.remember(TEA, "--wait")
    kept = run.remember(TEA_AGAIN, "--wait")
    head, did = run.lines("consolidate")
    assert "  done  1 merged, 0 stale, 0 summarised, 0 proposed" in head
    assert did.startswith(f"  merged  {kept} ← ")
    [head] = run.lines("consolidate")
    assert head.endswith("  done  nothing to do")
    assert run("consolidate", "--no-wait")["id"]


@pytest.mark.parametrize("namespace", ["default", "nobody wrote here"])
def test_without_memories_there_is_nothing_to_do(run: Machine, namespace: str) -> None:
    nothing = {"namespace": namespace, "actions": [], "more": False}
    for dry_run in ((), ("--dry-run",)):
        argv = ("consolidate", *dry_run, "--namespace", namespace)
        assert run.lines(*argv) == ["nothing to do"]
        assert run(*argv) == nothing
    assert run("consolidate", "list")["consolidations"] == []


def test_without_an_account_there_is_no_run(run: Machine) -> None:
    account_id = json.loads(run.profile.read_text())["account_id"]
    run("close", account_id, "--yes")
    assert run("consolidate", code=EXIT_FAILED) is None


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("show",), EXIT_USAGE),
        (("undo",), EXIT_USAGE),
        (("list", UNKNOWN), EXIT_USAGE),
        (("run", UNKNOWN), EXIT_USAGE),
        (("list", "--dry-run"), EXIT_USAGE),
        (("list", "--no-wait"), EXIT_USAGE),
        (("show", UNKNOWN), EXIT_NOT_FOUND),
        (("undo", UNKNOWN), EXIT_NOT_FOUND),
        (("undo", "no-id"), EXIT_NOT_FOUND),
        (("list", "--cursor", "x"), EXIT_FAILED),
    ],
)
def test_what_cannot_be_is_said(run: Machine, argv: tuple[str, ...], code: int) -> None:
    assert run("consolidate", *argv, code=code) is None
    assert run.err
