"""Compares what an agent holds with what it shall hold, and makes the grants between; no I/O.

It does not own keys, files or requests (`storage.py`, `provision.py`).

- What an agent holds is read from verified grants only. Grants add up: what is held too much goes
  away with the key alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memrelay.answers import Answer
from memrelay.config import agent_name
from memrelay.errors import ConfigError, Invalid, MemrelayError
from memrelay.sealed.grants import Grant, NamespaceScope
from memrelay.sealed.keys import normalise_namespace

ROLES = ("reader", "writer")  # the weaker first
MAIN_AGENT, MAIN_NAMESPACE = "main", "default"
_RENEWAL = timedelta(days=1)  # so that the same span, given again a little later, grants nothing

Holdings = dict[str, "Hold"]  # by namespace


@dataclass(frozen=True, slots=True)
class Hold:
    """A role in one namespace, until a time or for good (None)."""

    role: str
    expires_at: datetime | None

    def outlasts(self, other: datetime | None) -> bool:
        """Return whether this ends later than another time."""
        return other is not None and (self.expires_at is None or self.expires_at > other)


@dataclass(frozen=True, kw_only=True)
class Share(Answer):
    """The content of one grant: a role in some namespaces, until a time or for good."""

    role: str
    namespaces: tuple[str, ...]
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The access that an agent shall hold; a member that is None stays as it is.

    A new agent is a writer of its own namespace, shares none and does not expire. `role` counts for
    the shared namespaces as well, unless `shared_role` is given; it raises none that is held in a
    weaker role than the agent's own and is not named again. `also` are namespaces beside whatever
    is shared, with the roles in them: so all agents of a group are given one more.

    Raises:
        ConfigError: a namespace is malformed.
    """

    shared: tuple[str, ...] | None = None
    role: str | None = None
    shared_role: str | None = None
    expires_at: datetime | None = None
    also: tuple[tuple[str, str | None], ...] = ()

    def __post_init__(self) -> None:
        try:
            names = None if self.shared is None else tuple(map(normalise_namespace, self.shared))
            also = tuple((normalise_namespace(name), role) for name, role in self.also)
        except Invalid as error:
            raise ConfigError(str(error)) from None
        object.__setattr__(self, "shared", names)
        object.__setattr__(self, "also", also)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are named, in which others are, too."""
        return (*(self.shared or ()), *(name for name, _ in self.also))


def home_of(name: str) -> str:
    """Return an agent's own namespace: that of its name, the default one for `main`.

    Raises:
        ConfigError: the name is malformed, or taken by the default namespace.
    """
    name = agent_name(name)
    if name == MAIN_NAMESPACE:
        raise ConfigError(f"The agent of the namespace {MAIN_NAMESPACE} is called {MAIN_AGENT}.")
    return MAIN_NAMESPACE if name == MAIN_AGENT else name


def check_apart(name: str, others: Iterable[str]) -> None:
    """Check that an agent's own namespace is not also one that others use.

    Raises:
        ConfigError: it is, or the name is malformed. `main` is the default namespace by intention.
    """
    home = home_of(name)
    if home in others and name != MAIN_AGENT:
        raise ConfigError(
            f"The namespace {home} is shared, or your own profile's: an agent called {name} would "
            "share all that it remembers. Choose another name."
        )


def sum_grants(name: str, grants: Iterable[Grant]) -> Holdings:
    """Return what grants to one key give together.

    Raises:
        MemrelayError: they give the whole account, so the key is no agent's.
    """
    held: Holdings = {}
    for grant in grants:
        if grant.whole_account:
            raise MemrelayError(f"The key of {name} holds the whole account: it is no agent's.")
        hold = Hold(grant.role, _time(grant.expires_ms))
        for scope in grant.scope:
            assert isinstance(scope, NamespaceScope)
            known = held.get(scope.namespace)
            held[scope.namespace] = hold if known is None else _stronger(known, hold)
    return held


def _time(unix_ms: int | None) -> datetime | None:
    return None if unix_ms is None else datetime.fromtimestamp(unix_ms // 1000, UTC)


def _stronger(one: Hold, other: Hold) -> Hold:
    if one.role != other.role:
        return max(one, other, key=lambda hold: ROLES.index(hold.role))
    return one if one.expires_at is None or one.outlasts(other.expires_at) else other


def apply_wish(name: str, wish: Wish, held: Holdings) -> Holdings:
    """Return what an agent shall hold, given what it holds."""
    home = home_of(name)
    role = wish.role or (held[home].role if home in held else "writer")
    # A grant that comes later ends with those that the agent has.
    ends = [hold.expires_at for hold in held.values()]
    end = wish.expires_at or (None if None in ends else max(filter(None, ends), default=None))

    def hold(namespace: str, given: str | None) -> Hold:
        known = held.get(namespace, Hold(role, end))
        return Hold(given or known.role, wish.expires_at or known.expires_at)

    def choose_role(other: str) -> str | None:
        weaker = (
            wish.shared is None
            and home in held
            and ROLES.index(held[other].role) < ROLES.index(held[home].role)
        )
        return wish.shared_role or (None if weaker else wish.role)

    shared = [other for other in (held if wish.shared is None else wish.shared) if other != home]
    want = {home: hold(home, role)} | {other: hold(other, choose_role(other)) for other in shared}
    for other, given in wish.also:
        if other != home:
            # A grant takes nothing away: who writes there already goes on writing.
            want[other] = max(
                want.get(other, hold(other, given)),
                hold(other, given),
                key=lambda found: ROLES.index(found.role),
            )
    return want


def find_excess(held: Holdings, want: Holdings) -> list[str]:
    """Return the namespaces that are held without being wanted, or stronger, or longer."""
    return [
        name
        for name, hold in held.items()
        if name not in want
        or ROLES.index(hold.role) > ROLES.index(want[name].role)
        or hold.outlasts(want[name].expires_at)
    ]


def find_missing(held: Holdings, want: Holdings) -> Holdings:
    """Return what is wanted and not held, or only in a weaker role or a day shorter."""
    return {
        name: hold
        for name, hold in want.items()
        if name not in held
        or ROLES.index(held[name].role) < ROLES.index(hold.role)
        or _renews(hold, held[name].expires_at)
    }


def _renews(hold: Hold, end: datetime | None) -> bool:
    if end is None:
        return False
    return hold.expires_at is None or hold.expires_at - end > _RENEWAL


def shares_of(held: Holdings) -> tuple[Share, ...]:
    """Return the fewest grants that give this."""
    groups: dict[Hold, list[str]] = {}
    for name, hold in held.items():
        groups.setdefault(hold, []).append(name)
    return tuple(
        Share(role=hold.role, namespaces=tuple(names), expires_at=hold.expires_at)
        for hold, names in groups.items()
    )
