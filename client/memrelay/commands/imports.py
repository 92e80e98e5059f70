"""The command that brings memories and conversations along from files of other programs.

It does not own reading them (`importing/`), or archives, which come whole (`archives.py`). What a
bad entry says is never told, only where it stands and what is wrong with it.
"""

import asyncio
import re
import sys
from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any

from memrelay.answers import rfc3339
from memrelay.archive_reader import is_archive
from memrelay.async_client import MemoryClient
from memrelay.commands import archives
from memrelay.commands.entries import one_entry
from memrelay.commands.parsers import Parser, add_wait, parse_nonempty
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.times import parse_past
from memrelay.config import expand_home
from memrelay.errors import (
    ConfigError,
    MemrelayError,
    QuotaExceeded,
    RateLimited,
    TransportError,
    Unavailable,
)
from memrelay.extraction import finders
from memrelay.importing.advice import advise_on_page
from memrelay.importing.analyzing import Analyzing
from memrelay.importing.drafts import OMITTED, moment
from memrelay.importing.files import find
from memrelay.importing.formats import FORMATS
from memrelay.importing.reader import Item, QueuedPart, Reading, Tally, member_told
from memrelay.importing.sources import File
from memrelay.importing.storing import Storing
from memrelay.plurals import format_count

_DEADLINE_S = 300.0  # rate limits count minutes, and a long import sits some of them out
_SHOWN_CHARS = 100
_PASSING = (TransportError, RateLimited, QuotaExceeded, Unavailable)

_ARCHIVES = "archives, which move an account to another relayer"
_FORMATS = """\
formats of memories:
  memrelay     pages of `memrelay export --format markdown`
  openclaw     MEMORY.md, USER.md, users/*/USER.md, memory/*.md of a workspace
  hermes       MEMORY.md and USER.md, with a line of § between entries
  memsearch    daily logs, with the sessions they came from, PROJECT.md and USER.md
  memoryclaw   episodes and semantic files
  mem0         JSON of get_all or search
  memwal       JSON of recall
  mcp-memory   memory.jsonl of the Model Context Protocol's memory server
  markdown     other notes: a memory for each bullet, paragraph and row of a table
  text         a memory for each paragraph
  jsonl        a JSON object with a text and a memory's other fields, one a line or in a list

formats of conversations, which the relayer analyzes: what it finds in them becomes memories
  chatgpt      the export: its zip, its folder, conversations.json
  claude       the export: its zip, its folder, conversations.json; memories and projects, too
  gemini       Google Takeout: its zip, its folder, MyActivity.json or .html
  claude-code  sessions in ~/.claude/projects
  codex        sessions in ~/.codex/sessions
  gemini-cli   sessions in ~/.gemini/tmp
  transcript   JSON objects with role and content, in a list, one a line or under messages

Running an import again stores nothing twice, so one that broke off is simply run again.
"""


def add_import(parser: Parser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _FORMATS
    parser.put_aside(_ARCHIVES, rest="show the formats and what moves an archive, too, and exit")
    parser.add_argument("path", nargs="+", help="a file, a folder of files, or a zip archive")
    parser.add_argument(
        "--from", dest="format", choices=("auto", *FORMATS), default="auto", help="the format"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be stored")
    parser.add_argument(
        "--strict", action="store_true", help="fail JSON objects with a member that no memory has"
    )
    parser.add_argument(
        "--since",
        type=parse_past,
        metavar="TIME",
        help="of conversations, only what was said from then on: 2026-05-04, 30d",
    )
    parser.add_argument(
        "--again", action="store_true", help="analyze conversations that an earlier import brought"
    )
    archive = parser.add_argument_group(_ARCHIVES)
    archive.add_argument("--url", help="that relayer (the profile's)")
    archive.add_argument("--relayer-key", metavar="HEX", help="insist on its key")
    archive.add_argument("--token", help="what it asks of newcomers (better: MEMRELAY_TOKEN)")
    archive.add_argument("--managed", action="store_true", help="let it read the account, too")
    archive.add_argument(
        "--save", type=parse_nonempty, metavar="PATH", help="write the profile for it there"
    )
    parser.add_argument("--verbose", action="store_true", help="with --dry-run: each first line")
    parser.add_argument(
        "--utc-offset",
        type=_offset,
        metavar="±HH:MM",
        help="of days and times in files that have none (+00:00), and of days in chats (here)",
    )
    add_wait(parser, default_s=600.0, of="all is")


def _offset(text: str) -> tzinfo:
    match = re.fullmatch(r"([+-])(\d{2}):(\d{2})", text)
    if match is None or int(match[2]) > 14 or int(match[3]) > 59:
        raise ArgumentTypeError("write an offset like +02:00")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return timezone(-offset if match[1] == "-" else offset)


def import_files(shell: Shell) -> None:
    """Store memories and conversations of other programs' files.

    An archive brings a whole account.
    """
    args = shell.args
    paths = [expand_home(path) for path in args.path]
    if any(map(is_archive, paths)):
        if len(paths) != 1:
            raise ConfigError("An archive is imported alone.")
        if _chooses_of_files(args):
            raise ConfigError(
                "An archive comes whole, with its namespaces and times: "
                "--namespace, --from, --strict, --verbose, --utc-offset, --since, --again and "
                "--wait are for other files."
            )
        return archives.bring_archive(shell, paths[0])
    if args.url or args.managed or args.save or args.token or args.relayer_key:
        raise ConfigError("--url, --relayer-key, --token, --managed and --save are for archives.")
    files, left_out = find(args.path)
    imported = _Import(shell, files, left_out)
    if args.dry_run:
        imported.show_contents()
    else:
        asyncio.run(imported.store())
    failed, pages = imported.total("failed"), imported.incomplete()
    if failed:
        raise MemrelayError(f"{failed} could not be imported; they are named above.")
    if pages:
        raise MemrelayError(
            "What was imported is a part of more; how to get the rest stands above."
        )


def _chooses_of_files(args: Namespace) -> bool:
    """Tell whether somebody chose what an archive has no choice of."""
    read = (
        args.format != "auto" or args.utc_offset not in (None, UTC) or args.verbose or args.strict
    )
    said = args.since is not None or args.again
    return bool(read or said or args.namespace or args.wait is not None)


class _Import:
    """One run of `import`: its files, how they fared, and what is told of it."""

    def __init__(self, shell: Shell, files: Sequence[File], left_out: int) -> None:
        self._shell = shell
        self._left_out = left_out
        self._failures: list[dict[str, str]] = []
        args = shell.args
        self._reading = Reading(
            files,
            self._warn_of_failure,
            format=None if args.format == "auto" else args.format,
            zone=args.utc_offset,
            strict=args.strict,
            since=None if args.since is None else args.since.time,
        )

    @property
    def _tallies(self) -> Sequence[Tally]:
        return self._reading.tallies

    def show_contents(self) -> None:
        """Show what the files hold, without a relayer."""
        tells = self._shell.args.verbose and not self._shell.args.json
        for item in self._reading.items():
            if tells:
                self._shell.show(None, [_first_line(item)])
        for part in self._reading.queue() if tells else ():
            self._shell.show(None, [_describe_part(part)])
        self.show()
        if self.total("parts"):
            warn(_NO_FACTS)

    async def store(self) -> None:
        """Store what the files hold, and show how it fared, also if it ends early."""
        args = self._shell.args
        settings = self._shell.settings()
        async with MemoryClient.from_settings(
            settings,
            deadline_s=_DEADLINE_S,
            repeating=self._shell.make_repeat_notice(settings.url, is_long=True),
        ) as client:
            chosen = {"namespace": args.namespace, "failed": self._warn_of_failure}
            storing = Storing(client, **chosen, keep_ids=bool(args.wait))
            analyzing = Analyzing(client, **chosen, again=args.again, keep_ids=bool(args.wait))
            try:
                with ProgressLine(sys.stderr, "done", "entry") as progress:
                    await storing.run(self._reading.items(), progress=progress)
                with ProgressLine(sys.stderr, "parts of conversations read") as progress:
                    await analyzing.run(self._reading.queue(), progress=progress)
            except (*_PASSING, asyncio.CancelledError):  # the latter by Ctrl-C
                warn("The import broke off; the same command goes on with the rest.")
                raise
            finally:
                self.show()
            if args.wait:
                ids = dict.fromkeys((*storing.ids, *analyzing.ids))
                await client.wait(ids, timeout_s=args.wait)

    def _warn_of_failure(self, file: str, place: str, reason: str) -> None:
        self._failures.append({"file": file, "place": place, "reason": reason})
        warn(f"{file}:{place}: {reason}")

    def total(self, name: str) -> int:
        """Return the sum of one of the tallies' numbers."""
        return sum(getattr(tally, name) for tally in self._tallies)

    def incomplete(self) -> list[Tally]:
        """Return the tallies of pages of more, where the rest is surely not among the files."""
        held: dict[int, int] = defaultdict(int)
        for tally in self._tallies:
            held[_total(tally)] += tally.page.held if tally.page else 0
        return [
            tally
            for tally in self._tallies
            if tally.page is not None
            and tally.page.is_certain
            and not 0 < _total(tally) <= held[_total(tally)]
        ]

    def show(self) -> None:
        """Print how the files fared."""
        dry_run = self._shell.args.dry_run
        told = _READ if dry_run else _OUTCOMES
        lines = [
            f"{tally.file} ({tally.format or 'unknown'}): {_describe(tally, told)}"
            for tally in self._tallies
        ]
        totals = {name: self.total(name) for name in _COUNTED}
        omitted = sum(sum(tally.omitted.values()) for tally in self._tallies)
        end = "; nothing was stored" if dry_run else ""
        self._tell_unknown()
        incomplete = self.incomplete()
        for tally in self._tallies:
            if tally.page and (tally in incomplete or not tally.page.is_certain):
                warn(f"{tally.file} {advise_on_page(tally.page, tally.format)}")
        if self._left_out:
            warn(f"Left out: {format_count(self._left_out, 'other file')}; to import one, name it.")
        extractors, causes = Counter[str](), Counter[str]()
        for tally in self._tallies:
            extractors.update(tally.extractors)
            causes.update(tally.causes)
        value = {
            "dry_run": dry_run,
            **totals,
            "omitted": omitted,
            "left_out": self._left_out,
            "incomplete": [tally.file for tally in incomplete],
            "extractors": dict(extractors),
            "causes": dict(causes),
            "files": [tally.to_json() for tally in self._tallies],
            "failures": self._failures,
        }
        by = map(one_entry, finders(extractors, causes, "part"))
        self._shell.show(value, [*lines, *by, f"{_numbers(totals, told)}{end}"])

    def _tell_unknown(self) -> None:
        for tally in self._tallies:
            for one in tally.unknown:
                of = format_count(one.entries, "entry")
                told = f"no memory has {member_told(one.member)}: left out of {of}."
                warn(f"{tally.file}:{one.place}: {told}")


_READ = ("entries", "conversations", "messages", "parts", "superseded", "expired", "failed")
_OUTCOMES = (
    *("conversations", "stored", "edited", "known", "pending", "skipped", "superseded", "expired"),
    *("failed", "redacted"),
)
_COUNTED = tuple(dict.fromkeys((*_READ, *_OUTCOMES)))
_NOUNS = {"conversations": "conversation", "messages": "message", "parts": "part"}
_WORDS = {
    "entries": "found",
    "known": "known already",
    "edited": "corrected",
    "superseded": "of them superseded",
    "pending": "waiting for a model",
    "skipped": "read in an earlier import",
}
_NO_FACTS = (
    "Which facts conversations hold, the relayer finds when it reads them. To see some first,"
    " import them with --since into --namespace trial, look at `memrelay list --namespace trial`,"
    " and take them back with `memrelay forget --namespace trial`."
)


def _describe(tally: Tally, names: Sequence[str]) -> str:
    numbers = _numbers(tally.to_json(), names)
    days = dict.fromkeys(filter(None, (tally.begin, tally.end)))
    omitted = [f"{number} {OMITTED[reason]}" for reason, number in tally.omitted.items()]
    return (
        numbers
        + (f" ({' to '.join(days)})" if days else "")
        + (f"; left out: {', '.join(omitted)}" if omitted else "")
    )


def _numbers(values: dict[str, Any], names: Sequence[str]) -> str:
    always = {"known", "stored"} if "stored" in names else {"entries"}
    if values["conversations"] and not values["entries"]:
        always -= {"entries"}
    return ", ".join(
        _number(values[name], name) for name in names if values[name] or name in always
    )


def _number(number: int, name: str) -> str:
    if name == "redacted":
        return f"{format_count(number, 'secret')} redacted"
    return (
        format_count(number, _NOUNS[name])
        if name in _NOUNS
        else f"{number} {_WORDS.get(name, name)}"
    )


def _total(tally: Tally) -> int:
    return (tally.page.total or 0) if tally.page else 0


def _first_line(item: Item) -> str:
    draft = item.entry.draft
    when = moment(draft.event_time)
    notes = [rfc3339(when)[:16] if when else "", draft.kind or "", ", ".join(draft.tags or ())]
    first = draft.text.strip().split("\n")[0][:_SHOWN_CHARS]
    return f"{item.tally.file}:{item.entry.place}  {'  '.join(filter(None, notes))}  {first}"


def _describe_part(part: QueuedPart) -> str:
    """Return a line on a part of a conversation, with what the user said first in it."""
    said = re.search(r"^\d+\. user: (.*)", part.text, re.MULTILINE)
    notes = [rfc3339(part.time)[:16] if part.time else "", format_count(part.messages, "message")]
    first = said[1][:_SHOWN_CHARS] if said else ""
    return f"{part.tally.file}:{part.place}  {'  '.join(filter(None, notes))}  {first}"
