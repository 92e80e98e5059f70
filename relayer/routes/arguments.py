"""Parsing of the relayer, account, ids and cursors in requests, before a service sees them.

Not here: bodies (`http/bodies.py`, and beside their routes), shapes of answers (`shapes.py`).
"""

import re
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import unquote

from litestar import Request
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from relayer import cursors
from relayer.errors import BadRequest, NotFound
from relayer.http import bodies
from relayer.http.checks import path_to_verify
from relayer.memories.memory import LAST_SEQ
from relayer.sealed.keys import Identity, Namespace, parse_account
from relayer.sealed.primitives import CryptoError, from_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access

PageLimit = Annotated[int, QueryParameter(ge=1, le=Limits.page_limit_max)]


@dataclass(frozen=True)
class _QueryParameter:
    """One that a route takes: whether it is a list, and the one form of its values, if it has."""

    several: bool
    form: re.Pattern[str] | None


async def check_query(request: Request[Any, Any, Any]) -> None:
    """Return when the route knows every query parameter, once if it is no list, strictly formed.

    Two readers of one signed path could see two requests; a misspelt filter would filter nothing.

    Raises:
        BadRequest: one is unknown, stands there twice, or is no plain number or truth value; or
            what is written with percent signs is not UTF-8.
    """
    if not request.scope["query_string"]:
        return
    try:
        unquote(request.scope["query_string"].decode(), errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("The query is not UTF-8.") from None
    known = _query_parameters(request.route_handler)
    given = list(request.query_params.multi_items())
    times = Counter(name for name, _ in given)
    for name, value in given:
        if (parameter := known.get(name)) is None:
            raise BadRequest("A query parameter is unknown.")
        if times[name] > 1 and not parameter.several:
            raise BadRequest(f"{name} stands there twice.")
        if parameter.form is not None and not parameter.form.fullmatch(str(value)):
            raise BadRequest(f"{name} is malformed.")


@cache
def _query_parameters(handler: BaseRouteHandler) -> dict[str, _QueryParameter]:
    """Return a route's query parameters by name; the framework would read 1e1 as a number."""
    found = {}
    for name, parameter in handler.parsed_fn_signature.parameters.items():
        if isinstance(definition := parameter.kwarg_definition, QueryParameter):
            form = _FORMS.get(parameter.annotation)
            several = parameter.is_non_string_sequence
            found[definition.name or name] = _QueryParameter(several, form)
    return found


_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TRUTH: Final = re.compile(r"true|false")
_FORMS: Final[Mapping[Any, re.Pattern[str]]] = {
    int: _NUMBER,
    int | None: _NUMBER,
    bool: _TRUTH,
    bool | None: _TRUTH,
}


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
