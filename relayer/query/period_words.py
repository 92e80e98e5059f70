"""The words of a question that may name a time, as a row of tokens of one-letter kinds.

It does not own what a row of tokens means (`periods`).

- A token is a whole run between blanks without its punctuation: nothing is found inside an
  identifier, a version, a path or an amount.
- CJK texts have no blanks: there a token is one of the words and numbers listed below.
"""

import re
from datetime import date
from typing import Final, NamedTuple

from relayer.normalization import normalize
from relayer.settings import Limits

DAY, WEEKEND, WEEK, MONTH, QUARTER, YEAR = 1, 2, 7, 30, 91, 365


class Token(NamedTuple):
    """A word by its kind: a letter of `_WORDS`, or one of these.

    - d 1–31, n other numbers, o 8th, y 2023, D a whole date, Q Q3
    - J 5月, Y 2023年, w 周一 or 月曜日: month, year and weekday in CJK texts
    - x other words, c those that look counted (items, euros), comma and full stop as themselves
    """

    kind: str
    value: int = 0


_COUNTED, _OTHER = Token("c"), Token("x")
# Kind, value, words. Accents do not count; a word of kind "-" is passed over.
_WORDS: Final = """
M 1  january januar jänner jan janvier enero
M 2  february februar feb février febrero
M 3  märz mars mar marzo
m 3  march
M 4  april apr avril abril
M 5  mai mayo
m 5  may
M 6  june juni jun juin junio
M 7  july juli jul juillet julio
M 8  august aug août agosto
M 9  september sept sep septembre septiembre
M 10 october oktober oct okt octobre octubre
M 11 november nov novembre noviembre
M 12 december dezember dec dez décembre diciembre
W 0  monday montag lundi lunes
W 1  tuesday dienstag mardi martes
W 2  wednesday mittwoch mercredi miércoles
W 3  thursday donnerstag jeudi jueves
W 4  friday freitag vendredi viernes
W 5  saturday samstag sonnabend samedi sábado
W 6  sunday sonntag dimanche domingo
S 3  spring frühling frühjahr printemps primavera 春 春天 春季
S 6  summer sommer été verano 夏 夏天 夏季
S 9  autumn fall herbst automne otoño 秋 秋天 秋季
S 12 winter hiver invierno 冬 冬天 冬季
R -2 vorgestern avant-hier anteayer 前天 一昨日 おととい
R -1 yesterday gestern hier ayer anoche 昨天 昨日 昨晚 昨夜 きのう
R 0  today tonight heute aujourd'hui hoy 今天 今日 今晚 今夜 きょう
R 1  tomorrow morgen demain mañana 明天 明日 明晚 あした
R 2  übermorgen après-demain 后天 後天 明後日 あさって
N 0  night evening afternoon morning abend nacht morgens vormittag nachmittag soir nuit matin noche
U 1  day days tag tage tagen jour jours día días 天 日 日間
U 2  weekend wochenende week-end 周末 週末
U 7  week weeks woche wochen semaine semaines semana semanas 周 週 周間 週間 星期 礼拜 禮拜
U 30 month months monat monate monaten monats mois mes meses 月 か月 ヶ月 ケ月 カ月 ヵ月
U 91 quarter quartal quartals trimestre 季度 四半期
U 365 year years jahr jahre jahren jahres ans année années l'an año años 年
L -2 vorletzte vorletzten vorletzter vorletztes vorletztem 上上 先先 先々 一昨
L -1 last past previous letzte letzten letzter letztes letztem vorige vorigen voriger voriges
L -1 vergangene vergangenen vergangener vergangenes 上 先 去 昨
T 0  this diese diesen dieser dieses diesem ce cet cette este esta 这 這 本 今
L 1  next nächste nächsten nächster nächstes nächstem kommende kommenden kommender kommendes
L 1  下 来 來 明
l -1 dernier dernière derniers dernières passé passée pasado pasada último última últimos últimas
l 1  prochain prochaine próximo próxima
O 1  first erste ersten erstes premier première primer primera
O 2  second zweite zweiten zweites deuxième segundo segunda
O 3  third dritte dritten drittes troisième tercer tercera
O 4  fourth vierte vierten viertes quatrième cuarto cuarta
n 1  one ein eine einem einen einer un une uno una
n 2  two zwei deux dos
n 3  three drei trois tres
n 4  four vier quatre cuatro
n 5  five fünf cinq cinco
n 6  six sechs seis
n 7  seven sieben siete
n 8  eight acht huit ocho
n 9  nine neun neuf nueve
n 10 ten zehn dix diez
n 12 twelve zwölf douze doce
1 1  a à
A 0  ago 前 之前 以前
t 0  まで
H 0  hace
V 0  vor
< 0  before avant antes
> 0  after nach après después
s 0  since seit ab depuis desde
z 0  以来 以來 以降 以后 以後 之后 之後 起 から
u 0  until till bis hasta jusqu'en jusqu'à jusqu'au
b 0  between from zwischen von vom entre
~ 0  to through - – 到 至 〜 ~
& 0  and or und oder et ou y o
i 0  in im during während en throughout durant pendant durante im
e 0  early mid anfang mitte ende début fin principios finales
f 0  of de von's du del des for für pour para
a 0  on over at am le el
k 0  kw
g 0  ich du er sie wir ihr
- 0  the der dem den das die la les un's l las los zum zur の 的 个 個 间
"""


_NUMERALS: Final = "〇零一二三四五六七八九十两兩"
_DIGITS: Final = {**{c: str(n) for n, c in enumerate("〇一二三四五六七八九")}, "零": "0"}
_NUMBER: Final = re.compile(
    rf"(?<![周週期拜曜{_NUMERALS}])[{_NUMERALS}]{{1,4}}(?=[年月日号號天周週个個星礼禮かヶケカヵ季四])"
)
# Phrases that read as one word; "?" names nothing. Accents are gone, see `_plain`.
_PHRASES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), by)
    for pattern, by in (
        (r"\bil y a\b", "hace"),
        (r"\bfin de semana\b", "weekend"),
        (r"\bpasado manana\b", "ubermorgen"),
        (r"\besta manana\b", "hoy"),
        (r"\b(?:am|jeden|guten|schonen) morgen\b|\blas? mananas?\b|目前", " ? "),
        (r"\b(heute|gestern|ubermorgen) morgen\b", r"\1"),
        (r"\bque viene\b", "proximo"),
        (r"\b(antes|despues) del?\b", r"\1"),
        (r"第([1-4])(?:季度|四半期)", r" q\1 "),
        (r"(?<![年以之])前年", "一昨年"),
    )
)
# What each of them begins with: a text without any of it, as most are, is looked at once for all.
_BEGINNINGS: Final = (
    "il fin pasado esta am jeden guten schonen la las heute gestern ubermorgen que antes despues"
).split()
_ANY_PHRASE: Final = re.compile(rf"\b(?:{'|'.join(_BEGINNINGS)}) |[目第前]", re.IGNORECASE)
_ANY_BEGINNING: Final = tuple(f"{word} " for word in _BEGINNINGS)
_WIDE_MARKS: Final = str.maketrans(
    {**dict.fromkeys("，（）：", "、"), **dict.fromkeys("？！；", "。")}
)
_MARKS: Final = {"、": ",", "。": "."}
_OPENING, _CLOSING = "([{<\"'“‘„«¿¡", ")]}>\"'”’“»,.;:!?…"

# With a capital letter: the morning, a planet, a name.
_LOWER_CASE_ONLY: Final = frozenset({"morgen", "mars", "mayo"})
_FRENCH_ONLY: Final = frozenset({"hier"})  # German: here
_FRENCH: Final = re.compile(
    r"\b(?:les?|la|une|est|que|qui|quoi|ou|avec|dans|je|ils?|elles?|nous|vous|ont|soir|matin)\b"
)
_AFFIX: Final = re.compile(r"^(?:[ld]'|mid-)|(?:'s|-ci)$")
_UNITS_COUNTED: Final = frozenset(
    """euro eur usd dollar people men women children feet percent km kg mb gb kb ms leute personen
    worter wortern zeichen zeilen seiten meter metern schritte schritten stuck uhr mal""".split()
)
_NOT_PLURAL: Final = frozenset("does this thus dans nous vous alors etwas alles always".split())


def _plain(text: str) -> str:
    """Return the text without accents, in compatibility form and with single blanks."""
    if text.isascii():
        return " ".join(text.split())
    apart = normalize("NFKD", text.translate(_WIDE_MARKS).replace("’", "'"))
    bare = re.sub("[\u0300-\u036f]", "", apart)
    return " ".join(normalize("NFC", bare).split())


def _lexicon() -> dict[str, Token]:
    rows = (row.split() for row in _WORDS.strip().splitlines())
    return {
        _plain(word).casefold(): Token(kind, int(value))
        for kind, value, *words in rows
        for word in words
    }


_LEXICON: Final = _lexicon()
_CJK: Final = "\u3001-\u3007\u301c\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def _lexeme() -> re.Pattern[str]:
    """Return the pattern of a number or word in CJK text, or of a run of other characters."""
    words = sorted((w for w in _LEXICON if re.match(f"[{_CJK}]", w)), key=len, reverse=True)
    unit = "(?=[个個]?(?:[周週月年]|星期|礼拜|禮拜|季度|四半期))"
    # Characters that are part of many other words count only before some, or not before some.
    limits = {w: unit for w in words if _LEXICON[w].kind in "LT"}
    limits |= {"前": "(?![端台面提天])", "起": "(?![床来來])"}
    listed = "|".join(re.escape(w) + limits.get(w, "") for w in words)
    return re.compile(
        r"(?P<Y>\d{4})年|(?P<J>\d{1,2})月份?"
        r"|(?:(?<=月)|(?!\d{1,2}.[前間间后後]))(?P<d>\d{1,2})[日号號]"
        r"|(?:(?<![一每毎\d])(?:[周週]|星期|礼拜|禮拜)(?=[一二三四五六日天])|(?<!毎週)(?=.曜))"
        r"(?P<w>[一二三四五六日天月火水木金土])(?!次)(?:曜日?)?"
        rf"|(?P<word>{listed}|[{_CJK}])|(?P<run>[^\s{_CJK}]+)"
    )


_LEXEME: Final = _lexeme()
_WEEKDAYS: Final = {**{c: n for n, c in enumerate("一二三四五六日")}, "天": 6} | {
    c: n for n, c in enumerate("月火水木金土")
}


def tokens(text: str) -> list[Token]:
    """Return the words of a text in order, without those that are passed over."""
    plain = _plain(text)[: Limits.query_bytes_max]  # one character can stand for eighteen
    if not plain.isascii():
        plain = _NUMBER.sub(_digits, plain).replace("–", " – ")
    folded = plain.casefold()
    if _may_have_phrase(plain, folded) and _ANY_PHRASE.search(plain):
        for pattern, by in _PHRASES:
            plain = pattern.sub(by, plain)
        folded = plain.casefold()
    is_french = any(word in folded for word in _FRENCH_ONLY) and _FRENCH.search(folded)
    unknown = frozenset() if is_french else _FRENCH_ONLY
    found: list[Token] = []
    for kind, read in _lexemes(plain):
        if kind == "run":
            starts = not found or found[-1].kind == "."
            found += _run(read, starts, unknown)
        elif kind == "word":
            found.append(_LEXICON.get(read) or Token(_MARKS.get(read, "x")))
        else:
            found.append(Token(kind, _WEEKDAYS[read] if kind == "w" else int(read)))
    return [token for token in found if token.kind != "-"]


def _may_have_phrase(plain: str, folded: str) -> bool:
    """Return false if no phrase can be in a text, which is told sooner than by its pattern."""
    return not plain.isascii() or any(word in folded for word in _ANY_BEGINNING)


def _lexemes(plain: str) -> list[tuple[str, str]]:
    """Return (kind, what was read) of every lexeme: without CJK characters there are runs alone."""
    if plain.isascii():
        return [("run", run) for run in plain.split()]
    return [(str(m.lastgroup), m[str(m.lastgroup)]) for m in _LEXEME.finditer(plain)]


def _digits(match: re.Match[str]) -> str:
    """Return digits for Chinese numerals: one by one (二〇二三) or as tens and ones (二十一)."""
    text = re.sub("[两兩]", "二", match.group())
    if "十" not in text:
        return "".join(_DIGITS[c] for c in text)
    tens, _, ones = text.partition("十")
    return (_DIGITS.get(tens, "1")) + (_DIGITS.get(ones, "0"))


def _run(run: str, starts: bool, unknown: frozenset[str]) -> list[Token]:
    """Return the token of a run between blanks, and the mark that ends it."""
    if run.isalpha():  # as most are: nothing to take off, and no number
        return [_word(run, starts, unknown)]
    before = run.rstrip(_CLOSING)
    core = before.lstrip(_OPENING)
    found = [_number(core) or _word(core, starts, unknown)] if core else []
    for mark in run[len(before) :]:
        if mark in ",.;:!?…":
            return [*found, Token("," if mark == "," else ".")]
    return found


# Year first, German order, and with a slash either order of day and month.
_DATES: Final = (
    re.compile(r"(?P<y>\d{4})([-/])(?P<m>\d{1,2})\2(?P<d>\d{1,2})(?:T[\d:.Z+-]*)?", re.ASCII),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})", re.ASCII),
    re.compile(r"(?P<d>\d{1,2})/(?P<m>\d{1,2})/(?P<y>\d{4})", re.ASCII),
    re.compile(r"(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<y>\d{4})", re.ASCII),
)
_ORDINAL: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|e|o)", re.ASCII | re.IGNORECASE)
_QUARTER: Final = re.compile(r"[Qq]([1-4])")
_YEAR: Final = re.compile(r"((?:19|20)\d\d)(?:/\d\d)?", re.ASCII)  # winter 2022/23


def _number(core: str) -> Token | None:
    if core.isalpha():
        return None  # most words: nothing to try
    if days := {day for pattern in _DATES if (day := _day(pattern.fullmatch(core)))}:
        # A date with a slash that has two meanings names none.
        return Token("D", days.pop().toordinal()) if len(days) == 1 else Token("x")
    if match := _YEAR.fullmatch(core):
        return Token("y", int(match[1]))
    if match := _QUARTER.fullmatch(core):
        return Token("Q", int(match[1]))
    if match := _ORDINAL.fullmatch(core):
        return Token("o", int(match[1]))
    if core.isascii() and core.isdigit() and len(core) <= 3:
        return Token("d" if 1 <= int(core) <= 31 else "n", int(core))
    return None


def _day(match: re.Match[str] | None) -> date | None:
    if match is None or not 1900 <= int(match["y"]) <= 2100:
        return None
    try:
        return date(int(match["y"]), int(match["m"]), int(match["d"]))
    except ValueError:
        return None


def _word(core: str, starts: bool, unknown: frozenset[str]) -> Token:
    word = core.casefold()
    token = _LEXICON.get(word)
    if token is None and not word.isalpha():
        word = _AFFIX.sub("", word)
        token = _LEXICON.get(word)
    if token is None:
        plural = len(word) > 3 and word[-1] == "s" and core.islower() and word not in _NOT_PLURAL
        return _COUNTED if plural or word in _UNITS_COUNTED else _OTHER
    if word in unknown or (word in _LOWER_CASE_ONLY and not core.islower()):
        return Token("x")
    if token.kind == "m" and core[0].isupper() and not starts:  # may and march are verbs, too
        return Token("M", token.value)
    return token
