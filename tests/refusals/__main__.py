"""Prints the table of refusals: name, route, status, code."""

from tests.refusals.table import GROUPS

for cases in GROUPS.values():
    for case in cases:
        print(f"{case.name}\t{case.route}\t{case.status or '-'}\t{case.code}")
