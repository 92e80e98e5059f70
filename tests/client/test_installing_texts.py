"""Edits of other programs' configurations: one place changes, and every other byte stays."""

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memrelay.installing.documents import ABSENT, Document, Form
from memrelay.installing.errors import NotEditable
from tests.properties.drawn import few

ENTRY = {"command": "/opt/my tools/memrelay", "args": ["mcp", "--agent", "zoë"]}
PLACE = ("mcpServers", "memrelay")

# JSON, written in many ways


def blanks() -> st.SearchStrategy[str]:
    one = st.sampled_from(["", " ", "\n", "\t", "\r\n", "/* a } , */", '// b { ] "\n', "  "])
    return st.lists(one, max_size=3).map("".join)


def texts() -> st.SearchStrategy[str]:
    plain = st.text('ab"\\\n\r\té🦞{}[],:/* \u2028', max_size=8)
    double = plain.map(lambda text: json.dumps(text, ensure_ascii=False))
    single = st.text('abc "{}[]//,:é', max_size=6).map(lambda text: f"'{text}'")
    return double | single


def names(number: int) -> st.SearchStrategy[str]:
    """Names that are unlike each other, in each way to write one."""
    ways = [f'"n{number}"', f"'n{number}'", f"n{number}", f"$n{number}"]
    return st.sampled_from(ways)


@st.composite
def objects(draw: Any, inner: st.SearchStrategy[str]) -> str:
    number = draw(st.integers(0, 3))
    items = [
        f"{draw(blanks())}{draw(names(n))}{draw(blanks())}:{draw(blanks())}{draw(inner)}"
        f"{draw(blanks())}"
        for n in range(number)
    ]
    comma = draw(st.sampled_from(["", ","])) if items else ""
    return "{" + ",".join(items) + comma + draw(blanks()) + "}"


@st.composite
def lists(draw: Any, inner: st.SearchStrategy[str]) -> str:
    items = [
        f"{draw(blanks())}{draw(inner)}{draw(blanks())}" for _ in range(draw(st.integers(0, 3)))
    ]
    comma = draw(st.sampled_from(["", ","])) if items else ""
    return "[" + ",".join(items) + comma + draw(blanks()) + "]"


SCALARS = texts() | st.sampled_from(
    [
        "true",
        "false",
        "null",
        "0",
        "-1.5e3",
        "0x1F",
        "+.5",
        "Infinity",
        "NaN",
        "12345678901234567890",
    ]
)
VALUES = st.recursive(SCALARS, lambda inner: objects(inner) | lists(inner), max_leaves=12)


@st.composite
def json_documents(draw: Any) -> str:
    return (
        draw(st.sampled_from(["", "\ufeff"]))
        + draw(blanks())
        + draw(objects(VALUES))
        + draw(blanks())
    )


@few
@given(json_documents(), st.sampled_from([PLACE, ("n0",), ("n1", "memrelay"), ("n0", "n1", "x")]))
def test_a_value_is_set_and_taken_out_of_any_json_without_another_change(text, path):
    document = Document(text, "json")
    depth = document.depth(path)
    blocked = any(
        document.get(path[:n]) is not ABSENT and not isinstance(document.get(path[:n]), dict)
        for n in range(1, len(path))
    )
    if blocked:
        with pytest.raises(NotEditable):
            document.with_value(path, ENTRY)
        return
    changed = document.with_value(path, ENTRY)  # which compares all other values
    assert changed.get(path) == ENTRY
    back = changed.without(path, depth=depth)
    assert repr(back.value) == repr(document.without(path, depth=depth).value)
    # No comment is lost, and none is made of something else.
    assert comments(changed.text) >= comments_without(text, document, path)


def comments(text: str) -> int:
    return text.count("/* a } , */") + text.count('// b { ] "')


def comments_without(text: str, document: Document, path: tuple[str, ...]) -> int:
    """Return how many comments a text has outside a value that is replaced."""
    return 0 if document.get(path) is not ABSENT else comments(text)


@few
@given(json_documents(), st.integers(0, 3))
def test_any_member_can_be_taken_out(text, number):
    document = Document(text, "json")
    for name in list(document.value)[number : number + 1]:
        assert document.without((name,)).get((name,)) is ABSENT


@few
@given(st.lists(VALUES, max_size=4), st.integers(0, 4), st.sampled_from(["", ","]), blanks())
def test_an_element_is_appended_and_any_is_taken_out(values, number, comma, blank):
    text = f'{{"hooks": {{"Stop": [{f",{blank}".join(values)}{comma if values else ""}{blank}]}}}}'
    document = Document(text, "json")
    changed = document.with_element(("hooks", "Stop"), ENTRY)
    assert changed.get(("hooks", "Stop", len(values))) == ENTRY
    assert repr(changed.without(("hooks", "Stop", len(values))).value) == repr(document.value)
    if number < len(values):
        fewer = document.without(("hooks", "Stop", number)).get(("hooks", "Stop"))
        assert len(fewer) == len(values) - 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("// none yet\n", '// none yet\n{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{\n\t"x": 1, // one\n}\n', '{\n\t"x": 1, // one\n\t"a": {\n\t\t"b": 1\n\t},\n}\n'),
        (
            '{\r\n    "x": 1 // one\r\n}',
            '{\r\n    "x": 1, // one\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}',
        ),
        ('{\n  "a": {}\n}', '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n  "a": {\n    // its own\n  }\n}', '{\n  "a": {\n    // its own\n    "b": 1\n  }\n}'),
        ('{\n  "a": { "x": 1 }\n}', '{\n  "a": { "x": 1, "b": 1 }\n}'),
        (
            '{\n  "a": {"b": /* old */ 0},\n  "z": 1\n}',
            '{\n  "a": {"b": /* old */ 1},\n  "z": 1\n}',
        ),
    ],
)
def test_json_is_written_as_the_rest_of_the_file_is(before, after):
    assert Document(before, "json").with_value(("a", "b"), 1).text == after


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ('{\n  "a": 1,\n  "b": 2\n}', ("b",), '{\n  "a": 1\n}'),
        ('{\n  "a": 1,\n  "b": 2\n}', ("a",), '{\n  "b": 2\n}'),
        ('{\n  "a": 1, // one\n  "b": 2\n}', ("b",), '{\n  "a": 1 // one\n}'),
        ('{\n  // one\n  "a": 1, "b": 2\n}', ("a",), '{\n  // one\n "b": 2\n}'),
        ('{\n  "a": 1,\n}', ("a",), "{}"),
        ('{"a": 1, "b": 2, "c": 3}', ("b",), '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2}', ("a",), '{"b": 2}'),
        ('{"a": [1, 2 /* two */, 3]}', ("a", 1), '{"a": [1, /* two */ 3]}'),
    ],
)
def test_json_loses_one_member_and_nothing_else(before, path, after):
    assert Document(before, "json").without(path).text == after


TOML = """\
# my settings
model = "x"   # the good one
notes = '''
[not.a.table]
'''
args = [
  "[nor.this]", # a comment ]
]

[mcp_servers.other]
command = "other"
env = { A = "b" }

# about projects
[projects."/home/zoë/a.b"]
trust_level = "trusted"
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [TOML, "", "# nothing\n", "[mcp_servers]\n", "[[list]]\na = 1\n"])
def test_a_table_is_added_to_toml_and_taken_out(text, ends):
    text = text.replace("\n", ends)
    document = Document(text, "toml")
    path = ("mcp_servers", "memrelay")
    entry = {**ENTRY, "env": {"A B": 'q"\\'}, "enabled": True}
    changed = document.with_value(path, entry)
    assert changed.text.startswith(text)
    assert tomllib.loads(changed.text)["mcp_servers"]["memrelay"] == entry
    assert changed.without(path, depth=document.depth(path)).text == text
    other = changed.with_value(path, ENTRY).with_value(("z",), {"b": 1})
    assert other.with_value(path, entry).text == changed.with_value(("z",), {"b": 1}).text
    assert other.without(path).get(("z", "b")) == 1


def test_an_element_is_added_to_a_list_of_toml_tables_and_taken_out():
    text = '[[servers]]\nname = "a"\n[servers.env]\nx = 1\n\n[[servers]]\nname = "b"\n'
    document = Document(text, "toml")
    changed = document.with_element(("servers",), ENTRY)
    assert changed.without(("servers", 2)).text == text
    assert (
        changed.without(("servers", 0)).text.lstrip()
        == changed.text[text.index("\n[[servers]]") + 1 :]
    )


YAML = """\
# my settings
GOOSE_PROVIDER: x
extensions:
    developer:   # the good one
        enabled: true
        args: [a, 'b']
        notes: |
            # no comment

            more
    # the end
other: &o {a: 1}
same: *o
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        YAML,
        "",
        "# nothing\n",
        "a: 1\n",
        "extensions: {}\nb: 1\n",
        "extensions:\n  x:\nb: 1\n",
        "extensions:\n  - a\n",
        "---\nextensions:\n  x: {}\n...\n",
    ],
)
def test_a_member_is_added_to_yaml_and_taken_out(text, ends):
    text = text.replace("\n", ends)
    document = Document(text, "yaml")
    path = ("extensions", "memrelay")
    if isinstance(document.value.get("extensions"), list):
        with pytest.raises(NotEditable):
            document.with_value(path, ENTRY)
        return
    changed = document.with_value(path, ENTRY)
    assert yaml.safe_load(changed.text)["extensions"]["memrelay"] == ENTRY
    assert changed.with_value(path, {"a": 1}).with_value(path, ENTRY).text == changed.text
    assert changed.without(path, depth=document.depth(path)).text == text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("{", "json"),
        ("[]", "json"),
        ('{"a": 1} x', "json"),
        ('{"a": 1, "a": 2}', "json"),
        ('{"a": 1 "b": 2}', "json"),
        ('{"a": tru}', "json"),
        ('{"a": "b}', "json"),
        ("{} /*", "json"),
        ("[" * 100_000, "json"),
        ("a =", "toml"),
        ("a = 1\na = 2", "toml"),
        ("a: [", "yaml"),
        ("- a", "yaml"),
        ("a: !!python/object:os.system {}", "yaml"),
        ("a: 1\n---\nb: 2\n", "yaml"),
    ],
)
def test_what_is_not_of_the_form_is_refused(text: str, form: Form):
    with pytest.raises(NotEditable) as caught:
        Document(text, form)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"mcpServers": null}', "json"),
        ('{"mcpServers": ["a"]}', "json"),
        ("mcpServers = {a = 1}", "toml"),
        ("mcpServers: text\n", "yaml"),
        (f'{{"b": {"[" * 200}/**/{"]" * 200}}}', "json"),
    ],
)
def test_what_cannot_be_changed_in_one_place_is_refused(text: str, form: Form):
    with pytest.raises(NotEditable):
        Document(text, form).with_value(PLACE, ENTRY)


@pytest.mark.parametrize("comment", ["// mine\n", f"/*{'* /' * 20_000}*/"])
@pytest.mark.parametrize("inside", ["", "/* theirs */"])
def test_a_long_file_is_edited_in_linear_time(comment, inside):
    """A quadratic reader would take minutes for it."""
    history = [{"display": "x" * 40, "pasted": {}} for _ in range(10_000)]
    text = comment + json.dumps({"history": history, "n": {}}, indent=2)
    text = text.replace('"pasted"', f'{inside}"pasted"')
    changed = Document(text, "json").with_value(PLACE, ENTRY)
    assert changed.text.startswith(text[:-2])
