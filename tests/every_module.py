"""Every module of a package that this environment can import."""

import pkgutil
from collections.abc import Iterator
from types import ModuleType

# These are tested in what they need: `make test` and `make test-frameworks` have it.
INSIDE_OTHERS = (
    "memrelay.hermes.provider",
    "memrelay.langgraph",
    "memrelay.anthropic",
    "memrelay.pydantic_ai",
)


def iterate_module_names(package: ModuleType) -> Iterator[str]:
    """Yield the names of a package's modules, without programs and what others have to load."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(".__main__") and not found.name.startswith(INSIDE_OTHERS):
            yield found.name
