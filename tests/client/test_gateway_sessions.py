"""Which sessions began already."""

from memrelay.gateway.sessions import Sessions


def test_a_session_begins_once_until_it_is_forgotten() -> None:
    sessions = Sessions()
    assert not sessions.has_begun(("main", "s"))
    sessions.begin(("main", "s"))
    assert sessions.has_begun(("main", "s"))
    assert not sessions.has_begun(("coder", "s"))
    sessions.forget(("main", "s"))
    sessions.forget(("main", "s"))
    assert not sessions.has_begun(("main", "s"))


def test_the_one_not_seen_for_longest_gives_way() -> None:
    sessions = Sessions(sessions_max=3)
    for name in "abc":
        sessions.begin(("main", name))
    assert sessions.has_begun(("main", "a"))
    sessions.begin(("main", "d"))
    assert [name for name in "abcd" if sessions.has_begun(("main", name))] == ["a", "c", "d"]
