"""What the rules keep of three conversations, and whether a question finds it again.

    python -m bench.extraction --url http://127.0.0.1:8000

The rules were written with `demo` at hand and improved with `other`; on `held out` they are only
ever measured. The facts of each were marked by hand before it was run. A fresh account captures
each as an agent's gateway would, then every fact's question is asked. A fact is matched word for
word, so this measures a relayer without a language model.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from memrelay import MemoryClient

ROOT = Path(__file__).parents[1]
MARKS = ROOT / "bench" / "data" / "extraction"
CONVERSATIONS = {
    "demo": (ROOT / "deploy" / "demo" / "conversation.jsonl", MARKS / "demo_facts.jsonl"),
    "other": (MARKS / "other_conversation.jsonl", MARKS / "other_facts.jsonl"),
    "held out": (MARKS / "held_out_conversation.jsonl", MARKS / "held_out_facts.jsonl"),
}
WINDOW = 10
TOP = 5


@dataclass
class Run:
    """What one conversation gave."""

    turns: int
    marked: int
    items: int  # stored
    kept: int  # marked facts among them
    covered: int  # marked facts that their question brings back
    missed: list[str]
    junk: list[str]

    def row(self, name: str) -> str:
        """A line of the table."""
        shares = (self.kept / self.marked, self.covered / self.marked, self.junk_share)
        counts = f"{self.turns} | {self.marked} | {self.items}"
        return f"| {name} | {counts} | " + " | ".join(f"{share:.2f}" for share in shares) + " |"

    @property
    def junk_share(self) -> float:
        """The share of what was stored that nobody marked."""
        return len(self.junk) / max(self.items, 1)


def main() -> int:
    """Run all and print a table, with --list what was missed and what is junk, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--list", action="store_true", help="also print every miss and all junk")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runs = asyncio.run(measure(arguments.url))
    if arguments.json:
        print(json.dumps({name: asdict(run) for name, run in runs.items()}, ensure_ascii=False))
        return 0
    print(f"| conversation | turns | marked | stored | kept | coverage@{TOP} | junk |")
    print("|---" * 7 + "|")
    for name, run in runs.items():
        print(run.row(name))
    for name, run in runs.items() if arguments.list else ():
        print(f"\n{name}, missed:", *run.missed, f"{name}, junk:", *run.junk, sep="\n  ")
    return 0


async def measure(url: str) -> dict[str, Run]:
    """Capture and question each conversation in an account of its own."""
    runs = {}
    for name, (conversation, marks) in CONVERSATIONS.items():
        account = await MemoryClient.create_account(url, custody="sealed", label="benchmark")
        async with MemoryClient(
            url=url,
            account_id=account.account_id,
            private_key=account.private_key,
            relayer_key=account.relayer_key,
            custody="sealed",
            deadline_s=300.0,
        ) as client:
            runs[name] = await measured(client, lines(conversation), lines(marks))
    return runs


async def measured(
    client: MemoryClient, turns: list[dict[str, Any]], facts: list[dict[str, Any]]
) -> Run:
    """Capture every session, then ask for every fact."""
    items = await capture(client, turns)
    sentences = [norm(fact["sentence"]) for fact in facts]
    missed = []
    for fact in facts:
        namespace = turns[fact["turn"] - 1]["namespace"]
        recalled = await client.recall(
            fact["question"], namespace=namespace, limit=TOP, min_relevance=None
        )
        if not any(norm(fact["sentence"]) in norm(r.text or "") for r in recalled.results):
            missed.append(fact["sentence"])
    return Run(
        turns=len(turns),
        marked=len(facts),
        items=len(items),
        kept=sum(any(s in item for item in items) for s in sentences),
        covered=len(facts) - len(missed),
        missed=missed,
        junk=[i for i in items if not any(s in i or i in s for s in sentences)],
    )


async def capture(client: MemoryClient, turns: list[dict[str, Any]]) -> list[str]:
    """Send each session in windows of ten messages; the texts that were stored, embedded."""
    stored = {}
    for _, session in groupby(turns, key=lambda t: t["session"]):
        messages = list(session)
        for at in range(0, len(messages), WINDOW):
            window = messages[at : at + WINDOW]
            analyzed = await client.analyze(
                numbered(window),
                namespace=window[0]["namespace"],
                occurred_at=datetime.fromisoformat(window[-1]["at"]),
            )
            stored.update({fact.id: norm(fact.text) for fact in analyzed.facts})
    await client.wait(list(stored))
    return list(stored.values())


def numbered(window: list[dict[str, Any]]) -> str:
    """Messages with their roles, as the gateway sends them."""
    return "\n\n".join(f"{n}. {m['role']}: {m['text']}" for n, m in enumerate(window, start=1))


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def norm(text: str) -> str:
    """Text as it is compared: white space does not count."""
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
