"""A text as it is shown: one line, with nothing in it that a reader does not see.

It does not own what is shown (`framing.py`), nor what commands the model (`filters.py`): both have
to see the same text.
"""

import re

# Letters that are written with joiners, from Arabic to Mongolian; and pictures, with skin tones.
_LETTER = r"\u0600-\u109F\u1780-\u18AF\uFB50-\uFDFF\uFE70-\uFEFC"
_PICTURE = (
    r"\xA9\xAE\u203C\u2049\u2122\u2139\u2190-\u2BFF\u3030\u303D\u3297\u3299\U0001F000-\U0001FAFF"
)
# The characters that are ignorable by default, and other controls of formats and fillers that show
# nothing: hidden text is written with them.
_INVISIBLE = (
    r"\xAD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B\u200E\u200F\u202A-\u202E"
    r"\u2060-\u206F\uD800-\uDFFF\uFE00-\uFE0D\uFEFF\uFFF0-\uFFFB\U00013430-\U0001343F"
    r"\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF"
)
# A joiner stays between what it joins, and a selector right after a picture or in a keycap, one
# each. The pattern looks back at what it has read, so that most of a text is passed over quickly.
_HIDDEN = re.compile(
    rf"[{_INVISIBLE}\u200C\u200D\uFE0E\uFE0F](?:(?<=[{_INVISIBLE}])"
    rf"|(?<=[\uFE0E\uFE0F])(?<![{_PICTURE}].)(?<![0-9#*].(?=\u20E3))"
    rf"|(?<=[\u200C\u200D])(?:(?<![{_LETTER}{_PICTURE}].)(?<![{_PICTURE}]\uFE0F.)"
    rf"|(?![{_LETTER}{_PICTURE}])))"
)
_BLANK = re.compile(r"[\u2800\u3164\uFFA0]")  # shows nothing and is as wide as a letter
_CONTROL = re.compile(r"[\x00-\x1F\x7F-\x9F]")


def one_line(text: str) -> str:
    """Return a text on one line, without control characters and without hidden ones."""
    return " ".join(_CONTROL.sub(" ", _BLANK.sub(" ", _HIDDEN.sub("", text))).split())
