"""The ends of sentences in running text, and what stays together although one ends in it.

It does not own lines and lists (`lists.py`, `sentences.py`).

- A quotation stays with who said it: no sentence ends within.
- Time is linear in the text.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

# Lower case, without the last full stop; single letters too, alone or dotted (z. B., e.g., U.S.).
_ABBREVIATION: Final = re.compile(
    "[djms]r|mrs|ms|prof|st|vs|nr|etc|inc|ltd|corp|dept|approx|est|ca|bzw|usw|evtl|ggf|inkl|exkl"
    "|abs|str|tel|bspw|sog|vgl|zzgl|al|resp|geb|hr|fr|dipl|ing|jan|feb|mar|apr|jun|jul|aug|sept?"
    "|oct|okt|nov|dec|dez|[^\\W\\d_](?:\\.[^\\W\\d_])*"
)
_BEFORE_NUMBER: Final = re.compile("no|fig|max|min|vol|art|pp")
_MONTHS: Final = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_END: Final = re.compile(r"(?<![.!?…])[.!?…]+[\"'”“’»«)\]*_]*(?=\s|\Z)|[。！？؟।॥།။។]+[」』”）]*")
_LAST_WORD: Final = re.compile(r"(\S+)\Z")
_GOES_ON: Final = re.compile(rf"\s+(?:[a-zà-öø-ÿ]|(?:{_MONTHS}|Quartal|Stock)\b)")
_QUOTATION: Final = re.compile(
    r"“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|»[^«»\n]*«|「[^「」\n]*」|『[^『』\n]*』"
    r"|(?<![\w\"])\"(?=\S)[^\"\n]*(?<=\S)\"(?!\w)"
    r"|(?<=[:,：] )'(?=\S)(?:[^'\n]|(?<=\w)'(?=\w))*(?<=\S)'(?!\w)"
)
_QUOTED: Final = re.compile(rf"(?:{_QUOTATION.pattern})[.!?…]*")
_CLOSING: Final = " \u00a0\u202f\"'”“’»«」』"
_SAID: Final = (
    "said|says|say|wrote|writes|asked|asks|told|replied|answered|added|shouted|sagte|sagt|schrieb"
    "|meinte|fragte|antwortete|dit|écrit|dijo|disse"
)
_SAYS: Final = re.compile(rf"\b(?:{_SAID})(?: (?:me|us|him|her|them|mir|uns))?\Z")
_SAID_AFTER: Final = re.compile(
    rf"[,.]?\s+(?:[a-zà-öø-ÿ]|(?:[^\W\d_][\w'’-]{{0,30}} ){{1,3}}(?:{_SAID})\b)"
)
_OVER_LINES: Final = re.compile(
    r"(?<=[:,：])[ \u00a0\n]{0,4}(?:\"(?=\S)[^\"]{1,600}(?<=\S)\"(?!\w)|“[^“”]{1,600}”"
    r"|„[^„“”]{1,600}[“”]|«[^«»]{1,600}»|「[^「」]{1,600}」)"
)
_LEADS_ON: Final = re.compile(r"[:：][*_]{0,3}\Z")


def split(paragraph: str) -> list[str]:
    """Return the sentences of a text in one line."""
    quotations = [match.span() for match in _QUOTATION.finditer(paragraph)]
    found, begin = list[str](), 0
    for match in _END.finditer(paragraph):
        end = _end_of_quotation(paragraph, match, quotations)
        if end is not None and _ends_sentence(paragraph, begin, match):
            found.append(paragraph[begin:end].strip())
            begin = end
    found.append(paragraph[begin:].strip())
    return [sentence for sentence in found if sentence]


def leads_on(sentence: str) -> bool:
    """Tell whether `sentence` ends in a colon: what it says is what comes next."""
    return _LEADS_ON.search(sentence) is not None


def says(words: str) -> bool:
    """Tell whether `words` end in what says that somebody said what comes next."""
    return _SAYS.search(words) is not None


def is_quotation(sentence: str) -> bool:
    """Tell whether `sentence` is a quotation and nothing else, not even of whom."""
    return _QUOTED.fullmatch(sentence) is not None


def begins_quotation(text: str, begin: int) -> bool:
    """Tell whether a quotation begins there."""
    return end_of_quotation(text, begin) is not None


def end_of_quotation(text: str, begin: int) -> int | None:
    """Return where a quotation that begins there is over; None if none begins."""
    quotation = _QUOTATION.match(text, begin)
    return quotation.end() if quotation else None


def with_whole_quotations(text: str) -> str:
    """Return `text` with each quotation that somebody is said to have said on one line."""
    return _OVER_LINES.sub(_on_one_line, text)


def _on_one_line(match: re.Match[str]) -> str:
    said = match.group()
    return said if "\n" not in said else " " + " ".join(said.split())


def _end_of_quotation(
    paragraph: str, match: re.Match[str], spans: Sequence[tuple[int, int]]
) -> int | None:
    """Return where a sentence that ends with `match` is over: behind the quotation that ends with
    it; None within one, and where who said it comes after it."""
    number = bisect_right(spans, (match.start(), len(paragraph))) - 1
    if number < 0 or match.start() >= spans[number][1]:
        return match.end()
    end = max(match.end(), spans[number][1])
    if paragraph[match.end() : end].strip(_CLOSING) or _SAID_AFTER.match(paragraph, end):
        return None
    return end


def _ends_sentence(paragraph: str, begin: int, match: re.Match[str]) -> bool:
    if match.group()[0] != ".":
        return True
    # Only the last characters can hold the word; without the bound this would be quadratic.
    word = _LAST_WORD.search(paragraph, max(begin, match.start() - 40), match.start())
    if word is None:
        return False
    last = word[1].lstrip("(\"'„“«[*_").casefold()
    following = paragraph[match.end() : match.end() + 2].strip()
    if _ABBREVIATION.fullmatch(last) or (_BEFORE_NUMBER.fullmatch(last) and following.isdigit()):
        return not following
    if last.isdigit() and len(last) <= 2:  # "am 3. Mai", but also "we were 3. Then …"
        return not _GOES_ON.match(paragraph, match.end())
    return True
