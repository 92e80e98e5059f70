#!/usr/bin/env bash
# One text through `Tokenizer.encode` stops all other threads; the same text as a batch of one does not.
#
# Version: tokenizers 0.23.3 (github.com/huggingface/tokenizers). Seen on CPython 3.11.
# Behaviour: `encode` keeps the interpreter's lock until it is done, although it is all Rust.
# `encode_batch` with a list of that one text lets other threads run meanwhile. So a server that moves
# the tokenizing of a long text to a thread, as asyncio.to_thread does, still answers nobody else:
# even `Thread.start()` returns behind the work. TOKENIZERS_PARALLELISM=false changes neither.
# The vocabulary here is made of single letters, so that no model has to be fetched.
# Output seen:
#   encode: other threads run: False
#   encode_batch: other threads run: True, same ids: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
TOKENIZERS_PARALLELISM=false "$folder/venv/bin/python" - <<'PYTHON'
import string
import threading
import time

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

letters = string.ascii_lowercase
vocabulary = {"[UNK]": 0} | {c: n for n, c in enumerate(letters, 1)}
vocabulary |= {f"##{c}": n for n, c in enumerate(letters, 27)}
tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
TEXT = "a long memory of one speaker " * 20_000


def count_turns(call):
    """Return how often this thread gets its turn while another one calls."""
    done, turns = threading.Event(), 0

    def work():
        call()
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        time.sleep(0.001)
        turns += 1
    thread.join()
    return turns


alone = count_turns(lambda: tokenizer.encode(TEXT))
batch = count_turns(lambda: tokenizer.encode_batch([TEXT]))
same = tokenizer.encode(TEXT[:10_000]).ids == tokenizer.encode_batch([TEXT[:10_000]])[0].ids
print("encode: other threads run:", alone > 3)
print(f"encode_batch: other threads run: {batch > 10 * max(alone, 1)}, same ids: {same}")
assert alone <= 3, alone
assert batch > 10 * max(alone, 1), (alone, batch)
assert same
PYTHON
