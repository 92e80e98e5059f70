"""Rows of memories that were found lately, with the sealed bytes that the database has of them.

Not here: which namespaces are held (`index.py`), reading rows (`database.recall`).

- A row is used only for a namespace that is held and lists the very version of it.
- What is kept is as sealed as it is stored, and goes after `LIFE_S`, asked for or not: so long at
  most does a memory stay whose row is gone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from relayer.database.pool import Row
from relayer.sealed.keys import AccountId

LIFE_S: Final = 300.0
# What a row takes beside its blob, at most: behind a pooler each reading's rows have their columns'
# names and types for themselves.
_ROW_BYTES: Final = 6_000


class RecentRows:
    """Keeps rows of at most `bytes_max` together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows: OrderedDict[tuple[AccountId, int], Row] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self.size_bytes = 0

    def find(self, account: AccountId, listed: Mapping[int, int]) -> dict[int, Row]:
        """Return number → row of those memories that are kept in the listed version."""
        found = {}
        for seq, version in listed.items():
            row = self._rows.get((account, seq))
            if row is not None and row["version"] == version:
                self._rows.move_to_end((account, seq))
                found[seq] = row
        return found

    def keep(self, account: AccountId, rows: Iterable[Row]) -> None:
        """Keep these in place of other versions of them; what was used longest ago makes room."""
        for row in rows:
            self._drop((account, row["seq"]))
            self._rows[account, row["seq"]] = row
            self.size_bytes += _bytes_of(row)
        while self.size_bytes > self._bytes_max:
            self._drop(next(iter(self._rows)))
        if self._rows and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LIFE_S, self.clear)

    def clear(self) -> None:
        """Keep nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._rows.clear()
        self.size_bytes = 0

    def _drop(self, place: tuple[AccountId, int]) -> None:
        if (row := self._rows.pop(place, None)) is not None:
            self.size_bytes -= _bytes_of(row)


def _bytes_of(row: Row) -> int:
    return _ROW_BYTES + len(row["blob"] or b"")
