#!/usr/bin/env bash
# Reading from LangGraph's store in memory makes namespaces that nothing was put into.
#
# Version: langgraph 1.2.24. Seen on CPython 3.11.
# Behaviour: `get` of a key in a namespace that does not exist returns None, as it should, and from then
# on `list_namespaces` lists that namespace. So does `delete` of a key that was never there. `search`
# does not. A store over a database lists what has items, so tests that compare the two must know it.
# Output seen:
#   at first: []
#   after get: [('nobody', 'asked')]
#   after search: [('nobody', 'asked')]
#   after delete: [('never', 'there'), ('nobody', 'asked')]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph==1.2.24
"$folder/venv/bin/python" - <<'PYTHON'
from langgraph.store.memory import InMemoryStore

store = InMemoryStore()
seen = [store.list_namespaces()]
assert store.get(("nobody", "asked"), "key") is None
seen.append(store.list_namespaces())
assert store.search(("another", "one")) == []
seen.append(store.list_namespaces())
store.delete(("never", "there"), "key")
seen.append(store.list_namespaces())
for step, namespaces in zip(("at first", "after get", "after search", "after delete"), seen):
    print(f"{step}: {namespaces}")
read, deleted = ("nobody", "asked"), ("never", "there")
assert seen == [[], [read], [read], [deleted, read]], seen
PYTHON
