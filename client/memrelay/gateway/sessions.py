"""Remembers which sessions of which agents began already, as far back as is worth knowing.

It does not own what a session that begins is given (`hooks.py`).
"""

from collections import OrderedDict

Session = tuple[str, str]  # an agent's name, and what tells its sessions apart


class Sessions:
    """The sessions that began; beyond `sessions_max`, the one not seen for longest is forgotten."""

    def __init__(self, sessions_max: int = 1000) -> None:
        self._began: OrderedDict[Session, None] = OrderedDict()
        self._sessions_max = sessions_max

    def has_begun(self, session: Session) -> bool:
        """Return whether a session began already; it counts as seen by that."""
        if session not in self._began:
            return False
        self._began.move_to_end(session)
        return True

    def begin(self, session: Session) -> None:
        """Note that a session began."""
        self._began[session] = None
        if len(self._began) > self._sessions_max:
            self._began.popitem(last=False)

    def forget(self, session: Session) -> None:
        """Note that a session is to begin anew."""
        self._began.pop(session, None)
