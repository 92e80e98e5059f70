"""An account at two real relayers that are brought into step."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_OK, main
from memrelay.models import Memory
from tests.client.archive_scene import Scene
from tests.processes import RunningRelayer


@dataclass
class Pair:
    """The account at both, and the commands of its owner."""

    scene: Scene
    capsys: Any

    def __post_init__(self) -> None:
        self.here = self.scene.profile(name="here")
        self.there = self.scene.profile(self.scene.there, name="there")

    def run(self, *options: str, code: int = EXIT_OK) -> dict[str, Any]:
        """Sync both, and return what the command says."""
        self.capsys.readouterr()
        argv = ["sync", self.there, "--profile", self.here, "--json", *options]
        assert main(argv, {}) == code, self.capsys.readouterr().err
        told: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return told

    def client(self, at: RunningRelayer) -> SyncMemoryClient:
        return self.scene.client(self.scene.founder, at=at)

    def both(self) -> tuple[SyncMemoryClient, SyncMemoryClient]:
        return self.client(self.scene.here), self.client(self.scene.there)


def taken(told: Mapping[str, Any]) -> list[dict[str, int]]:
    """What each side took, without zeros."""
    names = ("new", "revisions", "erased", "states")
    return [{n: one[n] for n in names if one[n]} for one in told["relayers"]]


def contents(client: SyncMemoryClient, names: Iterable[str] = ("team",)) -> list[tuple[Any, ...]]:
    """All that holds at a relayer of these namespaces, after it was verified whole and opened."""
    found = client.verify(open_all=True)
    assert found.ok, found.findings
    memories = [m for n in names for m in client.memories(namespace=n, state="all")]
    return sorted(map(_content, memories))


def _content(memory: Memory) -> tuple[Any, ...]:
    given = (memory.id, memory.namespace, memory.revision, memory.text, memory.kind, memory.source)
    state = (memory.pinned, str(memory.review), memory.stale, str(memory.superseded_by))
    times = (str(memory.expires_at), str(memory.event_time))
    return (*map(str, given), memory.tags, *map(str, state), *times)


def forget_agreement(pair: Pair) -> None:
    """Lose what both agreed on last."""
    for file in Path(pair.here).parent.glob("*.sync.json"):
        file.unlink()
