"""memrelay: long-term memory for AI agents that nobody else can read.

`MemoryClient` awaits and `SyncMemoryClient` blocks; both have the same methods. This package talks
to a relayer over signed HTTP and never imports one.
"""

from memrelay.client import MemoryClient, SyncMemoryClient
from memrelay.config import Settings
from memrelay.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Invalid,
    MemrelayError,
    Misdirected,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotGranted,
    NotOffered,
    QuotaExceeded,
    RateLimited,
    ServerError,
    TimedOut,
    TooLarge,
    TransportError,
    Unavailable,
    UntrustedGrant,
    UntrustedRelayer,
    UpgradeRequired,
)
from memrelay.models import Analysis, Draft, Memory, NewAccount, NewKey, Recalled, Remembered
from memrelay.sealed.keys import Identity
from memrelay.signing import RequestSigner

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "BadRequest",
    "ConfigError",
    "Conflict",
    "Draft",
    "Identity",
    "Invalid",
    "Memory",
    "MemoryClient",
    "MemrelayError",
    "Misdirected",
    "NewAccount",
    "NewKey",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "NotGranted",
    "NotOffered",
    "QuotaExceeded",
    "RateLimited",
    "Recalled",
    "Remembered",
    "RequestSigner",
    "ServerError",
    "Settings",
    "SyncMemoryClient",
    "TimedOut",
    "TooLarge",
    "TransportError",
    "Unavailable",
    "UntrustedGrant",
    "UntrustedRelayer",
    "UpgradeRequired",
    "__version__",
]
