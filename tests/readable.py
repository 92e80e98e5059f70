"""What whoever holds the disk can read: columns of text, by the words in which the pages say so.

Not here: numbers, times and sizes; that no other column is made for text (`tests/database`).
"""

from typing import Final

# Of each column of text of a tenant's table, what SECURITY.md and SPEC §10 call it.
READABLE: Final = {
    "accounts.label": "labels of accounts",
    "accounts.settings": "settings",
    "grants.label": "grants",
    "namespaces.name": "names of namespaces",
    "memories.format": "format",
    "memories.kind": "kind",
    "memories.importance": "importance",
    "memories.confidence": "confidence",
    "memories.embedding_model": "embedding model",
    "memories.embedding_version": "embedding model",
    "memories.review": "review",
    "vectors.model": "embedding model",
    "episodes.state": "states of turns",
    "links.relation": "relation",
    "consolidations.state": "consolidation",
    "consolidation_actions.action": "consolidation",
    "consolidation_actions.undone": "consolidation",
    "webhooks.problem": "webhook",
    "webhook_events.type": "events",
}
