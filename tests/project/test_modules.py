"""Every module can be imported: many are imported only once a command or a fault needs them."""

from importlib import import_module
from types import ModuleType

import pytest

import memrelay
import relayer
from tests.every_module import iterate_module_names


@pytest.mark.parametrize("package", [memrelay, relayer])
def test_every_module_finds_what_it_imports(package: ModuleType) -> None:
    names = set(iterate_module_names(package))
    assert len(names) > 100
    for name in sorted(names):
        import_module(name)
