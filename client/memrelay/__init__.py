"""memrelay: long-term memory for AI agents that nobody else can read.

`MemoryClient` awaits and `SyncMemoryClient` blocks; both have the same methods. This package talks
to a relayer over signed HTTP and never imports one.
"""

from typing import TYPE_CHECKING

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
from memrelay.lazy_imports import import_on_access

if TYPE_CHECKING:
    from memrelay.async_client import MemoryClient
    from memrelay.config import Settings
    from memrelay.models import Analysis, Draft, Memory, NewAccount, NewKey, Recalled, Remembered
    from memrelay.sealed.keys import Identity
    from memrelay.signing import RequestSigner
    from memrelay.sync_client import SyncMemoryClient
else:  # all of them take ten times as long as a command that needs none
    __getattr__ = import_on_access(
        __name__,
        {
            "async_client": ("MemoryClient",),
            "config": ("Settings",),
            "models": (
                "Analysis",
                "Draft",
                "Memory",
                "NewAccount",
                "NewKey",
                "Recalled",
                "Remembered",
            ),
            "sealed.keys": ("Identity",),
            "signing": ("RequestSigner",),
            "sync_client": ("SyncMemoryClient",),
        },
    )

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


def __dir__() -> list[str]:
    """Return all names, those that nobody asked for yet among them."""
    return sorted({*globals(), *__all__})
