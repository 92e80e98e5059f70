"""Tells whether what a model wrote is borne out by what it was shown: names, numbers, dates.

It does not own finding facts (`model.py`), nor what becomes of one that is not borne out: it waits
for review.

- A number stands in the source, as figures or as a word, however it is grouped. A date stands
  there, or is one that its words count to from the day it was said.
- A name stands in the source, in whatever case of its grammar. In German, where every noun has a
  capital letter, one that an article or an adjective leads in is no name.
- An address or an identifier stands there as it is written.
- What shares no word at all with a source in its own language says something else.
- Time is linear in the source; one source is read for all facts of an answer.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Final

from relayer.extraction.dates import MONTH
from relayer.extraction.number_words import NUMBER_WORDS
from relayer.normalization import normalize
from relayer.words.languages import MONTHS, fold_accents, function_words, language_of, stems
from relayer.words.tokens import terms_of, words

# A word with what joins its parts: a hyphen, an apostrophe, the signs of addresses and paths.
_TOKEN: Final = re.compile(r"[^\W_]+(?:(?:[-'’.@/_:+#&]|(?<=\d),(?=\d)|://)[^\W_]+)*")
_STARTS: Final = re.compile(r"(?:\A|[.!?:;•–—\n])[\s\"'“”„«»‘’()\[\]*-]*\Z")
_POSSESSIVE: Final = re.compile(r"['’]s?\Z")
_ADDRESS: Final = re.compile(r"[\w.+-]{1,64}@[\w.-]{3,128}|https?://[^\s<>\"')\]]{3,256}")
_IDENTIFIER: Final = re.compile(r"[^\W_](?:[@/_.:+#]|://)[^\W_]")
_GROUPS: Final = re.compile(r"(?<=\d)[\s\u202f'’](?=\d{3}(?!\d))")  # 10 000, 10'000
# Between figures and letters that are not joined to them: 3岁, 2018年.
_BESIDE_FIGURES: Final = re.compile(r"(?<=\d)(?=[^\x00-\x7f])|(?<=[^\x00-\x7f])(?=\d)")
_TIME: Final = re.compile(
    r"(?<![\d.:])(\d{1,2})(?:[:.h](\d\d)(?!\d|\.\d))?(?:\s?([ap])\.?m\b\.?|\s?(?:uhr|h)\b|(?<=:\d\d))",
    re.IGNORECASE,
)
_SCALED: Final = re.compile(
    r"(\d{1,9})(?:[.,](\d{1,3}))?\s?(k|thousand|tausend|mil|mille|m|mio|million|millionen|millions)\b",
    re.IGNORECASE,
)
_DAY: Final = r"(\d{1,2})(?:st|nd|rd|th|\.|º|er)?"
_DATES: Final = (
    re.compile(r"(?<!\d)(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)(?:T[\d:.]+Z?)?(?!\d)"),
    re.compile(r"(?<!\d)(?P<d>\d{1,2})[./](?P<m>\d{1,2})[./](?P<y>\d{4})(?!\d)"),
    re.compile(
        r"(?:(?<!\d)(?P<y>\d{4})[年년]\s?)?(?<!\d)(?P<m>\d{1,2})[月월]\s?(?P<d>\d{1,2})[日号號일]"
    ),
    re.compile(
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?(?P<name>{MONTH})\b\.?"
        r"(?:,? (?P<y>\d{4}))?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<name>{MONTH})\b\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y>\d{{4}}))?",
        re.IGNORECASE,
    ),
)
_MONTH_NUMBERS: Final = {name[:3]: n for n, name in enumerate(MONTHS, 1)} | {
    "mär": 3, "mai": 5, "okt": 10, "dez": 12,
}  # fmt: skip
_WEEKDAYS: Final = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday"
    " montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag".split()
)
# Words that count days from the one on which something was said, and how far they may reach.
_NEXT_DAYS: Final = (
    "yesterday|today|tonight|tomorrow|gestern|heute|morgen|übermorgen|vorgestern|hier|aujourd|demain"
    "|ayer|hoy|mañana|ontem|hoje|amanhã|ieri|oggi|domani|wczoraj|dziś|dzisiaj|jutro|dün|bugün|yarın"
    "|gisteren|vandaag|kemarin|hari ini|besok|hôm qua|hôm nay|ngày mai|вчера|сегодня|завтра"
    "|послезавтра|أمس|اليوم|غدا|कल|आज|परसों"
)
_NEXT_WEEKS: Final = (
    r"next|last|this|coming|weekend|(?:mon|tues?|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?s?"
    r"|nächst\w*|letzt\w*|kommend\w*|diese[rsnm]?|(?:mon|diens|donners|frei|sams|sonn)tags?"
    r"|mittwochs?|prochaine?|derni[eè]re?|próxim[oa]|pasad[oa]|que viene|passad[oa]|prossim[oa]"
    r"|scors[oa]|przyszł\w*|zeszł\w*|następn\w*|gelecek|geçen|volgende|vorige|depan|lalu|tới|trước"
    r"|следующ\w*|прошл\w*|القادم|الماضي|अगले|पिछले"
)
_COUNTED: Final = (
    r"weeks?|ago|in (?:a|\w+) (?:days?|months?)|wochen?|vor|tagen|semaines?|il y a|dans|semanas?"
    r"|hace|há|settiman\w*|fa|tygodn\w*|temu|za|hafta|önce|sonra|недел\w*|через|назад|weken|minggu|tuần"
)
_FAR: Final = (
    r"months?|years?|monat\w*|jahr\w*|mois|ans?|année|mes|meses|años?|mês|anos?|mesi|ann[io]"
    r"|miesi[ąę]c\w*|rok\w*|lat|ay|yıl|месяц\w*|год\w*|лет|bulan|tahun|tháng|năm"
)
_REACHES: Final = tuple(
    (re.compile(rf"\b(?:{spaced})\b|{unspaced}", re.IGNORECASE), days)
    for spaced, unspaced, days in (
        (_FAR, "[月年]|개월|년|เดือน|ปี", 800),
        (_COUNTED, "[周週]|주|สัปดาห์", 45),
        (_NEXT_WEEKS, "[下上来來先]|다음|지난|หน้า", 14),
        (_NEXT_DAYS, "[昨今明后後前][天日]|어제|오늘|내일|모레|เมื่อวาน|วันนี้|พรุ่งนี้", 2),
    )
)
_COUNTING_WORDS: Final = frozenset(
    "three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty"
    " hundred thousand drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig".split()
)
# What a model calls the two that talk, and what begins a sentence without being a name.
_ROLES: Final = frozenset(
    "user users assistant assistants ai agent i nutzer nutzerin benutzer benutzerin assistent"
    " utilisateur utilisatrice usuario usuaria usuário usuária utente użytkownik użytkowniczka"
    " kullanıcı пользователь пользовательница gebruiker pengguna người 用户 用戶 使用者 ユーザー"
    " ユーザ 사용자 ผู้ใช้ المستخدم उपयोगकर्ता mr mrs ms dr herr frau ok"
    " api url id pr ci ui http https json ceo cto"
    " professor prof doctor doktor señor señora monsieur madame pan pani bay".split()
)
_STARTERS: Final = frozenset(
    "please remember currently usually never always every each all most many some both either"
    " several weekly daily monthly since although however instead later before after during once"
    " people someone everyone everybody nobody meetings work working according because".split()
)
_DERIVED: Final = re.compile(r"(?:ing|ment|tion|sion|ness|ity|ance|ence|ship|ism)s?\Z")
_VERB_AFTER_ONE: Final = re.compile(r"(?:is|was|has|does|\w{2,}[^s\W]s)\Z")
_VERB: Final = re.compile(
    r"(?:had|will|would|can|could|should|must|may|might|did|said|told|took|got|gave|made|met|bought"
    r"|sold|left|went|came|wrote|sent|ran|found|built|became|began|knew|kept|led|lost|paid|won"
    r"|\w{2,}ed)\Z"
)
# What is said of everything shows nothing.
_GENERAL: Final = frozenset(
    "like love prefer want need use work live have know think plan make take get go say tell named"
    " name call called since also time thing year day week month".split()
)
_LED_IN: Final = re.compile(
    r"(?:\w*(?:e|en|er|es|em)|das|im|am|zum|zur|vom|beim|ins|ans|ein|kein|mein|dein|sein|ihr|unser)\Z"
)
_SQUASHED_MIN: Final = 5
_ALIKE_MAX: Final = 256  # names of a source that begin alike
_INITIALS_MAX: Final = 5


class Evidence:
    """The texts that a model was shown, as facts are compared with them."""

    def __init__(self, texts: Sequence[str], occurred_at: datetime | None, years: set[str]) -> None:
        source = normalize("NFKC", "\n".join(texts))
        self._day = occurred_at.date() if occurred_at else None
        self._years = years
        self._plain = " ".join(source.casefold().split())
        self._squashed = re.sub(r"[\W_]+", "", self._plain)
        found = _terms(_GROUPS.sub("", source))
        self._language = language_of(found)
        self._terms = {stem for term in found for stem in self._stems(term)} | set(found)
        self._numbers = _numbers(source, self._terms) | years
        names = [token for token, _ in _parts(source) if token != token.lower()]
        self._names = {name.casefold() for name in names}
        self._by_beginning: dict[str, list[str]] = {}
        for name in sorted(map(fold_accents, self._names)):
            alike = self._by_beginning.setdefault(name[:3], [])
            if len(alike) < _ALIKE_MAX:
                alike.append(name)
        self._forms: dict[str, bool] = {}  # what was found out of names before
        # So many days may lie between a date and the day on which it was said.
        self._reach = next((days for reach, days in _REACHES if reach.search(source)), 0)

    def supports(self, text: str) -> bool:
        """Return whether the names, numbers, dates and addresses of `text` stand in the source."""
        text = normalize("NFKC", text)
        for address in _ADDRESS.finditer(text):
            if address.group().casefold().rstrip("./,;") not in self._plain:
                return False
        text, are_dates = self._without_dates(_ADDRESS.sub(" ", text))
        text, are_times = self._without_times(text)
        if not are_dates or not are_times:
            return False
        text = _BESIDE_FIGURES.sub(" ", _GROUPS.sub("", text))
        return self._has_figures(text) and self._has_names(text) and self._is_about(text)

    def _stems(self, term: str) -> tuple[str, ...]:
        return stems(term, self._language)

    def _without_dates(self, text: str) -> tuple[str, bool]:
        """Return `text` without its dates, and whether all of them are borne out."""
        for pattern in _DATES:
            for match in pattern.finditer(text):
                if not self._has_date(match.groupdict()):
                    return text, False
            text = pattern.sub(" ", text)
        return text, True

    def _has_date(self, parts: dict[str, str | None]) -> bool:
        name = parts.get("name")
        month = _MONTH_NUMBERS.get(name[:3].casefold(), 0) if name else int(parts["m"] or 0)
        day, year = int(parts["d"] or 0), parts["y"]
        if year is not None and year not in self._numbers:
            return False
        in_months = 1 <= month <= 12 and stems(MONTHS[month - 1], "english")[0] in self._terms
        in_figures = str(month) in self._numbers
        if str(day) in self._numbers and (in_months or in_figures):
            return True
        return self._is_counted(int(year) if year else None, month, day)

    def _is_counted(self, year: int | None, month: int, day: int) -> bool:
        """Return whether words of the source may count to that day."""
        if self._day is None:
            return False
        years = [year] if year else [self._day.year + n for n in (-1, 0, 1)]
        try:
            days = [date(one, month, day) for one in years]
        except ValueError:
            return False
        return any(abs((one - self._day).days) <= self._reach for one in days)

    def _without_times(self, text: str) -> tuple[str, bool]:
        for match in _TIME.finditer(text):
            hour, minute = int(match[1]), int(match[2] or 0)
            hours = {hour % 24, (hour + 12) % 24, (hour - 12) % 24, hour}
            if not any(str(one) in self._numbers or f"{one:02}" in self._numbers for one in hours):
                return text, False
            if minute and not {str(minute), f"{minute:02}"} & self._numbers:
                return text, False
        return _TIME.sub(" ", text), True

    def _has_figures(self, text: str) -> bool:
        for token in _TOKEN.findall(text):
            if token.casefold() in _COUNTING_WORDS:
                readings = {str(NUMBER_WORDS[token.casefold()]), token.casefold()}
            elif any(char.isdigit() for char in token):
                readings = _readings(token)
            elif _IDENTIFIER.search(token) and not _is_abbreviated(token):
                readings = set()
            else:
                continue
            if not readings & (self._numbers | self._terms) and not self._has_whole(token):
                return False
        return True

    def _has_whole(self, token: str) -> bool:
        """Return whether an identifier stands in the source, whatever joins its parts there."""
        squashed = re.sub(r"[\W_]+", "", token.casefold())
        if not squashed.isdecimal() and (terms := _terms(token)):
            inner = [term for term in terms if term != squashed]
            known = self._terms | self._numbers | function_words(self._language)
            if known.issuperset(inner or terms):
                return True
        if len(squashed) < 3:
            return False
        pattern = rf"(?<!\d){re.escape(squashed)}(?!\d)"
        return re.search(pattern, self._squashed) is not None

    def _has_names(self, text: str) -> bool:
        is_german = "german" in (self._language, language_of(_terms(text)))
        text = _TOKEN.sub(self._without_joined, text)
        parts = list(_parts(text))
        for n, (token, at) in enumerate(parts):
            if token == token.lower() or any(char.isdigit() for char in token):
                continue
            if self._has_name(token, parts, n):
                continue
            follower = parts[n + 1][0] if n + 1 < len(parts) else ""
            if _STARTS.search(text, max(0, at - 8), at):
                if _may_be_common(token, follower):
                    continue
            elif is_german and n and _LED_IN.match(parts[n - 1][0].casefold()):
                continue
            return False
        return True

    def _without_joined(self, token: re.Match[str]) -> str:
        """Return a token, or blanks for one like Wi-Fi that the source has, joined or not."""
        squashed = re.sub(r"[\W_]+", "", token.group()).casefold()
        is_joined = len(squashed) < len(token.group())
        is_known = is_joined and len(squashed) >= 4 and squashed in self._squashed
        return " " * len(token.group()) if is_known else token.group()

    def _has_name(self, token: str, parts: Sequence[tuple[str, int]], n: int) -> bool:
        word = _POSSESSIVE.sub("", token).casefold()
        if word in _ROLES or word in self._terms or self._terms.intersection(self._stems(word)):
            return True
        if word in _WEEKDAYS and (word[:3] in self._plain or self._is_said_by_day()):
            return True
        month = _MONTH_NUMBERS.get(word[:3])
        if (
            month
            and re.fullmatch(MONTH, word)
            and (stems(MONTHS[month - 1], "english")[0] in self._terms or self._is_said_by_day())
        ):
            return True
        if len(word) >= _SQUASHED_MIN and word in self._squashed:
            return True
        if token not in self._forms:
            self._forms[token] = self._is_form(word) or self._are_initials(token)
        return self._forms[token] or self._is_short_form(parts, n)

    def _is_said_by_day(self) -> bool:
        return self._day is not None and self._reach > 0

    def _is_form(self, word: str) -> bool:
        """Return whether `word` is a name of the source in another grammatical case."""
        word = fold_accents(word)
        for name in self._by_beginning.get(word[:3], ()):
            same = next(
                (n for n, (a, b) in enumerate(zip(word, name, strict=False)) if a != b),
                min(len(word), len(name)),
            )
            rests = sorted((len(word) - same, len(name) - same))
            if rests[0] == 0 and rests[1] <= 3:
                return True
            if (
                same >= 3
                and rests[1] <= (2 if same == 3 else 3)
                and rests[0] <= 2
                and same > rests[1]
            ):
                return True
        return any(word[:-n] in self._terms for n in (1, 2) if len(word) - n >= 4)

    def _are_initials(self, token: str) -> bool:
        """Return whether `token` is the initials of words of the source: HR of human resources."""
        if not (token.isupper() and 2 <= len(token) <= 6):
            return False
        initials = r"\W+".join(rf"{re.escape(char)}\w+" for char in token.casefold())
        return re.search(rf"\b{initials}", self._plain) is not None

    def _is_short_form(self, parts: Sequence[tuple[str, int]], n: int) -> bool:
        """Return whether the source has the initials of the words around: NYC of New York City."""
        first = last = n
        while first and n - first < _INITIALS_MAX and parts[first - 1][0][:1].isupper():
            first -= 1
        while (
            last + 1 < len(parts) and last - n < _INITIALS_MAX and parts[last + 1][0][:1].isupper()
        ):
            last += 1
        initials = "".join(part[:1] for part, _ in parts[first : last + 1]).casefold()
        at = n - first
        return any(
            initials[begin:end] in self._names
            for begin in range(at + 1)
            for end in range(max(begin + 2, at + 1), len(initials) + 1)
        )

    def _is_about(self, text: str) -> bool:
        """Return whether some word of `text` stands in the source, if they can be compared."""
        found = _terms(text)
        language = language_of(found)
        left_out = function_words(language) | _ROLES
        own = [term for term in found if term not in left_out and not _is_general(term)]
        telling = [term for term in own if len(term) >= (4 if term.isascii() else 2)]
        is_translated = language != self._language or not _same_script(telling, self._terms)
        if not telling or is_translated:
            return True
        return any(
            term in self._terms
            or self._terms.intersection(self._stems(term))
            or (len(term) >= 4 and term[:4] in self._squashed)
            for term in own
        )


def count_shared_terms(text: str, others: Sequence[str]) -> int:
    """Return how many of the telling words of `text` stand in the other texts."""
    theirs = set(words(" ".join(others)))
    return len(theirs.intersection(words(text)))


def _terms(text: str) -> list[str]:
    return [term for terms in terms_of(text) for term in terms]


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Yield each word with its place; of words that a hyphen or a slash joins, each."""
    for match in re.finditer(r"[^\W_]+(?:['’][^\W\d_]{1,2}(?![^\W_]))?", text):
        yield match.group(), match.start()


def _readings(token: str) -> set[str]:
    """Return how a number may be meant: 2.000 is two thousand, or a measure."""
    scaled = _SCALED.fullmatch(token)
    if scaled:
        return _scale(scaled)
    terms = _terms(token)
    plain = "".join(str(int(c)) if c.isdecimal() else c for c in token)
    readings = {plain, plain.replace(",", "."), *terms[:1]}
    return readings | {reading.lstrip("0") for reading in readings if reading.lstrip("0")}


def _scale(match: re.Match[str]) -> set[str]:
    times = 1_000_000 if match[3].casefold().startswith(("m", "M")) and match[3] not in (
        "mil", "mille") else 1_000  # fmt: skip
    fraction = match[2] or ""
    value = int(match[1]) * times + int(fraction or 0) * times // 10 ** len(fraction)
    return {str(value)}


def _numbers(source: str, terms: set[str]) -> set[str]:
    numbers = {term for term in terms if term[:1].isdigit()}
    numbers |= {figures.replace(",", ".") for figures in re.findall(r"\d+(?:[.,]\d+)*", source)}
    numbers |= {str(int(term)) for term in numbers if term.isdecimal() and len(term) < 20}
    numbers |= {str(NUMBER_WORDS[term]) for term in terms if term in NUMBER_WORDS}
    numbers |= {str(NUMBER_WORDS[char]) for char in set(source) if char in NUMBER_WORDS}
    for scaled in _SCALED.finditer(source):
        numbers |= _scale(scaled)
    return numbers


def _may_be_common(token: str, follower: str) -> bool:
    """Return whether a word at the beginning of a sentence may be an ordinary one.

    In English a name shows by what follows it: its 's, or the verb of one person.
    """
    word = _POSSESSIVE.sub("", token)
    if len(word) == 1:  # an article: O usuário, L'utente
        return True
    if word != token or not word[1:].islower():
        return False
    if not word.isascii() or _DERIVED.search(word):
        return True
    known = function_words(language_of([word.casefold(), follower.casefold()]))
    if word.casefold() in known or word.casefold() in _STARTERS:
        return True
    is_plural = word.endswith("s")
    return not (_VERB_AFTER_ONE.match(follower) or (_VERB.match(follower) and not is_plural))


def _is_abbreviated(token: str) -> bool:
    """Tell e.g. and U.S.A from a name of a file."""
    return all(len(part) <= 2 for part in re.split(r"[./]", token))


def _is_general(term: str) -> bool:
    return term in _GENERAL or term.rstrip("s") in _GENERAL


def _same_script(telling: Sequence[str], terms: set[str]) -> bool:
    def latin(words: Sequence[str] | set[str]) -> float:
        letters = [word for word in words if word[:1].isalpha()]
        return sum(word[0] < "\u0250" for word in letters) / max(1, len(letters))

    return abs(latin(telling) - latin(terms)) < 0.5
