"""Recognition of a query for the first or the latest of several, or for before or after an event.

Not here: the spans of time that a query names (`periods`), what order adds to a score (`rank`).

- A word counts only where it asks for an order: "the last time" and not "the last name".
- Linear in the text: each alternative is short, and no part repeats another.
"""

import re
from typing import Final, Literal, NamedTuple

from relayer.normalization import normalize

Order = Literal["first", "latest"]

_LOOKED_AT: Final = 512  # characters, of which a question has a tenth
_NOT_FIRST: Final = r"(?!\s(?:names?|aid|class|floor|lady|person|grade|language|half|of all)\b)"
_NOT_LAST: Final = r"(?!\s(?:names?|minute|resort|straw|few|word)\b)"
_FIRST: Final = re.compile(
    rf"\bfirst\b{_NOT_FIRST}|\bearliest\b"
    r"|\bzuerst\b|\b(?:das|zum|die|der|den|mein|meine) erste[nrs]?\b"
    r"|\bpremière fois\b|\b(?:le|la|mon|ma) premi(?:er|ère)\b"
    r"|\bprimera vez\b|\b(?:el|la|mi) primer[oa]?\b|\bprima volta\b|\bprimeira vez\b"
    r"|\b(?:eerste|första|første) (?:keer|gången|gang)\b|\bpierwszy raz\b|\bilk kez\b"
    r"|第一次|首次|最早|最初|初めて|はじめて"
)
_LATEST: Final = re.compile(
    rf"\blast\b{_NOT_LAST}|\b(?:latest|newest)\b|\bmost recent(?:ly)?\b"
    r"|\bzuletzt\b|\b(?:neueste|jüngste|letzte)[nrs]?\b"
    r"|\bdernière fois\b|\b(?:le|la|mon|ma) derni(?:er|ère)\b|\bplus récente?\b"
    r"|\búltima vez\b|\b(?:el|la|mi) últim[oa]\b|\bmás reciente\b|\bultima volta\b"
    r"|\b(?:laatste|sista|siste) (?:keer|gången|gang)\b|\bostatni raz\b|\ben son\b|\bson kez\b"
    r"|最近一次|最后一次|最後一次|最新|上次|最後|前回"
)
_DURATION: Final = re.compile(r"\bhow long\b|\blasts?\b.{0,3}\b(?:for|until|till)\b")

_OF_SOMEBODY: Final = (
    "the|my|our|his|her|their|we|i|he|she|they|die|der|das|dem|den|mein|meine|meinem|meiner|unser"
    "|unsere|unserem|unserer|ich|wir|er|sie|le|la|les|mon|ma|notre|nous|je|el|los|mi|nuestra|nuestro"
)
_EVENT: Final = re.compile(
    r"\b(?:(?P<before>before|until|till|bevor|vor|bis|avant|antes de(?: que)?)"
    r"|after|since|nach|nachdem|seit|après|depuis|después de(?: que)?|desde) "
    rf"(?P<event>(?:(?:{_OF_SOMEBODY})\b|[ld]['’])[^?!.,;:]{{3,100}})",
    re.IGNORECASE,
)


class Event(NamedTuple):
    """An event whose time a query counts from, as the query puts it."""

    text: str
    before: bool


def event_asked(text: str) -> Event | None:
    """Return the event that a query asks to be before or after; None where it names none."""
    if (match := _EVENT.search(normalize("NFC", text[:_LOOKED_AT]))) is None:
        return None
    return Event(match["event"].strip(), match["before"] is not None)


def order_asked(text: str) -> Order | None:
    """Return the order that a query asks for; None for neither, and for both."""
    plain = normalize("NFC", text[:_LOOKED_AT]).casefold()
    first = _FIRST.search(plain) is not None
    latest = _LATEST.search(plain) is not None and not _DURATION.search(plain)
    if first == latest:
        return None
    return "first" if first else "latest"
