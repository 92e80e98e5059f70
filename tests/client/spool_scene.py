"""A spool of any folder, and the turns that wait in it."""

from pathlib import Path

from memrelay.gateway.spool import Spool, SpoolKey


def spool_in(folder: Path | None, *, bytes_max: int = 1 << 20, turns_max: int = 100) -> Spool:
    return Spool(folder, bytes_max=bytes_max, turns_max=turns_max)


def turns(spool: Spool, key: SpoolKey) -> list[bytes | None]:
    return [spool.get(key, name) for name in spool.names(key)]
