"""Whether a sentence is in a language that the rules have no words of, and how wide a text is.

It does not own the words that say what a sentence is about (`cues.py`).

- A language needs evidence: its letters, or two of its function words. A sentence that is merely
  short of English ones is small talk more often than anything else.
"""

import re
import unicodedata
from typing import Final

from relayer.words.languages import language_of

_OWN: Final = frozenset({"english", "german"})
# Of languages that the keyword index has no function words of; each in no English sentence.
_OTHER_COMMON: Final = frozenset(
    """
    og jeg ikke av til deg och jag inte är på som mig det minun olen että kanssa ovat eivät
    jest nie się mam jestem moja mój ve bir için benim değil saya yang dan tidak dengan untuk
    """.split()
)
# A third of the words of English and German are such ones; of other languages, a few by chance.
_COMMON_WORDS: Final = frozenset(
    """
    a about all am an and any as at be been but by can could do don for from get go got had has have
    he her here his how i if in into is it its just m my no not now of on or our out s so some t
    than that the their them then there these they this those to too up ve very was we well were
    what when where which who why will with would you your
    aber als am auch auf aus bei bin bis das dass dem den der des die durch ein eine einem einen
    einer es für hat habe haben ich ihr im in ist ja kein keine man mein mich mir mit nach nicht
    noch nur oder schon sein sich sie sind so über um und uns unser vom von vor war was wenn wer wie
    wir wird wo zu zum zur
""".split()
)
_COMMON_SHARE: Final = 0.2
_FOREIGN_WORDS_MIN: Final = 5
_OTHER_LETTERS: Final = re.compile("[À-ÃÅ-ÕØ-ÛÝÞà-ãå-õø-ûýþÿĀ-ɏ]")  # than ä ö ü ß


def is_foreign(sentence: str) -> bool:
    """Tell whether `sentence` is in a script or a language that the table has no words of."""
    if has_other_script(sentence):
        return True
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", sentence)]
    if len(words) < _FOREIGN_WORDS_MIN:
        return False
    common = sum(word in _COMMON_WORDS for word in words) / len(words)
    if _OTHER_LETTERS.search(sentence):
        return common < 2 * _COMMON_SHARE
    named = language_of(words) not in _OWN or len(_OTHER_COMMON.intersection(words)) > 1
    return named and common < 2 * _COMMON_SHARE


def has_other_script(sentence: str) -> bool:
    """Tell whether `sentence` is mostly in a script that the table has no words of."""
    letters = [letter for letter in sentence if letter.isalpha()]
    return sum(ord(letter) > 0x24F for letter in letters) * 2 > len(letters)


def width(text: str) -> int:
    """Return the length of `text`, with ideographs and syllables counted twice."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)
