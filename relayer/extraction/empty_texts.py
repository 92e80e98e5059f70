"""Texts that a model writes where there was nothing to remember, or where it came to no end.

It does not own what makes a fact useless whoever found it (`facts.py`).

- Time is linear in the text.
"""

import re
from typing import Final

# What models write when there was nothing to remember.
_TALKED_TO: Final = (
    "ai|assistant|agent|bot|answer|response|reply|message|information|explanation|suggestion|help"
    "|greeting|receipt|instruction"
)
# What asks for good, gives a reason or tells something beside is more than talk.
_MORE: Final = (
    "from now on|always|never|every|each|only|whenever|because|since|due to|as (?:he|she|they|it)"
    "|mention(?:s|ed|ing)|(?:says?|said|saying|state[sd]|stating|explain(?:s|ed|ing)) that"
)
_ABOUT_THE_TALK: Final = re.compile(
    r"(?:the )?(?:ai )?assistant (?:will|would|can|could|is going to|(?:offer|promis|suggest|propos"
    r"|recommend|ask|said|greet|thank|think|thought|believ|guess|assum|not(?:e|ing)|acknowledg"
    r"|confirm|respond|repl|underst[ao]{1,2}nd)\w*)\b"
    rf"|(?:the )?user (?!.*\b(?:{_MORE})\b)"
    r"(?:(?:greet|thank|acknowledg)\w*"
    rf"(?=\W*\Z| (?:back|for|(?:the |an? |its |this |that )?(?:{_TALKED_TO})s?)\b)"
    r"|said (?:hello|hi|thanks|goodbye|ok)"
    r"|(?:asked|is asking|asks|want(?:s|ed) to know) (?:whether|if|about|for|what|how|why|when"
    r"|where|who|which|a question)|(?:is|was) having a conversation)\b",
    re.IGNORECASE,
)


_PHRASE: Final = re.compile(
    r"(?:please |and |always |don't forget to |make sure to )*"
    r"(?:remember|note|keep|save|store|record|memori[sz]e|forget|know|understood)(?:ed|d)?"
    r"(?: (?:that|this|it|these|those|them|all|everything|in mind|down|please"
    r"|for (?:me|later|the future|next time)|of (?:that|this|it)))*",
    re.IGNORECASE,
)
_DETERMINERS: Final = "the|an?|this|that|these|those|his|her|their|its|my|our|your"
_ENGLISH_NOUN: Final = re.compile(rf"(?:{_DETERMINERS}) ", re.IGNORECASE)
_NOUN: Final = re.compile(
    rf"(?:{_DETERMINERS}|der|die|das|eine?|el|la|los|las|una?|une|les?|il|lo|gli|os?|as|uma?) ",
    re.IGNORECASE,
)
_PREDICATE: Final = re.compile(
    r"(?<!\w)(?:is|are|was|were|be|been|has|have|had|will|would|can|could|should|must|may|might|do"
    r"|does|did|went|goes|left|came|took|got|made|met|bought|sold|won|lost|ran|runs|grew|bit|began"
    r"|became|knows?|knew|means?|costs?|likes?|loves?|hates?|wants?|needs?|uses?|lives?|works?"
    r"|speaks?|spoke|prefers?|plays?|eats?|drinks?|says?|said|told|gave|wrote|sent|found|kept"
    r"|(?!named|called|titled|based|located|related|dated|used)\w{2,}ed"
    r"|\w{2,}[^s'\W]s(?= \S)|(?<!'s )\b\w{2,}[^s'\W]s\Z)(?!\w)"
    r"|n't|'re|[:=@]",
    re.IGNORECASE,
)
_NOUN_WORDS_MAX: Final = 7
_PLACEHOLDER: Final = re.compile(
    r"string|text|fact|memory|sentence|example|placeholder|one (?:fact|whole sentence) .*"
    r"|(?:the |a )?(?:fact|text|sentence) (?:text|here|\d+)|[.…\s]*"
    r"|<[\w -]{1,40}>|\[[\w -]{1,40}\]",
    re.IGNORECASE,
)
_RUN_MIN: Final = 3  # times that something is said in a row
_RUN: Final = re.compile(
    rf"(?:\A|(?<=\W))(\w[^\n]{{0,60}}?\w|\w)(?:[\W_]{{1,4}}\1){{{_RUN_MIN - 1},}}(?!\w)",
    re.IGNORECASE,
)
_RUN_WITHOUT_BLANKS: Final = re.compile(r"([^\W\d_]{2,16}?)\1{3,}")


def says_nothing(text: str) -> bool:
    """Return whether `text` says nothing of the world: talk about the talk, a noun, a loop."""
    bare = text.strip(" .!*\"'`-")
    return bool(
        _ABOUT_THE_TALK.match(text)
        or text.rstrip("\"'”’»)* ").endswith(("?", "？", "؟", ":", "："))
        or _PHRASE.fullmatch(bare)
        or _PLACEHOLDER.fullmatch(bare)
        or _has_no_predicate(bare)
        or is_repetitive(text)
    )


def is_repetitive(text: str) -> bool:
    """Return whether `text` says the same three times in a row, as a model does in a loop."""
    # A number may well be 555 555 555.
    return any(
        any(char.isalpha() for char in run[1])
        for pattern in (_RUN, _RUN_WITHOUT_BLANKS)
        for run in pattern.finditer(text)
    )


def _has_no_predicate(text: str) -> bool:
    """Return whether `text` only names something, as far as its words show.

    Verbs are known in English alone: elsewhere, only two words behind an article tell it.
    """
    count = len(text.split())
    if count < 2:
        return text.isascii() and not _PREDICATE.search(text)
    if count == 2 and _NOUN.match(text):
        return not _PREDICATE.search(text)
    is_noun = count <= _NOUN_WORDS_MAX and text.isascii() and _ENGLISH_NOUN.match(text)
    return bool(is_noun) and not _PREDICATE.search(text)
