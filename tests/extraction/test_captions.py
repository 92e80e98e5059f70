"""Captions: who says what in SRT, WebVTT and SBV, and what of them is no statement."""

import pytest

from relayer.extraction.captions import caption_messages
from relayer.extraction.transcripts import transcript_problem
from tests.extraction.ruled import texts

ANNA, BO = ("user", "Anna", "I moved to Lisbon in spring."), ("user", "Bo", "We live in Porto.")


def said(text: str) -> list[tuple[str, str, str]] | None:
    found = caption_messages(text)
    return None if found is None else [(one.role, one.speaker, one.text) for one in found]


FORMS = {
    "SRT": "1\n00:00:01,000 --> 00:00:04,000\nAnna: I moved to Lisbon\n\n"
    "2\n00:00:04,000 --> 00:00:06,500\nin spring.\n\n"
    "3\n00:00:07,000 --> 00:00:08,000\nBo: We live in Porto.\n",
    "SRT without empty lines": "1\n00:00:01,000 --> 00:00:04,000\nAnna: I moved to Lisbon\n"
    "2\n00:00:04,000 --> 00:00:06,500\nin spring.\n"
    "3\n00:00:07,000 --> 00:00:08,000\nBo: We live in Porto.",
    "SRT without numbers": "00:00:01,000 --> 00:00:04,000\nANNA: I moved to Lisbon in spring.\n\n"
    "00:00:07,000 --> 00:00:08,000\n>> BO: We live in Porto.",
    "two in a cue": "1\n00:00:01,000 --> 00:00:04,000\n- Anna: I moved to Lisbon in spring.\n"
    "- Bo: We live in Porto.",
    "formatted": "1\n00:00:01,000 --> 00:00:04,000\n{\\an8}Anna: I <i>moved</i> to Lisbon"
    ' in spring.\n\n2\n00:00:07,0 --> 00:00:08,0\n<font color="red">Bo: We live in Porto.</font>',
    "WebVTT": "WEBVTT - a talk\nKind: captions\n\nNOTE made by hand\nin March\n\n"
    "STYLE\n::cue { color: red }\n\nintro\n00:01.000 --> 00:04.000 align:start\n"
    "<v Anna>I moved to <c.loud>Lisbon</c></v>\n\n8b2f-4/15-0\n"
    "00:04.000 --> 00:06.500\n<v.loud Anna><00:05.000>in spring.</v>\n\n"
    "00:07.000 --> 00:08.000\n<v Bo>We live in Porto.",
    "rolling": "WEBVTT\n\n00:01.000 --> 00:02.000\nAnna: I moved to\n\n"
    "00:02.000 --> 00:03.000\nAnna: I moved to\nLisbon in spring.\n\n"
    "00:03.000 --> 00:04.000\nLisbon in spring.\nBo: We live in Porto.",
    "SBV": "0:00:01.000,0:00:04.000\nAnna: I moved to Lisbon in spring.\n\n"
    "0:00:07.000,0:00:08.000\nBo: We live in Porto.\n",
}


@pytest.mark.parametrize("form", FORMS)
async def test_who_says_what(form: str) -> None:
    text = FORMS[form]
    assert said(text) == [ANNA, BO]
    assert await texts(text) == ["Anna: I moved to Lisbon in spring.", "Bo: We live in Porto."]
    assert await texts(text.replace("\n", "\r\n")) == await texts(text)
    assert await texts(f"\ufeff{text}") == await texts(text)


async def test_without_names_it_is_one_text() -> None:
    text = (
        "1\n00:00:01,000 --> 00:00:04,000\nI moved to\n\n2\n00:00:04,000 --> 00:00:06,000\nLisbon"
        " in spring: it is warm &amp; dry there.\n"
    )
    whole = "I moved to Lisbon in spring: it is warm & dry there."
    assert said(text) == [("unknown", "", whole)]
    assert await texts(text) == [whole]


async def test_roles_are_heard_as_such() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\nUser: I live in Porto.\n\n00:03.000 --> 00:04.000\n"
    text += "System: I live in Rome.\n\n00:05.000 --> 00:06.000\nAssistant: Noted.\n"
    assert said(text) == [
        ("user", "", "I live in Porto."),
        ("other", "", "I live in Rome."),
        ("assistant", "", "Noted."),
    ]
    assert await texts(text) == ["I live in Porto."]


@pytest.mark.parametrize(
    "text", ["WEBVTT", "WEBVTT\n\nNOTE nothing\n", "1\n00:01,0 --> 00:02,0\n\n"]
)
def test_captions_that_say_nothing_are_told(text: str) -> None:
    assert caption_messages(text) is None
    assert "no cue" in (transcript_problem(text) or "")


@pytest.mark.parametrize("text", ["at 10:30 --> 11:00 I sleep", "1\nI live in Porto.", "a --> b"])
def test_other_texts_are_no_captions(text: str) -> None:
    assert caption_messages(text) is None
    assert transcript_problem(text) is None


async def test_timings_in_a_message_are_no_statements() -> None:
    """Whose words they are, only the message says."""
    pasted = FORMS["SRT"].replace("\n\n", "\n").replace("\n", "\n\N{NO-BREAK SPACE} ")
    found = await texts(f"1. user: Here it is:\n\N{NO-BREAK SPACE} {pasted}")
    assert found
    assert not [text for text in found if "-->" in text or "Here" in text]
