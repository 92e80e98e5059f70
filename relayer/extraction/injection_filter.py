"""Texts that never become a memory: orders to the reader, and passwords.

It does not own secrets that are known by their shape (`redact.py`).

- A courtesy layer: what holds is that memories are fenced, escaped and scoped when they are read.
- A phrase that people also use among themselves costs its sentence, never the whole message.
"""

import re
from typing import Final

from relayer.extraction.cues import phrases
from relayer.normalization import normalize

_RULES: Final = "(?:instructions?|guidelines?|directives?|rules?|prompts?)"
_WHICH: Final = "all|any|every|your|previous|prior|earlier|above|preceding|system|initial|safety"
# Said to an assistant, to break its rules. Plain talk of plans, deadlines or rules is none.
_TAKES_OVER: Final = phrases(rf"""
    (?:ignor(?:e|ing)|disregard|forget|override|bypass) (?:(?:the|these|those) )?(?:{_WHICH})(?: \w+){{0,3}} {_RULES}
    (?:ignor(?:e|ing)|disregard|forget|override|bypass) (?:the |these |those )?{_RULES} (?:above|before|you)
    (?:ignorier|vergiss|missacht)\w*(?: \w+){{0,3}} (?:anweisung|regel|instruktion|vorgabe)\w*
    (?:reveal|repeat|print|leak|expose) (?:your|the) (?:system|developer|hidden|initial) ?prompt
    new instructions?(?= ?:)|you are now in developer mode
    """)  # noqa: E501
_CHAT_MARKS: Final = re.compile(
    r"<\|/?\w{1,40}\|>|\[/?INST\]"
    r"|</(?:system|assistant|developer|instructions?|SYSTEM|ASSISTANT|DEVELOPER|INSTRUCTIONS?)>"
)
_ORDER: Final = phrases(r"""
    (?:ignore|disregard|forget) (?:everything|anything|all)(?: of)?(?: the)? (?:above|before|you|previous)
    (?:system|developer|hidden|initial) prompts? (?:\w+ ){0,3}(?:revealed|shown|printed|repeated|leaked)
    system override|developer mode|jailbreak|do not follow (?:your|any)
    (?:do not|don't|never) (?:tell|inform|warn|alert|mention (?:this|it) to) the user
    (?:sag|verrat)\w* (?:dem|der) (?:be)?nutzer\w* nichts
    you are (?:now|no longer) (?:an? (?:ai|assistant|evil)|bound)|act as (?:if|though) you
    (?:run|execute|call|invoke) (?:this|(?:the )?following) (?:\w+ )?(?:tool|command|function)s?
    (?:send|forward|post|upload) (?:\w+ ){0,4}(?:passwords?|keys?|secrets?|credentials?|tokens?) to
    """)  # noqa: E501
_MEMORY_MARKS: Final = re.compile(r"</?[\w-]{0,40}memories>|</user>", re.IGNORECASE)
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


def takes_over(text: str) -> bool:
    """Tell whether `text` orders an assistant to break its rules, whatever else it says."""
    return _takes_over(_fold(text))


def _takes_over(text: str) -> bool:
    return bool(_TAKES_OVER.search(text) or _CHAT_MARKS.search(text))


def orders_the_reader(text: str) -> bool:
    """Tell whether `text` looks like an order to an assistant, or its frame around memories."""
    text = _fold(text)
    return _takes_over(text) or bool(_ORDER.search(text) or _MEMORY_MARKS.search(text))


def _fold(text: str) -> str:
    """Return `text` as its reader sees it, on one line."""
    return " ".join(_UNSEEN.sub("", normalize("NFKC", text)).split())


# The value follows at once, and no word of a language looks like it.
_PASSWORD: Final = re.compile(
    r"(?<!\w)(?:pass(?:word|code|phrase)|pin|passwort|kennwort)s?"
    r"(?: (?:for|of|to|on|für|vom|zum) [^.:=\n]{1,40})?"
    r"(?: ?[:=]| is(?: now)?| lautet| ist)[ \t]*[\"'`„“]?(?=[^\s]{0,64}[\d!#$%&*+=^~@])[^\s]{4,}",
    re.IGNORECASE,
)


def gives_a_password(text: str) -> bool:
    """Tell whether `text` says what a password, passphrase or PIN is."""
    return _PASSWORD.search(text) is not None
