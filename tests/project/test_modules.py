"""Every module can be imported: many are imported only once a command or a fault needs them."""

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import memrelay
import relayer

# These are tested in what they need: `make test` and `make test-frameworks` have it.
INSIDE_OTHERS = (
    "memrelay.hermes.provider",
    "memrelay.langgraph",
    "memrelay.anthropic",
    "memrelay.pydantic_ai",
)


@pytest.mark.parametrize("package", [memrelay, relayer])
def test_every_module_finds_what_it_imports(package: ModuleType) -> None:
    names = {m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")}
    assert len(names) > 100
    for name in sorted(names):
        if not name.endswith(".__main__") and not name.startswith(INSIDE_OTHERS):
            import_module(name)
