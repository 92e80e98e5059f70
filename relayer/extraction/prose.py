"""The ends of sentences in running text, and what stays together although one ends in it.

It does not own lines and lists (`lists.py`, `sentences.py`).

- A quotation stays with who said it: no sentence ends within.
- Time is linear in the text.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

# Lower case, without the last full stop. No sentence ends with these: titles, and single letters,
# alone or dotted (z. B., e.g., U.S.).
_TITLE: Final = re.compile(
    "[djms]r|mrs|ms|prof|hr|fr|mme|mlle|sra|srta|dra|sig|dott|[^\\W\\d_](?:\\.[^\\W\\d_])*"
)
# One ends with these where a word follows with which sentences begin.
_ABBREVIATION: Final = re.compile(
    "st|vs|nr|etc|inc|ltd|corp|co|dept|approx|est|ca|bzw|usw|evtl|ggf|inkl|exkl"
    "|abs|str|tel|bspw|sog|vgl|zzgl|al|resp|geb|dipl|ing|mag|med|dent|rer|nat|jur|phd|(?:ph|[bm])\\.(?:d|sc)"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|okt|nov|dec|dez|mio|mrd|std|[\\w.-]{2,30}(?:str|nr)"
    # Of places and people, in English and other languages.
    "|ave?|avda|blvd|bd|rd|ln|hwy|pkwy|sq|mt|ft|apt|apto|appt|bldg|ste|ext|bros|capt|lt|sgt|gov"
    "|ul|os|pl|mgr|inż|godz|np|ул|пр|просп|пер|пл|кв|корп|стр|тел|им|руб|cad|sok|mah|jl|gg"
)
_DAY: Final = re.compile("Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun")  # "sat" is a verb
_BEFORE_NUMBER: Final = re.compile("no|fig|max|min|vol|art|pp|rm|fl|núm|mo|di|mi|do|sa|so")
_SHORT_DATE: Final = re.compile(r"\d{1,2}\.(?:0[1-9]|1[0-2])")
_BEGINS: Final = re.compile(
    r"\s+(?:[Ii]|[Mm]y|[Ww]e|Our|It|He|She|They|The|This|That|There|You|Your|His|Her|Their|But|And"
    r"|Also|Please|Ich|Meine?|Wir|Unsere?|Es|Er|Sie|Das|Der|Die|Eine?|Dort|Dann|Aber|Und|Bitte|Seit"
    r"|Je|Mon|Ma|Mes|Nous|Notre|Il|Elle|On|Yo|Mi|Mis|Nosotros|Nuestr[oa]|Eu|Meu|Minha|Io|Mio|Mia"
    r"|Noi|Ja|Mój|Moja|Mam|Jestem|Я|Мой|Моя|Мы|У|Ben|Benim|Biz|Saya|Tôi)(?=[\s'’])|\s+[JC]['’]"
)
_MONTHS: Final = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_END: Final = re.compile(r"(?<![.!?…])[.!?…]+[\"'”“’»«)\]*_]*(?=\s|\Z)|[。！？؟।॥།။។]+[」』”）]*")
_LAST_WORD: Final = re.compile(r"(\S+)\Z")
_GOES_ON: Final = re.compile(rf"\s+(?:[a-zà-öø-ÿ]|(?:{_MONTHS}|Quartal|Stock|Etage|Klasse)\b)")
# "die 3. Klasse": what has an article is an ordinal.
_ORDINAL: Final = re.compile(
    r"\b(?:d(?:er|ie|as|e[nms])|im|am|zu[mr]|vom|beim|(?:[ms]ein|unser|ihr|ein|jed)(?:e[nmrs]?)?)"
    r"\s+\d{1,2}\Z",
    re.IGNORECASE,
)
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
    said = word[1].lstrip("(\"'„“«[*_")
    last = said.casefold()
    following = paragraph[match.end() : match.end() + 2].strip()
    if _TITLE.fullmatch(last) or (_BEFORE_NUMBER.fullmatch(last) and following.isdigit()):
        return not following
    begins = not following or _BEGINS.match(paragraph, match.end()) is not None
    if _ABBREVIATION.fullmatch(last) or _DAY.fullmatch(said) or _SHORT_DATE.fullmatch(last):
        return begins
    if re.fullmatch(r"\d{1,2}(?:\.\d{1,2})?", last):  # "am 3. Mai", but also "we were 3. Then …"
        is_ordinal = _ORDINAL.search(paragraph, max(begin, match.start() - 40), match.start())
        return begins or not (is_ordinal or _GOES_ON.match(paragraph, match.end()))
    return True
