"""Keys do not show: not in a repr, a text, a format, a pickle or a dict of whatever holds one.

Not here: files (`test_private_files.py`), logs and tables (`test_secrecy.py`).

- The list of types is read out of the modules: whoever writes a new class with a key in it joins.
"""

import copy
import dataclasses
import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import memrelay
import relayer
from memrelay import config as client_config
from memrelay.sealed import keys as client_keys
from relayer import settings as relayer_settings
from relayer.sealed import primitives
from tests.every_module import iterate_module_names

CANARY: Final = b"zq-this-is-a-canary-of-32-bytes!"
# Names of members that hold a secret: bytes, or text of them.
SECRET: Final = frozenset(
    """seed key secret private_key token api_key openai_api_key registration_token database_url
    database_direct_url _seed _signing exchange_secret""".split()
)
# Members of these names that are no secrets: whose they are is public.
PUBLIC: Final = {
    ("Access", "key"): "a public key",
    ("McpClient", "key"): "a member of its file, by name",
    ("_Line", "key"): "a SpoolKey, which is looked at by itself",
    ("UnlockKey", "key"): "the public half, as a relayer states it",
}


def modules() -> Iterator[Any]:
    for package in (relayer, memrelay):
        yield from map(importlib.import_module, iterate_module_names(package))


def members(kind: type) -> dict[str, str]:
    """The members of a class that is made of members, and their types as text."""
    if dataclasses.is_dataclass(kind):
        return {f.name: str(f.type) for f in dataclasses.fields(kind)}
    if issubclass(kind, msgspec.Struct):
        types = inspect.get_annotations(kind)
        return {name: str(types.get(name, "")) for name in kind.__struct_fields__}
    return dict.fromkeys(vars(kind).get("__slots__", ()), "bytes")


def holders() -> list[type]:
    """Every class with a secret among its own members."""
    found = {
        kind
        for module in modules()
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        for name, described in members(kind).items()
        if name in SECRET
        and (kind.__name__, name) not in PUBLIC
        and re.search(r"\b(bytes|str)\b", described)
    }
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def made(kind: type) -> Any:
    """One of a class, whose secrets are the canary."""
    values = {name: _value(name, described) for name, described in members(kind).items()}
    if "_seed" in values:
        values = {"seed": CANARY}
    try:
        return kind(**values)
    except Exception:  # it checks more than we know how to fill: then without its checks
        one: Any = object.__new__(kind)
        for name, value in values.items():
            object.__setattr__(one, name, value)
        return one


def _value(name: str, described: str) -> Any:
    if name in SECRET:
        return CANARY if "bytes" in described else CANARY.decode()
    plain: dict[str, Any] = {"int": 1, "bool": False, "str": "x", "bytes": b"x", "Path": Path("x")}
    return next((v for word, v in plain.items() if re.search(rf"\b{word}\b", described)), None)


def shown(text: str) -> bool:
    """Whether a text has the canary in it, as it is or written in hex."""
    return CANARY.decode() in text or CANARY.hex() in text.lower()


HOLDERS: Final = holders()


@pytest.mark.parametrize("kind", HOLDERS, ids=lambda k: f"{k.__module__}.{k.__name__}")
def test_what_holds_a_secret_does_not_show_it(kind: type) -> None:
    one = made(kind)
    for text in (repr(one), str(one), f"{one}", f"{one!r:>4}", ascii(one), repr([one])):
        assert not shown(text)


BYTES: Final = [
    kind
    for kind in HOLDERS
    if any("bytes" in d for name, d in members(kind).items() if name in SECRET)
]


@pytest.mark.parametrize("kind", BYTES, ids=lambda k: f"{k.__module__}.{k.__name__}")
def test_what_holds_a_keys_bytes_is_not_copied_out_of_its_process(kind: type) -> None:
    one = made(kind)
    with pytest.raises(TypeError):
        pickle.dumps(one)
    if dataclasses.is_dataclass(kind):
        with pytest.raises(TypeError):
            dataclasses.asdict(one)
        fields = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
        assert not shown(repr(fields))


@pytest.mark.parametrize("secret", [primitives.Secret, client_keys.Secret])
def test_a_secret_is_its_bytes_and_nothing_else(secret: type[bytes]) -> None:
    hidden: Any = secret(CANARY)
    assert hidden == CANARY
    assert hidden.hex() == CANARY.hex()
    for text in (
        repr(hidden),
        str(hidden),
        f"{hidden}",
        f"{hidden:>1} {hidden!r}",
    ):
        assert not shown(text)
    with pytest.raises(TypeError):
        copy.deepcopy(hidden)


def test_the_keys_that_there_are_were_found() -> None:
    found = {f"{k.__module__}.{k.__name__}" for k in BYTES}
    assert found >= {
        "relayer.sealed.keys.Identity",
        "relayer.sealed.keys.NamespaceKey",
        "relayer.sealed.keys.Root",
        "relayer.sealed.unlock.UnlockKey",
        "relayer.events.webhooks.Address",
        "memrelay.sealed.keys.Identity",
        "memrelay.sealed.keys.NamespaceKey",
        "memrelay.sealed.keys.Root",
        "memrelay.sealed.archive.ChunkKey",
        "memrelay.gateway.spool.SpoolKey",
    }
    assert {relayer_settings.Settings, client_config.Settings} <= set(HOLDERS)


class _Holder:
    """What a careless class would look like."""

    __slots__ = ("_seed",)

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def __repr__(self) -> str:
        return f"_Holder({self._seed!r})"


def test_a_class_that_shows_its_key_is_caught() -> None:
    assert members(_Holder) == {"_seed": "bytes"}
    assert shown(repr(made(_Holder)))
