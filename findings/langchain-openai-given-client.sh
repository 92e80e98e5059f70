#!/usr/bin/env bash
# LangChain's ChatOpenAI takes a client that is given for synchronous calls alone.
#
# Version: langchain-openai 1.7.4 with openai 3.57.0. Seen on CPython 3.11.
# Behaviour: `ChatOpenAI(client=…)` is how a wrapped client comes in: one that remembers, logs or goes
# through a proxy. Calls of `invoke` use it. For `ainvoke` a second, plain client is made from the
# environment, with that key and address, and nothing says so. `root_client=…` alone is ignored: both
# clients are made anew then.
# Output seen:
#   client= given: sync calls go to the given client True, async ones to a plain client of the environment True
#   root_client= alone: used for sync calls False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-openai==1.7.4 openai==3.57.0
env OPENAI_API_KEY=of-the-environment OPENAI_BASE_URL=http://127.0.0.1:2/v1 "$folder/venv/bin/python" - <<'PYTHON'
from langchain_openai import ChatOpenAI
from openai import OpenAI

given = OpenAI(api_key="given", base_url="http://127.0.0.1:1/v1")

model = ChatOpenAI(model="m", client=given.chat.completions)
sync_is_given = model.client is given.chat.completions
of_async = model.async_client._client
is_plain = of_async.api_key == "of-the-environment" and ":2/" in str(of_async.base_url)
print(
    f"client= given: sync calls go to the given client {sync_is_given},"
    f" async ones to a plain client of the environment {is_plain}"
)
rooted = ChatOpenAI(model="m", root_client=given)
is_used = rooted.client._client is given
print(f"root_client= alone: used for sync calls {is_used}")
assert sync_is_given
assert is_plain
assert not is_used
PYTHON
