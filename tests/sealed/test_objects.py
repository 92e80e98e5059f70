"""Strict JSON and signed objects: refused at every byte that is changed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.sealed import objects
from relayer.sealed.primitives import (
    CryptoError,
)
from tests import reference as ref
from tests import scenarios as sc
from tests.sealed.altered import (
    RELAYER,
    cuts,
    few,
    flips,
    refused,
)

_leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_values = st.recursive(
    _leaves | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


def strictly(value: Any) -> Any:
    return objects.strict_json(json.dumps(value).encode())


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


@few
@given(value=st.dictionaries(_text, _values, max_size=3))
def test_strict_json_reads_what_has_a_depth_of_6_at_most(value: dict[str, Any]) -> None:
    if depth(value) <= 6:
        assert strictly(value) == value
    else:
        assert refused(strictly, value) == "nested too deeply"


@few
@given(payload=st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ua1e.-N').map(str.encode))
def test_strict_json_fails_in_one_way_only(payload: bytes) -> None:
    try:
        value = objects.strict_json(payload)
    except CryptoError:
        return
    assert strictly(value) == value


@pytest.mark.parametrize("version", [True, 0, 2, None, "1", [1]])
def test_only_version_1_is_known(version: Any) -> None:
    payload = json.dumps({"v": version, "a": 1}).encode()
    assert refused(objects.strict_object, payload, frozenset("a")) == "unknown version"


def test_an_object_is_read_as_the_bytes_that_were_signed() -> None:
    payload = b'{ "b" : [ ] ,\n "v" : 1, "a" : "\\u0061" }'
    signed = sc.RELAYER.signed("state", payload)
    opened = objects.open_object(signed, "state", RELAYER.public_key, frozenset("ab"))
    assert opened == {"a": "a", "b": []}


def test_an_object_with_any_bit_changed_or_cut_anywhere_does_not_verify() -> None:
    signed = objects.sign_object(RELAYER, "state", {"a": "Küche"})
    for broken in [*flips(signed), *cuts(signed), signed + b"\0"]:
        refused(objects.open_object, broken, "state", RELAYER.public_key, frozenset("a"))


def test_objects_have_64_kib_at_most() -> None:
    text = "x" * (objects.PAYLOAD_BYTES_MAX - len('{"v":1,"a":""}'))
    signed = objects.sign_object(RELAYER, "state", {"a": text})
    key, members = RELAYER.public_key, frozenset("a")
    assert objects.open_object(signed, "state", key, members) == {"a": text}
    refused(objects.sign_object, RELAYER, "state", {"a": text + "x"})
    longer = sc.RELAYER.signed("state", ref.compact({"v": 1, "a": text + "x"}))
    assert refused(objects.open_object, longer, "state", key, members) == "bad object length"
