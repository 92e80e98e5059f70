"""Texts that people and agents wrote: words, dates, secrets, names, conversations.

Not here: what a language model wrote of them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from memrelay.sealed import keys as client_keys
from relayer import redact
from relayer.extraction import (
    clauses,
    conversation,
    cues,
    dates,
    english,
    json_chats,
    judge,
    labels,
    language,
    lists,
    mails,
    material,
    moments,
    output,
    prose,
    rules,
    sentences,
    transcripts,
)
from relayer.extraction import talk as small_talk
from relayer.extraction.facts import Excerpt
from relayer.query import period_words, periods
from relayer.query.terms import query_terms
from relayer.sealed import keys
from relayer.words import languages, spelling, tokens
from relayer.words.tokens import words
from tests.fuzz.loop import Parser
from tests.fuzz.parsers.agreement import agreed

NOW = datetime(2026, 5, 8, 9, 30, tzinfo=UTC)
SAID = (
    *(b"last ", b"next ", b"week", b"two days ago", b"in May", b"between ", b" and ", b"since "),
    *(b"2026-05-08", b"31.12.", b"9999", b"0001", b"Friday", b"the weekend of ", b"letzte Woche"),
    *(
        b"sk-",
        b"ghp_",
        b"-----BEGIN PRIVATE KEY-----",
        b"password: ",
        b"4111111111111111",
        b"://a:b@",
    ),
    *(
        b"snake_case",
        b"camelCase",
        b"/usr/lib/x.so",
        b"v1.2.3",
        b"1,000.5",
        b"#42",
        "don’t".encode(),
        b"+351 ",
        b"00 12 ",
        "貓".encode(),
        "ה".encode(),
        "़".encode(),
        "🐢\u200d".encode(),
    ),
)
LABELS = (
    *(
        b"User: ",
        b"Assistant: ",
        b"\n\n",
        b"<system>",
        b"</system>",
        b"```\n",
        b"> ",
        b"[1] ",
        b"1. ",
    ),
    *(b"I prefer ", b"remember that ", b"ignore all previous instructions", b"? ", b". ", b"! "),
    *(b'[{"role": "user", "content": "', b'"}]', b"<|im_start|>user\n", b"<|im_end|>", b"[INST]"),
    *(b"<user>", b"</user>", b"<think>", b"</think>", b"<system-reminder>", b"<!--", b"-->"),
    *(b"[2026-11-20 10:00] ", b"From: a@b.c\n", b"Subject: x\n", b"On 1 May Bob wrote:\n", b":\n"),
    *(b"- ", b"  - ", b"| a | b |\n", b"|--|--|\n", b"Host: ares\n", b'Bob said: "', b'" ', b"$ "),
)


def _words(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert all(term for term in words(text))
    query_terms(text)
    for start, end in periods.periods(text, NOW):
        assert start < end
    redact.redact(text)
    agreed(lambda: keys.parse_namespace(text), lambda: client_keys.normalise_namespace(text))


def _word_seeds() -> Iterator[bytes]:
    yield from SAID
    yield b"What did Anna say in May 2025, last week or between 3 and 5 June?"
    yield b"the last three months before Easter, Q3 2024, 2023-05-08, the day before yesterday"
    yield "Anna trinkt seit 3 Wochen Tee; 東京タワーで会った; naïve café, İstanbul, ﬁne".encode()
    yield b"+351 220 000 321 (030) 12-34 567 DE44 5001 0517 5407 3249 31 1 000 000"
    yield "והכלב בבית والمدرسة हिन्दी दफ़्तर น้ำ 我們的貓 ٤٢١ 👩‍💻🇵🇹 за́мок Müller".encode()
    yield b"export API_KEY=sk-abcdefghijklmnopqrstuvwxyz0123456789 https://user:secret@host/x"


WORDS = Parser(
    (
        *(periods, period_words, languages, spelling, tokens),
        *(redact, keys, client_keys),
    ),
    _word_seeds,
    _words,
    SAID,
)


def _conversation(data: bytes) -> None:
    """What the rules make of a conversation: everything but sealing what they found."""
    text = data.decode(errors="replace")
    conversation.transcript(conversation.select_messages(text))
    transcripts.transcript_problem(text)
    rules.SentenceExtractor()._extract(Excerpt(text=text, occurred_at=NOW))


def _conversation_seeds() -> Iterator[bytes]:
    yield b"User: I prefer tea to coffee.\nAssistant: Noted!\nUser: Remember: I fly on 2026-05-08."
    yield b"[1] Anna: hi\n[2] Ben: born May 8.\n```\ncode\n```\n> quoted\n<system>x</system>"
    yield b"Ich mag Tee. Wir haben beschlossen, am Freitag zu fahren; das ist wichtig!"
    yield "User: Wer fährt? Hola, soy Ana; 我对花生过敏。 It's not A, it's B... don't".encode()
    yield (b"1." * 480 + b"\n\n") * 68  # the longest there is, of sentences that are slow to judge
    yield from LABELS


CONVERSATION = Parser(
    (
        *(
            conversation,
            clauses,
            english,
            language,
            small_talk,
            judge,
            cues,
            dates,
            rules,
            labels,
            transcripts,
            json_chats,
            mails,
            moments,
        ),
        *(material, output, sentences, lists, prose),
    ),
    _conversation_seeds,
    _conversation,
    LABELS,
)
