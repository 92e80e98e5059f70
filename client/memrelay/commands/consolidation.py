"""The command that consolidates: begin a run, look at runs, undo one.

It does not own what a run does (the relayer's part), nor review of what it proposes
(`corrections.py`).
"""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from memrelay.commands.ids import find_among
from memrelay.commands.parsers import Adder, add_page
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column
from memrelay.errors import ConfigError, MemrelayError, NotFound
from memrelay.local_time import when
from memrelay.operations.consolidation import Consolidation, ConsolidationAction
from memrelay.sync_client import SyncMemoryClient

_ACTIONS = ("run", "list", "show", "undo")
_GOES_ON = {"queued", "running"}
_POLL_S, _POLL_S_MAX, _WAIT_S = 0.1, 2.0, 600.0


def register(add: Adder) -> None:
    """Add the command that consolidates."""
    _add(add("consolidate", consolidate))


def _add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=_ACTIONS,
        default="run",
        help="run: merge what says the same, mark what may be out of date, summarise old episodes, "
        "propose procedures; list: runs; show: what a run did; undo: take a run back (run)",
    )
    parser.add_argument("id", nargs="?", help="the run, to show or undo; 8 digits suffice")
    parser.add_argument("--dry-run", action="store_true", help="say what a run would do")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the run's end")
    add_page(parser)


def consolidate(shell: Shell) -> None:
    """Tidy a namespace up; everything is listed and can be undone."""
    args = shell.args
    if (args.id is not None) != (args.action in ("show", "undo")):
        needs = "needs the id of a run" if args.id is None else "takes no id"
        raise ConfigError(f"`consolidate {args.action}` {needs}.")
    if (args.dry_run or args.no_wait) and args.action != "run":
        raise ConfigError("--dry-run and --no-wait go with `consolidate run`.")
    match args.action:
        case "list":
            _list(shell)
        case "show":
            _show(shell)
        case "undo":
            _undo(shell)
        case _:
            _run(shell)


def _run(shell: Shell) -> None:
    namespace = shell.args.namespace
    with shell.client() as client:
        run = None if shell.args.dry_run else _begin_run(client, namespace)
        if run is None:
            plan = client.plan_consolidation(namespace=namespace)
            lines = [_format_action(action) for action in plan.actions]
            more = ["… and perhaps more"] if plan.more else []
            return shell.show(plan.to_json(), [*lines, *more] or ["nothing to do"])
        if not shell.args.no_wait:
            run = _follow(client, run)
    shell.show(run.to_json(), [_line(run), *map(_format_action, run.actions or ())])
    if run.state == "refused":
        raise MemrelayError("The run was refused: its key may no longer write there.")


def _follow(client: SyncMemoryClient, run: Consolidation) -> Consolidation:
    """Wait until a run has come to its end, or to what only others can go on with."""
    pause_s, until = _POLL_S, time.monotonic() + _WAIT_S
    try:
        with ProgressLine(sys.stderr, "changed") as line:
            while run.state in _GOES_ON and time.monotonic() < until:
                time.sleep(pause_s)
                pause_s = min(_POLL_S_MAX, pause_s * 1.5)
                run = client.consolidation(run.id)
                line(run.merged + run.stale + run.summaries + run.procedures)
    except KeyboardInterrupt:
        warn(f"the run goes on; `memrelay consolidate show {run.id}` tells how far it is")
        raise
    return client.consolidation(run.id) if run.actions is None else run


def _begin_run(client: SyncMemoryClient, namespace: str | None) -> Consolidation | None:
    """Return the run of a namespace; None where there is none: nothing is stored there yet."""
    try:
        return client.consolidate(namespace=namespace)
    except NotFound:
        return None


def _list(shell: Shell) -> None:
    args = shell.args
    with shell.client() as client:
        page = client.consolidations(namespace=args.namespace, limit=args.limit, cursor=args.cursor)
    rows = [
        (run.id, when(run.started_at), run.namespace, run.state, _counts(run))
        for run in page.consolidations
    ]
    shell.show_table(page.to_json(), _COLUMNS, rows)


_COLUMNS = (
    Column("ID", is_id=True),
    Column("STARTED", rank=2),
    Column("NAMESPACE", rank=1),
    Column("STATE"),
    Column("DID", is_text=True),
)


def _find_run(client: SyncMemoryClient, given: str) -> str:
    """Return the id of the run that is meant, if it is among the newest."""
    return find_among(
        given, lambda: [run.id for run in client.consolidations(limit=200).consolidations], "runs"
    )


def _show(shell: Shell) -> None:
    with shell.client() as client, _run_named():
        run = client.consolidation(_find_run(client, shell.args.id))
    shell.show(run.to_json(), [_line(run), *map(_format_action, run.actions or ())])


def _undo(shell: Shell) -> None:
    with shell.client() as client, _run_named():
        done = client.undo_consolidation(_find_run(client, shell.args.id))
    left = f", {done.skipped} changed since and left alone" if done.skipped else ""
    shell.show(done.to_json(), [f"{done.id}  {done.undone} undone{left}"])


@contextmanager
def _run_named() -> Iterator[None]:
    """Say of a run that is not there that it is a run: relayers call what no id can be a memory."""
    try:
        yield
    except NotFound as error:
        raise NotFound(
            "No such run.", status=error.status, code=error.code, request_id=error.request_id
        ) from error


def _line(run: Consolidation) -> str:
    state = _STATES.get(run.state, run.state)
    return f"{run.id}  {when(run.started_at)}  {run.namespace}  {state}  {_counts(run)}"


_STATES = {"waiting": "waits for the language model, or for room; it goes on by itself"}
_DID = {
    "merge": "merged",
    "stale": "may be out of date",
    "summary": "summarised",
    "procedure": "proposed a procedure",
}


def _counts(run: Consolidation) -> str:
    if not (run.merged or run.stale or run.summaries or run.procedures):
        return "nothing to do" if run.state == "done" else ""
    return (
        f"{run.merged} merged, {run.stale} stale, {run.summaries} summarised, "
        f"{run.procedures} proposed"
    )


def _format_action(action: ConsolidationAction) -> str:
    others = f" ← {' '.join(action.other_ids)}" if action.other_ids else ""
    undone = f"  ({action.undone})" if action.undone else ""
    return (
        f"  {_DID.get(action.action, action.action)}  {action.memory_id or '(new)'}{others}{undone}"
    )
