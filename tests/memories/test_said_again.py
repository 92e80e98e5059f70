"""What is said again while it is known: it stays, as long as anybody asked for, as it was decided.

- Nothing that is known is erased or stored a second time because it is said once more.
"""

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from memrelay.sealed.objects import read_object
from relayer.extraction.facts import FACT_CHARS_MAX, Fact, say_the_same
from relayer.memories.conversations import Conversation, drafts_of
from relayer.memories.opener import Caller
from relayer.preferences import AccountSettings
from relayer.record import IN_FORCE, Memory
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.states import SignedState, open_state, sign_state
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import CUSTODIES, TEA, edit, writer
from tests.openai_server import OpenAIServer, Step
from tests.services import TEAM, Bench, new_identity
from tests.talking import BERLIN, analyze, change, choose, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

SEATS = "1. I prefer window seats on trains."


async def writer_of_a_month(bench: Bench) -> Caller:
    """Whatever is said there is kept for thirty days."""
    caller = await writer(bench)
    await bench.remember(caller, "The month begins.")
    await bench.services.expiry.keep(caller.access, TEAM, 30 * 86400)
    return caller


async def holds(bench: Bench, caller: Caller) -> None:
    await assert_chain_holds(bench, caller.access.account)
    assert (await check(bench.storage)).problems == []
    assert await bench.value("SELECT count(*) FROM tombstones") == 0


class TestInANamespaceThatForgets:
    async def test_a_talk_with_something_known_and_something_new(self, bench: Bench) -> None:
        caller = await writer_of_a_month(bench)
        [known] = (await analyze(bench, caller, SEATS)).facts
        again = await analyze(bench, caller, f"{SEATS}\n\n2. My sister Bea lives in Oslo.")
        assert (list(again.reinforced), len(again.facts)) == ([known.id], 1)
        assert known.text in await bench.texts(caller, "window seats on trains")
        await holds(bench, caller)

    async def test_it_is_counted(self, bench: Bench) -> None:
        caller = await writer_of_a_month(bench)
        [first] = await bench.remember(caller, TEA)
        bench.clock.advance(60)
        [again] = await bench.remember(caller, TEA)
        assert (again.id, again.duplicate) == (first.id, True)
        assert (await bench.services.memory.get(caller, first.id)).seen_count == 2

    async def test_an_edited_memory_keeps_its_history(self, bench: Bench) -> None:
        caller = await writer_of_a_month(bench)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await edit(bench, caller, stored.id, text=TEA)
        [again] = await bench.remember(caller, TEA)
        assert again.id == stored.id
        history = await bench.services.histories.history(caller, stored.id)
        assert [revision.revision for revision in history.revisions] == [2, 1]

    async def test_what_was_rejected_stays_out(self, bench: Bench) -> None:
        caller = await writer_of_a_month(bench)
        [fact] = (await analyze(bench, caller, SEATS)).facts
        await change(bench, caller, fact.id, review="rejected")
        again = await analyze(bench, caller, f"{SEATS}\n\n2. My sister Bea lives in Oslo.")
        assert list(again.reinforced) == [fact.id]
        assert fact.text not in await bench.texts(caller, "window seats on trains")


class TestForLonger:
    @pytest.mark.parametrize("days", [None, 9])
    async def test_a_pinned_memory_lives_longer_and_stays_pinned(
        self, bench: Bench, days: int | None
    ) -> None:
        caller = await writer(bench)
        now = bench.clock()
        until = None if days is None else now + timedelta(days=days)
        [stored] = await bench.remember(caller, TEA, expires_at=now + timedelta(days=3))
        await change(bench, caller, stored.id, pinned=True)
        [again] = await bench.remember(caller, TEA, expires_at=until)
        memory = await bench.services.memory.get(caller, stored.id)
        assert (again.id, again.duplicate) == (stored.id, True)
        assert (memory.state.pinned, memory.expires_at, memory.seen_count) == (True, until, 2)
        await holds(bench, caller)

    async def test_the_namespace_still_bounds_it(self, bench: Bench) -> None:
        caller = await writer_of_a_month(bench)
        now = bench.clock()
        [stored] = await bench.remember(caller, TEA, expires_at=now + timedelta(days=3))
        await bench.remember(caller, TEA)
        memory = await bench.services.memory.get(caller, stored.id)
        assert memory.expires_at == now + timedelta(days=30)

    async def test_a_shorter_life_changes_nothing(self, bench: Bench) -> None:
        caller = await writer(bench)
        until = bench.clock() + timedelta(days=9)
        [stored] = await bench.remember(caller, TEA, expires_at=until)
        done = await bench.remember(caller, TEA, expires_at=until - timedelta(days=1))
        assert [item.id for item in done] == [stored.id]
        assert (await bench.services.memory.get(caller, stored.id)).expires_at == until
        assert await bench.value("SELECT count(state_blob) FROM memories") == 0

    async def test_earlier_revisions_and_edits_after_it_share_that_life(self, bench: Bench) -> None:
        caller = await writer(bench)
        soon = bench.clock() + timedelta(days=1)
        [stored] = await bench.remember(caller, "Anna prefers tea.", expires_at=soon)
        await edit(bench, caller, stored.id, text=TEA)
        await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text="Anna prefers cocoa.")
        bench.clock.advance(2 * 86400)
        await bench.services.expiry.expire()
        history = await bench.services.histories.history(caller, stored.id)
        assert [(m.revision, m.expires_at) for m in history.revisions] == [
            (3, None), (2, None), (1, None),
        ]  # fmt: skip

    async def test_it_comes_back_from_its_store_with_that_life(self, bench: Bench) -> None:
        """The sealed record still has the first expiry; the `state` object has the newest."""
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA, expires_at=bench.clock() + timedelta(days=1))
        await bench.remember(caller, TEA)
        await bench.sql("DELETE FROM postings")
        await bench.sql("DELETE FROM memories")
        await bench.services.restore.restore(caller, TEAM, 9)
        assert (await bench.services.memory.get(caller, stored.id)).expires_at is None

    async def test_what_has_expired_is_said_anew(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA, expires_at=bench.clock() + timedelta(hours=1))
        bench.clock.advance(3600)
        [again] = await bench.remember(caller, TEA)
        assert (again.id != stored.id, again.duplicate) == (True, False)


class TestWithAModel:
    async def test_word_for_word_it_is_counted_and_its_turn_goes_with_it(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        [stored] = await thinking.remember(caller, TEA)
        server.script(facts(TEA))
        said = await analyze(thinking, caller, f"1. user: {TEA}")
        assert (list(said.facts), list(said.reinforced)) == ([], [stored.id])
        assert (await thinking.services.memory.get(caller, stored.id)).seen_count == 2
        await thinking.services.memory.forget(caller.access, stored.id)
        assert await thinking.value("SELECT count(*) FROM episodes") == 0

    async def test_in_a_namespace_that_forgets(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await writer_of_a_month(thinking)
        server.script(facts(TEA), facts(TEA, "Ben plays chess on Sundays."))
        [fact] = (await analyze(thinking, caller, f"1. user: {TEA}")).facts
        again = await analyze(thinking, caller, f"1. user: {TEA} Ben plays chess on Sundays.")
        assert (list(again.reinforced), len(again.facts)) == ([fact.id], 1)
        await holds(thinking, caller)


@pytest.mark.parametrize("review", ["rejected", "pending"])
async def test_nearly_what_is_held_back_is_not_stored_beside_it(bench: Bench, review: str) -> None:
    caller = await writer(bench)
    [fact] = (await analyze(bench, caller, SEATS)).facts
    await change(bench, caller, fact.id, review=review)
    again = await analyze(bench, caller, "1. I really prefer the window seats on trains.")
    assert (list(again.facts), list(again.reinforced)) == ([], [fact.id])
    assert await bench.texts(caller, "window seats") == []


@pytest.mark.parametrize("expires_ms", [None, 5])
def test_both_sides_read_when_a_state_object_ends(expires_ms: int | None) -> None:
    relayer = new_identity()
    said = SignedState(
        account=AccountId(bytes(32)), memory=uuid.UUID(int=7), revision=1, seq=2, time_ms=3,
        pinned=True, review=None, stale=False, superseded_ms=None, superseded_by=None,
        merged=False, expires_ms=expires_ms,
    )  # fmt: skip
    signed = sign_state(relayer, said)
    assert open_state(signed, relayer.public_key) == said
    read = read_object("state", signed, signer=relayer.public_key)
    assert read["expires_at"] == expires_ms


class TestSaidAgain:
    async def seen(self, bench: Bench, caller: Caller, memory: uuid.UUID) -> int:
        return (await bench.services.memory.get(caller, memory)).seen_count

    @CUSTODIES
    async def test_the_same_words_are_counted(self, bench: Bench, custody: str) -> None:
        caller = await writer(bench, custody)
        [stored] = await bench.remember(caller, BERLIN)
        assert (await bench.services.memory.get(caller, stored.id)).last_seen_at is None
        bench.clock.advance(60)
        await bench.remember(caller, BERLIN)
        memory = await bench.services.memory.get(caller, stored.id)
        assert (memory.seen_count, memory.last_seen_at) == (2, bench.clock())
        assert await bench.value("SELECT count(*) FROM memories") == 1

    async def test_a_retry_is_not(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN, idempotency_key="k")
        await bench.remember(caller, BERLIN, idempotency_key="k")
        assert await self.seen(bench, caller, stored.id) == 1

    async def test_nearly_the_same_words_are_not_stored_once_more(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [stored] = await thinking.remember(caller, "The user prefers window seats on trains.")
        server.script(facts("User really prefers the window seats on trains"))
        analyzed = await analyze(thinking, caller, "1. user: window seats, please.")
        assert (list(analyzed.facts), list(analyzed.reinforced)) == ([], [stored.id])
        assert await self.seen(thinking, caller, stored.id) == 2
        assert await thinking.value("SELECT count(*) FROM memories") == 1

    async def test_without_a_model(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk)).facts
        again = await analyze(bench, caller, talk)
        assert (list(again.facts), list(again.reinforced)) == ([], [fact.id])
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_windows_of_one_conversation_say_it_once(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk, source="chat/9")).facts
        await analyze(bench, caller, talk + "\n\n2. ok thanks", source="chat/9")
        assert await self.seen(bench, caller, fact.id) == 1
        await analyze(bench, caller, talk, source="chat/10")
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_a_retried_conversation_is_not_counted(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk)).facts
        for _ in range(2):
            await analyze(bench, caller, talk, idempotency_key="k")
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_in_one_conversation_it_is_stored_once_for_each_time(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        said = [
            {"text": text, "kind": "event", "said_by": "user", "event_time": day}
            for text, day in (
                ("Anna has an appointment with Dr Weiss.", "2031-05-09"),
                ("Anna really has an appointment with Dr Weiss", "2031-05-09"),
                ("Anna has an appointment with Dr Weiss.", "2031-05-16"),
            )
        ]
        server.script(Step(content=json.dumps({"facts": said})))
        analyzed = await analyze(thinking, caller, "1. user: Dr Weiss on 2031-05-09 and a week on.")
        memories = [await thinking.services.memory.get(caller, f.id) for f in analyzed.facts]
        assert [m.event_time.day for m in memories if m.event_time] == [9, 16]

    async def test_of_another_offset_a_day_is_the_same(self, bench: Bench) -> None:
        caller = await writer(bench)
        winter, summer = (timezone(timedelta(hours=hours)) for hours in (-5, -4))
        said = "1. user: The wedding is on 12 June 2031."
        at = bench.clock().astimezone(winter)
        [fact] = (await analyze(bench, caller, said, occurred_at=at)).facts
        later = bench.clock().astimezone(summer)
        again = await analyze(bench, caller, said, occurred_at=later)
        assert (again.facts, again.reinforced) == ([], [fact.id])

    async def test_another_time_is_another_fact(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        when = thinking.clock()
        [stored] = await thinking.remember(caller, "The user met Anna.", event_time=when)
        later = (when + timedelta(days=1)).isoformat()
        server.script(facts("The user met Anna.", event_time=later))
        text = f"1. user: I met Anna, on {later[:10]}."
        analyzed = await analyze(thinking, caller, text, occurred_at=when)
        assert len(analyzed.facts) + len(analyzed.reinforced) <= 1
        assert stored.id not in analyzed.reinforced


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user prefers tea.", "User prefers tea"),
        ("Anna takes THE train.", "anna takes train!"),
        ("Anna likes dogs", "Anna really likes dogs."),
        ("Der Kunde zahlt per Rechnung.", "Kunde zahlt per Rechnung"),
        ("**Anna** takes the `train`", "Anna takes the train"),
        ("मेरी बेटी को मूंगफली से एलर्जी है।", "मेरी बेटी को मूंगफली से एलर्जी है"),
    ],
)
def test_the_same_in_nearly_the_same_words(one: str, other: str) -> None:
    assert say_the_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The room has 4 seats.", "The room has 5 seats."),
        ("The room is free.", "The room is not free."),
        ("Anna called Ben.", "Ben called Anna."),
        ("Anna lives in Berlin.", "Anna lived in Berlin."),
        ("Anna prefers green tea.", "Anna prefers black tea."),
        ("My blood type is A+.", "My blood type is A-."),
        ("The lift is left of the door.", "The lift is right of the door."),
        ("Anna always pays.", "Anna never pays."),
        ("Kein Kunde zahlt.", "Ein Kunde zahlt."),
        ("It costs -5 euros.", "It costs 5 euros."),
        ("It costs ~50 EUR.", "It costs 50 EUR."),
        ("It is off by ±5.", "It is off by 5."),
        ("The check is a == b.", "The check is a != b."),
        ("The check is a ≠ b.", "The check is a = b."),
        ("The rule is x != 0.", "The rule is x = 0."),
        ("The flag is !enabled.", "The flag is enabled."),
        ("Ready && paid.", "Ready || paid."),
        ("The job runs if (!ready).", "The job runs if (ready)."),
        ("The rule says `!important`.", "The rule says `important`."),
        ("up&&!down", "up&&down"),
        ("The timeout is 2.5ms.", "The timeout is 2.5m."),
        ("It takes 1 / 2 mg.", "It takes 1 2 mg."),
        ("The dose is 1/2 mg.", "The dose is 1.2 mg."),
        ("The score was 2:1.", "The score was 2.1."),
        ("The range is 1-5 km.", "The range is 1.5 km."),
        ("The freezer runs at \u20135 °C.", "The freezer runs at 5 °C."),
        ("My blood type is A\u2212", "My blood type is A."),
        ("Backup of the billing database: ✅", "Backup of the billing database: ❌"),
        ("The hotel has ★★★★★.", "The hotel has ★★★★."),
        ("मेरी बेटी को मूंगफली से एलर्जी है", "मेरे बेटे को मूंगफली से एलर्जी है"),
        ("เขาเป่าปี่", "เขาเป่าปู่"),
    ],
)
def test_what_one_word_tells_apart(one: str, other: str) -> None:
    assert not say_the_same(one, other)


def remembered(text: str) -> Memory:
    """A memory that says it, and nothing else."""
    at = datetime(2026, 5, 4, tzinfo=UTC)
    return Memory(
        id=uuid.uuid4(), blob_id="", namespace=TEAM, text=text, kind="fact", tags=(), source=None,
        event_time=None, metadata={}, importance="standard", confidence="high",
        writer=PublicKey(bytes(32)), created_at=at, expires_at=None, revision=1, seq=1,
        status="ready", stored_at=at, said_at=None, state=IN_FORCE, seen_count=1, last_seen_at=None,
    )  # fmt: skip


def test_each_text_is_folded_once_however_many_it_is_compared_with() -> None:
    """Thousands of times it would take minutes: each of these characters comes to eighteen."""
    long = ["\ufdfa" * (FACT_CHARS_MAX - 4) + str(n) for n in range(200)]
    known = [remembered(text) for text in [*long[:170], "The user really prefers tea."]]
    said = Conversation(text="", namespace=TEAM)
    facts = [Fact(text) for text in [*long[170:], "The user prefers tea."]]
    drafts = drafts_of(said, facts, known[:99], known[99:], AccountSettings())
    assert [draft.same_as for draft in drafts] == [*[None] * 30, known[-1]]
