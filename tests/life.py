"""One sealed account's life as a test tells it: its people, what must be so, the look from outside.

It does not own what happens (`test_life.py`) or reading without the product (`outside.py`).

- Commands run as a user runs them; clients of the agents live on between them.
- `facts` and `erased` say what must be; nothing in them is taken from an answer but ids.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.errors import MemrelayError, NotAuthenticated
from relayer.sealed.keys import Identity
from tests.forked import forked
from tests.openai_server import OpenAIServer
from tests.outside import Outside, Row
from tests.processes import RunningRelayer
from tests.reference import Signer
from tests.signing import signed_headers

WAIT_S_MAX = 240  # for what relayers do once a minute, on a busy machine
WORD_LETTERS_MIN = 8  # of a word that random bytes hold by no accident
OWNER, SCOUT, CLERK, GUEST = "owner", "scout", "clerk", "guest"
TEAM, SCRATCH = "team", "scratch"  # in the second, things expire: chapters look at it themselves
NAMES = (TEAM, SCOUT, CLERK, GUEST)
READS = {OWNER: set(NAMES), SCOUT: {TEAM, SCOUT}, CLERK: {TEAM, CLERK}, GUEST: {TEAM, GUEST}}
FAILED, NOT_FOUND = 1, 3


@dataclass
class Fact:
    """What must be so of a memory: what its revisions say, and what holds of it."""

    namespace: str
    texts: list[str]
    state: str = "active"
    pinned: bool = False


@dataclass
class Life:
    """The account so far: its relayers, its clients, and what must be so."""

    first: RunningRelayer
    second: RunningRelayer
    databases: tuple[str, str]
    model: OpenAIServer
    folder: Path
    texts: Sequence[str]  # all that is ever said
    here: Outside = field(init=False)
    relayer: RunningRelayer = field(init=False)
    account_id: str = ""
    clients: dict[str, SyncMemoryClient] = field(default_factory=dict)
    seeds: dict[str, Signer] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    erased: dict[str, Fact] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)  # names of old bytes, which go a minute later
    seen_receipts: int = 0
    revoked: bool = False
    lent: int = 0  # how much the revoked key's old grants still open

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def profile(self, who: str = OWNER) -> Path:
        return self.home / "profile.json" if who == OWNER else self.home / "agents" / f"{who}.json"

    # What the account's people do

    def run(
        self,
        *argv: str,
        who: str = OWNER,
        profile: Path | None = None,
        code: int = 0,
        typed: str = "",
    ) -> Any:
        """The JSON that a command prints; it must end with this exit code."""
        printed = self.printed(*argv, profile=profile or self.profile(who), code=code, typed=typed)
        return json.loads(printed) if printed else None

    def printed(self, *argv: str, profile: Path, code: int = 0, typed: str = "") -> str:
        """What a command prints with `--json`."""
        done = forked(
            *("memrelay", *argv, "--profile", str(profile), "--json"),
            env={k: v for k, v in os.environ.items() if not k.startswith("MEMRELAY_")},
            typed=typed,
            timeout_s=WAIT_S_MAX,
        )
        assert done.returncode == code, f"{argv}: {done.returncode}: {done.stderr}"
        return done.stdout

    def remember(self, text: str, namespace: str, *argv: str, who: str) -> str:
        """Store a memory and expect it from now on; return its id."""
        stored = self.run("remember", text, "--namespace", namespace, *argv, who=who)
        assert not stored["duplicate"]
        memory_id: str = stored["id"]
        assert memory_id not in self.facts | self.erased
        self.facts[memory_id] = Fact(namespace, [text])
        return memory_id

    def recalled(self, query: str, namespace: str, *argv: str, who: str) -> list[str]:
        """The texts that a recall by words gives."""
        asked = ["recall", query, "--mode", "keyword", "--namespace", namespace, *argv]
        return [memory["text"] for memory in self.run(*asked, who=who)["results"]]

    def forgotten(self, *memory_ids: str) -> None:
        """Expect memories to be gone, and remember their bytes."""
        for memory_id in memory_ids:
            self.erased[memory_id] = self.facts.pop(memory_id)

    # What is seen from outside

    def look(self, *ops: str) -> None:
        """Check everything, and that the receipts since the last look are of these kinds."""
        until(self._holds_what_rows_name, "blobs and rows agree")
        objects = self.here.envelopes()
        rows = [row for row in self.here.rows() if row.namespace != SCRATCH]
        for who, client in self.clients.items():
            self._look_as(who, client)
        self._look_at_rows(rows, objects)
        self._look_at_receipts(ops, objects)
        self._look_for_words()

    def _holds_what_rows_name(self) -> bool:
        named = {row.blob_id for row in self.here.rows()}
        return set(self.here.envelopes()) - self.leaving == named

    def _look_as(self, who: str, client: SyncMemoryClient) -> None:
        """What a key is shown: all of its namespaces, nothing of others, nothing of the erased."""
        inventory = self._inventory(self.seeds[who])
        if self.revoked and who == GUEST:
            assert inventory.status_code == 401
            with pytest.raises(NotAuthenticated):
                client.list(namespace=TEAM)
            return
        own = {i: f for i, f in self.facts.items() if f.namespace in READS[who]}
        assert {
            (item["id"], item["revision"])
            for item in inventory.json()["items"]
            if item["namespace"] != SCRATCH
        } == {(i, number) for i, f in own.items() for number in range(1, len(f.texts) + 1)}
        for namespace in READS[who]:
            page = client.list(namespace=namespace, limit=100, state="all")
            assert {(m.id, m.text, m.revision, m.state, m.pinned) for m in page.memories} == {
                (i, f.texts[-1], len(f.texts), f.state, f.pinned)
                for i, f in own.items()
                if f.namespace == namespace
            }
        for memory_id in {*self.erased, *self.facts} - {*own}:
            with pytest.raises(MemrelayError):
                client.get(memory_id)

    def _inventory(self, signer: Signer) -> httpx.Response:
        """What is stored by name, asked for with a request of our own."""
        target = "/v1/inventory?limit=200"
        headers = signed_headers(Identity(signer.seed), "GET", target, account=self.account_id)
        return httpx.get(self.relayer.url + target, headers=headers)

    def _look_at_rows(self, rows: list[Row], objects: dict[str, bytes]) -> None:
        """Rows and blobs say what must be, open for whom they should, and for nobody else."""
        said = {(r.id, r.revision): self.here.said(self.seeds[OWNER], r, objects) for r in rows}
        assert said == {
            (memory_id, number): text
            for memory_id, fact in self.facts.items()
            for number, text in enumerate(fact.texts, 1)
        }
        assert set(self.erased) <= self.here.tombstones()
        for who, signer in self.seeds.items():
            out = self.revoked and who == GUEST
            theirs = [objects[r.blob_id] for r in rows if r.namespace in READS[who] and not out]
            others = [objects[r.blob_id] for r in rows if r.namespace not in READS[who] or out]
            assert self.here.readable(signer, theirs) == len(theirs)
            assert self.here.readable(signer, others) == (self.lent if out else 0)

    def _look_at_receipts(self, ops: Iterable[str], objects: dict[str, bytes]) -> None:
        receipts = self.here.receipts()
        new = [r["op"] for r in receipts[self.seen_receipts :]]
        self.seen_receipts = len(receipts)
        assert [op for op in new if op != "expire"] == list(ops)
        assert set(objects) <= {blob for r in receipts for _, _, blob in r["items"]}
        verified = self.run("verify", "--open")
        assert (verified["findings"], verified["unchecked"]) == ([], [])
        assert verified["opened"] >= len(self.facts)
        check_holds(self.relayer)

    def _look_for_words(self) -> None:
        words = {word.strip(".") for text in self.texts for word in text.split()}
        long = {word for word in words if len(word) >= WORD_LETTERS_MIN}
        assert self.here.readable_words(long) == []

    # Where it happens

    def settle(self, at: RunningRelayer, database: str, blobs: Path | None) -> None:
        """Look at another relayer from now on."""
        key = bytes.fromhex(at.command("identity", "show")["relayer_key"])
        self.here = Outside(database, key, self.account_id, at.data_dir, blobs)
        self.relayer, self.seen_receipts = at, 0

    def connect(self, *people: str) -> None:
        """Give people a client that lives on, from their profiles at home."""
        for who in people:
            path = self.profile(who)
            values = json.loads(path.read_text())
            self.clients[who] = SyncMemoryClient.from_profile(path)
            self.seeds[who] = Signer(bytes.fromhex(values["private_key"]))

    def disconnect(self) -> None:
        for client in self.clients.values():
            client.close()


def check_holds(relayer: RunningRelayer) -> None:
    """`relayer check` finds nothing, beside the running server."""
    try:
        report = relayer.command("check")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.stdout}{error.stderr}")
    assert (report["ok"], report["problems"]) == (True, [])


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for what a relayer does in the background."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.25)
