"""The prompts of one agent that were sent and are not answered yet, sealed on disk.

A host tells the prompt to one hook and the answer to another; between the two lies the turn. It
does not own what becomes of them (`hook.py`), or how files are sealed (`gateway/spool.py`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.sealed.keys import Identity

_BYTES_MAX: Final = 4 * 1024 * 1024
_PROMPTS_MAX: Final = 200


@dataclass(frozen=True, kw_only=True)
class SentPrompt:
    """A prompt, its session and turn, and the folder it was sent in; `at` is Unix time."""

    session: str
    turn: str
    text: str
    folder: str
    at: float

    @property
    def moment(self) -> datetime:
        """The time of the prompt, in this machine's time zone: "today" is a day of the user's."""
        return datetime.fromtimestamp(self.at, UTC).astimezone()


class SentPrompts:
    """The prompts in a folder; beyond a bound the oldest are dropped."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._spool = Spool(folder, bytes_max=_BYTES_MAX, turns_max=_PROMPTS_MAX)
        self._key = SpoolKey.of(identity)

    def put(self, prompt: SentPrompt) -> None:
        """Keep a prompt until it is taken."""
        self._spool.put(self._key, json.dumps(asdict(prompt)).encode())

    def take(
        self,
        choose: Callable[[Sequence[SentPrompt]], Sequence[SentPrompt]],
        keep: Callable[[Sequence[SentPrompt]], None],
    ) -> None:
        """Let what is chosen of the prompts, oldest first, be kept elsewhere; then forget it."""
        found = dict[str, SentPrompt]()
        for name in self._spool.names(self._key):
            data = self._spool.get(self._key, name)
            try:
                if data is not None:
                    found[name] = SentPrompt(**json.loads(data))
            except (TypeError, ValueError):
                self._spool.set_aside(name)
        chosen = choose(list(found.values()))
        if chosen:
            keep(chosen)
        for name, prompt in found.items():
            if prompt in chosen:
                self._spool.remove(name)
