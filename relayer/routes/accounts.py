"""Our own routes on an account: found it, look at it, choose its settings, close it.

Not here: what these do (`tenants/granting.py`, `tenants/closing.py`), its keys (`keys.py`).
"""

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

import msgspec
from litestar import Request, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from relayer.clock import rfc3339
from relayer.database import accounts as account_rows
from relayer.database import listing
from relayer.database import namespaces as namespace_rows
from relayer.database.pool import Database
from relayer.errors import BadRequest, NotFound
from relayer.http import bodies
from relayer.http.checks import FOUNDER, FOUNDING, WEIGHT
from relayer.http.rate_limits import STATE
from relayer.http.registration import Registration
from relayer.memories.analysis import Analysis
from relayer.memories.episodes import Episodes
from relayer.preferences import AccountSettings, Hours
from relayer.routes import shapes
from relayer.routes.arguments import check_account, decode_signed_object
from relayer.sealed.keys import Identity, PublicKey, account_text
from relayer.settings import Settings
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.closing import Closing
from relayer.tenants.granting import Granting
from relayer.tenants.recall_counts import RecallCounts


class AccountBody(bodies.Change):
    """POST /v1/accounts."""

    grants: Annotated[list[str], Meta(min_length=1, max_length=4)]
    label: bodies.Label = ""
    token: Annotated[str, Meta(max_length=256)] = ""


class SettingsBody(bodies.Change):
    """PATCH /v1/settings."""

    redact: bool | msgspec.UnsetType = msgspec.UNSET
    contradictions: Literal["newer_wins", "review"] | msgspec.UnsetType = msgspec.UNSET
    low_confidence: Literal["keep", "review"] | msgspec.UnsetType = msgspec.UNSET
    keep_turns: bool | msgspec.UnsetType = msgspec.UNSET
    count_recalls: bool | msgspec.UnsetType = msgspec.UNSET
    consolidate_every_h: Hours | msgspec.UnsetType = msgspec.UNSET


class NewAccountAnswer(TypedDict):
    """An account that was founded, with the receipts for its first grants."""

    account_id: str
    public_key: shapes.Hex
    custody: Literal["managed", "sealed"]
    relayer_key: shapes.Hex
    label: str
    receipts: list[shapes.Base64]


class AccountAnswer(TypedDict):
    """One's own account."""

    account_id: str
    label: str
    custody: Literal["managed", "sealed"]
    grant_serial: int
    created_at: shapes.Time
    relayer_key: shapes.Hex


class SettingsAnswer(TypedDict):
    """All settings of the account, chosen or not."""

    settings: AccountSettings


class FactCounts(TypedDict, total=False):
    """Numbers of episodes that gave facts and that gave none; for keys of the whole account."""

    with_facts: int
    without_facts: int


class ExtractionAnswer(FactCounts):
    """The extractor of facts, and the numbers of episodes that wait for it or failed."""

    extractor: str
    waiting: int
    failed: int
    failure: str | None


class WindowsLeft(TypedDict, total=False):
    """The weight that each window of requests has left; without limits there are no windows."""

    minute_left: int
    hour_left: int
    key_minute_left: int


class RequestsAnswer(WindowsLeft):
    """The weight of requests that may be made in a minute and an hour."""

    limited: bool
    per_minute: int
    per_hour: int
    per_key_per_minute: int


class StoredAnswer(shapes.CountsAnswer):
    """Numbers of stored memories and their bytes."""

    storage_bytes: int
    index_bytes: int


class RoomAnswer(StoredAnswer):
    """The stored amounts, and the account's bounds for keys of the whole account."""

    storage_bytes_max: NotRequired[int]
    grant_count: NotRequired[int]
    grants_max: NotRequired[int]


class UsageAnswer(RoomAnswer):
    """The account's use of its storage, extraction and requests."""

    unrestored: bool
    extraction: ExtractionAnswer
    requests: RequestsAnswer


class CloseAnswer(TypedDict):
    """An account that was closed; nothing of it is left to be asked for."""

    account_id: str
    closed: Literal[True]
    matched: int
    erased: int
    more: bool
    pending: bool
    ids: list[shapes.Id]
    receipts: list[shapes.Base64]


@post("/accounts", opt={FOUNDING: True, WEIGHT: 10})
async def create_account(
    request: Request[Any, Any, Any],
    data: JSONBody[AccountBody],
    accounts: NamedDependency[Accounts],
    granting: NamedDependency[Granting],
    registration: NamedDependency[Registration],
    identity: NamedDependency[Identity],
) -> NewAccountAnswer:
    """Found an account with its first grants."""
    bodies.check_relayer(data.relayer, identity)
    registration.check(request, data.token)
    founder: PublicKey = request.scope["state"][FOUNDER]
    grants = [decode_signed_object(g, "grants") for g in data.grants]
    chain, receipts = await granting.create(founder=founder, grants=grants, label=data.label)
    return {
        "account_id": account_text(chain.account),
        "public_key": founder.hex(),
        "custody": accounts.custody(chain),
        "relayer_key": identity.public_key.hex(),
        "label": data.label,
        "receipts": shapes.receipts(receipts),
    }


@get("/accounts/{account_id:str}")
async def get_account(
    account_id: FromPath[str],
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    identity: NamedDependency[Identity],
) -> AccountAnswer:
    """Return one's own account."""
    check_account(account_id, access)
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    return {
        "account_id": account_id,
        "label": row["label"],
        "custody": access.custody,
        "grant_serial": row["grant_serial"],
        "created_at": rfc3339(row["created_at"]),
        "relayer_key": identity.public_key.hex(),
    }


@get("/settings")
async def get_settings(access: NamedDependency[Access]) -> SettingsAnswer:
    """Return the account's settings."""
    return {"settings": msgspec.to_builtins(access.settings)}


@patch("/settings", opt={WEIGHT: 3})
async def change_settings(
    data: JSONBody[SettingsBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    recall_counts: NamedDependency[RecallCounts],
    identity: NamedDependency[Identity],
) -> SettingsAnswer:
    """Change the account's settings; those that are not named stay."""
    bodies.check_relayer(data.relayer, identity)
    settings = settings_of(data, access.settings)
    if not settings.count_recalls and access.settings.count_recalls:
        await recall_counts.end(access)
    await accounts.choose(access, settings)
    return {"settings": msgspec.to_builtins(settings)}


def settings_of(body: SettingsBody, now: AccountSettings) -> AccountSettings:
    """Return an account's settings with what a body changes of them."""
    named = {name: getattr(body, name) for name in AccountSettings.__struct_fields__}
    return msgspec.structs.replace(
        now, **{name: value for name, value in named.items() if value is not msgspec.UNSET}
    )


@get("/usage")
async def get_usage(
    request: Request[Any, Any, Any],
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    analysis: NamedDependency[Analysis],
    episodes: NamedDependency[Episodes],
) -> UsageAnswer:
    """Return the use of the account's limits; for a narrower key, of its namespaces alone."""
    whole = access.namespaces is None
    used, facts = await (
        _read_usage(access, database, settings)
        if whole
        else _read_namespace_usage(access, database)
    )
    failures = await episodes.failures(access)
    rooms = request.scope["state"][STATE]
    left = {f"{room.name}_left": max(0, room.left) for room in rooms}
    return {
        **used,
        "unrestored": access.unrestored,
        "extraction": {
            "extractor": analysis.extractor,
            **facts,
            "waiting": failures.waiting,
            "failed": failures.failed,
            "failure": failures.cause,
        },
        "requests": {
            "limited": settings.rate_limit == "on",
            "per_minute": settings.requests_per_minute,
            "per_hour": settings.requests_per_hour,
            "per_key_per_minute": settings.key_requests_per_minute,
            **cast("WindowsLeft", left),
        },
    }


async def _read_usage(
    access: Access, database: Database, settings: Settings
) -> tuple[RoomAnswer, FactCounts]:
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    aside = await listing.count_set_aside(database, access.account, None)
    used: RoomAnswer = {
        **shapes.counts(row["memory_count"], sum(aside.values(), start=listing.SetAside())),
        "storage_bytes": row["storage_bytes"],
        "index_bytes": row["index_bytes"],
        "storage_bytes_max": settings.storage_bytes_max,
        "grant_count": access.serial,
        "grants_max": settings.account_grants_max,
    }
    return used, {
        "with_facts": row["turns_with_facts"],
        "without_facts": row["turns_without_facts"],
    }


async def _read_namespace_usage(
    access: Access, database: Database
) -> tuple[RoomAnswer, FactCounts]:
    """Without what is of the account alone: its bounds and counts tell what is elsewhere."""
    found = await namespace_rows.summaries(database, access.account, access.namespaces)
    numbers = [row["namespace_id"] for row in found]
    aside = await listing.count_set_aside(database, access.account, numbers)
    memories = sum(row["memory_count"] for row in found)
    used: StoredAnswer = {
        **shapes.counts(memories, sum(aside.values(), start=listing.SetAside())),
        "storage_bytes": sum(row["storage_bytes"] for row in found),
        "index_bytes": sum(row["index_bytes"] for row in found),
    }
    return cast("RoomAnswer", used), {}


@delete("/accounts/{account_id:str}", status_code=200, opt={WEIGHT: 10})
async def close_account(
    account_id: FromPath[str],
    relayer: FromQuery[str],
    confirm: FromQuery[str],
    access: NamedDependency[Access],
    closing: NamedDependency[Closing],
    identity: NamedDependency[Identity],
) -> CloseAnswer:
    """Erase one's account, for good."""
    bodies.check_relayer(relayer, identity)
    check_account(account_id, access)
    if confirm != account_id:
        raise BadRequest("confirm must be the account's id.", code="account.confirm")
    closed = await closing.close(access)
    return {
        "account_id": account_id,
        "closed": True,
        "matched": closed.memories,
        "erased": closed.memories,
        "more": False,
        "pending": closed.pending,
        "ids": [],
        "receipts": shapes.receipts([closed.receipt]),
    }


HANDLERS: Final = (
    create_account,
    get_account,
    get_settings,
    change_settings,
    get_usage,
    close_account,
)
