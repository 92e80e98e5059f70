"""The words of others as a model may read them: escaped, and quoted so that the end is certain.

It does not own which memories are shown or what stands around them (`framing.py`), nor what is
hidden in a text (`line_breaks.py`).

- A quoted text is one line between two backticks, and there is no backtick in it. Renderers of
  Markdown show it as code: no image is fetched, no address becomes a link.
- Signs that tags, links and control tokens of models begin and end with are written as HTML's
  references, and so are signs that a normal form of Unicode turns into one of them. Nothing is
  lost: `html.unescape` returns the text.
- In a quoted text, a colon is written so where it can end the label of a speaker (`Human: `).
"""

import html
import re
import unicodedata
from typing import Final

from memrelay.gateway.line_breaks import one_line

_SPECIAL: Final = "&<>\"'`[]:"
_REFERENCES: Final = {ord(char): html.escape(char) for char in "&<>\"'"} | {
    ord(char): f"&#{ord(char)};" for char in "`[]"
}
_LIKE_BACKTICKS: Final = frozenset("\u02cb\u02f4\u2035")
# Not in times, addresses and names of code: 10:30, https://, std::vector.
_LABEL_END: Final = re.compile(r":(?![\w/\\:.])")
_PLAIN_NAME: Final = re.compile(r"\w[\w-]*(?::\w[\w-]*)*")
_NAME_CHARS_MAX: Final = 64


def escape(text: str) -> str:
    """Return a text without signs that begin or end a tag, a link, a token or a quoted text.

    Addresses stay readable; `html.unescape` returns the text.
    """
    references = dict(_REFERENCES)
    if not text.isascii():
        references |= {ord(char): f"&#{ord(char)};" for char in set(text) if _is_like(char)}
    return text.translate(references)


def quote(text: str) -> str:
    """Return a text as one unit: on one line, escaped, between backticks."""
    line = one_line(text)
    body = _LABEL_END.sub("&#58;", escape(line))
    if line and unicodedata.category(line[0]).startswith("M"):  # it would join the backtick
        body = f"&#{ord(line[0])};{body[1:]}"
    return f"`{body}`"


def quote_name(name: str) -> str:
    """Return a name as it is if it is one plain word, else quoted; at most its first 64 signs."""
    line = one_line(name)
    if len(line) > _NAME_CHARS_MAX:
        line = f"{line[: _NAME_CHARS_MAX - 1].rstrip()}…"
    return line if _PLAIN_NAME.fullmatch(line) else quote(line)


def _is_like(char: str) -> bool:
    """Return whether a sign beyond ASCII can become one of the special ones, or is taken for it."""
    if char.isascii():
        return False
    return char in _LIKE_BACKTICKS or any(
        form in _SPECIAL for form in unicodedata.normalize("NFKD", char)
    )
