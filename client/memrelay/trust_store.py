"""Stores what a client has verified so far, in a file beside its profile.

It does not own the use of it (`session.py`).

- It only ever rises, also when two processes share a file; but where the profile comes to name
  another relayer, receipts are followed from their beginning.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.keys import KEY_BYTES, hex_bytes
from memrelay.sealed.objects import from_base64
from memrelay.sealed.statement import read_named
from memrelay.secure_files import lock_file, read_private, write_private


@dataclass(frozen=True, kw_only=True)
class TrustState:
    """The state that this client has verified so far; a relayer that offers less is refused.

    `receipt_*` is the newest receipt that came with an answer, `checked_*` the end of the chain
    that was followed link by link. `grant_serial` is the highest that owners signed,
    `receipt_serial` that a receipt named, which is the relayer's word. `succession` are the
    relayer's `relayer-next` objects, base64.
    """

    relayer_key: str | None = None
    sealed: bool = False
    grant_serial: int = 0
    epoch: int = 0
    receipt_seq: int = 0
    receipt_head: str = ""
    receipt_serial: int = 0
    checked_seq: int = 0
    checked_head: str = ""
    succession: tuple[str, ...] = ()

    def merge(self, other: "TrustState") -> "TrustState":
        """Return the higher of both, member by member; the pin of `self` wins."""
        newest = max(self, other, key=lambda seen: seen.receipt_seq)
        checked = max(self, other, key=lambda seen: seen.checked_seq)
        return TrustState(
            relayer_key=self.relayer_key or other.relayer_key,
            sealed=self.sealed or other.sealed,
            grant_serial=max(self.grant_serial, other.grant_serial),
            epoch=max(self.epoch, other.epoch),
            receipt_seq=newest.receipt_seq,
            receipt_head=newest.receipt_head,
            receipt_serial=max(self.receipt_serial, other.receipt_serial),
            checked_seq=checked.checked_seq,
            checked_head=checked.checked_head,
            succession=_join(self.succession, other.succession),
        )


def _read_seen(values: Mapping[str, Any]) -> TrustState:
    if "receipt_serial" not in values:
        # Earlier versions kept one serial, which a receipt may have told.
        values = {**values, "receipt_serial": values["grant_serial"], "grant_serial": 0}
    known = {item.name: values[item.name] for item in fields(TrustState)[:-1]}
    for item in fields(TrustState)[:-1]:
        if type(known[item.name]) is not type(item.default) and item.name != "relayer_key":
            raise TypeError(item.name)
    if known["relayer_key"] is not None:
        hex_bytes(known["relayer_key"], KEY_BYTES, "relayer key")
    for name in ("receipt_head", "checked_head"):
        bytes.fromhex(known[name])
    succession = tuple(values.get("succession", ()))
    for text in succession:
        read_named(from_base64(text, "successor"))
    return TrustState(**known, succession=succession)


def _keys(succession: tuple[str, ...]) -> set[str]:
    named = [read_named(from_base64(text, "successor")) for text in succession]
    return {key.hex() for pair in named for key in pair}


def _join(before: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """A succession, with what goes on in another one from where it ends."""
    if not before or not other or before == other:
        return before or other
    _, last = read_named(from_base64(before[-1], "successor"))
    signers = [read_named(from_base64(text, "successor"))[0] for text in other]
    return (*before, *other[signers.index(last) :]) if last in signers else before


class TrustStore:
    """`TrustState` in a file beside the profile, or in memory only when there is no path.

    It may be saved in one thread while it is noted in another.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._changing, self._saving = threading.Lock(), threading.Lock()
        self._saved = self.value = self._read()

    def _read(self) -> TrustState:
        data = read_private(self._path) if self._path else None
        if data is None:
            return TrustState()
        try:
            return _read_seen(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Invalid) as error:
            raise ConfigError(f"{self._path} is damaged; compare receipts, then remove it.") from (
                error
            )

    def pin(self, relayer_key: str, *, before: str | None) -> None:
        """Take note of the key that the profile pins from now on; `before` is what it pinned.

        Of another relayer's account only that is kept which holds wherever it is.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        if self._path is None or not self._path.exists():
            return
        with lock_file(self._lock_path(self._path)):
            known = self._read()
            pinned = before or known.relayer_key
            if pinned is None or relayer_key in {pinned, *_keys(known.succession)}:
                return
            self.value = TrustState(
                sealed=known.sealed, grant_serial=known.grant_serial, epoch=known.epoch
            )
            self._write(self._path, self.value)

    def refresh(self) -> None:
        """Take in what other processes have verified since.

        Raises:
            ConfigError: the file cannot be read or was damaged meanwhile.
        """
        self._merge(self._read())

    def note(self, **values: Any) -> tuple[TrustState, TrustState]:
        """Raise some members; return the value before and after."""
        return self._merge(replace(TrustState(), **values))

    def _merge(self, other: TrustState) -> tuple[TrustState, TrustState]:
        with self._changing:
            before = self.value
            self.value = after = before.merge(other)
        return before, after

    def save(self) -> None:
        """Write what changed since the last time.

        Raises:
            ConfigError: the file cannot be written or was damaged meanwhile.
        """
        if self._path is None or self.value == self._saved:
            return
        # The file's lock keeps other processes away, and threads where there is one.
        with self._saving, lock_file(self._lock_path(self._path)):
            _, value = self._merge(self._read())
            self._write(self._path, value)

    def _write(self, path: Path, value: TrustState) -> None:
        write_private(path, {item.name: getattr(value, item.name) for item in fields(TrustState)})
        self._saved = value

    @staticmethod
    def _lock_path(path: Path) -> Path:
        return path.with_name(f".{path.name}.lock")
