"""Keeps what two relayers agreed on last, per namespace, in a file beside the profile.

It does not own what is read from there on (`side.py`).

- Numbers and hashes of receipts only: no text, no key. Names of namespaces stand in the profile,
  too.
- Losing it costs time: everything is compared anew, and nothing is done twice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay.errors import Invalid
from memrelay.sealed.keys import hex_bytes
from memrelay.sealed.objects import integer
from memrelay.sealed.receipts import NO_HEAD
from memrelay.secure_files import lock_file, read_private, write_private

_FILE_BYTES_MAX = 16 * 2**20  # an account has up to 10,000 namespaces
_HEAD_BYTES = 32


@dataclass(frozen=True)
class Position:
    """The receipt up to which a chain was taken into account; before the first, 0 and zeros."""

    seq: int = 0
    head: bytes = NO_HEAD


START = Position()
Pair = tuple[Position, Position]


@dataclass
class Agreement:
    """The state that two relayers agreed on: how far the chain of each was taken into account."""

    path: Path | None
    relayers: tuple[str, str]
    positions: dict[str, Pair] = field(default_factory=dict)

    def begin(self, names: Iterable[str]) -> Pair:
        """Return from where both chains are read for these namespaces: the lowest of each."""
        pairs = [self.positions.get(name, (START, START)) for name in names]
        if not pairs:
            return START, START
        ends = [min((pair[n] for pair in pairs), key=lambda one: one.seq) for n in (0, 1)]
        return ends[0], ends[1]

    def keep(self, names: Iterable[str], ends: Pair) -> None:
        """Take note that these namespaces are in step as far as these receipts."""
        self.positions |= dict.fromkeys(names, ends)
        self.save()

    def restart(self, side: int) -> None:
        """Forget how far one relayer's chain was read: it has another history now."""
        for name, pair in self.positions.items():
            self.positions[name] = (START, pair[1]) if side == 0 else (pair[0], START)

    def save(self) -> None:
        """Write the file, whole and durable.

        Raises:
            ConfigError: it cannot be written.
        """
        if self.path is None:
            return
        write_private(
            self.path,
            {
                "v": 1,
                "relayers": list(self.relayers),
                "namespaces": {
                    name: [[one.seq, one.head.hex()] for one in pair]
                    for name, pair in sorted(self.positions.items())
                },
            },
        )


def agreement_path(profile: Path, account_id: str, relayers: tuple[str, str]) -> Path:
    """Return the path of what two relayers of an account agreed on, beside the profile."""
    pair = "-".join(key[:16] for key in sorted(relayers))
    return profile.with_name(f"{profile.stem}.{account_id[2:18]}.{pair}.sync.json")


@contextmanager
def held_agreement(path: Path, relayers: tuple[str, str]) -> Iterator[Agreement]:
    """Yield the agreement in a file, or a new one; no other process has it meanwhile.

    Raises:
        ConfigError: another sync of the two runs, or the file cannot be read.
    """
    lock = path.with_name(f".{path.name}.lock")
    with lock_file(lock, otherwise="Another sync of these two relayers runs here."):
        yield read_agreement(path, relayers)


def read_agreement(path: Path, relayers: tuple[str, str]) -> Agreement:
    """Return the agreement in a file; a new one where there is none, or none that can be read."""
    fresh = Agreement(path, relayers)
    data = read_private(path, bytes_max=_FILE_BYTES_MAX)
    if data is None:
        return fresh
    try:
        return _parse(fresh, json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Invalid):
        return fresh  # it only spares comparing everything


def _parse(fresh: Agreement, values: Mapping[str, Any]) -> Agreement:
    named = [str(key) for key in values["relayers"]]
    if values["v"] != 1 or sorted(named) != sorted(fresh.relayers):
        return fresh
    order = (0, 1) if named == list(fresh.relayers) else (1, 0)
    for name, pair in values["namespaces"].items():
        ends = [_position(pair[n]) for n in order]
        fresh.positions[name] = (ends[0], ends[1])
    return fresh


def _position(value: Any) -> Position:
    seq, head = value
    return Position(integer(seq), hex_bytes(head, _HEAD_BYTES, "hash"))
