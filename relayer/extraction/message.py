"""A message, and by which word it says whose it is: a role, or a person's name.

It does not own where such a word stands (`labels.py`, `transcripts.py`).

- A role that is not known is nobody's whose words count.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

Role = Literal["user", "assistant", "other", "unknown"]

SPEAKER_CHARS_MAX: Final = 60


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        speaker: a person's name if the text gave one, else empty.
        said_at: when it was said, if the text says so; without a zone as `moments.py` tells.
    """

    role: Role
    speaker: str
    text: str
    said_at: datetime | None = None


ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "human": "user",
    "benutzer": "user",
    "nutzer": "user",
    "me": "user",
    "you": "user",
    "you_said": "user",
    "assistant": "assistant",
    "assistent": "assistant",
    "ai": "assistant",
    "ki": "assistant",
    "ai_assistant": "assistant",
    "bot": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "chatgpt": "assistant",
    "chatgpt_said": "assistant",
    "claude_responded": "assistant",
    "claude_said": "assistant",
    "copilot": "assistant",
    "copilot_said": "assistant",
    "gemini_said": "assistant",
    "gpt": "assistant",
    "system": "other",
    "developer": "other",
    "tool": "other",
    "function": "other",
    "observation": "other",
    "tool_call": "other",
    "tool_output": "other",
    "tool_response": "other",
    "tool_result": "other",
    "tool_results": "other",
    "function_call": "other",
    "function_output": "other",
    "function_result": "other",
    "system_message": "other",
    "system_prompt": "other",
    "system_reminder": "other",
    "developer_message": "other",
    "assistant_message": "assistant",
    "user_message": "user",
    # The words of other languages, as chats show them.
    **dict.fromkeys(
        "utilisateur utilisatrice usuario usuaria usuário usuária utilizador utente użytkownik"
        " kullanıcı gebruiker пользователь 用户 用戶 使用者 ユーザー 사용자 ผู้ใช้ المستخدم"
        " उपयोगकर्ता người_dùng pengguna".split(),
        "user",
    ),
    **dict.fromkeys(
        "asistente assistente asystent asistan ассистент помощник 助手 助理 アシスタント"
        " 어시스턴트 ผู้ช่วย المساعد सहायक trợ_lý asisten".split(),
        "assistant",
    ),
    **dict.fromkeys("système sistema система 系统 系統 システム 시스템".split(), "other"),
}
_SYLLABLES: Final = frozenset(["Ai", "Ki"])  # of names, too: Ai Weiwei is a person
# Words that open a line with a colon without being anybody's name.
_NOT_NAMES: Final = re.compile(
    "notes?|todo|fixme|warning|important|deadline|date|time|subject|re|fwd?|ps|nb|update|edit"
    "|example|summary|decisions?|results?|reason|budget|address|phone|e-?mail|location|version"
    "|status|question|answer|error|info|debug|output|input|title|name|goal|action|reminder|hint"
    "|tip|remember|plan|contact|see|https?|web|search|messages?|hinweis|wichtig|achtung|frist|termin|datum|betreff"
    "|beispiel|frage|antwort|ergebnis|ziel|merke|adresse|telefon|aufgabe|grund"
    # What is said in front of what somebody puts right or explains.
    "|corrections?|clarification|background|context|addendum|addition|caveat|disclaimer|announcement"
    "|preferences?|facts?|fun|quick|small|rules?|also|btw|fyi|tl;?dr|my|our|about"
    "|korrektur|nachtrag|ergänzung|hintergrund|kontext|klarstellung|anmerkung|nebenbei|übrigens"
    "|meine?|unsere?|précision|rectification|remarque|rappel|contexte|corrección|aclaración|nota"
    "|contexto|aviso|correção|esclarecimento|observação|obs|correzione|precisazione|contesto|premessa"
    "|sprostowanie|poprawka|korekta|uwaga|kontekst|düzeltme|bilgi|поправка|уточнение|примечание"
    "|важно|контекст|исправление|кстати|резюме|poprawki|zusammenfassung|resumen|resumo|riassunto|koreksi|ralat|catatan|konteks"
    # Orders to work on the text behind them.
    "|translate|proofread|rewrite|rephrase|reword|paraphrase|summari[sz]e|shorten|simplify|improve"
    "|fix|expand|forwarded|übersetze?|korrigiere?|tradui[st]|traduisez|traduce|traduz|traduci"
    "|corrige[zr]?|correggi|corrija|przetłumacz|popraw|переведи(?:те)?|исправь(?:те)?|çevir|düzelt"
    "|terjemahkan|dịch"
    # Fields of a mail, a machine, an account, a person and a journey; days.
    "|from|to|sent|host(?:name)?|ports?|servers?|links?|paths?|files?|folder|branch"
    "|repo(?:sitory)?|memory|disks?|storage|router|network|wifi|wlan|domain|database|tables?|login"
    "|username|account|key|token|password|type|size|colou?r|price|cost|amount|total|owner|author"
    "|start|end|room|city|country|street|birthday|age|height|weight|allerg(?:y|ies)|diet"
    "|hobb(?:y|ies)|job|company|team|role|languages?|timezone|editor|shell|region|environment"
    "|endpoint|service|provider|flight|hotel|gate|seat|train|bus|home|work|office"
    "|(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch"
    "|today|tomorrow|yesterday|week|day|morning|noon|evening|breakfast|lunch|dinner|step|phase",
    re.IGNORECASE,
)
_SPEAKER: Final = re.compile(rf"[^\W_][\w .'’@+-]{{0,{SPEAKER_CHARS_MAX - 1}}}")


def role_named(word: str) -> Role | None:
    """Return the role that `word` is, in any case and with any blanks; None for another word."""
    return ROLES.get(re.sub(r"[\s-]+", "_", word.strip().casefold()))


def role_of(word: str) -> Role | None:
    """Return whose word before a colon is, if it is a role or begins with one: no person is called
    Tool Usage."""
    if (known := role_named(word)) is not None:
        return known
    first = re.split(r"[\s_-]", word.strip(), maxsplit=1)[0]
    role = None if first in _SYLLABLES else ROLES.get(first.casefold())
    return None if role == "user" else role


def is_name(word: str) -> bool:
    """Tell whether `word` looks like a person's name rather than like what a line is about."""
    return word.istitle() and not _NOT_NAMES.fullmatch(word.partition(" ")[0])


def speaker_named(name: object) -> str:
    """Return a name that a transcript gives its speaker, none if it is a role or no name at all."""
    if not isinstance(name, str) or not _SPEAKER.fullmatch(name := " ".join(name.split())):
        return ""
    return "" if role_named(name) is not None else name
