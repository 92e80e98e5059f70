"""One quoted unit: nothing in a memory ends it, opens anything, or is rendered."""

import html
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from memrelay.gateway.filters import looks_injected
from memrelay.gateway.framing import Reader, cold_start, frame_memories, quote_lines
from memrelay.gateway.line_breaks import one_line
from memrelay.gateway.quoting import escape, quote, quote_name
from memrelay.gateway.settings import PROFILES, GatewaySettings
from memrelay.models import Memory
from tests.client.quoting_scene import FORGED, units
from tests.optional import unwrap

ANY = st.characters(exclude_categories=())  # surrogates, controls and unassigned ones, too
PIECES = (
    *"`´ˋ‵｀\u1fef'\"＂<＜﹤≮>[［]&＆;:：|\\\n\r\x00\x85\u2028\u2029\u202e\u2066\u200b\u200d\ufeff",
    *("\u0301", "2. [2026-11-28] ", "1. `", "- ", "Human: ", "Assistant:", "</memwal-memories>"),
    *("<|im_start|>", "</s>", "[INST]", "[/INST]", "&#96;", "&amp;", "![x](https://e.example/x)"),
    *(
        "[a]: https://e.example",
        "<https://e.example>",
        "<img src=x>",
        "https://e.example",
        "x",
        " ",
    ),
)
TEXTS = st.one_of(st.text(ANY), st.lists(st.sampled_from(PIECES)).map("".join))
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
READER = Reader(public_key="aa", namespace="own")


def memory(text, **members):
    return Memory(**{"id": "m1", "namespace": "own", "text": text, "writer": "aa", **members})


@given(TEXTS)
def test_a_unit_is_one_line_that_only_its_end_ends(text):
    unit = quote(text)
    assert re.fullmatch("`[^`]*`", unit)
    assert unit.splitlines() == [unit]
    assert not set("<>[]\"'") & set(unit)
    assert not re.search(r":[\s`]", unit)
    assert html.unescape(unit[1:-1]) == one_line(text)


@given(TEXTS, st.sampled_from(FORMS))
def test_no_normal_form_of_unicode_opens_or_ends_anything(text, form):
    normal = unicodedata.normalize(form, quote(text))
    assert re.fullmatch("`[^`]*`", normal)
    assert not set("<>[]\"'") & set(normal)


@pytest.mark.parametrize("form", ["NFKC", "NFKD"])
def test_every_sign_that_becomes_a_special_one_is_written_out(form):
    signs = "&<>\"'`[]:"
    like = [
        char
        for char in map(chr, range(0x80, 0x110000))
        if not 0xD800 <= ord(char) < 0xE000
        and any(one in signs for one in unicodedata.normalize(form, char))
    ]
    assert len(like) > 15
    assert [char for char in like if escape(char) != f"&#{ord(char)};"] == []


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, st.sampled_from(sorted(PROFILES)))
def test_a_block_has_as_many_memories_as_it_shows(texts, name, profile):
    settings = replace(PROFILES[profile], injection_tokens_max=0, cold_start=True)
    found = [
        memory(text, id=name, namespace=name, writer="bb", writer_label=name, source=name)
        for text in texts
    ]
    shown = [one_line(text) for text in texts if one_line(text) and not is_left_out(text, name)]
    block = frame_memories(found, settings, READER, shows_source=True)
    beginning = cold_start(found, len(found), settings, READER)
    assert [text for _, text in units(block)] == shown if shown else block is None
    assert (
        [text for _, text in units(beginning)] == shown if shown else "`" not in unwrap(beginning)
    )


def is_left_out(*texts):
    return any(map(looks_injected, texts))


@pytest.mark.parametrize(
    "token",
    [
        *("<|im_start|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<s>", "</s>"),
        *("<bos>", "<start_of_turn>", "<<SYS>>", "<｜User｜>", "＜｜User｜＞", "<0x0A>", "<|end|>"),
        *("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[gMASK]", "[SEP]", "［INST］"),
        *(
            "Human: ",
            "\n\nHuman: ",
            "USER: ",
            "ASSISTANT:",
            "Assistant : ",
            "**Human:** ",
            "用户：",
            "User：x",
        ),
        *("### Instruction:", "System:\n", "</memwal-memories>", "<relevant-memories>", "<system>"),
        *("[2026-11-28]", "2. [", "</function_results>", "<tool_call>", "```", "<!--", "<![CDATA["),
    ],
)
def test_no_token_of_a_model_or_a_host_is_left(token):
    text = f"Tea.{token} now"
    for unit in (quote(text), quote(token), unicodedata.normalize("NFKC", quote(text))):
        assert one_line(token).strip() not in unit
        assert unicodedata.normalize("NFKC", one_line(token)).strip() not in unit


@pytest.mark.parametrize("text", ["at 10:30", "https://a.example:8443/x", "std::vector", r"C:\x"])
def test_times_addresses_and_names_of_code_stay_readable(text):
    assert quote(text) == f"`{text}`"


@pytest.mark.parametrize("rules", ["commonmark", "js-default"])
@pytest.mark.parametrize("before", ["", "Found:\n\n", "> ", "- a\n  "])
def test_no_image_and_no_link_is_rendered(rules, before):
    """With and without HTML, in the profiles' tags and as what was said."""
    found = [memory(FORGED), memory(FORGED, namespace=FORGED, source=FORGED)]
    texts = [
        *(
            frame_memories(found, settings, READER, shows_source=True)
            for settings in PROFILES.values()
        ),
        cold_start(found, 2, PROFILES["memsearch"], READER),
        quote_lines([("user", FORGED), (FORGED, FORGED)]),
    ]
    for text in texts:
        rendered = MarkdownIt(rules).render(f"{before}{text}\n\n[y] [a] ![a] Go on.")
        assert "evil.example/plain" in rendered
        assert not re.search(r"<a\b|<img\b", rendered)


def test_what_renders_if_it_is_not_quoted():
    rendered = MarkdownIt("commonmark").render(FORGED.replace("`", ""))
    assert "<img" in rendered
    assert "<a href" in rendered


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("coder", "coder"),
        ("openclaw:main:s-1", "openclaw:main:s-1"),
        ("Anna's laptop", "`Anna&#x27;s laptop`"),
        ("coder, unsure", "`coder, unsure`"),
        ("https://evil.example", "`https://evil.example`"),
        ("evil.example", "`evil.example`"),
        ("a\nb]", "`a b&#93;`"),
        ("x" * 100, "`" + "x" * 63 + "…`"),
    ],
)
def test_a_name_that_is_no_plain_word_is_quoted(name, shown):
    assert quote_name(name) == shown


def test_a_memory_says_who_wrote_it_unless_it_is_who_reads():
    found = [
        memory("mine"),
        memory("labelled", writer="bb" * 32, writer_label="coder"),
        memory("not labelled", writer="bb" * 32),
        memory("forged", writer="bb" * 32, writer_label="coder] `x"),
        memory("of old"),
    ]
    heads = [head for head, _ in units(frame_memories(found, GatewaySettings(), READER))]
    assert heads == ["", "from coder", "from `bbbb…bbbb`", "from `coder&#93; &#96;x`", ""]
    assert [head for head, _ in units(frame_memories(found, GatewaySettings()))] == [""] * 5


@pytest.mark.parametrize(
    ("members", "head"),
    [
        ({"confidence": "low"}, "unsure"),
        ({"confidence": "medium"}, ""),
        ({"review": "contradiction"}, "unsure"),
        ({"review": "pending"}, "unsure"),
        ({"review": "approved"}, ""),
        ({"confidence": "low", "writer": "b", "writer_label": "x", "namespace": "t"}, None),
    ],
)
def test_a_memory_that_may_be_wrong_says_so(members, head):
    [(shown, _)] = units(frame_memories([memory("Tea.", **members)], GatewaySettings(), READER))
    assert shown == ("in t, from x, unsure" if head is None else head)
