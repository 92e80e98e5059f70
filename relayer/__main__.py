"""The command `relayer`: flags and variables in, text or JSON out, exit codes.

Not here: the commands (`commands`).

Exit codes: 0 done; 1 it failed, or what was checked does not hold; 2 the call needs something else.
"""

import click

from relayer import __version__
from relayer.commands import accounts, backup, blobs, installation, top, upkeep
from relayer.process import forbid_core_files


@click.group(context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="relayer")
def main() -> None:
    """Long-term memory for AI agents that nobody else can read: the server."""
    forbid_core_files()


for _command in (
    installation.serve_command,
    accounts.account,
    accounts.key,
    installation.identity_group,
    installation.model_group,
    blobs.blobs_group,
    backup.backup_group,
    upkeep.migrate_command,
    upkeep.check_command,
    upkeep.rebuild_command,
    upkeep.reindex_command,
    installation.health_command,
    installation.doctor_command,
    top.top_command,
):
    main.add_command(_command)

if __name__ == "__main__":
    main()
