"""Mails as text: whose they are, and which parts of one somebody else wrote.

It does not own other transcripts (`transcripts.py`), nor what else in a message is not its
author's (`material.py`).

- A mail is its sender's, under the sender's name; what it answers or forwards is not, nor is its
  signature.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.utils import parseaddr, parsedate_to_datetime
from typing import Final

from relayer.extraction.message import Message, Role, speaker_named
from relayer.extraction.moments import moment_named
from relayer.extraction.output import GAP

_FROM: Final = "from|von|de|da|van|od|от|发件人|寄件者|差出人"
_OTHER: Final = (
    "to|cc|bcc|subject|date|sent|reply-to|message-id|in-reply-to|references|mime-version"
    "|content-type|content-transfer-encoding|received|return-path|x-[\\w-]{1,40}|an|betreff|datum"
    "|gesendet|kopie|à|objet|envoyé|para|asunto|assunto|enviado|fecha|data|oggetto|inviato|a"
    "|aan|onderwerp|verzonden|do|temat|wysłano|кому|тема|дата|отправлено|收件人|主题|发送时间|日期"
)
_HEADER: Final = re.compile(
    rf"[ \t\u00a0]*\*{{0,2}}(?:(?P<sender>{_FROM})|(?P<name>{_OTHER}))\*{{0,2}}[ \u00a0]?[:：]"
    r"\*{0,2}(?P<value>[ \t]+.*|)\Z",
    re.IGNORECASE,
)
_SUBJECTS: Final = frozenset(
    "subject betreff objet asunto assunto oggetto onderwerp temat тема 主题".split()
)
_DATES: Final = frozenset("date sent datum gesendet fecha data дата 日期".split())
_MBOX: Final = re.compile(r"From \S+@\S+ .*\d{4}\s*\Z")
# A line above what a mail answers or forwards.
_REPLY: Final = re.compile(
    r"[ \t\u00a0]*(?:"
    r"(?:on|am|le|el|em|il|op) .{0,20}\d.{3,150}"
    r"(?:(?<! I )wrote|schrieb(?! ich\b)(?: .{1,80})?|a écrit|escribió|escreveu|ha scritto"
    r"|schreef(?: .{1,80})?)(?: .{0,60})?\s?[:：]"
    r"|-{2,}[ \t]*(?:original message|forwarded message|ursprüngliche nachricht"
    r"|weitergeleitete nachricht|message (?:d'origine|transféré)|mensaje original"
    r"|messaggio originale|mensagem original)[ \t]*-{2,}"
    r"|begin forwarded message:|anfang der weitergeleiteten nachricht:|_{20,}"
    r")[ \t]*\Z",
    re.IGNORECASE,
)
_BROKEN_REPLY: Final = re.compile(
    r"[ \t\u00a0]*(?:<?\S{1,80}> )?"
    r"(?:wrote|schrieb|a écrit|escribió|escreveu|ha scritto|schreef)\s?:[ \t]*\Z"
)
_DELIMITER: Final = re.compile(r"--[ \t]*\Z")
_SIGN_OFF: Final = re.compile(
    r"(?:(?:kind|best|warm|many)(?: \w+)? (?:regards|wishes|thanks)|regards|best|cheers|sincerely"
    r"|yours(?: \w+)?|thanks|thank you|many thanks|sent from my .{1,60}"
    r"|(?:mit )?(?:freundliche[nr]|beste[nr]?|viele[nr]?|liebe) gr(?:ü|ue)(?:ß|ss)en?|gruß|lg|mfg"
    r"|cordialement|saludos|atentamente|um abraço|cordiali saluti|met vriendelijke groet)"
    r"[,.!]?[ \t]*\Z",
    re.IGNORECASE,
)
_SIGNATURE_LINES_MAX: Final = 12
_SIGNATURE_CHARS_MAX: Final = 60  # of a line
_DATE_CHARS_MAX: Final = 100


def mails(text: str) -> list[Message] | None:
    """Return a message for each mail of `text`; None if it does not begin with one's header."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    begins = [number for number, _ in _headers(lines)]
    if not begins or begins[0] != first:
        return None
    # One below a line that says so is what the one before forwards or answers.
    own = [n for n in begins if n == first or not _REPLY.match(_line_before(lines, n))]
    ends = [*own[1:], len(lines)]
    return [_mail(lines[begin:end]) for begin, end in zip(own, ends, strict=True)]


def _line_before(lines: Sequence[str], number: int) -> str:
    return next((line for line in reversed(lines[max(0, number - 3) : number]) if line.strip()), "")


def without_others(lines: Sequence[str]) -> list[str]:
    """Return the lines of a message without a mail that it quotes, forwards or answers.

    Such a part reaches to the end, but for lines that are marked as quoted: below them somebody
    goes on.
    """
    starts = {number for number, _ in _headers(lines)}
    kept = list(lines)
    for number, line in enumerate(lines):
        if number in starts:
            return [*kept[:number], GAP]
        if (after := _after_reply_line(lines, number)) is not None:
            kept[number:after] = [GAP] * (after - number)
            following = next((line.strip() for line in lines[after:] if line.strip()), "")
            if not following.startswith(">"):
                return [*kept[:number], GAP]
    return kept


def _after_reply_line(lines: Sequence[str], number: int) -> int | None:
    """Return the line after one that says who wrote what follows; it may be broken in two."""
    if _REPLY.match(lines[number]):
        return number + 1
    if number + 1 < len(lines) and _BROKEN_REPLY.match(lines[number + 1]):
        return number + 2 if _REPLY.match(" ".join(lines[number : number + 2])) else None
    return None


def without_quoted(lines: Sequence[str]) -> list[str]:
    """Return the lines with a gap in place of each that is marked as quoted."""
    return [GAP if line.lstrip().startswith(">") else line for line in lines]


def _headers(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each run of lines that is a mail's header."""
    begin = 0
    while begin < len(lines):
        end, names = begin, set[str]()
        while end < len(lines):
            header = _HEADER.match(lines[end])
            if header:
                names.add("from" if header["sender"] else header["name"].casefold())
            elif not (
                (end == begin and _MBOX.match(lines[end]))
                or (names and lines[end][:1] in (" ", "\t") and lines[end].strip())
            ):
                break
            end += 1
        has_subject = bool(names & _SUBJECTS) and len(names) > 1
        if has_subject or ("from" in names and _has_address(lines[begin:end])):
            yield begin, end
        begin = max(end, begin + 1)


def _has_address(lines: Sequence[str]) -> bool:
    """Tell whether a header of several lines names an address: a journey is from and to, too."""
    return len(lines) > 1 and any("@" in line for line in lines)


def _mail(lines: Sequence[str]) -> Message:
    _, end = next(_headers(lines))
    sender, date = "", ""
    for line in lines[:end]:
        header = _HEADER.match(line)
        if header and header["sender"]:
            sender = header["value"].strip()
        elif header and header["name"].casefold() in _DATES:
            date = header["value"].strip()
    body = _without_signature(without_quoted(without_others(lines[end:])))
    role: Role = "user" if sender else "unknown"  # of a draft nobody knows whose it is
    return Message(role, _name(sender), "\n".join(body).strip(), _moment(date))


def _name(sender: str) -> str:
    name, address = parseaddr(sender)
    return speaker_named(name) or speaker_named(address) or speaker_named(sender)


def _moment(date: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date[:_DATE_CHARS_MAX])
    except (ValueError, OverflowError, HeaderParseError, IndexError):
        return moment_named(date)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment if 1 < moment.year < 9999 else None


def _without_signature(lines: Sequence[str]) -> list[str]:
    """Return the lines of a mail without what its author signs with."""
    last = max((n for n, line in enumerate(lines) if line.strip()), default=-1)
    for number in range(max(0, last - _SIGNATURE_LINES_MAX), last + 1):
        if _DELIMITER.match(lines[number]) or (
            _SIGN_OFF.match(lines[number].strip()) and all(map(_may_sign, lines[number + 1 :]))
        ):
            return list(lines[:number])
    return list(lines)


def _may_sign(line: str) -> bool:
    return len(line) <= _SIGNATURE_CHARS_MAX and not line.rstrip().endswith((".", "!", "?"))
