"""What whoever holds the disk can read: columns of text, and what is counted of memories and of
requests, by the words in which the pages say so.

Not here: that there are no other such columns (`tests/database`).
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
    "episodes.state": "states of episodes",
    "episodes.extractor": "who found an episode's facts",
    "episodes.failure": "why the model did not",
    "links.relation": "relation",
    "consolidations.state": "consolidation",
    "consolidation_actions.action": "consolidation",
    "consolidation_actions.undone": "consolidation",
    "webhooks.problem": "webhook",
    "webhook_events.type": "events",
}
# Of each number, time and flag of a memory, of what is left of one, and of those who ask.
COUNTED: Final = {
    "memories.namespace_id": "names of namespaces",
    "memories.epoch": "epoch",
    "memories.seq": "order",
    "memories.revision": "revisions",
    "memories.type": "kind",
    "memories.event_time": "times",
    "memories.created_at": "times",
    "memories.stored_at": "times",
    "memories.expires_at": "times",
    "memories.given_expires_at": "times",
    "memories.has_default_life": "times",
    "memories.superseded_at": "times",
    "memories.last_seen_at": "times",
    "memories.size_bytes": "padded size",
    "memories.word_count": "number of words",
    "memories.index_bytes": "number of different ones",
    "memories.index_version": "number of words",
    "memories.source": "words",  # hashed
    "memories.pinned": "pinned",
    "memories.stale": "stale",
    "memories.seen_count": "how often it was said",
    "vectors.part": "passages",
    "vectors.namespace_id": "names of namespaces",
    "vectors.epoch": "epoch",
    "tombstones.namespace_id": "names of namespaces",
    "tombstones.erased_at": "what was written, edited or erased by whom and when",
    "tombstones.expired": "what was written, edited or erased by whom and when",
    "request_windows.window_start": "how much each key asked",
    "request_windows.used": "how much each key asked",
    "key_uses.used_at": "last asked",
    "memory_recalls.recall_count": "how often each memory was recalled",
    "memory_recalls.last_on": "on which day last",
    "nonces.expires_at": "when each key asked",
    "nonces_ahead.expires_at": "when each key asked",
}
