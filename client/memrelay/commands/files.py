"""The commands on files: import and export.

It does not own the formats (`importing/`, `pages.py`) or exit codes (`cli.py`). What a bad entry
says is never told, only where it stands and what is wrong with it.
"""

import asyncio
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any

from memrelay.answers import rfc3339
from memrelay.archived import is_archive
from memrelay.client import MemoryClient, SyncMemoryClient
from memrelay.commands import archives
from memrelay.commands.parsers import Adder, seconds, stated
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell, ascii_only, warn
from memrelay.config import expanded
from memrelay.counting import counted
from memrelay.errors import (
    ConfigError,
    MemrelayError,
    QuotaExceeded,
    RateLimited,
    TransportError,
    Unavailable,
)
from memrelay.exporting import (
    Collected,
    claim,
    collect,
    json_lines,
    others,
    write_lines,
    write_pages,
)
from memrelay.importing.files import FORMATS, File, find
from memrelay.importing.found import OMITTED, moment
from memrelay.importing.storing import Item, Storing, Tally, items, member_told

_DEADLINE_S = 300.0  # rate limits count minutes, and a long import sits some of them out
_SHOWN_CHARS = 100
_PASSING = (TransportError, RateLimited, QuotaExceeded, Unavailable)

_FORMATS = """\
formats:
  memrelay    pages of `memrelay export --format markdown`
  openclaw    MEMORY.md, USER.md, users/*/USER.md, memory/*.md of a workspace
  hermes      MEMORY.md and USER.md, with § between entries
  memsearch   daily logs, with the sessions they came from, PROJECT.md and USER.md
  memoryclaw  episodes and semantic files
  mem0        JSON of get_all or search
  memwal      JSON of recall
  markdown    other notes: a memory for each bullet and paragraph
  text        a memory for each paragraph
  jsonl       a JSON object with a text and a memory's other fields, one a line or in a list

Running an import again stores nothing twice, so one that broke off is simply run again.
"""


def register(add: Adder) -> None:
    """Add the commands on files."""
    _add_import(add("import", import_files))
    _add_export(add("export", export))


def _add_import(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _FORMATS
    parser.add_argument("path", nargs="+", help="a file, or a folder of files")
    parser.add_argument(
        "--from", dest="format", choices=("auto", *FORMATS), default="auto", help="the format"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be stored")
    parser.add_argument(
        "--strict", action="store_true", help="fail JSON objects with a member that no memory has"
    )
    archive = parser.add_argument_group("archives, which move an account to another relayer")
    archive.add_argument("--url", help="that relayer (the profile's)")
    archive.add_argument("--relayer-key", metavar="HEX", help="insist on its key")
    archive.add_argument("--token", help="what it asks of newcomers (better: MEMRELAY_TOKEN)")
    archive.add_argument("--managed", action="store_true", help="let it read the account, too")
    archive.add_argument(
        "--save", type=stated, metavar="PATH", help="write the profile for it there"
    )
    parser.add_argument("--verbose", action="store_true", help="with --dry-run: each first line")
    parser.add_argument(
        "--utc-offset",
        type=_offset,
        default=UTC,
        metavar="±HH:MM",
        help="of days and times that have none (+00:00)",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        nargs="?",
        const=600.0,
        metavar="SECONDS",
        help="until all is found by meaning, too",
    )


def _add_export(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("markdown", "jsonl"),
        help="in clear: pages by day (default), or one JSON object a line",
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="an archive of the whole account, encrypted for its owners; goes on after a break",
    )
    parser.add_argument(
        "--from-archive", metavar="FILE", help="read an archive instead of the relayer, offline"
    )
    parser.add_argument(
        "--out", metavar="PATH", help="the folder of the pages; the file of the lines, or - (-)"
    )
    parser.add_argument("--all-namespaces", action="store_true", help="all that this key may read")
    parser.add_argument("--force", action="store_true", help="replace the file")


def _offset(text: str) -> tzinfo:
    match = re.fullmatch(r"([+-])(\d{2}):(\d{2})", text)
    if match is None or int(match[2]) > 14 or int(match[3]) > 59:
        raise ArgumentTypeError("write an offset like +02:00")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return timezone(-offset if match[1] == "-" else offset)


def import_files(shell: Shell) -> None:
    """Store the memories in files of memrelay, OpenClaw, memsearch, MemoryClaw, mem0, MemWal …"""
    args = shell.args
    paths = [expanded(path) for path in args.path]
    if any(map(is_archive, paths)):
        if len(paths) != 1:
            raise ConfigError("An archive is imported alone.")
        if _chooses_of_files(args):
            raise ConfigError(
                "An archive comes whole, with its namespaces and times: "
                "--namespace, --from, --strict, --verbose, --utc-offset and --wait are for "
                "other files."
            )
        return archives.bring_archive(shell, paths[0])
    if args.url or args.managed or args.save or args.token or args.relayer_key:
        raise ConfigError("--url, --relayer-key, --token, --managed and --save are for archives.")
    files, left_out = find(args.path)
    imported = _Import(shell, files, left_out)
    if args.dry_run:
        for item in imported.items():
            if args.verbose and not args.json:
                shell.show(None, [_first_line(item)])
        imported.show()
    else:
        asyncio.run(imported.store())
    failed = imported.total("failed")
    if failed:
        raise MemrelayError(f"{failed} could not be imported; they are named above.")


def _chooses_of_files(args: Namespace) -> bool:
    """Whether somebody chose what an archive has no choice of."""
    read = args.format != "auto" or args.utc_offset != UTC or args.verbose or args.strict
    return bool(read or args.namespace or args.wait is not None)


class _Import:
    """One run of `import`: its files, how they fared, and what is told of it."""

    def __init__(self, shell: Shell, files: Sequence[File], left_out: int) -> None:
        self._shell = shell
        self._files = files
        self._left_out = left_out
        self._tallies: list[Tally] = []
        self._failures: list[dict[str, str]] = []

    def items(self) -> Iterator[Item]:
        """Yield the entries of the files."""
        args = self._shell.args
        format = None if args.format == "auto" else args.format
        return items(
            self._files,
            self._tallies,
            self._failed,
            format=format,
            zone=args.utc_offset,
            strict=args.strict,
        )

    async def store(self) -> None:
        """Store the entries of the files, and show how they fared, also if it ends early."""
        args = self._shell.args
        async with MemoryClient.from_settings(
            self._shell.settings(), deadline_s=_DEADLINE_S, repeating=self._shell.repeating()
        ) as client:
            storing = Storing(
                client, namespace=args.namespace, failed=self._failed, keep_ids=bool(args.wait)
            )
            try:
                with ProgressLine(sys.stderr, "done", "entry") as progress:
                    await storing.run(self.items(), progress=progress)
            except (*_PASSING, asyncio.CancelledError):  # the latter by Ctrl-C
                warn("The import broke off; the same command goes on with the rest.")
                raise
            finally:
                self.show()
            if args.wait:
                await client.wait(dict.fromkeys(storing.ids), timeout_s=args.wait)

    def _failed(self, file: str, place: str, reason: str) -> None:
        self._failures.append({"file": file, "place": place, "reason": reason})
        warn(f"{file}:{place}: {reason}")

    def total(self, name: str) -> int:
        """Return the sum of one of the tallies' numbers."""
        return sum(getattr(tally, name) for tally in self._tallies)

    def show(self) -> None:
        """Print how the files fared."""
        dry_run = self._shell.args.dry_run
        told = ("entries", "superseded", "expired", "failed") if dry_run else _OUTCOMES
        lines = [
            f"{tally.file} ({tally.format}): {_numbers(tally.to_json(), told)}{_omitted(tally)}"
            for tally in self._tallies
        ]
        totals = {name: self.total(name) for name in ("entries", *_OUTCOMES)}
        omitted = sum(sum(tally.omitted.values()) for tally in self._tallies)
        end = "; nothing was stored" if dry_run else ""
        self._tell_unknown()
        if self._left_out:
            warn(f"Left out: {counted(self._left_out, 'other file')}; to import one, name it.")
        value = {
            "dry_run": dry_run,
            **totals,
            "omitted": omitted,
            "left_out": self._left_out,
            "files": [tally.to_json() for tally in self._tallies],
            "failures": self._failures,
        }
        self._shell.show(value, [*lines, f"{_numbers(totals, told)}{end}"])

    def _tell_unknown(self) -> None:
        for tally in self._tallies:
            for one in tally.unknown:
                of = counted(one.entries, "entry")
                told = f"no memory has {member_told(one.member)}: left out of {of}."
                warn(f"{tally.file}:{one.place}: {told}")


_OUTCOMES = ("stored", "edited", "known", "superseded", "expired", "failed", "redacted")
_WORDS = {
    "entries": "found",
    "known": "known already",
    "edited": "corrected",
    "superseded": "of them superseded",
}


def _omitted(tally: Tally) -> str:
    parts = [f"{number} {OMITTED[reason]}" for reason, number in tally.omitted.items()]
    return f"; left out: {', '.join(parts)}" if parts else ""


def _numbers(values: dict[str, Any], names: Sequence[str]) -> str:
    always = names[0], "known"
    parts = [
        f"{counted(values[name], 'secret')} redacted"
        if name == "redacted"
        else f"{values[name]} {_WORDS.get(name, name)}"
        for name in names
        if values[name] or name in always
    ]
    return ", ".join(parts)


def _first_line(item: Item) -> str:
    draft = item.entry.draft
    when = moment(draft.event_time)
    notes = [rfc3339(when)[:16] if when else "", draft.kind or "", ", ".join(draft.tags or ())]
    first = draft.text.strip().split("\n")[0][:_SHOWN_CHARS]
    return f"{item.tally.file}:{item.entry.place}  {'  '.join(filter(None, notes))}  {first}"


def export(shell: Shell) -> None:
    """Write memories to files that people can read and edit, or everything to an archive."""
    args = shell.args
    if args.file is not None:
        chosen = args.format or args.out or args.from_archive
        if chosen or args.namespace or args.all_namespaces:
            raise ConfigError("An archive is of the whole account; it takes no other choices.")
        return archives.write_archive(shell)
    args.format = args.format or "markdown"
    if args.all_namespaces and args.namespace:
        raise ConfigError("Choose either --namespace or --all-namespaces.")
    out = args.out or ("-" if args.format == "jsonl" else None)
    if out is None or (out == "-" and args.format == "markdown"):
        raise ConfigError("Name the folder of the pages: --out FOLDER.")
    if out == "-" and args.json:
        raise ConfigError("Lines on standard output leave no room for --json; use --out FILE.")
    if args.format == "jsonl" and expanded(out).is_file() and not args.force:
        raise ConfigError(f"{out} exists; --force replaces it.")
    found, whole = _found(shell)
    lost = sum(len(one.lost) for one in found.values())
    if lost and args.format == "jsonl" and expanded(out).is_file():
        stays = f"{out} stays as it is, for it may tell them; choose another file for the rest."
        raise MemrelayError(_unread(lost, stays))
    _write(shell, out, shell.settings().account_id, found, whole=whole)
    sealed = sum(len(one.sealed) for one in found.values())
    if sealed:
        left_out = counted(sealed, "memory")
        warn(f"Left out: {left_out} that another client sealed under a key of its own.")
    if lost:
        markdown = args.format == "markdown"
        raise MemrelayError(_unread(lost, "What pages told of them is kept." if markdown else ""))


def _found(shell: Shell) -> tuple[dict[str, Collected], bool]:
    """What is to be exported in clear, by namespace, and whether nothing else is there."""
    args = shell.args
    if args.from_archive:
        named = None if args.all_namespaces else [shell.settings().namespace]
        path = expanded(args.from_archive)
        return archives.clear_of(shell, path, named), args.all_namespaces
    with shell.client() as client:
        names, whole = [client.settings.namespace], False
        if args.all_namespaces:
            names, whole = _names(client)
        with ProgressLine(sys.stderr, "exported") as progress:
            count = _counting(progress)
            return {name: collect(client, name, count) for name in names}, whole


def _unread(lost: int, kept: str) -> str:
    told = f"{counted(lost, 'memory')} could not be read; `memrelay verify` names them. {kept}"
    return told.rstrip()


def _counting(progress: ProgressLine) -> Callable[[int], None]:
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(done)

    return count


def _names(client: SyncMemoryClient) -> tuple[list[str], bool]:
    """All namespaces that this key may read, and whether no other key may read more.

    One that was forgotten is not listed any more, but what is granted says that it would be.
    """
    granted = client.granted()
    names = {info.name for info in client.namespaces()}
    return sorted(names.union(granted or ())), granted is None


def _write(
    shell: Shell, out: str, account_id: str, found: dict[str, Collected], *, whole: bool
) -> None:
    records = [record for one in found.values() for record in one.records]
    if out == "-":
        sys.stdout.write(json_lines(records, ascii_only=ascii_only()))
        return
    path = expanded(out)
    value: dict[str, Any] = {"out": str(path), "memories": len(records), "namespaces": list(found)}
    if shell.args.format == "jsonl":
        write_lines(path, records)
        return shell.show(value, [f"{counted(len(records), 'memory')} in {path}"])
    claim(path, account_id)
    if whole:  # pages of a namespace that is gone go as well
        found |= {name: Collected(()) for name in others(path, found)}
    written = [
        write_pages(path, name, one.records, one.sealed | one.lost) for name, one in found.items()
    ]
    value |= {"pages": sum(n for n, _ in written), "removed": sum(n for _, n in written)}
    gone = f", {value['removed']} old ones removed" if value["removed"] else ""
    pages = counted(value["pages"], "page")
    shell.show(value, [f"{counted(len(records), 'memory')} on {pages} in {path}{gone}"])
