"""Webhooks: an owner's requests about them, and the check of what comes in at the other end.

It does not own a web server: `verify` takes the headers and the body of a request as they came.

- A body is believed only after its signature was checked, in constant time, and its time is near.
- What was told once may be told again: `Event.id` is the same then.

Source: SPEC.md §18.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from memrelay.answers import Answer, read_json_object, sometimes
from memrelay.errors import ConfigError, Invalid, ServerError
from memrelay.events import Event
from memrelay.exchange import Operation
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.reads import segment, to_json_list
from memrelay.sealed.keys import normalise_namespace
from memrelay.session import Call

TOLERANCE_S = 300
EVENTS = (
    "memory.written", "memory.edited", "memory.state_changed", "memory.consolidated",
    "memory.resealed", "memory.erased", "memory.expired", "memory.indexed", "episode.extracted",
    "key.granted", "key.revoked", "account.rebuilt",
)  # fmt: skip
_PREFIX = "whsec_"


@dataclass(frozen=True, kw_only=True)
class Webhook(Answer):
    """One webhook, and how telling it goes; `secret` only in the answer that made it."""

    id: str
    host: str
    events: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    active: bool
    created_at: datetime
    delivered_seq: int
    delivered_at: datetime | None
    attempts: int
    failing_since: datetime | None
    problem: str | None
    secret: str | None = sometimes(secret=True)


@dataclass(frozen=True, kw_only=True)
class WebhookList(Answer):
    """The webhooks of an account, oldest first."""

    webhooks: tuple[Webhook, ...]


@dataclass(frozen=True, kw_only=True)
class Trial(Answer):
    """The outcome of a test: whether it was taken, else why not."""

    id: str
    delivered: bool
    problem: str | None
    status: int | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class Removed(Answer):
    """A webhook that is not there any more; `removed` if it was until now."""

    id: str
    removed: bool


def list_webhooks(operations: Keyholders) -> Operation[tuple[Webhook, ...]]:
    """Return the account's webhooks, oldest first."""
    call = Call(method="GET", path="/v1/webhooks", repeatable=True)
    return WebhookList.from_json((yield from operations.session.call(call))).webhooks


def put_webhook(
    operations: Keyholders,
    url: str,
    *,
    webhook_id: str | None = None,
    events: Iterable[str] = EVENTS,
    namespaces: Iterable[str] | None = None,
    active: bool = True,
    new_secret: bool = False,
) -> Operation[Webhook]:
    """Make a webhook, or change the one of this id, which starts again where it stopped.

    A new one has a secret, which is shown nowhere else; `new_secret` replaces that of an old one.
    """
    names = to_json_list("namespaces", namespaces)
    body = {
        "url": url,
        "events": to_json_list("events", events),
        "namespaces": None if names is None else [normalise_namespace(name) for name in names],
        "active": active,
        # A lost answer would take the secret along: whoever repeats gets another one.
        "new_secret": new_secret or webhook_id is None,
    }
    answer = yield from operations.session.call(
        Call(
            method="PUT",
            path=f"/v1/webhooks/{segment(webhook_id or str(uuid4()))}",
            body=body,
            names_relayer=True,
            repeatable=True,
        )
    )
    return Webhook.from_json(answer)


def remove_webhook(operations: Keyholders, webhook_id: str) -> Operation[Removed]:
    """Remove a webhook."""
    path = f"/v1/webhooks/{segment(webhook_id)}"
    call = Call(method="DELETE", path=path, names_relayer=True, repeatable=True)
    return Removed.from_json((yield from operations.session.call(call)))


def try_webhook(operations: Keyholders, webhook_id: str) -> Operation[Trial]:
    """Have a webhook told that this is a test, and return whether it was taken."""
    path = f"/v1/webhooks/{segment(webhook_id)}/test"
    call = Call(method="POST", path=path, body={}, names_relayer=True, repeatable=True)
    return Trial.from_json((yield from operations.session.call(call)))


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    *,
    now_s: float | None = None,
    tolerance_s: float = TOLERANCE_S,
) -> Event:
    """Return the event that a webhook was told, if it is one of this secret and of these minutes.

    Raises:
        Invalid: it is not (`webhook.headers`, `.time`, `.signature` or `.body`).
        ConfigError: the secret is none.
    """
    found = {name.lower(): value for name, value in headers.items()}
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    if not all(found.get(name, "").isascii() and found.get(name) for name in names):
        raise Invalid("webhook.headers", "The headers of a webhook are missing.")
    name, seconds, signatures = (found[name] for name in names)
    wanted = hmac.digest(_key(secret), f"{name}.{seconds}.".encode() + body, hashlib.sha256)
    text = f"v1,{base64.b64encode(wanted).decode()}"
    if not any(hmac.compare_digest(text, one) for one in signatures.split(" ")):
        raise Invalid("webhook.signature", "The webhook is not signed with this secret.")
    now = time.time() if now_s is None else now_s
    if not seconds.isdecimal() or abs(now - int(seconds)) > tolerance_s:
        raise Invalid("webhook.time", "The webhook was signed too long ago, or too far ahead.")
    event = _event(body)
    if event.id != name:
        raise Invalid("webhook.body", "The webhook's body is of another event.")
    return event


def _event(body: bytes) -> Event:
    try:
        return Event.from_json(read_json_object(body))
    except ServerError:
        raise Invalid("webhook.body", "The webhook's body is no event.") from None


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < 24:  # an empty key would sign for anybody
        raise ConfigError("The webhook's secret is none: whsec_ and base64.")
    return key
