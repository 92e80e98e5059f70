"""How many of the plain facts that a user says the rules keep, and how much junk, by language.

    python -m bench.facts [--half tuning|held-out] [--list]

Each sentence is a user's message of its own, and goes through the extractor of a relayer without a
language model. Sentences were written first, then dealt out line by line: the rules were made with
one half at hand and are only ever measured on the other.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from relayer.extraction.facts import Excerpt
from relayer.extraction.rules import SentenceExtractor

DATA: Final = Path(__file__).parent / "data" / "facts"
HALVES: Final = {"tuning": DATA / "tuning.jsonl", "held-out": DATA / "held_out.jsonl"}
ENGLISH: Final = "english"


class Sentence(msgspec.Struct, frozen=True):
    """Something that a user says, and whether it is a fact to keep."""

    language: str
    kind: str
    is_fact: bool
    text: str


@dataclass
class Tally:
    """Facts and junk of one kind: how many there are, and which were judged wrongly."""

    facts: int = 0
    junk: int = 0
    missed: list[str] = field(default_factory=list)
    junk_kept: list[str] = field(default_factory=list)

    @property
    def kept_share(self) -> float:
        """The share of the facts that was kept."""
        return 1 - len(self.missed) / max(self.facts, 1)

    @property
    def junk_share(self) -> float:
        """The share of the junk that was kept."""
        return len(self.junk_kept) / max(self.junk, 1)

    def row(self, name: str) -> str:
        """Return a line of the table; a kind has only facts or only junk."""
        kept = f"{self.kept_share:.2f} of {self.facts}" if self.facts else "–"
        junk = f"{self.junk_share:.2f} of {self.junk}" if self.junk else "–"
        return f"| {name} | {kept} | {junk} |"


def main() -> int:
    """Print a table of one half, with --list what was judged wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--half", choices=HALVES, default="held-out")
    parser.add_argument("--list", action="store_true", help="also print what was judged wrongly")
    arguments = parser.parse_args()
    sentences = read_sentences(HALVES[arguments.half])
    judged = asyncio.run(judge_all(sentences))
    by_language = tally(judged, [sentence.language for sentence in sentences])
    english = [pair for pair in judged if pair[0].language == ENGLISH]
    by_kind = tally(english, [sentence.kind for sentence, _ in english])
    for title, tallies in (("English", by_kind), ("language", by_language)):
        print(f"\n| {title} | facts kept | junk kept |\n|---|---|---|")
        print(*(found.row(name) for name, found in tallies.items()), sep="\n")
    for name, found in (by_language if arguments.list else {}).items():
        print(f"\n{name}, missed:", *found.missed, sep="\n  ")
        print(f"{name}, junk kept:", *found.junk_kept, sep="\n  ")
    return 0


def read_sentences(path: Path) -> list[Sentence]:
    """Return the sentences of a file, one JSON object a line."""
    lines = path.read_text("utf-8").splitlines()
    return [msgspec.json.decode(line, type=Sentence) for line in lines]


async def judge_all(sentences: Iterable[Sentence]) -> list[tuple[Sentence, bool]]:
    """Return for each sentence whether the rules keep it of a user's message."""
    return [(sentence, await is_kept(sentence.text)) for sentence in sentences]


async def is_kept(text: str) -> bool:
    """Tell whether a fact comes of `text` where a user says nothing else."""
    return bool(await SentenceExtractor().extract(Excerpt(f"1. user: {text}")))


def tally(judged: Iterable[tuple[Sentence, bool]], names: Iterable[str]) -> dict[str, Tally]:
    """Return the counts of judged sentences under their names, in the order of these."""
    tallies: dict[str, Tally] = {}
    for (sentence, kept), name in zip(judged, names, strict=True):
        found = tallies.setdefault(name, Tally())
        if sentence.is_fact:
            found.facts += 1
            found.missed += [] if kept else [sentence.text]
        else:
            found.junk += 1
            found.junk_kept += [sentence.text] if kept else []
    return tallies


if __name__ == "__main__":
    sys.exit(main())
