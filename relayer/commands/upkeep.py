"""`relayer migrate`, `check`, `rebuild` and `reindex`: bringing up, verifying and mending data.

Not here: what the commands do (`installation.py`, `upkeep/check.py`, `upkeep/rebuild.py`,
`upkeep/reindex.py`).
"""

import sys
from typing import Any

import click

from relayer.clock import utc_now
from relayer.commands.failures import Exit
from relayer.commands.ids import find_account, is_beginning
from relayer.commands.options import (
    account_of,
    json_option,
    run,
    settings_of,
    settings_options,
    show,
    storage_options,
    table,
)
from relayer.commands.parsers import Command
from relayer.database.migrate import head
from relayer.installation import as_found, migrate_database, open_storage
from relayer.sealed.keys import AccountId
from relayer.settings import Settings
from relayer.upkeep import check


@click.command("migrate", cls=Command)
@settings_options("data_dir", "database_url", "database_direct_url")
@click.option(
    "--distributed",
    is_flag=True,
    help="Also lay all tables out over the nodes of the Citus cluster whose coordinator the "
    "database is; stop the relayers first. Interrupted, run it again.",
)
@json_option
def migrate_command(distributed: bool, as_json: bool, **values: Any) -> None:
    """Update the database to the schema of this release.

    `relayer serve` does the same as it starts. It makes the embedded database, too, which this
    command does not.
    """
    settings = settings_of(values)
    if distributed and not settings.database_url:
        raise Exit(
            2,
            "the embedded PostgreSQL is one machine: name a cluster's coordinator. Type: relayer"
            " migrate --distributed --database-url URL",
        )
    tables = run(migrate_database(settings, distributed=distributed))
    done = f"schema {head()}"
    if distributed:
        done += f", {len(tables)} tables distributed now: {', '.join(tables) or 'all were before'}"
    show({"schema": head(), "distributed": tables}, as_json, lambda: done)


@click.command("check", cls=Command)
@storage_options
@json_option
def check_command(as_json: bool, **values: Any) -> None:
    """Verify all that is stored: blobs, rows and receipts.

    Each blob must match its name, each row its blob, and each account's receipts one another. Exit
    code 1: something does not.
    """

    async def work() -> check.Report:
        async with as_found(settings_of(values)) as storage:
            return await check.check(storage)

    report = run(work())
    show(report.as_json(), as_json, report.as_text)
    sys.exit(0 if report.ok else 1)


@click.command("rebuild", cls=Command)
@storage_options
@json_option
def rebuild_command(as_json: bool, **values: Any) -> None:
    """Restore accounts that the database lost from the blob store.

    A relayer that starts on an empty database does this by itself. Memories of managed accounts
    come back in the background of a running relayer. Those of sealed accounts come back when their
    keys are used. Exit code 1: an account could not be restored.
    """
    from relayer.upkeep import rebuild  # noqa: PLC0415  # as above

    async def work() -> list[rebuild.Rebuilt]:
        async with open_storage(settings_of(values), new=False) as storage:
            return await rebuild.rebuild_lost(storage, utc_now)

    done = [one.as_json() for one in run(work())]
    show({"accounts": done}, as_json, lambda: table(done) if done else "nothing is missing")
    sys.exit(0 if all(one["ok"] for one in done) else 1)


@click.command("reindex", cls=Command)
@settings_options()
@click.option("--account", "account_text_", default=None, metavar="ID", help="This account only.")
@click.option("--status", "status_only", is_flag=True, help="Only say how far everything is.")
@click.option(
    "--force",
    is_flag=True,
    help="Make every vector again, for another model file behind the same name; restart the "
    "relayer first, which remembers the vectors of queries.",
)
@json_option
def reindex_command(
    account_text_: str | None, status_only: bool, force: bool, as_json: bool, **values: Any
) -> None:
    """Renew vectors and words of memories for another model or release.

    A running relayer does this by itself, and this command shows its progress. Without one, this
    command does it, with the embedder that these settings name. Exit code 1: something is left, and
    the last line says why.
    """
    from relayer.upkeep import reindex  # noqa: PLC0415  # as above

    settings = settings_of(values)
    account = None if account_text_ is None else _account(settings, account_text_)
    progress = Progress()
    try:
        if status_only:
            report = run(reindex.status(settings, account=account))
        else:
            report = run(reindex.reindex(settings, account=account, force=force, tell=progress))
    except KeyboardInterrupt:
        raise Exit(
            1, "Stopped here. What is done stays done; a running relayer goes on by itself."
        ) from None
    finally:
        progress.end()
    standings = report.as_json()["accounts"]
    show(report.as_json(), as_json, lambda: f"{table(standings)}\n{report.as_text()}")
    sys.exit(0 if report.ok else 1)


def _account(settings: Settings, text: str) -> AccountId:
    if not is_beginning(text):
        return account_of(text)

    async def work() -> AccountId:
        async with as_found(settings) as storage:
            return await find_account(storage, text)

    return run(work())


class Progress:
    """Prints a report on standard error: over itself on a terminal, else a line a change."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, report: Any) -> None:
        """Show how far it is."""
        line = report.as_text()
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        elif line != self._shown:
            click.echo(line, err=True)
        self._shown = line

    def end(self) -> None:
        """Make room for what comes next."""
        if self._shown and sys.stderr.isatty():
            click.echo(err=True)
