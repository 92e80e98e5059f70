"""Two relayers brought into step: the first sync of many memories, one of few, and one of none.

Not here: what a sync does (`memrelay.replication`).

- Both relayers are processes of their own, each on a database of its own. The real client stores
  the memories at one of them, and waits until they have vectors.
- The times are those of a sync in this process. The one of few brings as many edits as new
  memories, half of them to each side; the one of none has its file, or lost it.
- At the end, both are verified whole, every memory opened, and compared.
"""

import asyncio
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.figures import Figure, Report
from bench.ingest import embedded
from bench.running import Scale, Site, relayer_in
from bench.sentences import sentence
from memrelay import SyncMemoryClient
from memrelay.replication.agreement import Agreement
from memrelay.replication.replicator import Replicator
from memrelay.replication.side import Side
from memrelay.sealed.objects import from_base64
from relayer.sealed.keys import account_text

MEMORIES: Final = 10_000
FEW: Final = 20
NAMESPACE: Final = "team"


@dataclass
class _Pair:
    """Both relayers, by the founder's clients."""

    here: SyncMemoryClient
    there: SyncMemoryClient

    def sync(self, agreement: Agreement) -> float:
        """Seconds of a sync."""
        began = time.perf_counter()
        outcome = Replicator((Side(self.here), Side(self.there)), agreement).run()
        assert outcome.unsettled == {}
        return time.perf_counter() - began

    def differ(self, number: int) -> None:
        """Edit some memories, and store as many."""
        some = self.here.list(namespace=NAMESPACE, limit=2 * FEW).memories
        for at, memory in enumerate(some[:FEW]):
            client = (self.here, self.there)[at % 2]
            client.edit(memory.id, text=f"Edited {number}: {memory.text}")
        for at, client in enumerate((self.here, self.there)):
            texts = [f"Later {number} {at} {n}: {sentence(n)}" for n in range(FEW // 2)]
            client.remember_many(texts, namespace=NAMESPACE)

    def check(self) -> int:
        """Return how many memories both have, alike, after both were verified."""
        for client in (self.here, self.there):
            found = client.verify(open_all=True)
            assert found.ok, found.findings[:3]
        same = [
            {(m.id, m.revision, m.text) for m in client.memories(namespace=NAMESPACE)}
            for client in (self.here, self.there)
        ]
        assert same[0] == same[1]
        return len(same[0])


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    account = await site.new_account()
    other = site.folder / "other"
    other.mkdir(mode=0o700)
    count = 60 if scale.quick else MEMORIES
    async with site.relayer() as one, relayer_in(other) as two:
        async with site.client(one, account) as client:
            texts = [f"{sentence(n)} {n}" for n in range(count)]
            await client.remember_many(texts, namespace=NAMESPACE)
            await embedded(site, account)
        text = account_text(account.id)
        clients = [
            SyncMemoryClient(
                url=process.url,
                account_id=text,
                private_key=account.founder.seed.hex(),
                timeout_s=120.0,
                deadline_s=600.0,
            )
            for process in (one, two)
        ]
        with clients[0], clients[1]:
            return await asyncio.to_thread(_measure, _Pair(*clients), scale)


def _measure(pair: _Pair, scale: Scale) -> Report:
    [first, *_], _ = pair.here.export_page("grants")
    pair.there.found_again(grant=from_base64(first["object"], "grant"), label="benchmark")
    agreement = Agreement(None, ("here", "there"))
    whole = pair.sync(agreement)
    few, none, lost = [], [], []
    for number in range(scale.rounds):
        pair.differ(number)
        few.append(pair.sync(agreement))
        none.append(pair.sync(agreement))
        lost.append(pair.sync(Agreement(None, ("here", "there"))))
    count = pair.check()
    return Report(
        [
            Figure(name=f"first sync, {count} memories in the end", value=whole, unit="s"),
            Figure(name=f"{FEW} edits, {FEW} new memories", value=median(few), unit="s"),
            Figure(name="nothing new", value=median(none), unit="s"),
            Figure(name="nothing new, without the file", value=median(lost), unit="s"),
        ],
        notes=["Both relayers verified whole, every memory opened, and alike."],
    )
