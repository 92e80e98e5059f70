"""Texts that never become a memory: orders to the reader, and passwords.

It does not own secrets that are known by their shape (`redact.py`).

- A courtesy layer: what holds is that memories are fenced, escaped and scoped when they are read.
"""

import re
import unicodedata
from typing import Final

from relayer.extraction.cues import phrases

_INJECTION: Final = phrases(r"""
    (?:ignor(?:e|ing)|disregard|forget|override|bypass)(?: \w+){0,3} (?:instructions?|guidelines?)
    (?:ignor(?:e|ing)|disregard|override) (?:all|any|your|the|previous)(?: \w+){0,2} rules
    (?:ignor(?:e|ing)|disregard|forget) (?:\w+ ){0,2}(?:previous|prior|above)(?: \w+){0,2}
    (?:ignorier|vergiss|missacht)\w*(?: \w+){0,3} (?:anweisung|regel|instruktion|vorgabe)\w*
    (?:system|developer|hidden|initial) ?(?:prompt|message|override|instruction)s?
    new instructions?(?= ?:)|do not follow (?:the|your|any)|developer mode|jailbreak
    (?:do not|don't|never) (?:tell|inform|warn|alert|mention (?:this|it) to) the user
    (?:sag|verrat)\w* (?:dem|der) (?:be)?nutzer\w* nichts
    you are (?:now|no longer) (?:a|an|in|the|bound)|act as (?:if|though) you
    (?:run|execute|call|invoke) (?:this|(?:the )?following) (?:\w+ )?(?:tool|command|function)s?
    (?:send|forward|post|upload) (?:\w+ ){0,4}(?:passwords?|keys?|secrets?|credentials?|tokens?) to
    """)
_FAKE_MARKUP: Final = re.compile(
    r"<\|?/?(?:system|im_start|im_end|assistant|user|inst|[\w-]*memor(?:y|ies)|instructions?)\b"
    r"|\[/?INST\]",
    re.IGNORECASE,
)


def orders_the_reader(text: str) -> bool:
    """Tell whether `text` looks like an order to an assistant to break its rules."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    return bool(_INJECTION.search(text) or _FAKE_MARKUP.search(text))


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
