"""The one day that a note names by words: yesterday, next Friday, vor zwei Wochen, 昨天.

It does not own days in figures (`times.py`), or which notes are looked at (`drafts.py`).

- Nothing is invented. A text that names several days names none; a week, a month or a year is no
  day; and what means two things counts only where it means one: "in two weeks" may say how long
  something took, "Morgen" is the morning, "hier" is here unless the text is French.
- "Next" and "last" before a weekday mean the nearest one, as in a recall; with a word for the week
  they mean the one of that week.
- Work is linear in the text, and a text of some length names no one day.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

from memrelay.sealed.forms import normalize

_CHARS_MAX: Final = 4000
_WEEK, _MONTH, _YEAR = 7, 30, 365

# A kind, a value, words. D days from today, W a weekday, U a unit of days, N a number. A stands
# behind what is past, V before it, F before what is to come; L stands before a weekday or a week,
# l behind it, B on either side; T means the week itself.
_TABLE: Final = """
D -2 vorgestern avant-hier anteayer anteontem позавчера przedwczoraj eergisteren
D -1 yesterday gestern hier ayer anoche ontem ieri вчера wczoraj dün gisteren kemarin أمس
D 0  today tonight heute aujourd'hui hoy hoje oggi сегодня dzisiaj dziś bugün vandaag اليوم
D 1  tomorrow morgen demain mañana amanhã domani завтра jutro yarın besok غدا
D 2  übermorgen après-demain dopodomani послезавтра pojutrze overmorgen lusa
W 0  monday montag lundi lunes lunedì segunda segunda-feira понедельник poniedziałek pazartesi
W 1  tuesday dienstag mardi martes martedì terça terça-feira вторник wtorek salı dinsdag
W 2  wednesday mittwoch mercredi miércoles mercoledì quarta quarta-feira среду środę çarşamba
W 3  thursday donnerstag jeudi jueves giovedì quinta quinta-feira четверг czwartek perşembe
W 4  friday freitag vendredi viernes venerdì sexta sexta-feira пятницу piątek cuma vrijdag
W 5  saturday samstag sonnabend samedi sábado sabato субботу sobotę cumartesi zaterdag
W 6  sunday sonntag dimanche domingo domenica воскресенье niedzielę pazar zondag
W 0  maandag
W 2  woensdag
W 3  donderdag
U 1  day days tag tage tagen jour jours día días dia dias giorno giorni день дня дней dni gün
U 1  dag dagen hari
U 7  week weeks woche wochen semaine semaines semana semanas settimana settimane неделю недели
U 7  недель tydzień tygodnie tygodni hafta weken minggu
U 30 month months monat monate monaten mois mes meses mês mese mesi месяц месяца месяцев
U 30 miesiąc miesiące miesięcy ay maand maanden bulan
U 365 year years jahr jahre jahren ans année années año años ano anos anno anni год года лет
U 365 rok lata lat yıl jaar tahun
N 1  a an one ein eine einem einer un une una uno um uma один одну jeden bir een satu
N 2  two zwei deux dos due dois duas два две dwa dwie iki twee dua
N 3  three drei trois tres tre três три trzy üç drie tiga
N 4  four vier quatre cuatro quattro quatro четыре cztery dört empat
N 5  five fünf cinq cinco cinque пять pięć beş vijf lima
N 6  six sechs seis sei шесть sześć altı zes enam
N 7  seven sieben sept siete sette sete семь siedem yedi zeven tujuh
N 8  eight acht huit ocho otto oito восемь osiem sekiz delapan
N 9  nine neun neuf nueve nove девять dziewięć dokuz negen sembilan
N 10 ten zehn dix diez dieci dez десять dziesięć tien sepuluh
N 12 twelve zwölf douze doce dodici doze двенадцать dwanaście twaalf
A -1 ago fa atrás назад temu önce geleden lalu
V -1 vor hace há
F 1  dans fra tra через za
L 1  next coming nächsten nächster nächste nächstem kommenden kommender следующий следующую
L 1  następny przyszły gelecek önümüzdeki volgende komende
L -1 last letzten letzter letzte letztem vorigen vergangenen vergangener прошлый прошлую
L -1 zeszły ubiegły geçen vorige afgelopen
l 1  prochain prochaine
l -1 dernier dernière passado passada
T 0  this diesen dieses
B 1  próximo próxima prossimo prossima
B -1 pasado scorso scorsa último última
"""
_PHRASES: Final = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\bday before yesterday\b|\bantes de ayer\b|\bl'altro ieri\b", "vorgestern"),
        (r"\bday after tomorrow\b|\bpasado mañana\b|\bdepois de amanhã\b", "übermorgen"),
        (r"\blast night\b|\bhôm qua\b|เมื่อวาน(?:นี้)?", " yesterday "),
        (r"\bthis (?:morning|afternoon|evening)\b|\bhari ini\b|\bhôm nay\b|วันนี้", " today "),
        (r"\bngày mai\b|พรุ่งนี้", " tomorrow "),
        (r"\b(?:las?|esta) mañanas?\b|\b(?:guten|jeden|am) morgen\b", " ? "),
        (r"\b(heute|gestern) morgen\b", r"\1"),
        (r"\bil y a\b", "hace"),
        (r"\b(?:dentro de|daqui a)\b", "dans"),
        (r"\b(?:que viene|que vem)\b", "prochain"),
        (r"\b(?:un an|l'an)\b", "une année"),
        (r"\ba couple(?: of)?\b", "two"),
    )
)
_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[.!?;:\n]")
_MORNING: Final = re.compile(r"\bMorgen\b")
_HERE: Final = re.compile(r"\bhier\b")
_FRENCH: Final = re.compile(
    r"\b(?:les?|la|une|est|que|qui|avec|dans|je|ils?|elles?|nous|vous|ont|soir|matin)\b|\b[cdjl]'"
)
_FORMS: Final = re.compile(r"D|NUA|VNU|FNU|[LBT]UW|W[LB]U|[LBT]W|W[lB]")

_KANA: Final = re.compile("[\u3041-\u30ff]")
_NUMERALS: Final = {sign: n for n, sign in enumerate("一二三四五六七八九十", 1)} | {
    "两": 2,
    "兩": 2,
}
_CJK_DAYS: Final = (
    (-2, "前天|一昨日|おととい|그저께|그제"),
    (-1, "昨天|昨日|昨晚|昨夜|きのう|어제"),
    (0, "今天|今日|今晚|今夜|きょう|오늘"),
    (2, "后天|後天|明後日|あさって|모레"),
    (1, "明天|明日|明晚|あした|내일"),
)
_CJK_DAY: Final = re.compile("|".join(f"({words})" for _, words in _CJK_DAYS))
_CJK_SPAN: Final = re.compile(
    r"(\d{1,3}|[一二三四五六七八九十两兩])\s?"
    r"(?:(天|日|일)|[个個]?(周|週|星期|礼拜|禮拜|週間|주일?)|([个個か]月|[ヶカヵ]月|개월|달)|(年|년))"
    r"\s?[间間]?[之以]?\s?(?:(前|전)|[后後]|후|뒤)"
)
_CJK_WEEKDAY: Final = re.compile(
    r"(?:([上先]|지난)|([这這本今]|이번)|([下来來]|다음))[个個]?\s?(?:周|週|星期|礼拜|禮拜|주)の?\s?"
    r"(?:([一二三四五六日天])|([月火水木金土])曜|([월화수목금토일])요일)"
)
_WEEKDAYS: Final = {
    sign: n
    for signs in ("一二三四五六日", "月火水木金土天", "월화수목금토일")
    for n, sign in enumerate(signs)
}


def _lexicon() -> dict[str, tuple[str, int]]:
    rows = (row.split() for row in _TABLE.strip().splitlines())
    return {word: (kind, int(value)) for kind, value, *words in rows for word in words}


_LEXICON: Final = _lexicon()


def resolve_day(text: str, today: date) -> date | None:
    """Return the one day that a text names by words, seen from the day on which it was written."""
    if len(text) > _CHARS_MAX:
        return None
    plain = normalize("NFC", text)
    try:
        days = {*_parse_spaced(plain, today), *_parse_unspaced(plain, today)}
    except OverflowError:  # beyond the calendar
        return None
    return days.pop() if len(days) == 1 else None


def _parse_spaced(text: str, today: date) -> Iterator[date]:
    """Yield the days that words between blanks name."""
    lower = _MORNING.sub("?", text).lower().replace("’", "'")
    if not _FRENCH.search(lower):
        lower = _HERE.sub("?", lower)
    for pattern, by in _PHRASES:
        lower = pattern.sub(by, lower)
    tokens = [_token(word[0]) for word in _WORD.finditer(lower)]
    for form in _FORMS.finditer("".join(kind for kind, _ in tokens)):
        day = _day_of(form[0], dict(tokens[form.start() : form.end()]), today)
        if day is not None:
            yield day


def _token(word: str) -> tuple[str, int]:
    if word.isdecimal() and len(word) <= 3:
        return "N", int(word)
    return _LEXICON.get(word, ("x", 0))


def _day_of(form: str, values: dict[str, int], today: date) -> date | None:
    """Return the day that a form of words means, by the value of each of its kinds."""
    if form == "D":
        return today + timedelta(days=values["D"])
    if "N" in form:
        side = next(values[kind] for kind in "AVF" if kind in values)
        return _shift(today, values["U"], side * values["N"])
    side = next(values[kind] for kind in "LlBT" if kind in values)
    if "U" in form and values["U"] != _WEEK:
        return None
    if "U" in form or "T" in form:
        return _in_week(today, side, values["W"])
    return today + timedelta(days=side * ((side * (values["W"] - today.weekday()) - 1) % 7 + 1))


def _parse_unspaced(text: str, today: date) -> Iterator[date]:
    """Yield the days that Chinese, Japanese and Korean words name."""
    if text.isascii():
        return
    for found in _CJK_DAY.finditer(text):
        yield today + timedelta(days=_CJK_DAYS[(found.lastindex or 1) - 1][0])
    for found in _CJK_SPAN.finditer(text):
        number, day, week, month, _, past = found.groups()
        count = _NUMERALS.get(number) or int(number)
        unit = 1 if day else _WEEK if week else _MONTH if month else _YEAR
        # In Chinese, 10日前 is before the tenth of a month.
        if day != "日" or _KANA.search(text):
            yield _shift(today, unit, -count if past else count)
    for found in _CJK_WEEKDAY.finditer(text):
        last, _, ahead, *signs = found.groups()
        weekday = next(_WEEKDAYS[sign] for sign in signs if sign)
        yield _in_week(today, -1 if last else 1 if ahead else 0, weekday)


def _in_week(today: date, weeks: int, weekday: int) -> date:
    return today + timedelta(days=7 * weeks + weekday - today.weekday())


def _shift(day: date, unit: int, count: int) -> date:
    """Return the day so many units later; one that its month lacks becomes the last of it."""
    if unit in (1, _WEEK):
        return day + timedelta(days=unit * count)
    year, month = divmod(day.year * 12 + day.month - 1 + count * (12 if unit == _YEAR else 1), 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
