"""What the properties draw from: the example account's keys in both implementations, texts, names.

Not here: single values and single broken rules, which are vectors (`test_vectors.py`).

- Derandomised: the same examples on every machine, and none kept on disk.
"""

from hypothesis import settings
from hypothesis import strategies as st

from memrelay.sealed import keys as client_keys
from relayer.sealed.keys import AccountId, Identity
from tests import scenarios as sc

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
many = settings(few, max_examples=300)

ACCOUNT = AccountId(sc.ACCOUNT)
SEEDS = tuple(
    who.seed for who in (sc.FOUNDER, sc.AGENT, sc.SECOND, sc.THIRD, sc.FOURTH, sc.FIFTH, sc.RELAYER)
)
SERVERS = tuple(Identity(seed) for seed in SEEDS)  # the same people, as the server knows them
CLIENTS = tuple(client_keys.Identity(seed) for seed in SEEDS)

times_ms = st.integers(0, 2**53 - 1)
epochs = st.integers(1, 2**32 - 1)
# What both sides of a blank, a normal form or a script may do to each other.
letters = st.sampled_from(
    (
        "a A z Z 0 1 9 . , - _ / @ ' é e\u0301 ﬁ Å A\u030a ß İ ı Σ ς ø й ش न \u093c "
        "茶 か\u3099 가 \u1100\u1161 😀 \u200d"
    ).split(" ")
)
blanks = st.sampled_from(
    [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2000", "\u2003", "\u3000", "\x1c", "\u2028"]
)
texts = st.one_of(
    st.lists(letters | blanks, max_size=30).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
names = st.text("abc äß茶/.-", min_size=1, max_size=12).filter(lambda name: name.strip(" ") == name)


def flipped(data: bytes, bit: int) -> bytes:
    """The data with one bit changed; `bit` may be any number."""
    at, shift = divmod(bit % (8 * len(data)), 8)
    return data[:at] + bytes([data[at] ^ (1 << shift)]) + data[at + 1 :]
