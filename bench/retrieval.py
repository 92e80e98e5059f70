"""Recall quality and speed through the real client, on data of one's own.

    python -m bench.retrieval --url http://127.0.0.1:8000 --data PATH

PATH holds `*memories.jsonl` (`id`, `namespace`, `text`) and `*queries.jsonl` (`id`, `namespace`,
`text`, `category`, `evidence`: ids of memories). The founder of a fresh account ingests every
memory as a user would, waits until all are embedded, then asks every question. A result is
matched by its text.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay import MemoryClient

CUTOFFS = (1, 5, 10, 20)
UNANSWERABLE = "adversarial"  # shown, and left out of "overall"


@dataclass
class Run:
    """What one run measured."""

    memories: int
    queries: int
    ingest_s: float = 0.0
    embedded_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    scores: dict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))

    def as_json(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {
            "memories": self.memories,
            "queries": self.queries,
            "acknowledged_per_s": round(self.memories / self.ingest_s, 1),
            "embedded_per_s": round(self.memories / self.embedded_s, 1),
            "recall_ms": {p: round(quantile(self.latencies_ms, p / 100), 2) for p in (50, 95, 99)},
            "quality": {group: means(scores) for group, scores in sorted(self.scores.items())},
        }


def main() -> int:
    """Run and print a table, or JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--custody", choices=["managed", "sealed"], default="sealed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    run = asyncio.run(measure(arguments.url, arguments.data, arguments.custody))
    print(json.dumps(run.as_json(), indent=1) if arguments.json else table(run.as_json()))
    return 0


async def measure(url: str, data: Path, custody: str) -> Run:
    """Ingest everything, ask everything."""
    memories, queries = lines(data, "*memories.jsonl"), lines(data, "*queries.jsonl")
    account = await MemoryClient.create_account(url, custody=custody, label="benchmark")
    run = Run(memories=len(memories), queries=len(queries))
    async with MemoryClient(
        url=url,
        account_id=account.account_id,
        private_key=account.private_key,
        relayer_key=account.relayer_key,
        custody=custody,
        deadline_s=300.0,
    ) as client:
        await ingest(client, memories, run)
        await ask(client, memories, queries, run)
    return run


async def ingest(client: MemoryClient, memories: list[dict[str, Any]], run: Run) -> None:
    """Store every memory in order, then wait until each has its vector."""
    items = [{"text": m["text"], "namespace": m["namespace"]} for m in memories]
    started = time.perf_counter()
    stored = await client.remember_many(items, progress=progress("stored"))
    run.ingest_s = time.perf_counter() - started
    await client.wait(list(dict.fromkeys(s.id for s in stored)), timeout_s=1800.0)
    run.embedded_s = time.perf_counter() - started


async def ask(
    client: MemoryClient, memories: list[dict[str, Any]], queries: list[dict[str, Any]], run: Run
) -> None:
    """One recall a question, one after the other."""
    by_text = defaultdict(list)
    for m in memories:
        by_text[m["namespace"], norm(m["text"])].append(m["id"])
    report = progress("asked")
    for n, query in enumerate(queries, start=1):
        started = time.perf_counter()
        recalled = await client.recall(
            query["text"], namespace=query["namespace"], limit=max(CUTOFFS), min_relevance=None
        )
        run.latencies_ms.append(1000 * (time.perf_counter() - started))
        ranked: list[str] = []
        for result in recalled.results:
            ids = by_text[query["namespace"], norm(result.text or "")]
            ranked += [i for i in ids if i not in ranked] or [""]
        score = scored(ranked, query["evidence"])
        run.scores[query["category"]].append(score)
        if query["category"] != UNANSWERABLE:
            run.scores["overall"].append(score)
        report(n, len(queries))


def scored(ranked: list[str], evidence: list[str]) -> dict[str, float]:
    """Evidence recall at each cutoff, reciprocal rank of the first, nDCG at 10."""
    wanted = set(evidence)
    score = {f"r@{k}": len(wanted & set(ranked[:k])) / len(wanted) for k in CUTOFFS}
    score["mrr"] = next((1 / n for n, i in enumerate(ranked, start=1) if i in wanted), 0.0)
    gained = sum(1 / math.log2(n + 1) for n, i in enumerate(ranked[:10], start=1) if i in wanted)
    ideal = sum(1 / math.log2(n + 1) for n in range(1, min(10, len(wanted)) + 1))
    return score | {"ndcg@10": gained / ideal}


def means(scores: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each measure, and how many there were."""
    measured = {m: round(statistics.fmean(s[m] for s in scores), 4) for m in scores[0]}
    return {"n": len(scores)} | measured


def quantile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    measures = [*(f"r@{k}" for k in CUTOFFS), "mrr", "ndcg@10"]
    out = ["| questions | n | " + " | ".join(measures) + " |", "|---" * (len(measures) + 2) + "|"]
    for group, q in figures["quality"].items():
        out.append(f"| {group} | {q['n']} | " + " | ".join(f"{q[m]:.3f}" for m in measures) + " |")
    ms = figures["recall_ms"]
    out.append(
        f"\n{figures['memories']} memories: {figures['acknowledged_per_s']}/s acknowledged, "
        f"{figures['embedded_per_s']}/s embedded; recall p50 {ms[50]} ms, p95 {ms[95]} ms"
    )
    return "\n".join(out)


def lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """The objects of the files of a folder."""
    files = sorted(folder.glob(pattern))
    if not files:
        sys.exit(f"no {pattern} in {folder}")
    return [json.loads(line) for f in files for line in f.read_text("utf-8").splitlines()]


def norm(text: str) -> str:
    """Text as it is compared: white space does not count."""
    return " ".join(text.split())


def progress(verb: str) -> Any:
    """A callback that keeps one line on standard error up to date."""

    def report(done: int, total: int | None) -> None:
        if done % 20 == 0 or done == total:
            print(f"\r{verb} {done} of {total}", end="", file=sys.stderr)
        if done == total:
            print(file=sys.stderr)

    return report


if __name__ == "__main__":
    sys.exit(main())
