"""What `export FILE` and `import FILE` do with archives; all others are in `files.py`.

It does not own the formats or the order of requests (`archiving.py`, `archived.py`).
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from memrelay.archived import Archive, import_archive, open_archive, opened_memories
from memrelay.archiving import export_archive
from memrelay.client import SyncMemoryClient
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell, warn
from memrelay.config import Settings
from memrelay.counting import counted
from memrelay.errors import ConfigError, Invalid, MemrelayError, NotGranted
from memrelay.exporting import Collected, Record, in_order, record
from memrelay.private import write_private
from memrelay.sealed.keys import account_bytes

_DEADLINE_S = 300.0  # rate limits count minutes, and a long move sits some of them out
_OUTCOMES = {
    "imported": "imported",
    "unchanged": "there already",
    "erased": "erased here or there",
    "differs": "there in another revision, which stays",
    "refused": "refused: row and blob contradict each other, or a revision lacks its memory",
    "lost": "lost: the relayer that they come from has no blob for them",
}


def write_archive(shell: Shell) -> None:
    """Write the whole account into an archive that only its owners can open."""
    path = Path(shell.args.file).expanduser()
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file; choose another name.")
    progress = ProgressLine(sys.stderr, "memories exported")
    with SyncMemoryClient.from_settings(shell.settings(), deadline_s=_DEADLINE_S) as client:
        try:
            counts = export_archive(client, path, progress)
        except KeyboardInterrupt:
            warn(f"Interrupted; the same command goes on where {path}.part ends.")
            raise
    value = {"out": str(path), "bytes": path.stat().st_size, "counts": counts}
    rows = counts.get("memory", 0)
    shell.show(
        value, [f"{counted(rows, 'memory')} and earlier revisions, with all that belongs to them"]
    )
    if counts["lost"]:
        raise MemrelayError(f"{counts['lost']} are lost: the relayer has no blob for them.")


def read_archive(shell: Shell, path: Path) -> Archive:
    """Return an archive of the account of these settings, read to its end.

    Raises:
        MemrelayError: it does not hold.
    """
    settings = shell.settings()
    try:
        return open_archive(path, settings.identity, account_bytes(settings.account_id))
    except Invalid as error:
        raise MemrelayError(str(error)) from error


def bring_archive(shell: Shell, path: Path) -> None:
    """Bring an archive to a relayer, that of the profile or another."""
    args = shell.args
    archive = read_archive(shell, path)
    if args.dry_run:
        counts = dict(archive.counts)
        held = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
        return shell.show({"dry_run": True, "counts": counts}, [f"the archive holds: {held}"])
    settings = _settings_there(shell)
    progress = ProgressLine(sys.stderr, "brought")
    with SyncMemoryClient.from_settings(settings, deadline_s=_DEADLINE_S) as client:
        relayer = client.statement().relayer
        tally = import_archive(client, archive, progress, token=args.token)
        if args.managed:
            client.give_custody()
        custody = client.account().custody
    if args.save:
        there = replace(settings, relayer_key=relayer.hex())
        write_private(Path(args.save).expanduser(), there.profile())
    value = {
        "url": settings.url,
        "relayer_key": relayer.hex(),
        "custody": custody,
        "dry_run": False,
        **{name: tally[name] for name in _OUTCOMES},
    }
    lines = [f"{tally[name]} {words}" for name, words in _OUTCOMES.items() if tally[name]]
    shell.show(value, [*(lines or ["nothing to bring"]), f"the account is {custody} there"])
    if custody == "managed" and not args.managed:
        warn("A custodian was there before; revoke it if it should not read the account.")
    if tally["refused"] or tally["lost"]:
        raise MemrelayError(f"{tally['refused']} were refused, {tally['lost']} are lost.")


def _settings_there(shell: Shell) -> Settings:
    """The settings of the profile at the relayer that `--url` names, which nobody knows yet."""
    args, settings = shell.args, shell.settings()
    if args.url is None:
        return settings
    return replace(settings, url=args.url, relayer_key=args.relayer_key, seen_path=None)


def clear_of(shell: Shell, path: Path, names: list[str] | None) -> dict[str, Collected]:
    """Return what stands in clear in an archive, by namespace; `names` None for all of them."""
    archive, at_ms = read_archive(shell, path), int(time.time() * 1000)
    found: dict[str, list[Record]] = {}
    try:
        for memory in opened_memories(archive, shell.settings().identity, at_ms):
            if names is None or memory.namespace in names:
                found.setdefault(memory.namespace or "", []).append(record(memory))
    except NotGranted as error:
        raise MemrelayError(str(error)) from error
    return {name: in_order(records) for name, records in sorted(found.items())}
