"""What requests name: the relayer, the account, ids, cursors; parsed before a service sees them.

Not here: bodies (`bodies.py`, and beside their routes), shapes of answers (`shapes.py`).
"""

import uuid
from typing import Annotated, Any
from urllib.parse import unquote

from litestar import Request
from litestar.params import QueryParameter

from relayer import bodies
from relayer.access import Access
from relayer.checks import signed_path
from relayer.errors import BadRequest, NotFound
from relayer.memory import LAST_SEQ
from relayer.sealed.keys import Identity, Namespace, parse_account
from relayer.sealed.primitives import CryptoError, from_base64
from relayer.settings import Limits

Answer = dict[str, Any]
PageLimit = Annotated[int, QueryParameter(ge=1, le=Limits.page_limit_max)]


def check_relayer(named: str, identity: Identity) -> None:
    """Return when a change names this relayer: one signed for another is worthless here.

    Raises:
        BadRequest: it names another.
    """
    if named != identity.public_key.hex():
        raise BadRequest("This change is signed for another relayer.", code="relayer.other")


def check_account(text: str, access: Access) -> None:
    """Return when the account is one's own.

    Raises:
        NotFound: foreign, absent or malformed, all alike.
    """
    try:
        own = parse_account(text) == access.account
    except CryptoError:
        own = False
    if not own:
        raise NotFound("No such account.")


def parse_id(text: str) -> uuid.UUID:
    """A memory id.

    Raises:
        NotFound: it cannot be one.
    """
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound("No such memory.") from None


def maybe_id(text: str) -> uuid.UUID | None:
    """An id, or None where it cannot be one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def parse_sequence(cursor: str | None) -> int:
    """Below which sequence number a page begins.

    Raises:
        BadRequest: not the cursor of an earlier page.
    """
    if cursor is None:
        return LAST_SEQ
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadRequest("cursor is not one of ours.")
    return int(cursor)


def signed_object(text: str, name: str) -> bytes:
    """The bytes of a signed object in a body.

    Raises:
        BadRequest: not base64.
    """
    try:
        return from_base64(text)
    except CryptoError:
        raise BadRequest(f"{name} is not base64.") from None


def namespace_in_path(request: Request[Any, Any, Any]) -> Namespace:
    """The namespace that a path ends with, as it was signed: routing joins slashes in a name.

    Raises:
        BadRequest: not UTF-8, or refused by SPEC §3.
    """
    path = signed_path(request.scope).partition("?")[0]
    try:
        name = unquote(path.partition("/namespaces/")[2], errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("The namespace is not UTF-8.", code="namespace.invalid") from None
    return bodies.namespace_of(name)
