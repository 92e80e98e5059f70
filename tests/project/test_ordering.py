"""What takes long begins first, and not one after another on one worker."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

LONG = 4  # at most two for one of several workers: so many are never taken from its part
PROGRAM = f"""
import pytest

@pytest.mark.parametrize("number", range(30))
def test_short(number, worker_id):
    with open("{{ran}}", "a") as file:
        file.write(f"{{{{worker_id}}}} short\\n")

@pytest.mark.long
@pytest.mark.parametrize("number", range({LONG}))
def test_long(number, worker_id):
    with open("{{ran}}", "a") as file:
        file.write(f"{{{{worker_id}}}} long\\n")
"""


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_each_worker_begins_with_its_part_of_what_is_long(tmp_path: Path, workers: int) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "test_some.py").write_text(PROGRAM.format(ran=ran))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    options = ["-p", "tests.ordering", "-n", str(workers), "--dist", "worksteal"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
        env=os.environ
        | {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        | {"PYTEST_PLUGINS": "xdist.plugin"},
        check=True,
    )
    orders = defaultdict(list)
    for line in ran.read_text().splitlines():
        worker, kind = line.split()
        orders[worker].append(kind)
    assert len(orders) == max(1, workers)
    assert sum(map(len, orders.values())) == 30 + LONG
    at_a_worker = LONG // max(1, workers)
    for order in orders.values():
        begun = order.count("long")  # all others may have been taken from its part
        assert order == ["long"] * begun + ["short"] * (len(order) - begun)
        assert at_a_worker <= begun <= at_a_worker + 1
