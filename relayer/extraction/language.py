"""The language of a sentence, and the width of a text.

It does not own the words that say what a sentence is about (`cues.py`), nor what is talk in a
language (`talk.py`).

- A language needs evidence: its script, its letters or its function words. A sentence that is
  merely short of English ones is small talk more often than anything else.
- Names in Latin letters make no sentence English: that takes a function word of English.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

from relayer.extraction.english_words import CLOSED, EVENT, HEALTH, Tense, verb_of
from relayer.extraction.talk import COMMON, LANGUAGES
from relayer.words.languages import ENGLISH, FUNCTION_WORDS

OTHER: Final = "other"  # a language that nothing is known of
_ENGLISH: Final = frozenset({ENGLISH})
CUED: Final = frozenset({ENGLISH, "german"})  # that `cues.py` has words of
_LATIN: Final = {
    name: FUNCTION_WORDS.get(name, frozenset()) | COMMON.get(name, frozenset())
    for name in {**FUNCTION_WORDS, **COMMON}
}
_UNTOLD: Final = frozenset(_LATIN) - LANGUAGES  # "door" is a word of Dutch, too
_WEAKLY_TOLD: Final = frozenset(_LATIN) - _UNTOLD
_LANGUAGES_OF: Final = {
    word: tuple(name for name, words in _LATIN.items() if word in words)
    for word in frozenset[str]().union(*_LATIN.values())
}
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SCRIPTS: Final = (  # kana first: Japanese has Chinese characters as well
    (re.compile("[\u3041-\u30ff]"), "japanese"),
    (re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"), "chinese"),
    (re.compile("[\u1100-\u11ff\uac00-\ud7af]"), "korean"),
    (re.compile("[\u0e00-\u0e7f]"), "thai"),
    (re.compile("[іїєґўѓќћђљњџјѕ]", re.IGNORECASE), OTHER),
    (re.compile("[\u0400-\u04ff]"), "russian"),
    (re.compile("[پچژگکی]"), OTHER),
    (re.compile("[\u0600-\u06ff]"), "arabic"),
    (re.compile("[\u0900-\u097f]"), "hindi"),
)
# Letters and endings, each with the languages in Latin letters that have them.
_LETTERS: Final = tuple(
    (re.compile(letters), languages.split())
    for letters, languages in (
        ("[łąęśźżćń]", "polish"),
        ("[ğışĞŞİ]|[ıiuü]yor(?:um|uz|lar)?\\b", "turkish"),
        ("[ơưđạ-ỹ]", "vietnamese"),
        ("[ñ¿¡]", "spanish"),
        ("[ãõ]", "portuguese vietnamese"),
        ("ß", "german"),
        ("[êîôûœ]|\\b[cdjlmnst]['’][aeiouéèêh]", "french"),
        ("[ìòù]|[bcdglmnprstvz]iamo\\b", "italian"),
        ("ç", "french portuguese turkish"),
        ("[öü]", "german turkish"),
        ("[èà]", "french italian"),
        ("[áíóú]|[aei]mos\\b", "spanish portuguese"),
        ("é", "french spanish portuguese"),
    )
)
_KNOWN_IN_ENGLISH: Final = CLOSED - HEALTH  # people are vegan in many languages
_ENGLISH_LETTERS_MIN: Final = 3
_AROUND: Final = ".,;:!?()[]\"'*"
_CONTRACTION: Final = re.compile("['’](?:s|m|d|t|re|ve|ll)\\Z")
_NOT_LATIN: Final = 0x24F
_LATIN_ADDITIONS: Final = range(0x1E00, 0x1F00)  # of Vietnamese, mostly
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff]")


def languages_of(sentence: str) -> frozenset[str]:
    """Return the languages that `sentence` may be in: English where nothing tells of another.

    Near relatives share words, so that a short sentence may be in several; where a single word or
    letter tells of any, in all but English.
    """
    words = _WORD.findall(sentence.casefold())
    hits = Counter(name for word in words for name in _LANGUAGES_OF.get(word, ()))
    english = hits.pop(ENGLISH, 0)
    if has_other_script(sentence) or (not english and _is_other_script_seen(sentence)):
        found = next((name for script, name in _SCRIPTS if script.search(sentence)), OTHER)
        return frozenset({found})
    lower = sentence.lower()
    for letters, languages in () if sentence.isascii() and english else _LETTERS:
        if letters.search(lower):
            hits.update(languages)
    if words and (_are_in_english(words) or _is_command(words)):
        return _ENGLISH
    best = max(hits.values(), default=0)
    if best == 1 and not english:
        is_english = hits.keys() <= _UNTOLD or any(map(_is_english, words))
        return _ENGLISH if is_english else _WEAKLY_TOLD
    return frozenset(name for name, count in hits.items() if count == best > english) or _ENGLISH


def _is_in_english(word: str) -> bool:
    """Tell whether English has a word, whichever other language has it, too."""
    is_known = word in CLOSED or verb_of(word).tense is not None
    return is_known or ENGLISH in _LANGUAGES_OF.get(word, ())


def _are_in_english(words: Sequence[str]) -> bool:
    """Tell whether English has all words: those of "go on" are Polish, too."""
    return all(map(_is_in_english, words))


def _is_command(words: Sequence[str]) -> bool:
    """Tell whether a verb of English begins, and no word tells of another language alone.

    "go" is Polish as well, but nothing else in "go faster" is; "Die" begins German sentences.
    """
    begins = words[0] not in EVENT and verb_of(words[0]).tense is Tense.BASE
    return begins and all(_is_in_english(word) for word in words if word in _LANGUAGES_OF)


def _is_english(word: str) -> bool:
    """Tell whether a word that is no function word of any language is one of English."""
    if len(word) < _ENGLISH_LETTERS_MIN or word in _LANGUAGES_OF:
        return False
    is_inflected = verb_of(word).tense not in {None, Tense.BASE}
    return is_inflected or word in _KNOWN_IN_ENGLISH or _CONTRACTION.search(word) is not None


def is_foreign(sentence: str) -> bool:
    """Tell whether `sentence` is in a language that the table of cues has no words of."""
    return not languages_of(sentence) & CUED


def has_other_script(sentence: str) -> bool:
    """Tell whether `sentence` is mostly in a script that the table has no words of."""
    letters = [letter for letter in sentence if letter.isalpha()]
    return sum(map(_is_of_other_script, letters)) * 2 > len(letters)


def _is_other_script_seen(sentence: str) -> bool:
    return sum(map(_is_of_other_script, sentence)) > 1


def _is_of_other_script(letter: str) -> bool:
    code = ord(letter)
    return code > _NOT_LATIN and code not in _LATIN_ADDITIONS and letter.isalpha()


def has_words(sentence: str, *, words_min: int) -> bool:
    """Tell whether `sentence` has so many words, or in a script without blanks is as wide."""
    if _UNSPACED.search(sentence):
        letters = "".join(char for char in sentence if char.isalnum() or ord(char) > _NOT_LATIN)
        return width(letters) >= 2 * words_min + 1
    words = sentence.split()
    long = [word for word in words if len(word.strip(_AROUND)) > 1 or not word.isascii()]
    return sum(any(map(str.isalnum, word)) for word in long) + ("I" in words) >= words_min


def width(text: str) -> int:
    """Return the length of `text`, with ideographs and syllables counted twice."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)
