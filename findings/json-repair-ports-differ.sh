#!/usr/bin/env bash
# Two libraries that repair the JSON of language models read an unescaped quotation mark differently.
#
# Versions: json-repair 0.64.6 (Python), fast-json-repair 0.2.3 (its port to Rust, with the same
# functions). Seen on CPython 3.11.
# Behaviour: a model that quotes within a text often forgets to escape the marks. json-repair keeps
# the whole sentence as the value. The port ends the value at the first inner mark and makes members
# out of the words behind it, without an error. So a swap for speed loses half of such a fact, and
# the answer still looks well formed.
# Output seen:
#   json-repair: {"text": "He said \"hi\" to Bob"}
#   fast-json-repair: value kept whole: False, members made up: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check json-repair==0.64.6 fast-json-repair==0.2.3
"$folder/venv/bin/python" - <<'PYTHON'
import json

import fast_json_repair
import json_repair

ANSWER = '{"text": "He said "hi" to Bob"}'

slow = json_repair.loads(ANSWER)
fast = json.loads(fast_json_repair.repair_json(ANSWER))
print("json-repair:", json.dumps(slow))
whole, made_up = fast.get("text") == 'He said "hi" to Bob', len(fast) > 1
print(f"fast-json-repair: value kept whole: {whole}, members made up: {made_up}")
assert slow == {"text": 'He said "hi" to Bob'}
assert not whole
assert made_up
PYTHON
