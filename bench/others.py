"""Ingest and search against mem0 and memsearch: same texts, same embedder, same machine.

Not here: how they are set up (`contender.py`).

- They embed through a loopback endpoint that runs the relayer's model, the relayer runs it itself;
  that is how each is used with this model.
- Ingest ends when everything can be found by meaning. mem0 is given all texts by one call, and asks
  for the vector of each by itself; memsearch by one Markdown file. mem0 looks for words, too, if
  it finds fastembed, which it does not here. The relayer seals, signs receipts and asks for
  signatures; they do none of that.
- They live in `.venv-bench` (`make bench-others` builds it); without it this part says so.
"""

import asyncio
import contextlib
import json
import statistics
from collections.abc import AsyncIterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from bench.figures import Bounds, Report, compared, in_turn
from bench.ingest import embedded
from bench.recall import median_ms
from bench.running import Account, Process, Scale, Site, listening
from bench.sentences import Questions, sentence
from memrelay import MemoryClient

PYTHON: Final = Path(".venv-bench/bin/python")
CONTENDERS: Final = ("mem0", "memsearch")
TEXTS: Final = 100  # of a round
ASKED: Final = 20  # of a round
GROWN: Final = 5_000  # texts that are stored before the second look at searches
AT_ONCE: Final = 500
NAMESPACE: Final = "same"
ANSWER_BYTES_MAX: Final = 2**20
RECALL: Final = Bounds(must=1 / 4, aim=1 / 8)
INGEST: Final = Bounds(must=8.0, aim=15.0, at_least=True)


class _Texts:
    """The same texts for everybody, each number of them once for each."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self._numbers = count()

    def fresh(self, texts: int | None = None) -> list[str]:
        """The next ones, as many as in a round or so many."""
        return [f"{sentence(n)} {n}" for n in islice(self._numbers, texts or self._texts)]


class _Other:
    """A contender in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, texts: _Texts, asked: int) -> None:
        self._process, self._texts, self._asked = process, texts, asked
        self._questions = Questions()

    async def stores(self) -> float:
        """Texts a second until they can be found."""
        texts = self._texts.fresh()
        return len(texts) / float(await self.line({"store": texts}))

    async def grow(self, texts: int) -> None:
        """Store so many more."""
        for _ in range(0, texts, AT_ONCE):
            await self.line({"store": self._texts.fresh(min(texts, AT_ONCE))})

    async def asks(self) -> float:
        """The median time of a search, in milliseconds."""
        questions = [next(self._questions) for _ in range(self._asked)]
        return float(statistics.median(await self.line({"ask": questions})))

    async def line(self, asked: dict[str, Any] | None = None) -> Any:
        """The answer to a line, or the first line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if asked is not None:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a contender ended early; its log is in the site's folder")
        return json.loads(answer)


class _Ours:
    """The relayer through its real client, with questions that it was never asked before."""

    def __init__(
        self,
        site: Site,
        account: Account,
        client: MemoryClient,
        texts: _Texts,
        asked: int,
        questions: Questions,
    ) -> None:
        self._site, self._account, self._client = site, account, client
        self._texts, self._asked, self._questions = texts, asked, questions

    async def stores(self) -> float:
        """Texts a second until they can be found by meaning."""
        texts = self._texts.fresh()
        began = asyncio.get_running_loop().time()
        await self._client.remember_many(texts, namespace=NAMESPACE)
        await embedded(self._site, self._account)
        return len(texts) / (asyncio.get_running_loop().time() - began)

    async def grow(self, texts: int) -> None:
        """Store so many more."""
        for _ in range(0, texts, AT_ONCE):
            fresh = self._texts.fresh(min(texts, AT_ONCE))
            await self._client.remember_many(fresh, namespace=NAMESPACE)
        await embedded(self._site, self._account)

    async def asks(self) -> float:
        """The median time of a recall, in milliseconds."""
        return await median_ms(self._client, NAMESPACE, self._questions, self._asked)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report; without their environment only how to make it."""
    if not PYTHON.exists():
        return Report(notes=[f"left out: there is no {PYTHON}; make bench-others builds it"])
    texts, asked, grown = (20, 3, 20) if scale.quick else (TEXTS, ASKED, GROWN)
    account, report, questions = await site.new_account(), Report(), Questions()
    arguments = ["bench.baseline", "embeddings", "--data-dir", str(site.folder)]
    async with (
        listening(arguments, site.folder) as endpoint,
        site.relayer() as relayer,
        site.client(relayer, account) as client,
    ):
        for name in CONTENDERS:
            ours = _Ours(site, account, client, _Texts(texts), asked, questions)
            async with _contender(site, name, endpoint, texts, asked) as (other, version):
                measures = (ours.stores, other.stores, ours.asks, other.asks)
                await in_turn(1, *measures)
                found = await in_turn(scale.rounds, *measures)
                await ours.grow(grown)
                await other.grow(grown)
                await in_turn(1, ours.asks, other.asks)
                found += await in_turn(scale.rounds, ours.asks, other.asks)
            _report(report, f"{name} {version}", found, grown, bounded=name == "mem0")
            # The next one starts from nothing, and so do we.
            await client.forget_namespace(NAMESPACE)
    return report


@contextlib.asynccontextmanager
async def _contender(
    site: Site, name: str, endpoint: Process, texts: int, asked: int
) -> AsyncIterator[tuple[_Other, str]]:
    """(contender, version) in a folder of its own, ended at the end."""
    folder = site.folder / name
    folder.mkdir()
    script = Path(__file__).with_name("contender.py")
    with (site.folder / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), str(script), name,
            "--endpoint", f"{endpoint.url}/v1",
            "--dim", str(site.embedder.dim),
            "--folder", str(folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=ANSWER_BYTES_MAX,
        )  # fmt: skip
    try:
        other = _Other(process, _Texts(texts), asked)
        yield other, await other.line()
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it ends with its input
        await process.wait()


def _report(
    report: Report, name: str, found: list[list[float]], grown: int, *, bounded: bool
) -> None:
    stored, other_stored, asked, other_asked, asked_again, other_asked_again = found
    more = f"recall, {grown:,} more, p50"
    ingest, recall = (INGEST, RECALL) if bounded else (None, None)
    report.figures += [
        compared("recall, a few hundred, p50", "ms", asked, f"{name} ms", other_asked, recall),
        compared(more, "ms", asked_again, f"{name} ms", other_asked_again, recall),
        compared("ingest", "texts/s", stored, f"{name} /s", other_stored, ingest),
    ]
