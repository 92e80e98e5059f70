"""Two real relayers come into step: new memories, edits, erasures, states and conflicts."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.archive_reader import import_archive, open_archive
from memrelay.archive_writer import export_archive
from memrelay.models import Draft
from memrelay.replication.agreement import read_agreement
from memrelay.replication.replicator import Outcome, Replicator
from memrelay.replication.side import Side
from memrelay.sealed.keys import account_bytes
from tests.client.archive_scene import TEXTS, Scene, found, other_relayer, quiet
from tests.client.sync_scene import Pair, contents, forget_agreement, taken

__all__ = ["found", "other_relayer"]  # fixtures


@pytest.fixture
def pair(found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]) -> Pair:
    """An account that its founder has just founded at both."""
    pair = Pair(found("sealed"), capsys)
    assert taken(pair.run("--found")) == [{}, {}]
    return pair


def test_new_memories_come_to_both_and_nothing_comes_twice(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        ids = [m.id for m in here.remember_many(TEXTS)]
        here.wait(ids, timeout_s=60)
        there.remember_many([Draft(text="Only there."), Draft(text="Apart.", namespace="other")])
        assert taken(pair.run()) == [{"new": 2}, {"new": 3}]
        assert contents(here, ("team", "other")) == contents(there, ("team", "other"))
        assert len(contents(here, ("team", "other"))) == 5
        found = there.recall("What does Anna drink?")
        [first, *_] = here.recall("What does Anna drink?").results
        assert found.results[0].id == first.id
        # One may come from memory, where a number has one byte, and one from the database.
        assert found.results[0].score == pytest.approx(first.score, abs=0.005)
        before = (here.receipt_page(0, 1).seq, there.receipt_page(0, 1).seq)
        assert taken(pair.run()) == [{}, {}]
        forget_agreement(pair)
        assert taken(pair.run()) == [{}, {}]
        assert (here.receipt_page(0, 1).seq, there.receipt_page(0, 1).seq) == before


def test_edits_erasures_and_states_travel_both_ways(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        tea, cups, kettle = (m.id for m in here.remember_many(TEXTS))
        late = there.remember("For now.", expires_at="2100-01-01T00:00:00Z").id
        pair.run()
        here.edit(tea, text="Anna prefers black tea.")
        here.edit(tea, text="Anna prefers white tea.")
        there.forget(cups)
        there.pin(kettle)
        here.set_state(late, stale=True)
        assert taken(pair.run()) == [{"erased": 1, "states": 1}, {"revisions": 1, "states": 1}]
        assert contents(here) == contents(there)
        assert [m.text for m in there.history(tea).revisions] == [
            "Anna prefers white tea.",
            "Anna prefers black tea.",
            TEXTS[0],
        ]
        assert there.get(late).stale
        here.unpin(kettle)
        there.edit(tea, text="Anna prefers mint tea.")
        there.edit(late, expires_at="2101-01-01T00:00:00Z")
        here.reject(late)
        assert taken(pair.run()) == [{"revisions": 2}, {"states": 2}]
        assert contents(here) == contents(there)
        assert taken(pair.run()) == [{}, {}]
        assert here.get(tea).text == "Anna prefers mint tea."
        assert not there.get(kettle).pinned
        assert str(there.get(late).review) == "rejected"


def test_of_two_edits_the_later_stands_and_the_other_waits_for_a_decision(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        memory = here.remember("The server is in Bremen.").id
        pair.run()
        there.edit(memory, text="The server is in Bonn.")
        here.edit(memory, text="The server is in Berlin.")
        here.edit(memory, text="The server is in Frankfurt.")
        told = pair.run()
        assert told["conflicts"] == [memory]
        assert contents(here) == contents(there)
        for client in (here, there):
            assert client.get(memory).text == "The server is in Frankfurt."
            [aside] = client.review().memories
            assert (aside.text, str(aside.review)) == ("The server is in Bonn.", "contradiction")
            assert [other.id for other in aside.others] == [memory]
            found = client.recall("server Bonn", mode="keyword").results
            assert aside.id in {m.id for m in found}
        assert taken(pair.run()) == [{}, {}]
        here.approve(aside.id)
        there.edit(memory, text="The server is in Frankfurt am Main.")
        pair.run()
        assert contents(here) == contents(there)
        assert here.review().memories == ()
        assert here.get(memory).text == "The server is in Frankfurt am Main."


def test_the_same_edit_at_both_is_no_conflict(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        memory = here.remember("Anna drinks tea.").id
        pair.run()
        for client in (here, there):
            client.edit(memory, text="Anna drinks coffee.")
        assert pair.run()["conflicts"] == []
        there.edit(memory, text="Anna drinks milk.")
        pair.run()
        assert here.get(memory).text == "Anna drinks milk."
        assert contents(here) == contents(there)


@pytest.mark.parametrize("keeps_file", [True, False])
def test_an_erasure_wins_against_an_edit_that_had_not_heard_of_it(
    pair: Pair, keeps_file: bool
) -> None:
    here, there = pair.both()
    with here, there:
        ids = [m.id for m in here.remember_many(TEXTS)]
        pair.run()
        here.forget(ids[0])
        there.edit(ids[0], text="Anna prefers black tea.")
        there.pin(ids[0])
        here.edit(ids[1], text="Ben sells cups in Bonn.")
        there.forget(ids[1])
        if not keeps_file:
            forget_agreement(pair)
        assert taken(pair.run()) == [{"erased": 1}, {"erased": 1}]
        assert contents(here) == contents(there)
        assert [m.id for m in here.memories()] == [ids[2]]
        assert taken(pair.run()) == [{}, {}]


def test_what_was_said_at_both_is_known_by_one_memory(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        older = here.remember("Anna drinks tea.").id
        newer = there.remember("Anna drinks tea.").id
        pair.run()
        assert contents(here) == contents(there)
        for client in (here, there):
            assert [m.id for m in client.memories()] == [older]
            assert str(client.get(newer).superseded_by) == older
            assert client.remember("Anna drinks tea.").duplicate
        pair.run()
        assert taken(pair.run()) == [{}, {}]


def test_a_lost_state_file_costs_no_decision(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        ids = [m.id for m in here.remember_many(TEXTS)]
        here.pin(ids[0])
        pair.run()
        there.unpin(ids[0])
        forget_agreement(pair)
        pair.run()
        here.pin(ids[1])
        forget_agreement(pair)
        assert taken(pair.run()) == [{}, {"states": 1}]
        assert contents(here) == contents(there)
        assert [m.id for m in there.memories(pinned=True)] == [ids[1]]


def test_turns_that_are_kept_travel_and_go_with_their_facts(
    found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(found("managed"), capsys)
    here, there = pair.both()
    with here, there:
        here.change_settings(keep_turns=True)
        analysis = here.analyze("user: I live in Bremen. My sister Uma prefers green tea.")
        pair.run("--found")
        assert contents(here) == contents(there)
        [turn] = there.episodes().episodes
        assert turn.id == analysis.turn_id
        fact = analysis.facts[0].id
        assert [link.other_id for link in there.history(fact).links] == [turn.id]
        there.forget(fact)
        assert taken(pair.run()) == [{"erased": 2}, {}]
        assert here.episodes().episodes == ()
        assert contents(here) == contents(there)
        assert taken(pair.run()) == [{}, {}]


def test_what_was_superseded_merged_and_reinstated_travels(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        drafts = ["Anna drinks tea.", "Anna drinks the tea.", "The kettle is old.", "It is new."]
        one, other, old, new = (m.id for m in here.remember_many(drafts))
        pair.run()
        here.supersede(old, by=new)
        run = here.consolidate(namespace="team")
        while here.consolidation(run.id).state != "done":
            time.sleep(0.1)
        merged = {i for i in (one, other) if here.get(i).superseded_by}
        assert len(merged) == 1
        pair.run()
        assert contents(here) == contents(there)
        assert {i for i in (one, other) if there.get(i).superseded_by} == merged
        there.reinstate(old)
        there.reinstate(*merged)
        assert taken(pair.run()) == [{"states": 2}, {}]
        assert contents(here) == contents(there)
        assert taken(pair.run()) == [{}, {}]


def test_a_sealed_index_travels_and_a_conflict_in_it_is_found(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        memory = here.remember("The server is in Bremen.", source="notes").id
        here.set_index("team", "sealed")
        moved(here)
        pair.run()
        assert [info.index for info in there.namespaces()] == ["sealed"]
        assert [m.id for m in there.recall("server", mode="keyword").results] == [memory]
        there.edit(memory, text="The server is in Bonn.")
        here.edit(memory, text="The server is in Frankfurt.")
        assert pair.run()["conflicts"] == [memory]
        assert contents(here) == contents(there)
        [aside] = there.review().memories
        for client in (here, there):
            found = client.recall("server", mode="keyword").results
            assert {m.id for m in found} == {aside.id, memory}
            assert {m.id for m in client.memories(source="notes")} == {aside.id, memory}
        archive = Path(pair.here).with_name("anna.archive")
        assert export_archive(here, archive, quiet).missing == []
        opened = open_archive(archive, pair.scene.founder, account_bytes(pair.scene.account_id))
        # Of the revision that both made, each keeps its own in the history.
        assert import_archive(there, opened, quiet) == {"unchanged": 3, "differs": 1}


def moved(client: SyncMemoryClient) -> None:
    """Return once everything has the index that was chosen."""
    while any(info.index_moves for info in client.namespaces()):
        client.recall("anything")
        time.sleep(0.1)


def test_no_key_and_no_word_is_sent_to_either_relayer(pair: Pair, tmp_path: Path) -> None:
    here, there = pair.both()
    sent: list[httpx.Request] = []
    with here, there:
        memory = here.remember(TEXTS[0]).id
        there.remember(TEXTS[1])
        sync_watched(pair, sent, tmp_path)
        here.edit(memory, text="Anna prefers black tea.")
        there.edit(memory, text="Anna prefers coffee.")
        here.remember(TEXTS[2])
        here.forget(here.remember("Gone again.").id)
        outcome = sync_watched(pair, sent, tmp_path)
        assert outcome.conflicts == [memory]
        assert contents(here) == contents(there)
    assert {request.method for request in sent} == {"GET", "POST"}
    assert not any("x-memrelay-unlock" in request.headers for request in sent)
    words = [b"Anna", b"cups", b"kettle", b"again", b"coffee"]
    assert not any(word in request.content for request in sent for word in words)
    file = tmp_path / "agreed.json"
    assert file.stat().st_mode & 0o077 == 0
    kept = file.read_text()
    seeds = (pair.scene.founder.seed_hex(), *(root.hex() for root in roots(pair)))
    assert not any(secret in kept for secret in (*map(bytes.decode, words), *seeds))


def sync_watched(pair: Pair, sent: list[httpx.Request], folder: Path) -> Outcome:
    """Sync both, and note every request."""

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return super().handle_request(request)

    here, there = (
        SyncMemoryClient(
            url=relayer.url,
            account_id=pair.scene.account_id,
            private_key=pair.scene.founder.seed_hex(),
            transport=Watched(),
        )
        for relayer in (pair.scene.here, pair.scene.there)
    )
    with here, there:
        sides = (Side(here), Side(there))
        relayers = (sides[0].relayer.hex(), sides[1].relayer.hex())
        agreement = read_agreement(folder / "agreed.json", relayers)
        return Replicator(sides, agreement).run()


def roots(pair: Pair) -> list[bytes]:
    with pair.client(pair.scene.here) as client:
        return [root.key for root in client.run(client.session.keyring()).roots()]
