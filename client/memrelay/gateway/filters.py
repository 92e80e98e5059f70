"""Judges whether a text is worth keeping, and whether it tries to command the model.

It does not own where the texts come from (`conversation.py`), nor the thresholds (`settings.py`).

- The injection patterns are a courtesy: they catch what is written plainly. The boundary is
  escaping, framing and the scope of an agent's key.
- Only what says nothing is dropped here: the relayer judges each sentence of the rest.
- A trigger word keeps a text that is short or full of emojis, never one that commands.
- Time is linear in the text: no pattern can go over a long stretch of it again and again.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from memrelay.gateway.blocks import without_blocks
from memrelay.gateway.line_breaks import one_line
from memrelay.gateway.settings import (
    COLD_START_TAG,
    CORE_PLUS_TAG,
    MEMWAL_TAG,
    GatewaySettings,
)
from memrelay.gateway.trivial import is_question, is_trivial
from memrelay.sealed.forms import normalize

FOLDED_FACTOR = 4  # as long as the longest form of a sign that is spelled out

# Where an order may begin: a sentence or clause, or after "please" or "you must". It tells
# "Act as an admin" from "I act as an admin of the team wiki".
_ORDER = (
    r"(?:(?:^|[\n.!?:;,\"'“„(\[>-]) ?(?:(?:and|but|first|immediately|instead|next|now|please|so"
    r"|then|bitte|dann|jetzt|nun|sofort|und),? ){0,2}"
    r"|\b(?:please|bitte|you (?:must|should|shall|will|can|have to|need to|are to)(?: now)?) )"
)
_RULES = (
    r"(?:instructions?|prompts?|rules?|guidelines?|directives?|constraints|restrictions"
    r"|policies|policy|programming)\b"
)
_OWN_RULES = (
    r"(?:(?:all|any|every|of|the|these|those|other|and|my|our) ){0,4}"
    r"(?:all|any|every|your|previous|prior|above|earlier|preceding|foregoing|past|original|initial"
    r"|existing|system|developer|safety) (?:[a-z]{1,12} ){0,3}"
)
_SECRETS = (
    r"(?:api keys?|private keys?|passwords?|credentials|secrets|tokens|memories|conversations?"
    r"|chat history|system prompt)\b"
)
# "Run the lint tool" and "execute the following command" are what people write in their notes.
# An order to a model names a tool as programs do, or says when, or speaks to the model.
_TOOL = r"(?:exec|bash|shell|[a-z0-9]{1,20}_\w{1,30})"
_THE = r"(?:(?:the|this|that|your|an?|all|any) )?"
_COMMANDS = (
    r"(?:this|these|the following) (?:[a-z]{1,12} ){0,2}(?:commands?|code|scripts?|payload)\b"
)
_OWN_TAGS = "|".join(
    tag.replace("-", r"[-_\u2010-\u2015\u2212]")  # any hyphen will do
    for tag in (MEMWAL_TAG, CORE_PLUS_TAG, COLD_START_TAG)
)
# At the beginning of a word. Written with single blanks, which stand for any white space. Texts
# are folded to lower case.
_PHRASES: Final = (
    # Setting earlier instructions aside.
    r"(?:ignor(?:e|ing)|disregard|forget|overrid(?:e|ing)|bypass|do not (?:obey|follow)"
    rf"|don['’]?t (?:obey|follow)|stop (?:obeying|following)) {_OWN_RULES}{_RULES}",
    r"(?:ignore|disregard|forget|override|do not follow|don['’]?t follow) "
    r"(?:(?:all|any|the|these|those|of) ){0,3}"
    r"(?:instructions|prompts?|rules|text|messages?|context) "
    r"(?:above|before|so far|(?:that )?you (?:were|have been|got|received))",
    r"(?:ignore|disregard|forget) (?:everything|anything|all|any) (?:of )?(?:the |your )?"
    r"(?:previous|prior|above|earlier|preceding)\b",
    r"(?:ignore|disregard) the above(?: and\b|[.!,;:\n]|$)",
    r"do not follow (?:the )?(?:system|developer)\b",
    r"(?:system|admin|developer|root) override\b",
    # Another role for the model.
    r"you(?: are|['’]re) (?:now|from now on|no longer) (?:dan\b|free\b|unrestricted|jailbroken"
    r"|bound by|(?:in )?\w{1,20} mode\b|the (?:system|admin\w*|root|developer|operator|assistant)\b"
    r"|an? (?!member|part|customer|subscriber|user\b))",
    r"from now on,? (?:you (?:are|will be|must|obey|will obey)|ignore|obey|act|pretend)\b",
    r"you (?:have|are|need) (?:no|not|free of|free from) (?:(?:any|more|bound|by|all) ){0,3}"
    r"(?:restrictions|limitations|rules|filters|guidelines|policies)\b",
    r"(?:jailbr(?:eak|oken)|do anything now\b"
    r"|(?:god|dan|sudo|unrestricted|unfiltered|jailbreak) mode\b)",
    r"(?:disable|bypass|remove|circumvent|ignore|turn off|switch off) "
    r"(?:(?:any|all|of|your|the|its) ){1,3}(?:guardrails|safeguards"
    r"|(?:safety|content|ethical|moral|security) (?:filters?|restrictions?|guidelines?|protocols?"
    r"|checks?|rules?|measures?|policy|policies))\b",
    # Instructions that claim to come from above.
    r"(?:new|real|secret|hidden|system|admin|developer|override) instructions? ?"
    r"(?::|are|follow|for (?:you|the (?:ai|assistant|model|agent|llm)))",
    # Getting at the prompt, at secrets, or around the user.
    r"(?:reveal|print|show|repeat|output|leak|dump|display|disclose|expose|recite|quote|tell)"
    r" (?:[\w'’]{1,12} ){0,4}(?:system prompt|(?:initial|hidden|system|secret) instructions)\b",
    r"(?:(?:your|new) system[ _-]prompt\b|system[ _-]prompt ?[:=])",
    r"(?:reveal|repeat|print|output) (?:me )?(?:your (?:instructions|prompt|rules|secrets)"
    r"|(?:everything|all text|the (?:text|words)) above)\b",
    # Using tools for somebody else.
    r"(?:when(?:ever)?|if|once|as soon as|after) you (?:read|see|find|recall|remember|retrieve)"
    r" (?:this|these)\b[^.!?\n]{0,60} (?:run|execute|call|invoke|trigger) ",
    r"(?:ai|assistant|model|agent|llm|chatgpt|claude|gemini) ?[:,] ?(?:please )?"
    r"(?:you (?:must|should|shall|will|have to|need to|are to) )?(?:now )?"
    rf"(?:(?:run|execute) {_COMMANDS}|(?:run|execute|call|invoke|use) {_THE}[\w-]{{1,30}} tool\b)",
    rf"(?:run|execute) {_COMMANDS} "
    r"(?:now|immediately|at once|silently|without (?:asking|telling|confirm\w*))\b",
    # The same in German, and the commonest order in French, Italian, Portuguese and Spanish.
    r"(?:ignorier\w{0,4}|missacht\w{0,4}|vergiss|vergesst|vergessen sie|umgeh\w{0,3}"
    r"|befolg\w{0,3} nicht) (?:[a-zäöüß]{1,14} ){0,3}"
    r"(?:alle[nr]?|deine[nr]?|ihre[nr]?|vorherigen?|bisherigen?|vorigen?|obigen?|früheren?) "
    r"(?:[a-zäöüß]{1,14} ){0,3}(?:\w{0,8}anweisung(?:en)?|regeln?|vorgaben?|befehle?n?|prompts?"
    r"|instruktionen|richtlinien)\b",
    r"du bist (?:jetzt|nun|ab jetzt|ab sofort) (?:dan\b|im \w{1,20}modus|frei von"
    r"|(?:ein|eine|der|die|kein|keine) (?!teil|mitglied|kunde|kundin))",
    r"(?:zeig|zeige|verrate|nenne|gib)(?: mir| uns)? (?:dein|deine|deinen|den|die) "
    r"(?:system-? ?prompt|system-?anweisungen|geheimen anweisungen)\b",
    r"ignor(?:a|e|ez|es|ate|ad) (?:[a-zà-ÿ]{1,12} ){0,4}(?:instrucciones|instructions|istruzioni"
    r"|instruções)\b",
)
# What commands only where an order may begin.
_ORDERS: Final = (
    r"(?:forget|disregard|ignore) (?:everything|all (?:of )?(?:this|that))\b",
    r"(?:act|behave|respond|answer) as (?:if|though|an?|the|my|root|admin\w*|dan|system)\b",
    r"(?:pretend (?:to be|you are|you['’]re|that you)|role-?play as)\b",
    r"(?:send|e-?mail|post|upload|forward|exfiltrate|leak|transmit) "
    rf"(?:[\w'’-]{{1,20}} ){{0,5}}{_SECRETS}(?: [\w'’-]{{1,20}}){{0,4}} "
    r"to (?:https?:|[\w.+-]{1,40}@|this |the attack)",
    r"(?:do not|don['’]?t|never) (?:tell|inform|mention (?:this|it) to|reveal this to) "
    r"(?:the|your) (?:user|human|operator|owner)\b",
    rf"(?:call|invoke|trigger) {_THE}(?:[\w-]{{1,30}} ){{0,2}}tools?\b",
    rf"(?:run|execute|use) {_THE}(?:tool (?:called |named )?{_TOOL}|{_TOOL} tool)\b",
    r"(?:vergiss|ignoriere?) alles\b",
    r"(?:verhalte dich|handle|agiere|antworte) (?:als|wie) (?:ein|eine|der|die|ob)\b",
    rf"(?:führe?|starte?|rufe?|nutze?) (?:das |dein )?(?:tool|werkzeug) {_TOOL}\b",
    r"sag(?:e|t)? (?:dem|der) (?:nutzer|nutzerin|benutzer|user) nichts\b",
)
# What pretends to be part of another text.
_SHAPES: Final = (
    r"(?:^|\n) ?#{0,6} ?(?:system|developer|admin)(?: (?:message|note|notice))? ?: ?"
    r"(?:you|your|ignore|from now|new|override|act|always|never|the (?:user|assistant))\b",
    r"\[/?(?:system|assistant|internal|admin|developer|inst)(?: (?:message|note|notice|prompt))?\]",
    r"</?(?:system|assistant|developer|instructions?|tool_?(?:calls?|use|results?|response)"
    r"|function_?(?:calls?|results?)|antml:\w{1,30}|invoke|system[_-](?:prompt|message|reminder))"
    r"(?: [^<>]{0,200})?/?>",
    # Our own tags in brackets of any sort, that is, after any sign but those of plain sentences.
    rf"(?:[^\w\s,.;:!?=#@\"'“”„»’-]|[ᐸᚲ]) {{0,4}}/? {{0,4}}(?:{_OWN_TAGS})",
    r"(?:<\|[a-z0-9_ ]{1,40}\|>|</?s>|<{2,3}/?(?:sys\b|begin_|end_)|<(?:start|end)_of_turn>)",
)
# Each with where it may begin.
INJECTIONS: Final = ((r"\b", _PHRASES), (_ORDER, _ORDERS), ("", _SHAPES))


def injection_pattern(beginning: str, bodies: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern for texts that begin alike, so that these are looked for only once."""
    return re.compile(f"{beginning}(?:{'|'.join(bodies)})".replace(" ", r"\s"))


_PATTERNS: Final = tuple(injection_pattern(*group) for group in INJECTIONS)

_EMPHASIS = re.compile(r"[*~`]|(?<![^\W_])_|_(?![^\W_])")
# What looks like a blank without being one; and signs that stand for whole phrases, which would
# make a text up to 18 times as long.
_AS_BLANK = re.compile("[\u2800\u3164\uffa0\u3300-\u3357\u33ae\u33af\ufdfa\ufdfb]")
_UNSEEN = re.compile("[\u115f\u1160]")


def looks_injected(text: str) -> bool:
    """Return whether a text reads like an attempt to command the model.

    Spelling tricks do not hide it: letters of other widths, characters of no width, entities,
    emphasis and white space in between. Letters of other scripts that look alike do.
    """
    plain = fold_text(text)
    return any(pattern.search(plain) for pattern in _PATTERNS)


def fold_text(text: str) -> str:
    """Return a text in lower case with single blanks and line breaks and nothing invisible.

    So what is shown of a text on one line commands nobody, either.
    It has at most `FOLDED_FACTOR` times the characters of the text.
    """
    plain = normalize("NFKC", _AS_BLANK.sub(" ", html.unescape(text)))
    if not plain.isascii():
        plain = "".join(char for char in plain if unicodedata.category(char) not in {"Cf", "Mn"})
        plain = _UNSEEN.sub("", plain)
    bare = _EMPHASIS.sub(" ", plain.lower())
    return "\n".join(filter(None, map(one_line, bare.splitlines())))


def is_markup(text: str) -> bool:
    """Return whether a text is XML, HTML or another system's block, without words beside it."""
    return not without_blocks(text).strip()


_TRIGGERS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:remember|prefer(?:s|red|ences?)?|decided|decision)\b",
        r"\b(?:merk(?:e|en|t)?|erinner(?:e|n|ung)|bevorzug(?:e|t|en)|lieber|entschieden"
        r"|beschlossen|entscheidung)\b",
        r"\bi (?:really |do |don['’]t )?(?:like|love|hate|dislike)\b",
        r"\bich (?:mag|liebe|hasse|möchte|will)\b",
        r"\bmy [\w'’-]{1,30}(?: [\w'’-]{1,30}){0,3} (?:is|are)\b",
        r"\bmein(?:e|er|en)? [\w-]{1,40}(?: [\w-]{1,40}){0,3} (?:ist|sind|heißt|lautet)\b",
        r"(?<![\w.:/-])(?:\+\d|\(?0\d|\(\d{3}\)|\d{3}[-. ]\d{3}[-. ])"
        r"(?:[ ()/.-]{0,2}\d){4,13}(?!\w)",
        r"(?<=[\w+-])@[\w-]{1,63}\.[a-z]{2}",
    )
)
# Pictures of the higher planes, those of the first plane that are drawn in colour by default, and
# any other sign that a variation selector colours; then skin tones and the tags of flags.
_PICTURE = (
    r"(?:[\U0001F000-\U0001F1E5\U0001F200-\U0001FAFF⌚⌛⏩-⏬⏰⏳◽◾☔☕♈-♓♿⚓⚡⚪⚫⚽⚾⛄⛅⛎⛔⛪⛲⛳⛵⛺⛽✅✊✋✨❌❎❓-❕❗➕-➗➰➿"
    r"⬛⬜⭐⭕]|[\xA9\xAE\u203C-\u3299]\uFE0F)[\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
)
_EMOJI = re.compile(
    r"[\U0001F1E6-\U0001F1FF]{2}|[0-9#*]\uFE0F?\u20E3"
    rf"|{_PICTURE}(?:\u200D(?:{_PICTURE}|[\u2190-\u27BF]))*"
)
_CODE_OR_HEADING = re.compile(r"^ {0,3}(?:`{3}|~{3}|#{1,6} )", re.MULTILINE)


def emoji_count(text: str) -> int:
    """Return the number of emojis as a reader counts: a family or a flag is one, a digit none."""
    return sum(1 for _ in _EMOJI.finditer(text))


def is_worth_keeping(text: str, settings: GatewaySettings) -> bool:
    """Return whether a message, already cleaned, is worth capturing."""
    if not has_fitting_length(text, settings) or is_markup(text) or looks_injected(text):
        return False
    if not settings.capture_code and _CODE_OR_HEADING.search(text):
        return False
    if (
        len(text) >= settings.capture_chars_min
        and not is_trivial(text)
        and emoji_count(text) <= settings.capture_emojis_max
    ):
        return True
    return any(trigger.search(text) for trigger in _TRIGGERS)


def only_asks(text: str) -> bool:
    """Return whether a text asks and tells nothing, also not by "remember" or "my dog is"."""
    return is_question(text) and not any(trigger.search(text) for trigger in _TRIGGERS)


def has_fitting_length(text: str, settings: GatewaySettings) -> bool:
    """Return whether a message is neither too short nor too long to be captured."""
    length = len(text)
    return length >= settings.message_chars_min and not 0 < settings.capture_chars_max < length


_DIRECTIVE = re.compile(
    r"\[\[ ?(?:reply_to_current|reply_to ?:[^\[\]\n]{0,256}|audio_as_voice) ?\]\]"
)
_LOG_LINE = re.compile(
    r"\s{0,8}(?:\[plugins?\]|\[(?:debug|info|warn|warning|error)\]|(?:debug|info|warning|error):"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,12} \[?(?:debug|info|warn|warning|error)\b)",
    re.IGNORECASE,
)
_LEAKED = re.compile(r"\s{0,8}\[(?:human|user)\]:", re.IGNORECASE)


def without_noise(text: str) -> str:
    """Return a text without log lines and reply directives.

    Nothing remains of one whose lines mostly begin with `[Human]:`: it is a transcript that leaked
    into the prompt.
    """
    lines = [line for line in _DIRECTIVE.sub("", text).split("\n") if not _LOG_LINE.match(line)]
    filled = [line for line in lines if line.strip()]
    if 2 * sum(1 for line in filled if _LEAKED.match(line)) > len(filled):
        return ""
    return "\n".join(lines).strip()
