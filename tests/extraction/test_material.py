"""Which part of a message is its author's own."""

import pytest

from relayer.extraction.conversation import select_messages
from relayer.extraction.material import own_words
from relayer.extraction.message import Message

BOAT = "I decided to sell the boat in spring."


@pytest.mark.parametrize(
    "text",
    [
        "```\nI prefer tabs.\n```",
        "```\nI prefer tabs.",
        "~~~python\nI prefer tabs.\n~~~",
        "> I prefer tabs.",
        "<memwal-memories>I prefer tabs.</memwal-memories>",
        "<a><b>I prefer</a> tabs.</b>",
        "$ echo I prefer tabs.",
        "2026-03-01 10:00:00,123 I prefer tabs.",
        "ERROR I prefer tabs.",
        '{"text": "I prefer tabs."}',
        'Tool result (look_up): {"text": "I prefer tabs."}',
        "<!-- I prefer tabs. -->",
        "<!-- I\nprefer tabs.",
    ],
)
def test_material_of_others_is_cut_out(text: str) -> None:
    kept = own_words(text)
    assert ("tabs" in kept) == text.endswith("<!-- I\nprefer tabs.")


@pytest.mark.parametrize(
    "text", ["use List<String> for it", "a < b and b > c", "<name> is required", "I prefer `tabs`"]
)
def test_lone_angle_brackets_stay(text: str) -> None:
    assert own_words(text) == text


def test_inline_tags_keep_their_content() -> None:
    text = 'We use <b>Redis <i class="x">7</i></b> and <code>pg</code>.<div>I prefer tabs.</div>'
    assert own_words(text).split("\n") == ["We use Redis 7 and pg.", ""]


# Lines that a program wrote

OUTPUT = {
    "a log": "2026-03-01 10:00:00 INFO I prefer tabs.",
    "a log with a thread": "2026-03-01 10:00:00 [main] I prefer tabs.",
    "a log in ISO 8601": "2026-03-01T10:00:00.123Z I prefer tabs.",
    "a log of a service": "[2026-03-01 10:00:00] production.ERROR: I prefer tabs.",
    "a log of a host": "Mar  1 10:00:00 ares sshd[42]: I prefer tabs.",
    "a log of a kernel": "[   12.345678] I prefer tabs.",
    "a log of a web server": '1.2.3.4 - - [01/Mar/2026:10:00:00 +0000] "GET /tabs"',
    "a level in brackets": "[WARNING] I prefer tabs.",
    "a level and a module": "ERROR:root:I prefer tabs.",
    "a level and a column": "INFO   I prefer tabs.",
    "npm": "npm WARN deprecated tabs@1.0.0",
    "a shell": "$ ls tabs",
    "a prompt": "uma@ares:~/tabs$ ls",
    "an interpreter": ">>> tabs",
    "a trace": 'Traceback (most recent call last):\n  File "tabs.py", line 1\n    tabs\nE: tabs',
    "a trace of Java": 'Exception in thread "main" tabs\n\tat org.example.Tabs.run(Tabs.java:42)',
    "a trace of Node": "at file:///srv/tabs.js:4:2",
    "a summary of tests": "41 passed, 2 skipped in 3.10s of tabs",
    "one test": "FAILED tests/test_tabs.py::test_tabs",
    "a diff": "diff --git a/tabs b/tabs\n--- a/tabs\n+++ b/tabs\n@@ -1 +1 @@\n-tabs\n+tabs\n tabs",
    "JSON over lines": '[\n  {\n    "role": "user",\n    "content": "I prefer tabs."\n  }\n]',
    "values of JSON": '[\n  "I prefer tabs.",\n  "tabs"\n]',
    "a drawn table": "+------+\n| tabs |\n+------+\n| tabs |\n+------+",
    "levels one after another": "ERROR could not open tabs\nWARN tabs are slow",
    "times below a log": "2026-03-01 10:00:00 INFO a\n2026-03-01 10:00:01 I prefer tabs.",
    "a level beside a shell": "$ make\nERROR tabs are bad",
    "symbols": "tabs = {a: [b], c: <d>} | $e && f[g] ^ h;",
}


@pytest.mark.parametrize("output", OUTPUT.values(), ids=OUTPUT)
def test_output_of_programs_is_cut_out(output: str) -> None:
    for gap in ("\n", "\n\n"):
        kept = own_words(f"I live in Ghent.{gap}{output}{gap}I prefer tea.")
        assert "tabs" not in kept
        assert kept.startswith("I live in Ghent.\n")
    part = output.replace("\n", "\n\u00a0 ")
    assert "tabs" not in own_words(f"I live in Ghent.\n\u00a0 {part}")


@pytest.mark.parametrize(
    "said",
    [
        "ERROR budget for the checkout service is 0.1 percent, we decided that on Monday.",
        "INFO desk is on the second floor.",
        "WARNING: I am allergic to penicillin.",
        "FAILED logins lock an account.",
        "NOTICE period of my contract is three months.",
        "$ 400 is my monthly limit for cloud spending.",
        "$ is what we quote prices in.",
        "2026-12-03 14:00:00 dentist at Dr. Okoro",
        "2026-12-03 14:00:00 dentist\n2026-12-04 09:30:00 car inspection",
        "[2026-12-03 14:00] dentist",
        "[heron] is our wiki.",
        "[our wiki](https://wiki.example.org) is open to all.",
        "{name} is where the name goes.",
        "3 failed logins lock an account.",
        "--- but that was before ---",
        "+1 for tea",
        "at work (in Ghent) I prefer tea.",
        "Our page: https://example.org/?a=1&b=2&c=3&d=4#top",
        "My flags are `--dry-run`, `--force` and `--all`.",
        "| Host | Port |\n|------|-----:|\n| ares | 2222 |",
        '"Heron": that is our wiki.',
        "- - -",
    ],
)
def test_lines_that_only_begin_like_output_stay(said: str) -> None:
    assert own_words(said) == said
    assert own_words(f"I live in Ghent.\n\n{said}\n\nI prefer tea.").count(said) == 1


# Blocks

BLOCKS = {
    "a reminder": "<system-reminder>\nI prefer rum.\n</system-reminder>",
    "a reminder in one line": "<system-reminder>I prefer rum.</system-reminder>",
    "a reminder in capitals": "<SYSTEM-REMINDER>I prefer rum.</SYSTEM-REMINDER>",
    "memories of another plugin": "<supermemory-context>\nI prefer rum.\n</supermemory-context>",
    "memories": "<relevant_memories>\n1. I prefer rum.\n\n2. I like gin.\n</relevant_memories>",
    "a file": '<file name="notes.txt" mime="text/plain">\nI prefer rum.\n</file>',
    "a context": "<context>\nI prefer rum.\n</context>",
    "a file in a context": "<context>a<file name='x'>I prefer rum.</file>b</context>",
    "what a command printed": "<local-command-stdout>I prefer rum.</local-command-stdout>",
    "a comment": "<!-- I prefer rum. -->",
    "a comment over lines": "<!--\nI prefer rum.\n-->",
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("frame", ["{}\n" + BOAT, BOAT + "\n{}", "{}\n" + BOAT + "\n{}"])
@pytest.mark.parametrize("label", ["", "user: ", "1. user: "])
def test_a_block_costs_no_word_around_it(block: str, frame: str, label: str) -> None:
    """Neither rules nor a model are shown it."""
    (message,) = select_messages(label + frame.format(block, block))
    assert message.text == BOAT


def test_a_reminder_within_a_line_is_cut_out() -> None:
    (message,) = select_messages(
        f"user: {BOAT} <system-reminder>I prefer rum.</system-reminder> I like tea."
    )
    assert message.text.split() == f"{BOAT} I like tea.".split()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{BOAT}\n<system-reminder>\nI prefer rum.", BOAT),
        (f"{BOAT}\n<system-reminder>I prefer rum.", BOAT),
        (f'{BOAT}\n<file name="a">\nI prefer rum.', BOAT),
        # What only looks like the begin of one costs nothing.
        (f"<file> is a placeholder. {BOAT}", f"<file> is a placeholder. {BOAT}"),
        (f"Use <context> here.\n{BOAT}", f"Use <context> here.\n{BOAT}"),
        (f"```\n<file>\n```\n{BOAT}", f"```\n<file>\n```\n{BOAT}"),
        (f"<!-- {BOAT}", BOAT),
        (f"{BOAT}\n</system-reminder>", f"{BOAT}\n</system-reminder>"),
    ],
)
def test_a_block_that_is_not_closed(text: str, kept: str) -> None:
    assert select_messages(text) == [Message("unknown", "", kept)]


@pytest.mark.parametrize(
    "said",
    [
        "<ines@example.org> is my new address.",
        "<https://example.org/x> is our wiki.",
        "<Button> must always use our primary colour.",
        "We check that a < b and c > d.",
        "We use Map<String, List<User>> and List<String>.",
        "Write <name> around it: a->b, c<-d.",
        "I <3 tea and hate rum >:(",
    ],
)
def test_what_only_looks_like_a_tag_stays(said: str) -> None:
    for text in (said, f"user: {said}", f"1. user: {said}"):
        (message,) = select_messages(text)
        assert own_words(message.text) == said


@pytest.mark.parametrize("tag", ["user_query", "user-message", "user_prompt"])
def test_what_a_client_wraps_is_its_users(tag: str) -> None:
    for text in (f"<{tag}>{BOAT}</{tag}>", f"1. user: <{tag}>\n{BOAT}\n</{tag}>"):
        (message,) = select_messages(text)
        assert message.text == BOAT
