"""In which order tests run: what takes long begins first, on each worker a part of it.

With `--dist worksteal` each worker is given a part of all tests, in their order, and when it has
done its own, it takes from the end of another's. What stands at the beginning of a part stays
there: long ones that were all in the first would be done one after another.
"""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what is long: at the end, all workers but one would wait for it."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.get_closest_marker("long") is not None]
    others = [item for item in items if item.get_closest_marker("long") is None]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        room = (len(items) - len(ordered)) // (workers - worker)
        first = long[worker::workers]
        filled = max(0, room - len(first))
        ordered += first + others[:filled]
        del others[:filled]
    items[:] = ordered
