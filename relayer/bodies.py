"""Request bodies: their form, their limits, and the domain objects they become.

Not here: routes, bodies of recall and ask (`query_bodies.py`). Bodies of our own routes refuse
unknown members; MemWal's tolerate them.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from relayer.analysis import Conversation
from relayer.errors import BadRequest, TooLarge
from relayer.preferences import HOURS_MAX, AccountSettings
from relayer.rank import Weights
from relayer.record import Confidence, Draft, Importance, Kind
from relayer.sealed.keys import Namespace, parse_namespace
from relayer.sealed.primitives import CryptoError
from relayer.settings import Limits

Moment = Annotated[datetime, Meta(tz=True)]
Tag = Annotated[str, Meta(min_length=1, max_length=Limits.tag_characters_max)]
Source = Annotated[str, Meta(min_length=1, max_length=Limits.source_characters_max)]
IdempotencyKey = Annotated[
    str, Meta(min_length=1, max_length=Limits.idempotency_key_characters_max)
]
Label = Annotated[str, Meta(max_length=Limits.label_characters_max, pattern=r"^[^\x00-\x1f\x7f]*$")]
RecallLimit = Annotated[int, Meta(ge=1, le=Limits.recall_limit_max)]
Weight = Annotated[float, Meta(ge=0, le=100)]
HexKey = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
DEFAULT_NAMESPACE = "default"
_PLACE: Final = re.compile(r" - at `\$\.?([^`]+)`$")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_Form = TypeVar("_Form")


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body of our own routes."""


class Change(Strict):
    """A body that changes something, so it names the relayer it is for."""

    relayer: HexKey


class MemoryFields(Strict):
    """What can be said about a memory."""

    text: str
    namespace: str = DEFAULT_NAMESPACE
    kind: Kind = "fact"
    tags: Annotated[list[Tag], Meta(max_length=Limits.tags_max)] = []
    source: Source | None = None
    event_time: Moment | None = None
    metadata: dict[str, str] = {}
    importance: Importance = "standard"
    confidence: Confidence = "high"
    expires_at: Moment | None = None
    idempotency_key: IdempotencyKey | None = None


class RememberBody(MemoryFields, kw_only=True):
    """POST /v1/remember."""

    relayer: HexKey


class BulkBody(Change):
    """POST /v1/remember/bulk."""

    items: Annotated[list[MemoryFields], Meta(min_length=1, max_length=Limits.bulk_items_max)]


class ScoringWeights(Strict):
    """How much meaning, age and importance count."""

    semantic: Weight = 1.0
    recency: Weight = 0.0
    recency_half_life_days: Annotated[float, Meta(gt=0, le=36_500)] = 30.0
    importance: Weight = 0.0


class AnalyzeBody(Change):
    """POST /v1/analyze."""

    text: str
    namespace: str = DEFAULT_NAMESPACE
    occurred_at: Moment | None = None
    source: Source | None = None
    idempotency_key: IdempotencyKey | None = None


class RestoreBody(Change):
    """POST /v1/restore."""

    namespace: str = DEFAULT_NAMESPACE
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class StatusBody(Strict):
    """POST /v1/memories/status."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class SettingsBody(Change):
    """PATCH /v1/settings."""

    redact: bool | msgspec.UnsetType = msgspec.UNSET
    contradictions: Literal["newer_wins", "review"] | msgspec.UnsetType = msgspec.UNSET
    low_confidence: Literal["keep", "review"] | msgspec.UnsetType = msgspec.UNSET
    keep_turns: bool | msgspec.UnsetType = msgspec.UNSET
    consolidate_every_h: Annotated[int, Meta(ge=0, le=HOURS_MAX)] | msgspec.UnsetType = (
        msgspec.UNSET
    )


class AccountBody(Change):
    """POST /v1/accounts."""

    grants: Annotated[list[str], Meta(min_length=1, max_length=4)]
    label: Label = ""
    token: Annotated[str, Meta(max_length=256)] = ""


class GrantBody(Change):
    """POST /v1/grants."""

    grant: str
    join: str
    label: Label = ""


class RevocationBody(Change):
    """POST /v1/revocations."""

    revocation: str


def decode(body: bytes, form: type[_Form]) -> _Form:
    """The body as its form: no conversion between JSON's types, no NaN, no lone surrogate.

    Bodies of our own routes must not repeat a member either: two readers of one signed body could
    see two requests.

    Raises:
        BadRequest: not JSON, or not of the form; nothing of the body is quoted.
    """
    try:
        decoded = msgspec.json.decode(body, type=form)
        if isinstance(decoded, Strict):
            json.loads(body, object_pairs_hook=_unique)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request is malformed: {_complaint(str(error))}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise BadRequest("The request body is not valid JSON.") from None
    return decoded


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("repeated member")


def _complaint(found: str) -> str:
    """What msgspec found, in words that come from our forms alone."""
    place = _PLACE.search(found)
    where = f"in {place[1]}" if place else "in the body"
    if missing := _MISSING.search(found):
        return f"{missing[1]} is missing {where}"
    if "unknown field" in found:
        return f"a member is unknown {where}"
    return f"a value is out of range or of the wrong type {where}"


def namespace_of(name: str) -> Namespace:
    """The normalised namespace.

    Raises:
        BadRequest: refused by SPEC §3.
    """
    try:
        return parse_namespace(name)
    except CryptoError as error:
        raise BadRequest(f"{error}.", code="namespace.invalid") from None


def checked_text(text: str, bytes_max: int, name: str = "text") -> str:
    """The text, within its limit.

    Raises:
        BadRequest: blank.
        TooLarge: over the limit.
    """
    if len(text.encode()) > bytes_max:
        raise TooLarge(f"{name} may have at most {bytes_max} bytes.")
    if not text.strip():
        raise BadRequest(f"{name} is empty.")
    return text


def check_moments(**moments: datetime | None) -> None:
    """Return when every moment survives a change of time zone.

    Raises:
        BadRequest: one is in the first or the last year there is.
    """
    for name, moment in moments.items():
        if moment is not None and not 1 < moment.year < 9999:
            raise BadRequest(f"{name} is out of range.")


def checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """The metadata, within its limits.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    if len(metadata) > Limits.metadata_entries_max or any("\0" in k for k in metadata):
        raise BadRequest("metadata has too many entries, or a NUL in a name.")
    if len(msgspec.json.encode(metadata)) > Limits.metadata_bytes_max:
        raise TooLarge(f"metadata may have at most {Limits.metadata_bytes_max} bytes.")
    return metadata


def draft_of(body: MemoryFields, *, bytes_max: int, now: datetime) -> Draft:
    """What to remember.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    check_moments(event_time=body.event_time, expires_at=body.expires_at)
    if body.expires_at is not None and body.expires_at <= now:
        raise BadRequest("expires_at is in the past.")
    return Draft(
        text=checked_text(body.text, bytes_max),
        namespace=namespace_of(body.namespace),
        kind=body.kind,
        tags=list(dict.fromkeys(body.tags)),
        source=body.source,
        event_time=body.event_time,
        metadata=checked_metadata(body.metadata),
        importance=body.importance,
        confidence=body.confidence,
        expires_at=body.expires_at,
        idempotency_key=body.idempotency_key,
    )


def drafts_of(items: Sequence[MemoryFields], now: datetime) -> list[Draft]:
    """What to remember in bulk, each item within the limit of bulk items.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    return [draft_of(item, bytes_max=Limits.bulk_text_bytes_max, now=now) for item in items]


def weights_of(weights: ScoringWeights | None) -> Weights:
    """The weights, or the defaults."""
    return Weights() if weights is None else Weights(**msgspec.structs.asdict(weights))


def conversation_of(body: AnalyzeBody) -> Conversation:
    """What to analyze.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    check_moments(occurred_at=body.occurred_at)
    return Conversation(
        text=checked_text(body.text, Limits.analyze_bytes_max),
        namespace=namespace_of(body.namespace),
        occurred_at=body.occurred_at,
        source=body.source,
        idempotency_key=body.idempotency_key,
    )


def settings_of(body: SettingsBody, now: AccountSettings) -> AccountSettings:
    """An account's settings with what a body changes of them."""
    named = {name: getattr(body, name) for name in AccountSettings.__struct_fields__}
    return msgspec.structs.replace(
        now, **{name: value for name, value in named.items() if value is not msgspec.UNSET}
    )
