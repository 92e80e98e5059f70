"""Our own routes that tell others what happens: webhooks, and a stream of events.

Not here: what is told (`events.py` of the package above), delivery (`delivery.py`).
"""

import asyncio
import re
import uuid
from typing import Annotated, Any, Final, NotRequired, TypedDict

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import Meta

from relayer.clock import rfc3339
from relayer.errors import BadRequest, NotFound
from relayer.events.delivery import Delivery
from relayer.events.egress import Undelivered
from relayer.events.event import PLACE_DIGITS, TYPES, Position
from relayer.events.streams import Streams
from relayer.events.webhooks import Wanted, Webhook, Webhooks
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.http.middleware import DEADLINE
from relayer.routes import shapes
from relayer.sealed.keys import Identity
from relayer.settings import Limits
from relayer.tenants.accounts import Access

LAST_EVENT: Final = "last-event-id"
PLACE: Final = rf"^[0-9]{{1,18}}(-[0-9a-f]{{{PLACE_DIGITS}}})?$"
SPARE_S: Final = 30.0  # after its life, a stream that does not end is cut


class WebhookBody(bodies.Change):
    """PUT /v1/webhooks/{id}."""

    url: Annotated[str, Meta(max_length=Limits.webhook_url_characters_max)]
    events: Annotated[list[str], Meta(min_length=1, max_length=len(TYPES))]
    namespaces: (
        Annotated[list[str], Meta(min_length=1, max_length=Limits.webhook_namespaces_max)] | None
    ) = None
    active: bool = True
    new_secret: bool = False


class TrialBody(bodies.Change):
    """POST /v1/webhooks/{id}/test."""


class WebhookAnswer(TypedDict):
    """One webhook, and how telling it goes; `secret` only where it was made."""

    id: shapes.Id
    host: str
    events: list[str]
    namespaces: list[str] | None
    active: bool
    created_at: shapes.Time
    delivered_seq: int
    delivered_at: shapes.Time | None
    attempts: int
    failing_since: shapes.Time | None
    problem: str | None
    secret: NotRequired[str]


class WebhooksAnswer(TypedDict):
    """The account's webhooks, oldest first."""

    webhooks: list[WebhookAnswer]


class WebhookRemovedAnswer(TypedDict):
    """The id of a webhook, and true if there was one to remove."""

    id: shapes.Id
    removed: bool


class TrialAnswer(TypedDict):
    """The outcome of a webhook's test; `status` is what its server answered."""

    id: shapes.Id
    delivered: bool
    problem: str | None
    status: NotRequired[int]


def _webhook_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound("No such webhook.") from None


def _parse_wanted(body: WebhookBody) -> Wanted:
    if unknown := set(body.events) - TYPES:
        del unknown  # it is not ours to quote
        raise BadRequest(f"events may name {', '.join(sorted(TYPES))}.", code="webhook.events")
    named = body.namespaces
    return Wanted(
        url=body.url,
        events=body.events,
        namespaces=None if named is None else [bodies.namespace_of(n) for n in named],
        active=body.active,
        new_secret=body.new_secret,
    )


def _shape(webhook: Webhook) -> WebhookAnswer:
    row = webhook.row
    shape: WebhookAnswer = {
        "id": str(webhook.id),
        "host": webhook.host,
        "events": row["events"],
        "namespaces": row["namespaces"],
        "active": row["active"],
        "created_at": rfc3339(row["created_at"]),
        "delivered_seq": row["delivered_seq"],
        "delivered_at": rfc3339(row["delivered_at"]),
        "attempts": row["attempts"],
        "failing_since": rfc3339(row["failing_since"]),
        "problem": row["problem"],
    }
    if webhook.secret is not None:
        shape["secret"] = webhook.secret
    return shape


@put("/webhooks/{webhook_id:str}", opt={WEIGHT: 3})
async def put_webhook(
    webhook_id: FromPath[str],
    data: JSONBody[WebhookBody],
    access: NamedDependency[Access],
    webhooks: NamedDependency[Webhooks],
    identity: NamedDependency[Identity],
) -> WebhookAnswer:
    """Make a webhook under an id of the caller's choice, or change it."""
    bodies.check_relayer(data.relayer, identity)
    return _shape(await webhooks.put(access, _webhook_id(webhook_id), _parse_wanted(data)))


@get("/webhooks")
async def list_webhooks(
    access: NamedDependency[Access], webhooks: NamedDependency[Webhooks]
) -> WebhooksAnswer:
    """Return the account's webhooks, and how telling them goes."""
    return {"webhooks": [_shape(webhook) for webhook in await webhooks.all(access)]}


@delete("/webhooks/{webhook_id:str}", status_code=200, opt={WEIGHT: 3})
async def remove_webhook(
    webhook_id: FromPath[str],
    relayer: FromQuery[str],
    access: NamedDependency[Access],
    webhooks: NamedDependency[Webhooks],
    identity: NamedDependency[Identity],
) -> WebhookRemovedAnswer:
    """Remove a webhook; one that is not there is removed already."""
    bodies.check_relayer(relayer, identity)
    named = _webhook_id(webhook_id)
    return {"id": str(named), "removed": await webhooks.remove(access, named)}


@post("/webhooks/{webhook_id:str}/test", status_code=200, opt={WEIGHT: 10})
async def try_webhook(
    webhook_id: FromPath[str],
    data: JSONBody[TrialBody],
    access: NamedDependency[Access],
    webhooks: NamedDependency[Webhooks],
    delivery: NamedDependency[Delivery],
    identity: NamedDependency[Identity],
) -> TrialAnswer:
    """Tell a webhook that this is a test, now."""
    bodies.check_relayer(data.relayer, identity)
    named = _webhook_id(webhook_id)
    address = await webhooks.address(access, named)
    try:
        status = await delivery.try_out(access.account, named, address)
    except Undelivered as failure:
        return {"id": str(named), "delivered": False, "problem": failure.problem}
    return {"id": str(named), "delivered": True, "problem": None, "status": status}


class StreamedEvent(TypedDict):
    """One event of the stream; `data` is what a webhook would be sent."""

    event: str
    id: NotRequired[str]
    data: Annotated[str, Meta(extra_json_schema={"contentMediaType": "application/json"})]


_STREAM: Final = ResponseSpec(
    StreamedEvent,
    generate_examples=False,
    description="a stream of such events",
    media_type="text/event-stream",
)


@get("/events", opt={WEIGHT: 3}, responses={200: _STREAM})
async def follow_events(
    request: Request[Any, Any, Any],
    access: NamedDependency[Access],
    streams: NamedDependency[Streams],
    after: Annotated[str | None, QueryParameter(pattern=PLACE)] = None,
    follow: FromQuery[bool] = True,
) -> Stream:
    """Stream events as they happen."""
    told = await streams.open(access, _place(request, after), follow=follow)
    deadline: asyncio.Timeout | None = request.scope["state"].get(DEADLINE)
    if deadline is not None:  # a stream has its own end
        ends = asyncio.get_running_loop().time() + Limits.stream_life_s + SPARE_S
        deadline.reschedule(ends)
    return Stream(told, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _place(request: Request[Any, Any, Any], after: str | None) -> Position | None:
    """After which receipt to go on; what the reader saw last counts more than how it began."""
    text = request.headers.get(LAST_EVENT, after)
    if text is None:
        return None
    if not re.fullmatch(PLACE, text):
        raise BadRequest("after and Last-Event-ID are places of a stream.")
    seq, _, name = text.partition("-")
    return Position(int(seq), name or None)


HANDLERS: Final = (put_webhook, list_webhooks, remove_webhook, try_webhook, follow_events)
