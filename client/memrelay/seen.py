"""What a client has verified so far, in a file beside its profile.

It does not own the use of it (`session.py`).

- It only ever rises, also when two processes share a file.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from memrelay.errors import ConfigError
from memrelay.private import locked, read_private, write_private
from memrelay.sealed.objects import from_base64
from memrelay.sealed.statement import read_named


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What this client has verified so far; a relayer that offers less is refused.

    `receipt_*` is the newest receipt that came with an answer, `checked_*` the end of the chain
    that was followed link by link. `succession` are the relayer's `relayer-next` objects, base64.
    """

    relayer_key: str | None = None
    sealed: bool = False
    grant_serial: int = 0
    epoch: int = 0
    receipt_seq: int = 0
    receipt_head: str = ""
    checked_seq: int = 0
    checked_head: str = ""
    succession: tuple[str, ...] = ()

    def merged(self, other: "Seen") -> "Seen":
        """Return the higher of both, member by member; the pin of `self` wins."""
        newest = max(self, other, key=lambda seen: seen.receipt_seq)
        checked = max(self, other, key=lambda seen: seen.checked_seq)
        return Seen(
            relayer_key=self.relayer_key or other.relayer_key,
            sealed=self.sealed or other.sealed,
            grant_serial=max(self.grant_serial, other.grant_serial),
            epoch=max(self.epoch, other.epoch),
            receipt_seq=newest.receipt_seq,
            receipt_head=newest.receipt_head,
            checked_seq=checked.checked_seq,
            checked_head=checked.checked_head,
            succession=_joined(self.succession, other.succession),
        )


def _joined(before: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """A succession, with what goes on in another one from where it ends."""
    if not before or not other or before == other:
        return before or other
    _, last = read_named(from_base64(before[-1], "successor"))
    signers = [read_named(from_base64(text, "successor"))[0] for text in other]
    return (*before, *other[signers.index(last) :]) if last in signers else before


class SeenFile:
    """`Seen` in a file beside the profile, or in memory only when there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._saved = self.value = self._read()

    def _read(self) -> Seen:
        data = read_private(self._path) if self._path else None
        if data is None:
            return Seen()
        try:
            values = json.loads(data)
            succession = tuple(values.get("succession", ()))
            known = {item.name: values[item.name] for item in fields(Seen)[:-1]}
            for name in ("receipt_head", "checked_head"):
                bytes.fromhex(known[name])
            return Seen(**known, succession=succession)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self._path} is damaged; compare receipts, then remove it.") from (
                error
            )

    def refresh(self) -> None:
        """Take in what other processes have verified since.

        Raises:
            ConfigError: the file cannot be read or was damaged meanwhile.
        """
        self.value = self.value.merged(self._read())

    def save(self) -> None:
        """Write what changed since the last time.

        Raises:
            ConfigError: the file cannot be written or was damaged meanwhile.
        """
        if self._path is None or self.value == self._saved:
            return
        with locked(self._path.with_name(f".{self._path.name}.lock")):
            self.value = self.value.merged(self._read())
            write_private(
                self._path, {item.name: getattr(self.value, item.name) for item in fields(Seen)}
            )
        self._saved = self.value
