"""Recall quality and speed through the real client, on data of one's own.

    python -m bench.retrieval --url http://127.0.0.1:8000 --data bench/data/long

PATH holds `*memories.jsonl` (`id`, `namespace`, `text`) and `*queries.jsonl` (`id`, `namespace`,
`text`, `category`, `evidence`: ids of memories). The founder of a fresh account ingests every
memory as a user would, waits until all are embedded, then asks every question: as a user would, by
meaning alone and by words alone; and once more with the client's floor, unrelated questions (of
that category, without evidence), too. The same questions go to SQLite's full-text index of the
same texts in clear. A result is matched by its text.
"""

import argparse
import asyncio
import json
import math
import random
import sqlite3
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from memrelay import MemoryClient
from relayer.words.languages import function_words

CUTOFFS: Final = (1, 5, 10, 20)
MEASURES: Final = (*(f"r@{k}" for k in CUTOFFS), "mrr", "ndcg@10")
UNANSWERABLE: Final = "adversarial"  # shown, and left out of "overall"
UNRELATED: Final = "unrelated"  # asked with the floor only: nothing should come
FLOOR_LIMIT: Final = 10
SYSTEMS: Final[dict[str, dict[str, Any]]] = {
    "memrelay": {},
    "meaning alone": {"vector_weight": 1.0, "text_weight": 0.0},
    "words alone": {"vector_weight": 0.0, "text_weight": 1.0},
}
PLAINTEXT: Final = "SQLite FTS5, plaintext"

Line = dict[str, Any]
Scores = dict[str, list[dict[str, float]]]


@dataclass
class Run:
    """What one run measured; `latencies_ms` and `scores` by system.

    `floor` is the share of questions that find a right memory among the first above the client's
    floor, and of unrelated ones that find anything; None without such questions.
    """

    memories: int
    queries: int
    ingest_s: float = 0.0
    embedded_s: float = 0.0
    latencies_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    scores: dict[str, Scores] = field(default_factory=dict)
    floor: dict[str, float | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {
            "memories": self.memories,
            "queries": self.queries,
            "acknowledged_per_s": round(self.memories / self.ingest_s, 1),
            "embedded_per_s": round(self.memories / self.embedded_s, 1),
            "recall_ms": {
                system: {p: round(quantile(ms, p / 100), 2) for p in (50, 95, 99)}
                for system, ms in self.latencies_ms.items()
            },
            "quality": {
                system: {group: means(scores) for group, scores in sorted(groups.items())}
                for system, groups in self.scores.items()
            },
            "floor": self.floor,
        }


def main() -> int:
    """Run and print tables, or JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="a running relayer")
    parser.add_argument("--data", required=True, type=Path, help="folder of the two kinds of files")
    parser.add_argument("--namespaces", default="", help="only these, comma-separated")
    parser.add_argument("--custody", choices=["managed", "sealed"], default="sealed")
    parser.add_argument(
        "--ingest",
        choices=["bulk", "single", "shuffled"],
        default="bulk",
        help="in order by twenties, in order one by one, or by twenties in no order",
    )
    parser.add_argument("--json", action="store_true", help="figures for scripts")
    arguments = parser.parse_args()
    run = asyncio.run(measure(arguments))
    print(json.dumps(run.as_json(), indent=1) if arguments.json else tables(run.as_json()))
    return 0


async def measure(arguments: argparse.Namespace) -> Run:
    """Ingest everything, ask everything."""
    chosen = set(filter(None, arguments.namespaces.split(",")))
    memories = lines(arguments.data, "*memories.jsonl", chosen)
    every = lines(arguments.data, "*queries.jsonl", chosen)
    # A question without evidence has no answer to be found.
    queries = [query for query in every if query["evidence"]]
    unrelated = [query for query in every if query["category"] == UNRELATED]
    account = await MemoryClient.create_account(
        arguments.url, custody=arguments.custody, label="benchmark"
    )
    run = Run(memories=len(memories), queries=len(queries))
    run.scores[PLAINTEXT] = scored(memories, queries, plaintext(memories, queries))
    async with MemoryClient(
        url=arguments.url,
        account_id=account.account_id,
        private_key=account.private_key,
        relayer_key=account.relayer_key,
        custody=arguments.custody,
        deadline_s=300.0,
    ) as client:
        await ingest(client, memories, arguments.ingest, run)
        for system, controls in SYSTEMS.items():
            answers = await ask(client, queries, system, controls, run)
            run.scores[system] = scored(memories, queries, answers)
        run.floor = await above_floor(client, memories, queries, unrelated)
    return run


async def ingest(client: MemoryClient, memories: list[Line], how: str, run: Run) -> None:
    """Store every memory, then wait until each has its vector."""
    items = [{"text": m["text"], "namespace": m["namespace"]} for m in memories]
    if how == "shuffled":
        random.Random(0).shuffle(items)  # noqa: S311  # no secret depends on it
    started = time.perf_counter()
    if how == "single":
        report = progress("stored")
        ids = []
        for n, item in enumerate(items, start=1):
            ids.append((await client.remember(item["text"], namespace=item["namespace"])).id)
            report(n, len(items))
    else:
        # One request at a time, as an import does: neighbours have to be neighbours.
        stored = await client.remember_many(items, progress=progress("stored"), concurrency=1)
        ids = [s.id for s in stored]
    run.ingest_s = time.perf_counter() - started
    await client.wait(list(dict.fromkeys(ids)), timeout_s=1800.0)
    run.embedded_s = time.perf_counter() - started


async def ask(
    client: MemoryClient, queries: list[Line], system: str, controls: dict[str, Any], run: Run
) -> dict[str, list[str]]:
    """Id of each question → the texts of its answer; one recall a question, one after the other."""
    report = progress(f"asked {system}")
    answers = {}
    for n, query in enumerate(queries, start=1):
        started = time.perf_counter()
        recalled = await client.recall(
            query["text"],
            namespace=query["namespace"],
            limit=max(CUTOFFS),
            min_relevance=None,
            **controls,
        )
        run.latencies_ms[system].append(1000 * (time.perf_counter() - started))
        answers[query["id"]] = [r.text or "" for r in recalled.results]
        report(n, len(queries))
    return answers


async def above_floor(
    client: MemoryClient, memories: list[Line], queries: list[Line], unrelated: list[Line]
) -> dict[str, float | None]:
    """What the floor lets through, of what is asked for and of what nobody has said."""
    texts = {m["id"]: norm(m["text"]) for m in memories}
    found = []
    for query in [q for q in queries if q["category"] != UNANSWERABLE] + unrelated:
        recalled = await client.recall(
            query["text"], namespace=query["namespace"], limit=FLOOR_LIMIT
        )
        answer = {norm(r.text or "") for r in recalled.results}
        right = {texts[i] for i in query["evidence"]}
        found.append((query["category"], bool(answer & right if right else answer)))
    return {
        "right": _share([is_found for category, is_found in found if category != UNRELATED]),
        "unrelated": _share([is_found for category, is_found in found if category == UNRELATED]),
    }


def _share(found: list[bool]) -> float | None:
    return round(statistics.fmean(found), 4) if found else None


def plaintext(memories: list[Line], queries: list[Line]) -> dict[str, list[str]]:
    """Id of each question → the texts SQLite's full-text index finds, English stems, BM25.

    Function words are left out of the question: with them it finds 5 points less.
    """
    database = sqlite3.connect(":memory:")
    tables = {name: f"texts_{n}" for n, name in enumerate({m["namespace"]: 0 for m in memories})}
    for name, table in tables.items():
        database.execute(f"CREATE VIRTUAL TABLE {table} USING fts5(text, tokenize='porter')")
        own = [(m["text"],) for m in memories if m["namespace"] == name]
        database.executemany(f"INSERT INTO {table} VALUES (?)", own)  # noqa: S608  # our own name
    answers = {}
    for query in queries:
        table = tables[query["namespace"]]
        words = "".join(c if c.isalnum() else " " for c in query["text"].casefold()).split()
        words = [w for w in words if w not in function_words("english")] or words or ["?"]
        found = database.execute(
            f"SELECT text FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608  # as above
            (" OR ".join(f'"{w}"' for w in words), max(CUTOFFS)),
        )
        answers[query["id"]] = [text for (text,) in found]
    return answers


def scored(memories: list[Line], queries: list[Line], answers: dict[str, list[str]]) -> Scores:
    """The scores of every question by its category, and of those that have an answer overall."""
    by_text = defaultdict(list)
    for m in memories:
        by_text[m["namespace"], norm(m["text"])].append(m["id"])
    scores: Scores = defaultdict(list)
    for query in queries:
        ranked: list[str] = []
        for text in answers[query["id"]]:
            ids = by_text[query["namespace"], norm(text)]
            ranked += [i for i in ids if i not in ranked] or [""]
        score = score_of(ranked, query["evidence"])
        scores[query["category"]].append(score)
        if query["category"] != UNANSWERABLE:
            scores["overall"].append(score)
    return scores


def score_of(ranked: Sequence[str], evidence: Sequence[str]) -> dict[str, float]:
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


def tables(figures: dict[str, Any]) -> str:
    """The figures as Markdown: each system overall, then its R@10 by category."""
    quality = figures["quality"]
    out = ["| overall | " + " | ".join(MEASURES) + " |", "|---" * (len(MEASURES) + 1) + "|"]
    for system, groups in quality.items():
        row = " | ".join(f"{groups['overall'][m]:.3f}" for m in MEASURES)
        out.append(f"| {system} | {row} |")
    names = [g for g in quality[PLAINTEXT] if g != "overall"]
    titles = [f"{g} ({quality[PLAINTEXT][g]['n']})" for g in names]
    out += ["", "| R@10 | " + " | ".join(titles) + " |", "|---" * (len(names) + 1) + "|"]
    for system, groups in quality.items():
        out.append(f"| {system} | " + " | ".join(f"{groups[g]['r@10']:.3f}" for g in names) + " |")
    right, unrelated = figures["floor"]["right"], figures["floor"]["unrelated"]
    out.append(f"\nAbove the client's floor: a right memory for {right:.3f} of the questions")
    if unrelated is not None:
        out[-1] += f", anything for {unrelated:.3f} of the unrelated ones"
    ms = figures["recall_ms"]["memrelay"]
    out.append(
        f"\n{figures['memories']} memories: {figures['acknowledged_per_s']}/s acknowledged, "
        f"{figures['embedded_per_s']}/s embedded; recall p50 {ms[50]} ms, p95 {ms[95]} ms"
    )
    return "\n".join(out)


def lines(folder: Path, pattern: str, namespaces: set[str]) -> list[Line]:
    """The objects of the files of a folder, of these namespaces or of all."""
    files = sorted(folder.glob(pattern))
    if not files:
        sys.exit(f"no {pattern} in {folder}")
    every = [json.loads(line) for f in files for line in f.read_text("utf-8").splitlines()]
    return [m for m in every if not namespaces or m["namespace"] in namespaces]


def norm(text: str) -> str:
    """Text as it is compared: white space does not count."""
    return " ".join(text.split())


def progress(verb: str) -> Callable[[int, int | None], None]:
    """A callback that keeps one line on standard error up to date."""

    def report(done: int, total: int | None) -> None:
        if done % 20 == 0 or done == total:
            print(f"\r{verb}: {done} of {total}", end="", file=sys.stderr)
        if done == total:
            print(file=sys.stderr)

    return report


if __name__ == "__main__":
    sys.exit(main())
