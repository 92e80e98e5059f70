"""Keep a memory's blob and its epoch in indexes of fewer bytes.

Names of blobs are hashes: a hash index keeps four bytes of each, without its account. Entries of
one epoch are equal without the memory's number, and equal entries of a page are kept once.
"""

from alembic import op

revision = "0025"
down_revision = "0024"

INDEXES = {
    "memories_blob": ("USING hash (blob_id)", "(account_id, blob_id)"),
    "memories_epoch": ("(account_id, epoch)", "(account_id, epoch, seq)"),
}


def upgrade() -> None:
    _make({name: narrow for name, (narrow, _) in INDEXES.items()})


def downgrade() -> None:
    _make({name: wide for name, (_, wide) in INDEXES.items()})


def _make(indexes: dict[str, str]) -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # about a minute for ten million memories
    for name, columns in indexes.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(f"CREATE INDEX {name} ON memories {columns}")
