"""What is wrong with an installation, in plain words, and what to type.

Not here: verifying what is stored (`check.py`).
"""

import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from relayer import app
from relayer.embedding import model
from relayer.errors import RelayerError
from relayer.identity import IdentityError
from relayer.postgres.embedded import PostgresError
from relayer.running import running_url
from relayer.settings import Settings, SettingsError
from relayer.storage import opened

Finding = dict[str, Any]
DISK_BYTES_MIN = 1 << 30


async def examine(settings: Settings) -> list[Finding]:
    """One finding per thing that can be wrong: `{check, ok, detail, do}`."""
    return [
        _python(),
        _disk(settings),
        _model(settings),
        await _storage(settings),
        _embedder(settings),
        _server(settings),
    ]


def _finding(check: str, ok: bool, detail: str, do: str = "") -> Finding:
    return {"check": check, "ok": ok, "detail": detail, "do": "" if ok else do}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return _finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _disk(settings: Settings) -> Finding:
    folder = (
        settings.data_dir if settings.data_dir.exists() else settings.data_dir.absolute().parent
    )
    free = shutil.disk_usage(folder).free
    detail = f"{free / 2**30:.1f} GiB free"
    return _finding("disk", free >= DISK_BYTES_MIN, detail, "make room for the data folder")


def _model(settings: Settings) -> Finding:
    needed = settings.embedder == "builtin" or (
        settings.embedder == "auto" and not settings.embedding_model
    )
    complete = model.is_complete(app.model_folder(settings))
    detail = "complete" if complete else "missing" if needed else "not needed"
    return _finding("model", complete or not needed, detail, "relayer model fetch")


async def _storage(settings: Settings) -> Finding:
    async def look() -> str:
        async with opened(settings) as storage:
            await storage.database.fetchrow("SELECT 1")
        return "migrated and answering"

    return await _tried("database", look, "read the message; then relayer serve")


def _embedder(settings: Settings) -> Finding:
    try:
        embedder = app.build_embedder(settings)
    except RelayerError as error:
        return _finding("embedder", False, error.message, "relayer model fetch")
    detail = "none: recall by keyword only" if embedder is None else embedder.model_id
    return _finding("embedder", True, detail)


def _server(settings: Settings) -> Finding:
    url = running_url(settings.data_dir)
    return _finding("server", url is not None, url or "not running", "relayer serve")


async def _tried(check: str, look: Callable[[], Awaitable[str]], do: str) -> Finding:
    try:
        return _finding(check, True, await look())
    except RelayerError as error:
        return _finding(check, False, error.message, do)
    except (SettingsError, IdentityError, PostgresError) as error:
        return _finding(check, False, str(error), do)


def as_text(findings: list[Finding]) -> str:
    """One line a finding, and under it what to do."""
    lines = []
    for f in findings:
        lines.append(f"{'ok ' if f['ok'] else 'BAD'} {f['check']:9} {f['detail']}")
        if f["do"]:
            lines.append(f"              type: {f['do']}")
    return "\n".join(lines)
