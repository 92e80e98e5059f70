"""Let what refers to a stored object, and what is over, be found without reading the rest.

Each page of the objects of a store asked all memories and turns of its account, and each minute all
steps of the index were read for those that are old. What is due to be deleted was sorted whole for
each page of it: that is looked up for all accounts at once, the longest due first.
"""

from alembic import op

revision = "0015"
down_revision = "0014"

INDEXES = {
    "memories_state": "memories (account_id, state_blob) WHERE state_blob IS NOT NULL",
    "episodes_blob": "episodes (account_id, blob_id)",
    "index_steps_age": "index_steps (account_id, created_at)",
    "blob_outbox_due": "blob_outbox (due_at, account_id, blob_id)",
}


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # about a minute for ten million turns
    for name, columns in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {columns}")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
