"""Runs `export FILE` and `import FILE` on archives; `transfer.py` has all other exports.

It does not own the formats or the order of requests (`archive_writer.py`, `archive_reader.py`).
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from memrelay.archive_reader import Archive, import_archive, open_archive, open_memories
from memrelay.archive_writer import export_archive
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import (
    Settings,
    agent_paths,
    agents_folder,
    expand_home,
    read_profile,
    trust_store_path,
)
from memrelay.errors import ConfigError, Invalid, MemrelayError, NotGranted
from memrelay.exporting import NamespaceExport, await_restored, collect_records
from memrelay.models import Memory
from memrelay.plurals import format_count
from memrelay.sealed.keys import account_bytes
from memrelay.secure_files import write_private
from memrelay.trust_store import TrustStore

_DEADLINE_S = 300.0  # rate limits count minutes, and a long move sits some of them out
NOT_BACK = (
    "The relayer lost its database, and not all memories are back: recall once in each namespace "
    "(`memrelay recall WORDS --namespace NAME`), then export again."
)
_OUTCOMES = {
    "imported": "imported",
    "unchanged": "there already",
    "erased": "erased here or there",
    "differs": "there in another revision, which stays",
    "refused": "refused: row and blob contradict each other, a revision lacks its memory, an epoch "
    "is over, or the relayer cannot read it",
    "lost": "lost: the relayer that they come from has no blob for them",
}


def write_archive(shell: Shell) -> None:
    """Write the whole account into an archive that only its owners can open."""
    path = expand_home(shell.args.file)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file; choose another name.")
    if path.exists() and not shell.args.force:
        raise ConfigError(f"{path} exists; --force replaces it.")
    with (
        ProgressLine(sys.stderr, "exported") as progress,
        shell.client(is_long=True, deadline_s=_DEADLINE_S) as client,
    ):
        try:
            is_restored = await_restored(client, [info.name for info in client.namespaces()])
            if not is_restored and path.exists():
                raise MemrelayError(f"{NOT_BACK} {path} stays as it is.")
            progress.expect(client.usage().memory_count)
            done = export_archive(client, path, progress)
        except KeyboardInterrupt:
            warn(f"Interrupted; the same command goes on where {path}.part ends.")
            raise
    counts, missing = done.counts, list(done.missing)
    value = {"out": str(path), "bytes": path.stat().st_size, "counts": dict(counts)}
    rows = counts.get("memory", 0)
    lines = [f"{format_count(rows, 'memory')} and earlier revisions, with all that belongs to them"]
    lines += [f"missing: {item}, which a receipt promises" for item in missing]
    shell.show(value | {"missing": missing}, lines)
    if counts["lost"]:
        lost = format_count(counts["lost"], "record")
        raise MemrelayError(f"Lost: {lost} for which the relayer has no blob.")
    if missing:
        raise MemrelayError(
            f"Missing: {format_count(len(missing), 'record')} that receipts promise and the "
            "relayer did not give; `memrelay verify` says more."
        )
    if not is_restored:
        raise MemrelayError(f"{NOT_BACK} The archive has what there is.")


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
        held = ", ".join(format_count(number, kind) for kind, number in sorted(counts.items()))
        return shell.show({"dry_run": True, "counts": counts}, [f"the archive holds: {held}"])
    settings = _settings_there(shell)
    saved = expand_home(args.save) if args.save else None
    if saved is not None:
        _check_same_key(saved, settings)
    with shell.client(settings, is_long=True, deadline_s=_DEADLINE_S) as client:
        relayer = client.statement().relayer
        with ProgressLine(sys.stderr, "brought", "record") as progress, shell.newcomer() as token:
            progress.expect(sum(archive.counts.get(kind, 0) for kind in ("memory", "episode")))
            tally = import_archive(client, archive, progress, token=token)
        if args.managed:
            client.give_custody()
        custody = client.account().custody
    if saved is not None:
        before = read_profile(saved, missing_ok=True)
        write_private(saved, replace(settings, relayer_key=relayer.hex()).profile())
        seen = TrustStore(trust_store_path(saved, settings.account_id))
        seen.pin(relayer.hex(), before=before.get("relayer_key"))
    value = {
        "url": settings.url,
        "relayer_key": relayer.hex(),
        "custody": custody,
        "dry_run": False,
        **{name: tally[name] for name in _OUTCOMES},
    }
    lines = [f"{tally[name]} {words}" for name, words in _OUTCOMES.items() if tally[name]]
    lines = [*(lines or ["nothing to bring"]), f"the account is {custody} there"]
    shell.show(value, lines + ([f"the profile for it is {saved}"] if saved else []))
    if settings.url != shell.settings().url and agent_paths(args.profile, shell.environ):
        warn(
            f"The agents' profiles in {agents_folder(args.profile, shell.environ)} still name the "
            f"relayer from before; `memrelay agents rotate NAME --profile {saved or 'PATH'}` gives "
            "an agent a key there."
        )
    if custody == "managed" and not args.managed:
        warn("A custodian was there before; revoke it if it should not read the account.")
    if tally["refused"] or tally["lost"]:
        raise MemrelayError(f"{tally['refused']} refused, {tally['lost']} lost.")


def _check_same_key(path: Path, settings: Settings) -> None:
    """Return if a profile may be written there: it replaces no other key, which would be lost."""
    key = read_profile(path, missing_ok=True).get("private_key", settings.private_key)
    if key != settings.private_key:
        raise ConfigError(f"{path} exists and holds another key; choose another name.")


def _settings_there(shell: Shell) -> Settings:
    """The settings of the profile at the relayer that `--url` names, which nobody knows yet."""
    args, settings = shell.args, shell.settings()
    if args.url is None:
        return settings
    return replace(settings, url=args.url, relayer_key=args.relayer_key, seen_path=None)


def clear_of(shell: Shell, path: Path, names: list[str] | None) -> dict[str, NamespaceExport]:
    """Return what stands in clear in an archive, by namespace; `names` None for all of them."""
    archive, at_ms = read_archive(shell, path), int(time.time() * 1000)
    found: dict[str, list[Memory]] = {name: [] for name in names or ()}
    try:
        for memory in open_memories(archive, shell.settings().identity, at_ms):
            if names is None or memory.namespace in names:
                found.setdefault(memory.namespace, []).append(memory)
    except NotGranted as error:
        raise MemrelayError(str(error)) from error
    return {name: collect_records(memories) for name, memories in sorted(found.items())}
