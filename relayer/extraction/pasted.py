"""A text that somebody put into a message, to have it worked on or because somebody else wrote it.

It does not own marked quotes, code and mails with a header (`material.py`), nor what each language
says in front of such a text (`english.py`, `talk.txt`).

- Such a text reaches to the end of the message, unless marks or the name of who signed end it. A
  fact less is better than one of somebody else.
- Items of a list stay, with who wrote them before them.
- Time is linear in the text.
"""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from relayer.extraction.english import introduces_text
from relayer.extraction.language import width
from relayer.extraction.lists import is_item
from relayer.extraction.prose import end_of_quotation, says, split, with_whole_quotations
from relayer.extraction.talk import names_letter, orders_editing

_COLON: Final = re.compile(r"[ \u00a0]?(?::[*_]{0,3}(?=\s|\Z)|：)\s*")
_COLONS_MAX: Final = 3  # of a line
_HEAD_CHARS_MAX: Final = 160
_INLINE_WIDTH_MIN: Final = 10  # less is an address or a name
_LETTER: Final = (
    r"(?:(?:e-?mail|mail|message|letter|text|dm|postcard|reply|voicemail|transcript|post|tweet"
    r"|comment|review|quote)s?|note|sms|forwarded)"
)
# "here's a mail from Tom", "Tom's mail" …
_FROM: Final = re.compile(
    rf"(?:\S+ ){{0,8}}?(?:{_LETTER})(?: \w+)? (?:from|by) (?P<name>\S+)(?: \S+){{0,5}}\Z"
    rf"|(?:\S+ ){{0,5}}(?!today|yesterday)\w+['’]s? (?:\w+ )?{_LETTER}\Z",
    re.IGNORECASE,
)
# … and "my boss sent me this".
_SENT: Final = re.compile(
    r"(?<!\w)(?:wrote|writes|sent|texted|e?mailed|messaged|forwarded|schrieb|geschrieben|geschickt"
    r"|écrit|envoyé|escribió|envió|mandó|escreveu|enviou|mandou|scritto|mandato|napisał[ao]?"
    r"|написала?|прислала?)(?: (?:me|us|to|back|this|that|the|following|mir|uns|das|nous|ceci|cela"
    rf"|esto|isto|questo|to|это|мне|{_LETTER}|today|yesterday|just now|in|an?))*\Z",
    re.IGNORECASE,
)
_SELF: Final = re.compile(
    r"(?:i|i['’]\w+|we|ich|wir|je|j['’]\w+|nous|yo|eu|io|ja|я)\b", re.IGNORECASE
)
_OWN: Final = re.compile(
    r"(?:my|our|meine?[mnrs]?|unsere?[mnrs]?|mon|ma|notre|mi|nuestr[oa]|meu|minha"
    r"|(?:il |la )?mi[oa]|mój|moj[ae]|benim|мо[йяё])\b|我的|私の|내 |제 ",
    re.IGNORECASE,
)
_BEGINS_LETTER: Final = re.compile(
    r"(?:hi|hey|hello|dear|i|we|my|our|hallo|liebe[rs]?|ich|wir)\b", re.IGNORECASE
)


class _Introduction(NamedTuple):
    """Where in a line the words stand that introduce a text, and what ends that.

    Attributes:
        end: where marks end it in the same line, if they do.
        name: of who signs it, if it is known.
    """

    begin: int
    end: int | None = None
    name: str = ""


def without_pasted(text: str) -> str:
    """Return `text` without what was put into it, nor the words that introduce that."""
    lines = with_whole_quotations(text).split("\n")
    kept, number = list[str](), 0
    while number < len(lines):
        line = lines[number]
        found = _introduction(line, _next(lines, number))
        kept.append(line if found is None else line[: found.begin])
        if found is None:
            number += 1
        elif found.end is not None:
            lines[number] = line[found.end :]
        else:
            kept += ["", ""]  # what comes then is under no heading
            number = _after_signature(lines, number + 1, found.name)
    return "\n".join(kept)


def _next(lines: Sequence[str], number: int) -> str:
    """Return the line to which a line leads: the next one, or the one below an empty line."""
    return next((line.strip() for line in lines[number + 1 : number + 3] if line.strip()), "")


def _after_signature(lines: Sequence[str], number: int, name: str) -> int:
    signed = re.compile(rf"\W*{re.escape(name)}(?: \w+)?\W*") if name else None
    for end in range(number, len(lines) if signed else 0):
        if signed and signed.fullmatch(lines[end]):
            return end + 1
    return len(lines)


def _introduction(line: str, below: str) -> _Introduction | None:
    if is_item(line):
        return None
    for colon in islice(_COLON.finditer(line), _COLONS_MAX):
        head, rest = _last_sentence(line[: colon.start()]), line[colon.end() :]
        if not head or not (rest or below):
            continue
        is_letter = _is_letter(head, rest) and (rest or not is_item(below))
        if is_letter or introduces_text(head, with_colon=True) or orders_editing(_unnamed(head)):
            signed = _FROM.match(head) if is_letter else None
            return _Introduction(
                line.rfind(head, 0, colon.start()),
                end_of_quotation(line, colon.end()),
                ((signed and signed["name"]) or "").strip(".,"),
            )
    order = _last_sentence(line)
    if below and introduces_text(order, with_colon=False):
        return _Introduction(line.rfind(order))
    return None


def _unnamed(head: str) -> str:
    """Return `head` without the name of who says it."""
    return head.rpartition(": ")[2]


def _last_sentence(text: str) -> str:
    said = split(text[-_HEAD_CHARS_MAX:])
    return said[-1] if said else ""


def _is_letter(head: str, rest: str) -> bool:
    """Tell whether `head` says that somebody else wrote what follows, `rest` in the same line."""
    is_ones_own = _SELF.match(head) is not None
    if _SENT.search(head):
        return not (is_ones_own or (rest and (says(head) or not _BEGINS_LETTER.match(rest))))
    if _OWN.match(head) or not (_FROM.match(head) or names_letter(head)):
        return False
    if not rest:
        return True
    is_text = width(rest) >= _INLINE_WIDTH_MIN and (" " in rest or not rest.isascii())
    return _BEGINS_LETTER.match(rest) is not None or (is_text and not is_ones_own)
