"""Lists the commands: the module of each, its name there, and its line in what `--help` shows.

Not here: the commands. Only the module of the one that is asked for is imported.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command's module and name, and a summary of its work."""

    module: str
    name: str
    summary: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "serve": Entry("serving", "serve_command", "Run the relayer until Ctrl-C."),
    "account": Entry("accounts", "account", "Make, list and erase accounts."),
    "key": Entry("accounts", "key", "Make, list and revoke the keys of an account."),
    "health": Entry(
        "installation",
        "health_command",
        "Tell whether the relayer of this data folder answers; exit code 1 if not.",
    ),
    "doctor": Entry(
        "installation",
        "doctor_command",
        "Say what is wrong with this installation, and what to type.",
    ),
    "top": Entry("top", "top_command", "Show what a running relayer does, every two seconds."),
    "model": Entry("installation", "model_group", "Download the built-in embedding models."),
    "identity": Entry("installation", "identity_group", "Show or replace the relayer's own key."),
    "backup": Entry(
        "backup", "backup_group", "Back the database up into a folder, and restore it from one."
    ),
    "blobs": Entry("blobs", "blobs_group", "Copy or move the sealed bytes to another store."),
    "check": Entry(
        "upkeep", "check_command", "Verify all that is stored: blobs, rows and receipts."
    ),
    "migrate": Entry(
        "upkeep", "migrate_command", "Update the database to the schema of this release."
    ),
    "rebuild": Entry(
        "upkeep", "rebuild_command", "Restore accounts that the database lost from the blob store."
    ),
    "reindex": Entry(
        "upkeep",
        "reindex_command",
        "Renew vectors and words of memories for another model or release.",
    ),
    "completion": Entry(
        "completion", "completion_command", "Print what completes commands in bash, zsh or fish."
    ),
}
