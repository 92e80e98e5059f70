"""`relayer backup`: the database into a folder, and a new relayer from that.

Not here: how (`backup.py`).
"""

from pathlib import Path
from typing import Any

import click

from relayer.clock import utc_now
from relayer.commands.failures import Exit
from relayer.commands.options import json_option, run, settings_of, show, storage_options
from relayer.commands.parsers import Group
from relayer.installation import at, key_path
from relayer.upkeep import backup

_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@click.group("backup", cls=Group)
def backup_group() -> None:
    """Back the database up into a folder, and restore it from one."""


@backup_group.command("create")
@_folder
@storage_options
@json_option
def backup_create(folder: Path, as_json: bool, **values: Any) -> None:
    """Write the database into a new FOLDER, beside a running relayer too.

    The relayer's key is not in it: keep a copy of the key file elsewhere. Blobs of a folder or a
    bucket are copied afterwards, by `relayer blobs copy --to file:PATH`.
    """
    settings = settings_of(values)
    try:
        made = run(backup.create(settings, folder, utc_now))
    except backup.BackupError as error:
        raise Exit(1, str(error)) from None
    lines = [f"{made.bytes} bytes in {folder}", f"not in it: {key_path(settings)}"]
    if not made.blobs_inside:
        lines.append(f"nor the blobs; now type: relayer blobs copy --to file:PATH{at(settings)}")
    show(made.as_json(), as_json, lambda: "\n".join(lines))


@backup_group.command("restore")
@_folder
@click.option("--other-key", is_flag=True, help="The relayer's key is lost: go on with another.")
@storage_options
@json_option
def backup_restore(folder: Path, other_key: bool, as_json: bool, **values: Any) -> None:
    """Restore a backup into an empty database.

    Put the key file and the copy of the blobs in their places first, and name these as for `relayer
    serve`. Then `relayer check` says whether everything is there.
    """
    settings = settings_of(values)
    try:
        found = run(backup.restore(settings, folder, utc_now, other_key=other_key))
    except backup.BackupError as error:
        raise Exit(1, str(error)) from None
    done = f"restored what was written at {found.created_at}"
    show(found.as_json(), as_json, lambda: f"{done}; now type: relayer check{at(settings)}")
