"""The command that shows what a memory would know, at a relayer that is gone afterwards.

It does not own that relayer (`temporary_relayer.py`), reading, storing and asking
(`importing/sampling.py`), or where agents keep their files (`agent_files.py`).

- The keys are in this process alone, and no file of a profile is read or written.
- With `--keep` it founds the memory that `init --local` would, and stores what it reads in that.
- The relayer has no language model: nothing that is read leaves this machine.
"""

import asyncio
import shlex
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from memrelay.archive_reader import is_archive
from memrelay.async_client import MemoryClient
from memrelay.commands.account import ADVICE
from memrelay.commands.agent_files import find_agent_files
from memrelay.commands.new_account import Wish, choose_data_folder, found_account
from memrelay.commands.parsers import Adder, parse_nonempty
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column, cut, format_table, terminal_width
from memrelay.commands.temporary_relayer import remove_abandoned, run_temporary_relayer
from memrelay.config import Settings, expand_home, profile_path, trust_store_path
from memrelay.errors import ConfigError, MemrelayError, Starting
from memrelay.extraction import finders
from memrelay.importing.drafts import OMITTED
from memrelay.importing.files import find
from memrelay.importing.reader import Reading, Tally
from memrelay.importing.sampling import (
    Answered,
    Sample,
    Trial,
    choose_newest,
    read_sample,
    spread,
    store_sample,
    try_recalls,
)
from memrelay.models import Memory
from memrelay.plurals import format_count
from memrelay.sealed.keys import Identity

_SHOWN_FILES: Final = 8
_SHOWN_FAILURES: Final = 5
_MARGIN: Final = "          "  # as wide as the words that begin lines
_FILES: Final = (Column("FILE", is_text=True), Column("FORMAT"), Column("HOLDS", rank=1))
_MEMORIES: Final = (Column("KIND"), Column("TEXT", is_text=True))
_PLACES: Final = (Column("PLACE", is_text=True), Column("HOLDS"))


def register(add: Adder) -> None:
    """Add the command."""
    _add_try(add("try", try_files, namespace=False, agent=False))


def _add_try(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path",
        nargs="?",
        help="a folder, file or zip archive as `import` takes; without one: see what is here",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep it, in a new memory as of `init --local`"
    )
    parser.add_argument(
        "--data-dir", type=parse_nonempty, metavar="PATH", help="with --keep: where its data is"
    )


def try_files(shell: Shell) -> None:
    """Show what a memory would know of your notes, chats or files.

    It stores them at a relayer that it starts for itself, and that is gone when it ends. With
    --keep it stores them in a new memory of yours on this machine.
    """
    if shell.args.data_dir and not shell.args.keep:
        raise ConfigError("--data-dir is for --keep; without it nothing is kept.")
    if shell.args.path is None:
        if shell.args.keep:
            raise ConfigError("Name what is to be kept: `memrelay try PATH --keep`.")
        return _show_places(shell)
    if shell.args.keep:
        _refuse_other_memory(shell)
    if is_archive(expand_home(shell.args.path)):
        raise ConfigError("An archive of memrelay holds a whole account: `memrelay import` it.")
    every, others = find([shell.args.path])
    files, files_left = choose_newest(every)
    failures = _Failures()
    reading = Reading(files, failures.add, format=None, zone=None)
    sample = read_sample(reading)
    trial, kept = Trial((), (), is_by_words=False), None
    if sample.items or sample.parts:
        if shell.args.keep:
            kept, settings = _found_memory(shell)
            trial = _store_for_good(shell, settings, sample, failures)
        else:
            trial = _store_for_now(sample, failures)
    _Report(shell, reading.tallies, sample, trial, kept, (files_left, others), failures).show()
    if not trial.memories:
        raise MemrelayError(
            "Nothing was found that a memory would keep; other files may have more."
        )


def _store_for_now(sample: Sample, failures: "_Failures") -> Trial:
    """Return what comes of a sample at a relayer that has ended and is gone afterwards."""
    remove_abandoned()
    with run_temporary_relayer(_tell_start) as url:
        return asyncio.run(_found_and_run(url, sample, failures))


def _store_for_good(
    shell: Shell, settings: Settings, sample: Sample, failures: "_Failures"
) -> Trial:
    """Return what comes of a sample in the user's own memory."""
    try:
        return asyncio.run(_run(settings, sample, failures))
    except KeyboardInterrupt:
        warn(f"Interrupted; some of it is kept. Type `{_import_command(shell)}` for the rest.")
        raise


async def _found_and_run(url: str, sample: Sample, failures: "_Failures") -> Trial:
    founder = Identity.generate()
    account = await MemoryClient.create_account(url, identity=founder)
    settings = Settings(
        url=url,
        account_id=account.account_id,
        private_key=founder.seed_hex(),
        relayer_key=account.relayer_key,
        custody=account.custody,
    )
    return await _run(settings, sample, failures)


async def _run(settings: Settings, sample: Sample, failures: "_Failures") -> Trial:
    async with MemoryClient.from_settings(settings) as client:
        await store_sample(client, sample, failures.add)
        return await try_recalls(client)


@dataclass(frozen=True)
class _Kept:
    """The memory in which a trial is kept, and what to type to be without it again."""

    account_id: str
    namespace: str
    data_dir: str
    profile: str
    undo: str


def _refuse_other_memory(shell: Shell) -> None:
    """Return if there is no memory yet that the commands after this one would ask instead.

    Raises:
        ConfigError: there is; the message says how to bring the files into it.
    """
    path = profile_path(shell.args.profile, shell.environ)
    bring = f"To bring these files into it, type `{_import_command(shell)}`."
    if path.exists():
        raise ConfigError(f"You have a memory already: {path} is its profile. {bring}")
    names = ("MEMRELAY_URL", "MEMRELAY_ACCOUNT_ID", "MEMRELAY_PRIVATE_KEY")
    if named := [name for name in names if shell.environ.get(name)]:
        verb = "names" if len(named) == 1 else "name"
        raise ConfigError(f"{' and '.join(named)} {verb} a memory already. {bring}")


def _found_memory(shell: Shell) -> tuple[_Kept, Settings]:
    """Found the user's own memory on this machine, as `memrelay init --local` does."""
    path = profile_path(shell.args.profile, shell.environ)
    folder = choose_data_folder(shell)
    is_new = not (folder / "relayer.key").exists()
    account, _ = found_account(shell, path, Wish.here(folder), replaces=None)
    settings = Settings.load(shell.args.profile, environ=shell.environ)
    stop = shlex.join(["memrelay", "local", "stop", *_profile_option(shell)])
    close = shlex.join(["memrelay", "close", account.account_id, *_profile_option(shell)])
    # Others may have memories in a folder that was there before.
    beside = (path, trust_store_path(path, account.account_id))
    files = [str(one.with_name(name)) for one in beside for name in (one.name, f".{one.name}.lock")]
    undo = (
        f"{stop} && {shlex.join(['rm', '-rf', str(folder), *files])}"
        if is_new
        else f"{close} && {shlex.join(['rm', '-f', *files])}"
    )
    return _Kept(account.account_id, settings.namespace, str(folder), str(path), undo), settings


def _tell_start(error: MemrelayError) -> None:
    if isinstance(error, Starting):
        warn("A temporary relayer is starting; nothing that it is told stays.")


class _Failures:
    """The entries that could not be read or stored: counted, and the first of them told."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []

    def add(self, file: str, place: str, reason: str) -> None:
        self.told.append({"file": file, "place": place, "reason": reason})
        if len(self.told) <= _SHOWN_FAILURES:
            warn(f"{file}:{place}: {reason}")


class _Report:
    """Everything that is told of a trial, for people and as JSON."""

    def __init__(
        self,
        shell: Shell,
        tallies: Sequence[Tally],
        sample: Sample,
        trial: Trial,
        kept: _Kept | None,
        files_left_out: tuple[int, int],
        failures: _Failures,
    ) -> None:
        files_left, others = files_left_out
        self._shell = shell
        self._tallies = tallies
        self._trial = trial
        self._failures = failures.told
        self._redacted = sum(tally.redacted for tally in tallies)
        self._omitted = Counter[str]()
        for tally in tallies:
            self._omitted.update(tally.omitted)
        self._left_out = {
            "files": files_left,
            "other_files": others,
            "memories": sample.memories_left,
            "parts": sample.parts_left,
            "expired": self._sum("expired"),
            "known": self._sum("known"),
            "failed": self._sum("failed"),
            **self._omitted,
        }
        self._kinds = Counter(memory.kind for memory in trial.memories)
        self._kept = kept
        has_more = bool(files_left or sample.memories_left or sample.parts_left)
        self._more = _import_command(shell) if kept and has_more else None
        self._keep = None if kept else _describe_keeping(shell, has_more=has_more)

    def show(self) -> None:
        """Print it."""
        samples = list(self._pick_samples())
        value = {
            "files": [tally.to_json() for tally in self._tallies],
            "memories": len(self._trial.memories),
            "kinds": dict(self._kinds),
            "samples": [{"kind": one.kind, "text": one.text} for one in samples],
            "questions": [
                {
                    "question": one.question,
                    "text": one.memory.text if one.memory else None,
                    "relevance": one.relevance,
                }
                for one in self._trial.answers
            ],
            "by_words_only": self._trial.is_by_words,
            "redacted": self._redacted,
            "left_out": self._left_out,
            "failures": self._failures,
            "keep": self._keep,
            "kept": asdict(self._kept) if self._kept else None,
            "more": self._more,
        }
        self._shell.show(value, self._lines(samples))

    def _lines(self, samples: Sequence[Memory]) -> Iterator[str]:
        yield f"read      {format_count(len(self._tallies), 'file')}{self._describe_holdings()}"
        newest = self._tallies[-_SHOWN_FILES:]
        yield from format_table(_FILES, [(one.file, one.format, _holds(one)) for one in newest])
        if more := len(self._tallies) - len(newest):
            yield f"… and {format_count(more, 'file')} more"
        yield ""
        counts = ", ".join(f"{kind} {number}" for kind, number in self._kinds.most_common())
        memories = format_count(len(self._trial.memories), "memory")
        yield f"found     {memories}{f': {counts}' if counts else ''}"
        yield from format_table(_MEMORIES, [(one.kind or "", one.text or "") for one in samples])
        for line in self._describe_finders():
            yield f"{_MARGIN}{line}"
        if self._trial.answers:
            yield ""
            yield "asked     with a few of their own words, as `memrelay recall` would"
        for answer in self._trial.answers:
            yield from _answer_lines(answer)
        if self._trial.is_by_words:
            yield f"{_MARGIN}Not all could be found by meaning: some answers are by words alone."
        yield ""
        yield f"redacted  {format_count(self._redacted, 'secret')}"
        yield f"left out  {self._describe_left_out()}"
        if len(self._failures) > _SHOWN_FAILURES:
            yield f"{_MARGIN}--json says where and why for each that could not be read or stored."
        yield from self._describe_kept()

    def _describe_kept(self) -> Iterator[str]:
        kept = self._kept
        if kept is None:
            yield "kept      nothing: the relayer has ended, and its folder is gone"
            yield f"keep it   {self._keep}"
            return
        yield f"kept      all that was found, in your own memory (namespace {kept.namespace})"
        yield f"account   {kept.account_id}"
        yield f"data      {kept.data_dir}; its relayer starts when a command needs it"
        yield f"profile   {kept.profile}: the only copy of the private key; keep a backup"
        yield ADVICE
        if self._more:
            yield f"the rest  {self._more}"
        yield f"undo      {kept.undo}"

    def _pick_samples(self) -> Iterator[Memory]:
        for kind, _ in self._kinds.most_common():
            yield from spread([one for one in self._trial.memories if one.kind == kind])

    def _describe_holdings(self) -> str:
        entries, said = self._sum("entries"), self._sum("conversations")
        parts = [
            format_count(entries, "entry") if entries else "",
            format_count(said, "conversation") if said else "",
        ]
        told = ", ".join(filter(None, parts))
        return f": {told}" if told else ""

    def _describe_finders(self) -> list[str]:
        extractors, causes = Counter[str](), Counter[str]()
        for tally in self._tallies:
            extractors.update(tally.extractors)
            causes.update(tally.causes)
        return finders(extractors, causes, "part")

    def _describe_left_out(self) -> str:
        told = [
            f"{number} {_LEFT_OUT.get(name) or OMITTED[name]}"
            for name, number in self._left_out.items()
            if number
        ]
        return "; ".join(told) or "nothing"

    def _sum(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self._tallies)


_LEFT_OUT: Final = {
    "files": "older files, for it would take long",
    "other_files": "other files, which are no memories or tell no format",
    "memories": "further entries, for it would take long",
    "parts": "older parts of conversations, for it would take long",
    "expired": "expired",
    "known": "said twice",
    "failed": "that could not be read or stored",
}


def _answer_lines(answer: Answered) -> Iterator[str]:
    text = " ".join((answer.memory.text or "").split()) if answer.memory else "nothing found"
    near = "" if answer.relevance is None else f"{answer.relevance}%"
    line = f"{near:>8}  {text}"
    width = terminal_width()
    yield f"{_MARGIN}{answer.question}?"
    yield line if width is None else cut(line, width)


def _holds(tally: Tally) -> str:
    told = []
    if tally.entries:
        told.append(format_count(tally.entries, "entry"))
    if tally.conversations:
        messages = format_count(tally.messages, "message")
        told.append(f"{format_count(tally.conversations, 'conversation')}, {messages}")
    return ", ".join(told) or "nothing"


def _describe_keeping(shell: Shell, *, has_more: bool) -> str:
    """Return what to type to have a memory that keeps all of what was tried."""
    profile = _profile_option(shell)
    has_relayer = bool(shell.environ.get("MEMRELAY_URL"))
    if has_relayer or profile_path(shell.args.profile, shell.environ).exists():
        return _import_command(shell)
    if has_more:
        return (
            f"{shlex.join(['memrelay', 'init', '--local', *profile])} && {_import_command(shell)}"
        )
    return shlex.join(["memrelay", "try", shell.args.path, "--keep", *profile])


def _import_command(shell: Shell) -> str:
    return shlex.join(["memrelay", "import", shell.args.path, *_profile_option(shell)])


def _profile_option(shell: Shell) -> list[str]:
    return ["--profile", shell.args.profile] if shell.args.profile else []


def _show_places(shell: Shell) -> None:
    """Show where agents and people keep what could be tried."""
    places = find_agent_files(shell.environ, Path.cwd())
    rows, values = [], list[dict[str, Any]]()
    for path, formats in places:
        holds = ", ".join(f"{format_count(n, 'file')} of {name}" for name, n in formats.items())
        rows.append((str(path), holds))
        command = shlex.join(["memrelay", "try", str(path)])
        values.append({"path": str(path), "formats": dict(formats), "command": command})
    if not places:
        shell.show({"places": []}, ["No agent's files, exports or notes were found here."])
    else:
        shell.show_table({"places": values}, _PLACES, rows)
    if not shell.args.json:
        example = values[0]["command"] if values else "memrelay try FOLDER"
        print(f"Type `{example}`, or name other notes.", file=sys.stderr)
