"""Parsing of the account, ids and cursors in requests, before a service sees them.

Not here: bodies and the relayer they name (`http/bodies.py`), queries (`http/requests.py`), shapes
of answers (`shapes.py`).
"""

import re
import uuid
from typing import Annotated, Any, Final
from urllib.parse import unquote

from litestar import Request
from litestar.params import QueryParameter

from relayer import cursors
from relayer.errors import BadRequest, NotFound
from relayer.http import bodies
from relayer.http.checks import path_to_verify
from relayer.memories.memory import LAST_SEQ
from relayer.sealed.keys import Namespace, parse_account
from relayer.sealed.primitives import CryptoError, from_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access

PageLimit = Annotated[int, QueryParameter(ge=1, le=Limits.page_limit_max)]


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
    """Return a memory id.

    Raises:
        NotFound: it cannot be one.
    """
    if (found := maybe_id(text)) is None:
        raise NotFound("No such memory.")
    return found


def maybe_id(text: str) -> uuid.UUID | None:
    """Return an id, or None where it cannot be one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def is_beginning(text: str) -> bool:
    """Return true if a text may begin ids, and is none: 8 to 31 digits, with hyphens or without."""
    return len(text) < _ID_CHARS and _BEGINNING.fullmatch(plain_digits(text)) is not None


def plain_digits(text: str) -> str:
    """Return the digits of an id, or of its beginning."""
    return text.replace("-", "").lower()


_ID_CHARS: Final = 36
_BEGINNING: Final = re.compile(r"[0-9a-f]{8,31}")


def parse_sequence(cursor: str | None) -> int:
    """Return the sequence number below which a page begins.

    Raises:
        BadRequest: not the cursor of an earlier page.
    """
    if cursor is None:
        return LAST_SEQ
    if not cursor:
        raise cursors.not_ours()
    return cursors.number(cursor)


def decode_signed_object(text: str, name: str) -> bytes:
    """Return the bytes of a signed object in a body.

    Raises:
        BadRequest: not base64.
    """
    try:
        return from_base64(text)
    except CryptoError:
        raise BadRequest(f"{name} is not base64.") from None


def namespace_in_path(request: Request[Any, Any, Any]) -> Namespace:
    """Return the namespace that a path ends with, as signed: routing joins slashes in a name.

    Raises:
        BadRequest: not UTF-8, or refused by SPEC §3.
    """
    path = path_to_verify(request.scope).partition("?")[0]
    try:
        name = unquote(path.partition("/namespaces/")[2], errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("The namespace is not UTF-8.", code="namespace.invalid") from None
    return bodies.namespace_of(name)
