"""Every statement and table of the relayer by name, and which are bound to no single account."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping

from relayer import database as package
from relayer.database.pool import Database

# Tables by something else than the account: a request names a key before an account is known.
BY_KEY = {"key_owner", "nonces", "nonces_ahead", "nonce_floor"}
OTHERS = {"alembic_version", "unlock_keys"}
TENANT = """
SELECT c.oid, c.relname FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
  AND c.relname NOT LIKE 'pgqueuer%' AND NOT c.relname = ANY ($1)
"""

# Without statements on tenants' tables: the queue's are pgqueuer's, `distribution` asks Citus' own.
APART = {"distribution", "migrate", "pool", "queue", "upgrade"}

MODULES = [
    importlib.import_module(f"{package.__name__}.{module.name}")
    for module in pkgutil.iter_modules(package.__path__)
    if module.name not in APART
]


def _texts(variables: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What a module says, each entry of a mapping by itself."""
    for name, value in variables.items():
        if isinstance(value, dict):
            yield from ((f"{name}[{key}]", text) for key, text in value.items())
        else:
            yield name, value


STATEMENTS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": text
    for module in MODULES
    for name, text in _texts(vars(module))
    if isinstance(text, str) and re.match(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
}
# Statements of no single account, each run outside requests or before an account is known.
HOUSEKEEPING = {
    "requests._RAISE_FLOOR",
    "requests._RESTORE_MARKER",
    "requests._DELETE_EXPIRED_NONCES",
    "requests._DELETE_EXPIRED_NONCES_AHEAD",
    "requests._DELETE_OLD_WINDOWS",
    "check._CLOCK",
    "check._CONNECTIONS_MAX",
    "closing._CLOSED",
    "closing._FREE_KEYS",
    "closing._KEYS_LEFT",
    "closing._UNPURGED",
    "expiry._ACCOUNTS_EXPIRED",
    "index_steps._DELETE_OLD",
    "memories._DELETE_EXPIRED_MARKS",
    "replay._NEWEST",
    "replay._PUTTING",
    "statistics._KNOWN",
    "unlock_keys._ANNOUNCE",
    "unlock_keys._ANNOUNCED",
    "unlock_keys._FORGET_SILENT",
    "watch._JOBS",
    "watch._STATE",
}
# Those that name the account without being bound to one.
OVER_ALL = {
    "requests._RECORD_NONCE",
    "requests._RECORD_NONCE_AND_READ",
    "accounts._KEY_OWNER",
    "accounts._KEYS_BEGINNING",
    "accounts._ACCOUNTS",
    "accounts._NEWEST_ACCOUNTS",
    "accounts._NEWEST_RECEIPTS",
    "blobs._NEWEST_WRITTEN",
    "accounts._INSERT_OWNER",
    "blobs._FIRST",
    "outbox._OUTBOX",
    "index_choice._ACCOUNTS",
    "word_moves._ACCOUNTS",
    "reseal._ACCOUNTS_DUE",
    "vectors._ACCOUNTS_DUE",
    "episodes._PENDING_ANYWHERE",
    "check._OWNERS",
    "webhooks._DUE",
    "webhooks._EVERY",
    "collection._ACCOUNT_IDS",
    "runs._DUE",
    "runs._ALL_UNFINISHED",
    "blobs._ACCOUNTS",
    "rebuild._KNOWN",
    "rebuild._INCOMPLETE",
    "watch._FAILURES",
    "watch._WAITING",
}


async def tenant_tables(database: Database) -> dict[int, str]:
    rows = await database.fetch(TENANT, sorted(BY_KEY | OTHERS))
    return {r["oid"]: r["relname"] for r in rows}
