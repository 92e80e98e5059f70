"""How deeply a payload is nested: as a walk over its bytes tells it.

Not here: what else strict JSON is (`tests/sealed`, vectors).
"""

from hypothesis import example, given
from hypothesis import strategies as st

from relayer.sealed.objects import _bracket_depth
from tests.properties.drawn import many

pieces = st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b"\n", b"a", b"\xff", b'\\"', b'""'])


def walked(payload: bytes) -> int:
    """Byte by byte: brackets count outside of texts, and a text without an end has no outside."""
    depth = deepest = 0
    in_text = escaped = False
    for byte in payload:
        if in_text and escaped:
            escaped = False
        elif in_text:
            escaped, in_text = byte == ord("\\"), byte != ord('"')
        elif byte == ord('"'):
            in_text = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


@many
@given(st.lists(pieces, max_size=40).map(b"".join) | st.binary(max_size=60))
@example(b"")
@example(b"]][[")
@example(b'["\\')
@example(b'"\\\n"[[')
def test_depth_is_the_walks(payload: bytes) -> None:
    assert _bracket_depth(payload) == walked(payload)
