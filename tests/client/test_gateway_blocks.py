"""Blocks of others in a text: what is left beside them, and what is none."""

import pytest

from memrelay.gateway.blocks import without_blocks

BOAT = "I decided to sell the boat in spring."
TAGS = [
    "system-reminder",
    "System_Reminder",
    "environment_details",
    "ide_selection",
    "ide_opened_file",
    "hook_context",
    "task-notification",
    "context",
    "relevant_memories",
    "mem0_context",
    "supermemory-context",
    "claude-mem-context",
    "hindsight_memories",
    "MEMORIES",
    "FACTS",
    "attached_files",
    "local-command-stdout",
    "untrusted-text",
    "user-preferences",
    "some-plugin_data",
    "file",
    "documents",
    "notes",
]


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(
    "text",
    [
        "<{0}>\nBob prefers rum.\n</{0}>\n{1}",
        "{1}\n<{0}>\nBob prefers rum.\n</{0}>",
        '\n\n<{0} name="a.txt" size="1">\n\nBob prefers rum.\n</{0}>\n\n{1}\n',
        "<{0}>Bob prefers rum.</{0}>\n{1}",
        "<context>\n<{0}>\nBob prefers rum.\n</{0}>\n</context>\n{1}",
        "<x_y>\nEve\n</x_y>\n<{0}>\nBob prefers rum.\n</{0}>\n{1}",
    ],
)
def test_a_block_on_lines_of_its_own_goes(tag: str, text: str) -> None:
    assert without_blocks(text.format(tag, BOAT)).strip() == BOAT


@pytest.mark.parametrize("tag", ["system-reminder", "supermemory-context", "hook_context"])
def test_what_a_harness_or_a_plugin_wrote_goes_wherever_it_stands(tag: str) -> None:
    block = f"<{tag}>Bob prefers rum.</{tag}>"
    assert without_blocks(f"{BOAT} {block}") == BOAT
    assert without_blocks(f"{block}{block} {BOAT}") == BOAT
    assert without_blocks(f"I decided {block} it.").split() == "I decided it.".split()


@pytest.mark.parametrize(
    "text",
    [
        f"<!-- draft -->\n{BOAT}",
        f"{BOAT}<!-- Bob\nprefers rum. -->",
        f"<?xml version='1.0'?>\n{BOAT}",
        f"<!DOCTYPE html>\n{BOAT}",
        f'<file path="a.txt" />\n{BOAT}',
        f"<user_query>\n{BOAT}\n</user_query>",
        f"<userRequest>{BOAT}</userRequest>",
    ],
)
def test_comments_declarations_and_what_wraps_the_users_words_go(text: str) -> None:
    assert without_blocks(text).strip() == BOAT


@pytest.mark.parametrize(
    "text",
    [
        "<ines@example.org> is my new address.",
        "<https://example.org/a?b=c> is my site, and <http://localhost:8000> the test.",
        "<@U123> owns the payments team now.",
        "<Button> must always use our primary colour.",
        "<Button>Save</Button> must be blue, and <my-button>Send</my-button> green.",
        "We retry if a < b and c > d, or while x <= y.",
        "We use Vec<String> and Map<K, V> in the parser.",
        "I <3 Lisbon. <- That is why.",
        "I press <kbd>Ctrl</kbd> to <b>save</b> my work.",
        "<b>I moved to Oslo.</b>",
        "Wrap it in `<context>` and `</context>`, always.",
        "My tag is </context>, alone.\n<system-reminder> is another.",
        "The comment begins with <!-- and never ends.",
    ],
)
def test_words_stay_as_they_are(text: str) -> None:
    assert without_blocks(text) == text


@pytest.mark.parametrize(
    "held",
    [
        "Bob prefers rum, see </file> for more of rum.",
        "<!-- rum",
        "<b>rum",
        "rum <file> rum </file> rum",
        "<other_file>\nrum\n</file>",
    ],
)
def test_what_a_block_holds_does_not_end_it(held: str) -> None:
    text = f"<file name='a'>\n{held}\n</file>\n{BOAT} Like this: --> sold."
    assert without_blocks(text).strip() == f"{BOAT} Like this: --> sold."


@pytest.mark.parametrize(
    "seed",
    [
        "<a-b>",
        "<a-b ",
        "</a-b>",
        "<!-- ",
        "<a-b>x</a-b> ",
        "\n<a-b>",
        " <x> ",
        "<?x ",
        "< ",
        "\n  ",
    ],
)
@pytest.mark.parametrize("end", ["", "</a-b>" * 50_000])
def test_half_a_megabyte_made_to_slow_it_down_is_read_through(seed: str, end: str) -> None:
    text = f"{BOAT}\n{seed * (500_000 // len(seed))}{end}"
    assert without_blocks(text).startswith(BOAT)
