"""`relayer blobs`: bringing every blob into another store, going on with one that is empty.

Not here: how (`upkeep/transfer.py`, `recovery/replay.py`).
"""

import sys
from dataclasses import replace
from typing import Any

import click

from relayer.clock import utc_now
from relayer.commands.failures import Exit
from relayer.commands.options import json_option, run, settings_of, show, storage_options
from relayer.commands.parsers import Group
from relayer.commands.upkeep import Progress
from relayer.installation import open_storage
from relayer.settings import SettingsError, variable
from relayer.storage import replay_on
from relayer.upkeep import transfer

_to_option = click.option(
    "--to", required=True, metavar="STORE", help="postgres, file:PATH, or s3://BUCKET/PREFIX."
)


@click.group("blobs", cls=Group)
def blobs_group() -> None:
    """Copy or move the sealed bytes to another store."""


@blobs_group.command("copy")
@_to_option
@storage_options
@json_option
def blobs_copy(to: str, as_json: bool, **values: Any) -> None:
    """Copy every blob to another store; a relayer may be running.

    Each is read back and compared with its name. A second call brings what has come since, so that
    the relayer has to be stopped for the last of it only. Exit code 1: something could not be
    copied.
    """
    _transfer(to, as_json, values, move=False)


@blobs_group.command("move")
@_to_option
@storage_options
@json_option
def blobs_move(to: str, as_json: bool, **values: Any) -> None:
    """Move every blob to another store; stop all relayers of this database first.

    Nothing is removed before everything is there and was read back. Interrupted, run it again.
    Afterwards, start the relayer with RELAYER_BLOB_STORE set to the new store. Exit code 1:
    something could not be moved.
    """
    _transfer(to, as_json, values, move=True)


@blobs_group.command("accept")
@storage_options
@json_option
def blobs_accept(as_json: bool, **values: Any) -> None:
    """Accept a blob store that has lost everything, for good.

    A relayer does not start on a store that has nothing of any account: it may be a folder whose
    disk is not mounted. This lets it start on one that is empty and stays so. What was there does
    not come back: memories without bytes are named by `relayer check`. Where blobs are in the
    database, it lets a relayer start that has lost all that some accounts have remembered so far.
    """

    async def work() -> int:
        settings = settings_of(values)
        async with open_storage(settings, new=False, whatever_store=True) as storage:
            return await replay_on(storage, utc_now).accept_store()

    lost = run(work())
    show({"accounts": lost}, as_json, lambda: f"accounts that have nothing there: {lost}")


def _transfer(to: str, as_json: bool, values: dict[str, Any], *, move: bool) -> None:
    settings, progress = settings_of(values), Progress()
    try:
        replace(settings, blob_store=to)
    except SettingsError as error:
        said = str(error).replace(variable("blob_store"), "it")
        raise click.BadParameter(said, param_hint="--to") from None
    try:
        report = run(transfer.transfer(settings, to, move=move, tell=progress))
    except KeyboardInterrupt:
        raise Exit(1, "Stopped here. Run it again; it goes on where it was.") from None
    finally:
        progress.end()
    show(report.as_json(), as_json, report.as_text)
    sys.exit(0 if report.ok else 1)
