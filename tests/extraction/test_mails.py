"""Mails: whose words they are, and whose not."""

from datetime import UTC, datetime

import pytest

from relayer.extraction.mails import mails
from relayer.extraction.material import own_words
from relayer.extraction.message import Message
from tests.extraction.ruled import texts

HEAD = "From: Uma <uma@example.org>\nTo: Ugo\nSubject: move\nDate: 20 Nov 2026\n\n"
MOVED = "I moved to Ghent in May."
REPLIES = [
    "On 19 Nov Ugo wrote:\n> I prefer Bruges.",
    "On Thu, 19 Nov 2026 at 10:00, Ugo <ugo@example.org> wrote:\nI prefer Bruges.",
    "On Thu, 19 Nov 2026 at 10:00, Ugo\n<ugo@example.org> wrote:\n\nI prefer Bruges.",
    "Am 19.11.2026 um 10:00 schrieb Ugo:\n> I prefer Bruges.",
    "Le 19 nov. 2026 à 10:00, Ugo a écrit :\n> I prefer Bruges.",
    "-----Original Message-----\nFrom: Ugo <ugo@example.org>\nSubject: x\n\nI prefer Bruges.",
    "---------- Forwarded message ---------\nFrom: Ugo <ugo@x.org>\nDate: x\n\nI prefer Bruges.",
    "________________________________\nVon: Ugo <ugo@example.org>\nBetreff: x\n\nI prefer Bruges.",
]
SIGNATURES = [
    "-- \nUma\nI prefer Bruges.",
    "Best regards,\nUma\n+49 151 2345678\nBruges",
    "Mit freundlichen Grüßen\n\nUma\nBruges",
    "Sent from my iPhone in Bruges",
]


@pytest.mark.parametrize("rest", ["", *REPLIES, *SIGNATURES])
async def test_a_mail_is_its_senders(rest: str) -> None:
    text = f"{HEAD}{MOVED}\n\n{rest}"
    assert mails(text) == [Message("user", "Uma", MOVED, datetime(2026, 11, 20, tzinfo=UTC))]
    assert await texts(text) == [f"Uma: {MOVED}"]


@pytest.mark.parametrize(
    ("head", "speaker"),
    [
        ("From: Uma <uma@example.org>\nTo: Ugo", "Uma"),
        ('From: "Okoro, Uma" <uma@example.org>\nTo: Ugo', "uma@example.org"),
        ("From: uma@example.org\nSubject: move", "uma@example.org"),
        ("Subject: move\nFrom: Uma", "Uma"),
        ("Von: Uma <uma@example.org>\nBetreff: Umzug", "Uma"),
        ("De : Uma <uma@example.org>\nObjet : a", "Uma"),
        ("**From:** Uma <uma@example.org>\n**To:** Ugo", "Uma"),
        ("From: Uma <uma@example.org>\nSubject: a\n b\nReceived: x\nX-Spam: no", "Uma"),
        ("From uma@example.org Fri Nov 20 10:00:00 2026\nFrom: Uma <uma@example.org>", "Uma"),
    ],
)
def test_headers_of_mails(head: str, speaker: str | None) -> None:
    found = mails(f"{head}\n\n{MOVED}")
    assert (
        found is None
        if speaker is None
        else [(m.speaker, m.text) for m in found or []] == [(speaker, MOVED)]
    )


def test_a_draft_is_nobodys_by_name() -> None:
    assert mails(f"To: Ugo\nSubject: move\n\n{MOVED}") == [Message("unknown", "", MOVED)]


def test_each_mail_of_several_is_its_senders() -> None:
    other = "From: Ugo <ugo@example.org>\nTo: Uma\n\nI prefer Bruges."
    found = mails(f"{HEAD}{MOVED}\n\n{other}") or []
    assert [(m.speaker, m.text) for m in found] == [("Uma", MOVED), ("Ugo", "I prefer Bruges.")]


@pytest.mark.parametrize(
    "text",
    [
        "From: Ghent\nTo: Bruges\nDate: 3 May 2026\n\nThe train is ICE 514.",
        "I wrote this:\nFrom: Uma <uma@example.org>\nSubject: a",
        "From: Uma",
        "Subject: a",
        "From Ghent to Bruges.",
    ],
)
def test_what_is_no_mail_is_none(text: str) -> None:
    assert mails(text) is None


@pytest.mark.parametrize(
    "reply", [*REPLIES, "From: Ugo <ugo@example.org>\nTo: Uma\nI prefer Bruges."]
)
def test_what_somebody_else_wrote_is_cut_out_of_a_message(reply: str) -> None:
    assert own_words(f"{MOVED}\n\n{reply}").split() == MOVED.split()
    part = reply.replace("\n", "\n\u00a0 ")
    assert own_words(f"{MOVED}\n\u00a0 {part}").split() == MOVED.split()


def test_what_stands_below_quoted_lines_is_heard() -> None:
    text = f"On 19 Nov Ugo wrote:\n> I prefer Bruges.\n\n{MOVED}"
    assert own_words(text).split() == MOVED.split()


@pytest.mark.parametrize("said", ["On 3 May I wrote:\nI prefer tea.", "Thanks\nI prefer tea."])
def test_ones_own_words_are_no_reply_and_no_signature(said: str) -> None:
    assert "I prefer tea." in own_words(said)
    (mail,) = mails(HEAD + said) or []
    assert "I prefer tea." in mail.text
