"""Strictness and limits that request bodies share, and the parsing of their members.

Not here: the bodies, which stand beside their routes. Bodies of our own routes refuse unknown
members; MemWal's tolerate them.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from relayer.clock import is_lasting
from relayer.errors import BadRequest, TooLarge
from relayer.query.rank import Weights
from relayer.sealed.keys import Identity, Namespace, parse_namespace
from relayer.sealed.primitives import CryptoError
from relayer.settings import Limits

Moment = Annotated[datetime, Meta(tz=True)]
Tag = Annotated[str, Meta(min_length=1, max_length=Limits.tag_characters_max)]
Speaker = Annotated[str, Meta(min_length=1, max_length=Limits.speaker_characters_max)]
Source = Annotated[str, Meta(min_length=1, max_length=Limits.source_characters_max)]
IdempotencyKey = Annotated[
    str, Meta(min_length=1, max_length=Limits.idempotency_key_characters_max)
]
Label = Annotated[
    str, Meta(max_length=Limits.label_characters_max, pattern=r"^[^\x00-\x1f\x7f]*(?!\n)$")
]
RecallLimit = Annotated[int, Meta(ge=1, le=Limits.recall_limit_max)]
Weight = Annotated[float, Meta(ge=0, le=100)]
# `$` alone would also match before a line break at the end.
HexKey = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}(?!\n)$")]
# More is refused where it is read; more than a memory may have, by `checked_metadata`: of several
# things to remember, one at a time.
Metadata = Annotated[dict[str, str], Meta(max_length=16 * Limits.metadata_entries_max)]
DEFAULT_NAMESPACE = "default"
MEMWAL_PREFIX: Final = "/api/"  # of the paths of MemWal's routes
_PLACE: Final = re.compile(r" - at `\$\.?([^`]+)`$")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_Form = TypeVar("_Form")


class Body(msgspec.Struct, kw_only=True):
    """A body of any route; whatever prints one shows nothing of what was sent."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Strict(Body, forbid_unknown_fields=True, kw_only=True):
    """A body of our own routes."""


class Change(Strict):
    """A body that changes something, so it names the relayer it is for."""

    relayer: HexKey


def check_relayer(named: str, identity: Identity) -> None:
    """Return when a change names this relayer: one signed for another is worthless here.

    Raises:
        BadRequest: it names another.
    """
    if named != identity.public_key.hex():
        raise BadRequest("This change is signed for another relayer.", code="relayer.other")


class ScoringWeights(Strict):
    """Weights of meaning, age and importance in a score."""

    semantic: Weight = 1.0
    recency: Weight = 0.0
    recency_half_life_days: Annotated[float, Meta(gt=0, le=36_500)] = 30.0
    importance: Weight = 0.0


def decode(body: bytes, form: type[_Form]) -> _Form:
    """Return the body as its form: no conversion between JSON's types, no NaN, no lone surrogate.

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
    """Return msgspec's complaint in words that come from our forms alone."""
    place = _PLACE.search(found)
    where = f"in {place[1]}" if place else "in the body"
    if missing := _MISSING.search(found):
        return f"{missing[1]} is missing {where}"
    if "unknown field" in found:
        return f"a member is unknown {where}"
    return f"a value is out of range or of the wrong type {where}"


def namespace_of(name: str) -> Namespace:
    """Return the normalised namespace.

    Raises:
        BadRequest: refused by SPEC §3.
    """
    try:
        return parse_namespace(name)
    except CryptoError as error:
        raise BadRequest(f"{error}.", code="namespace.invalid") from None


def namespaces_of(one: str | None, several: Sequence[str] | None) -> list[Namespace]:
    """Return the namespaces that a query names: one, several, or the default one.

    Raises:
        BadRequest: both, too many, one twice, or one is refused by SPEC §3.
    """
    if several is None:
        return [namespace_of(DEFAULT_NAMESPACE if one is None else one)]
    if one is not None:
        raise BadRequest("namespace and namespaces exclude each other.")
    names = [namespace_of(name) for name in several]
    if len(names) > Limits.recall_namespaces_max or len(set(names)) < len(names):
        raise BadRequest("namespaces has too many names, or one twice.")
    return names


def check_text(text: str, bytes_max: int, name: str = "text") -> str:
    """Return the text, within its limit.

    Raises:
        BadRequest: blank.
        TooLarge: over the limit.
    """
    if len(text.encode()) > bytes_max:
        raise TooLarge(f"{name} may have at most {bytes_max} bytes.")
    if not text.strip():
        raise BadRequest(f"{name} is empty.")
    return text


def check_memwal_text(text: str, bytes_max: int, name: str = "text") -> str:
    """Return the text, within its limit: MemWal's clients look for its own relayer's answer.

    Raises:
        BadRequest: blank, or over the limit.
    """
    try:
        return check_text(text, bytes_max, name)
    except TooLarge:
        raise BadRequest(f"{name} exceeds maximum length of {bytes_max} bytes.") from None


def check_moments(**moments: datetime | None) -> None:
    """Return when every moment survives a change of time zone.

    Raises:
        BadRequest: one is in the first or the last year there is.
    """
    for name, moment in moments.items():
        if moment is not None and not is_lasting(moment):
            raise BadRequest(f"{name} is out of range.")


def check_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Return the metadata, within its limits.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    if len(metadata) > Limits.metadata_entries_max or any("\0" in k for k in metadata):
        raise BadRequest("metadata has too many entries, or a NUL in a name.")
    if len(msgspec.json.encode(metadata)) > Limits.metadata_bytes_max:
        raise TooLarge(f"metadata may have at most {Limits.metadata_bytes_max} bytes.")
    return metadata


def tags_of(tags: Sequence[str] | None) -> list[str]:
    """Return the distinct tags that a query names.

    Raises:
        BadRequest: too many, too long or empty.
    """
    found = list(dict.fromkeys(tags or ()))
    if len(found) > Limits.tags_max or any(
        not 0 < len(tag) <= Limits.tag_characters_max for tag in found
    ):
        raise BadRequest("There are too many tags, or one is empty or too long.")
    return found


def moment_of(text: str | None, name: str) -> datetime | None:
    """Return a moment that a query names in RFC 3339 with an offset.

    Raises:
        BadRequest: it is none.
    """
    if text is None:
        return None
    try:
        moment = msgspec.convert(text, type=Moment)
    except msgspec.ValidationError:
        raise BadRequest(f"{name} is no time in RFC 3339 with an offset.") from None
    check_moments(**{name: moment})
    return moment


def weights_of(weights: ScoringWeights | None) -> Weights:
    """Return the weights, or the defaults."""
    return Weights() if weights is None else Weights(**msgspec.structs.asdict(weights))
