"""How memory is at present, known to all hooks of one agent, which are processes of their own.

It does not own what a hook does without memory (`hook.py`).

- After a failure nothing is asked for a while, twice as long each time. It is told once.
- The file holds fixed words and times, nothing that anybody said.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from memrelay.errors import ConfigError
from memrelay.secure_files import read_private, write_private

PAUSE_S: Final = 30.0
PAUSE_S_MAX: Final = 900.0


@dataclass(frozen=True, kw_only=True)
class _Failure:
    at: float
    pause_s: float
    reason: str
    is_told: bool = False


class Outage:
    """The failure at present, if there is one, in a file of an agent."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    @property
    def is_paused(self) -> bool:
        """True if a failure is so recent that nothing is asked."""
        failure = self._read()
        # A clock that was set back must not make the pause last for ever.
        return failure is not None and 0 <= self._clock() - failure.at < failure.pause_s

    @property
    def reason(self) -> str | None:
        """The reason of the failure at present, in fixed words."""
        failure = self._read()
        return failure.reason if failure else None

    def note_failure(self, reason: str) -> None:
        """Note a failure; for a reason that was told it is not told again."""
        before = self._read()
        pause_s = min(2 * before.pause_s, PAUSE_S_MAX) if before else PAUSE_S
        is_told = before is not None and before.is_told and before.reason == reason
        self._write(_Failure(at=self._clock(), pause_s=pause_s, reason=reason, is_told=is_told))

    def note_success(self) -> None:
        """Note that memory works."""
        # A folder that can only be read is no reason to go on without what was recalled.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def take_untold(self) -> str | None:
        """Return the reason of a failure that nobody was told of yet, and note that it is told."""
        failure = self._read()
        if failure is None or failure.is_told:
            return None
        return failure.reason if self._write(replace(failure, is_told=True)) else None

    def _write(self, failure: _Failure) -> bool:
        try:
            write_private(self._path, asdict(failure))
        except ConfigError:
            return False  # it would be told in every turn
        return True

    def _read(self) -> _Failure | None:
        try:
            data = read_private(self._path)
            return None if data is None else _Failure(**json.loads(data))
        except (ConfigError, ValueError, TypeError, RecursionError):
            return None
