"""The commands on files: import and export.

It does not own the formats (`importing/`, `pages.py`), the command import (`imports.py`) or exit
codes (`cli.py`).
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memrelay.commands import archives
from memrelay.commands.imports import add_import, import_files
from memrelay.commands.parsers import Adder
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import ascii_only, warn
from memrelay.config import expand_home
from memrelay.errors import ConfigError, MemrelayError
from memrelay.exporting import (
    NamespaceExport,
    await_restored,
    claim,
    collect,
    json_lines,
    others,
    write_lines,
    write_pages,
)
from memrelay.plurals import format_count
from memrelay.sync_client import SyncMemoryClient


def register(add: Adder) -> None:
    """Add the commands on files."""
    add_import(add("import", import_files))
    _add_export(add("export", export))


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


def export(shell: Shell) -> None:
    """Write memories to files for people, or all to an archive."""
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
    if args.format == "jsonl" and expand_home(out).is_file() and not args.force:
        raise ConfigError(f"{out} exists; --force replaces it.")
    collected = _collect_namespaces(shell)
    found = collected.found
    lost = sum(len(one.lost) for one in found.values())
    if lost and args.format == "jsonl" and expand_home(out).is_file():
        stays = f"{out} stays as it is, for it may tell them; choose another file for the rest."
        raise MemrelayError(_describe_unread(lost, stays))
    if not collected.is_restored and args.format == "jsonl" and expand_home(out).is_file():
        raise MemrelayError(f"{archives.NOT_BACK} {out} stays as it is.")
    _write(shell, out, shell.settings().account_id, collected)
    sealed = sum(len(one.sealed) for one in found.values())
    if sealed:
        left_out = format_count(sealed, "memory")
        warn(f"Left out: {left_out} that another client sealed under a key of its own.")
    if lost:
        markdown = args.format == "markdown"
        raise MemrelayError(
            _describe_unread(lost, "What pages told of them is kept." if markdown else "")
        )
    if not collected.is_restored:
        kept = " Pages keep what they told." if args.format == "markdown" and out != "-" else ""
        raise MemrelayError(f"{archives.NOT_BACK}{kept}")


@dataclass(frozen=True)
class _Collected:
    """Memories that are exported in clear.

    Attributes:
        found: by namespace.
        is_whole: nothing else is there.
        is_restored: the relayer has all that it had before it lost its database, if it did.
    """

    found: dict[str, NamespaceExport]
    is_whole: bool
    is_restored: bool = True


def _collect_namespaces(shell: Shell) -> _Collected:
    """Collect what is to be exported in clear."""
    args = shell.args
    if args.from_archive:
        named = None if args.all_namespaces else [shell.settings().namespace]
        path = expand_home(args.from_archive)
        return _Collected(archives.clear_of(shell, path, named), args.all_namespaces)
    with shell.client() as client:
        names, whole = [client.settings.namespace], False
        if args.all_namespaces:
            names, whole = _names(client)
        is_restored = await_restored(client, names)
        sizes = {info.name: info.memory_count for info in client.namespaces()}
        with ProgressLine(sys.stderr, "exported") as progress:
            progress.expect(sum(sizes.get(name, 0) for name in names))
            count = _make_counter(progress)
            found = {name: collect(client, name, count) for name in names}
            return _Collected(found, whole, is_restored)


def _describe_unread(lost: int, kept: str) -> str:
    told = f"{format_count(lost, 'memory')} could not be read; `memrelay verify` names them. {kept}"
    return told.rstrip()


def _make_counter(progress: ProgressLine) -> Callable[[int], None]:
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


def _write(shell: Shell, out: str, account_id: str, collected: _Collected) -> None:
    found = collected.found
    records = [record for one in found.values() for record in one.records]
    if out == "-":
        sys.stdout.write(json_lines(records, ascii_only=ascii_only()))
        return
    path = expand_home(out)
    value: dict[str, Any] = {"out": str(path), "memories": len(records), "namespaces": list(found)}
    if shell.args.format == "jsonl":
        write_lines(path, records)
        return shell.show(value, [f"{format_count(len(records), 'memory')} in {path}"])
    claim(path, account_id)
    if collected.is_whole and collected.is_restored:  # pages of a namespace that is gone go as well
        found |= {name: NamespaceExport(()) for name in others(path, found)}
    written = [
        write_pages(
            path, name, one.records, one.sealed | one.lost if collected.is_restored else None
        )
        for name, one in found.items()
    ]
    value |= {"pages": sum(n for n, _ in written), "removed": sum(n for _, n in written)}
    gone = f", {value['removed']} old ones removed" if value["removed"] else ""
    pages = format_count(value["pages"], "page")
    shell.show(value, [f"{format_count(len(records), 'memory')} on {pages} in {path}{gone}"])
