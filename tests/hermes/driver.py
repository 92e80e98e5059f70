"""Runs in Hermes' own environment: one of its agents' memory manager, told what to do by lines.

Each line of standard input is `{"call": NAME, "args": [...], "kwargs": {...}}`, a method of the
manager, or of the provider with `provider.` in front; the answer is one line. It is built as Hermes
builds it for an agent: found by Hermes' loader, by the name in Hermes' configuration.
"""

import json
import logging
import sys
from typing import Any

from agent.memory_manager import MemoryManager
from hermes_cli.config import load_config
from plugins.memory import load_memory_provider


def started(session_id: str, **kwargs: Any) -> MemoryManager | None:
    """The memory manager of a new agent, None if its provider is not available."""
    provider = load_memory_provider(load_config()["memory"]["provider"])
    if provider is None or not provider.is_available():
        return None
    manager = MemoryManager()
    manager.add_provider(provider)
    manager.initialize_all(session_id, **{"platform": "cli", **kwargs})
    return manager


def main() -> None:
    logging.basicConfig(
        filename=sys.argv[1], level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    manager: Any = None
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        order = json.loads(line)
        name, args, kwargs = order["call"], order["args"], order["kwargs"]
        if name == "start":
            manager = started(*args, **kwargs)
            result: Any = manager is not None
        elif name.startswith("provider."):
            result = getattr(manager.get_provider("memrelay"), name.removeprefix("provider."))(
                *args
            )
        else:
            result = getattr(manager, name)(*args, **kwargs)
        out.write(json.dumps(result, default=sorted) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
