"""What was forgotten stays so: one session, of several providers in a real Hermes Agent.

`make test-hermes` runs this file and `provider.py`.
"""

from tests.hermes.scene import AWAY, DOCTOR, FACT, ID, MOVE, Agent, Scene


def forgets(agent: Agent, session: str, said: str, turn: int = 1) -> None:
    """A turn in which all that is known of the doctor is erased."""
    agent.call("on_turn_start", turn, said)
    found = agent.tool("memory_search", query=DOCTOR)["result"]
    for memory_id in ID.findall(found):
        assert "Erased" in agent.tool("memory_forget", id=memory_id)["result"]
    agent.call("sync_all", said, "It is forgotten.", session_id=session)


def history(*said: str) -> list[dict[str, str]]:
    turns = [
        ({"role": "user", "content": one}, {"role": "assistant", "content": "Noted."})
        for one in said
    ]
    return [message for turn in turns for message in turn]


def test_what_was_forgotten_stays_so_for_the_next_provider_of_its_session(scene: Scene) -> None:
    scene.install()
    said = "Please forget my doctor."
    with scene.agent("one") as agent:
        agent.turn(DOCTOR, session="one")
        agent.call("on_session_end", [])
        forgets(agent, "one", said, 2)
        agent.stop()  # the last one, so its gateway goes as well
        for name, fact in (("one", FACT), ("one", MOVE)):
            assert agent.call("start", name)
            agent.turn(fact, session=name)
            agent.stop()
        assert set(scene.texts()) == {FACT, MOVE}
        scene.use(AWAY)
        assert agent.call("start", "one")
        agent.call("on_turn_start", 1, "Hello again.")
        later = [f"I prefer bicycle number {n}." for n in range(12)]  # more than one request takes
        rest = history(DOCTOR, said, *later, "Hello again.")
        assert agent.call("on_pre_compress", rest) == ""
        agent.stop()
    captured = "".join(turn.text for turn in scene.waiting())
    assert all(text in captured for text in later)
    assert "doctor" not in captured


def test_what_was_forgotten_stays_so_when_its_session_is_compressed_and_forked(
    scene: Scene,
) -> None:
    scene.install()
    said = "Please forget my doctor."
    summary = {"role": "user", "content": "[CONTEXT COMPACTION] They spoke."}
    with scene.agent("one") as agent:
        agent.turn(DOCTOR, session="one")
        agent.call("on_session_end", [])
        forgets(agent, "one", said, 2)
        agent.turn(FACT, session="one")
        agent.call("on_pre_compress", history(DOCTOR, said, FACT))
        agent.call("on_session_switch", "two", parent_session_id="one", reason="compression")
        agent.call("on_session_switch", "three", parent_session_id="two", reason="branch")
        agent.stop()
        for session in ("two", "three"):
            assert agent.call("start", session)
            agent.call("on_turn_start", 1, MOVE)
            left = [*history(DOCTOR), summary, *history(FACT, MOVE)]
            assert agent.call("on_pre_compress", left) == ""
            agent.stop()
        warnings = agent.warnings()
    assert set(scene.texts()) == {FACT, MOVE}
    assert not any("doctor" in line for line in warnings)


def test_what_was_forgotten_stays_so_in_a_fork_that_a_messenger_makes(scene: Scene) -> None:
    """Its provider is told the chat, and not from which session it was made."""
    scene.install()
    said, chat = "Please forget my doctor.", "agent:main:telegram:dm:7"
    with scene.agent("one", gateway_session_key=chat) as agent:
        agent.turn(DOCTOR, session="one")
        agent.call("on_session_end", [])
        forgets(agent, "one", said, 2)
        agent.stop()
        assert agent.call("start", "two", gateway_session_key=chat)
        agent.turn(FACT, session="two")
        agent.call("on_pre_compress", history(DOCTOR, said, FACT, MOVE))
        agent.stop()
    assert set(scene.texts()) == {FACT, MOVE}


def test_another_session_is_captured_in_full_and_the_model_told_so(scene: Scene) -> None:
    scene.install()
    with scene.agent("one") as agent:
        agent.turn(DOCTOR, session="one")
        agent.call("on_session_end", [])
        forgets(agent, "one", "Yes.", 2)
        agent.call("on_session_switch", "two", parent_session_id="one", reset=True)
        agent.call("on_turn_start", 1, "Go on.")
        messages = history(FACT, "Yes.", MOVE, "Go on.")
        assert "memory_search" in agent.call("on_pre_compress", messages)
        agent.call("on_session_switch", "one", parent_session_id="two", reason="resume")
        agent.call("on_turn_start", 1, "Go on.")
        assert agent.call("on_pre_compress", history(DOCTOR, "Yes.", "Go on.")) == ""
        agent.stop()
    texts = scene.texts()
    assert {FACT, MOVE} <= set(texts)
    assert not any("doctor" in text for text in texts)


def test_a_turn_that_erased_is_known_though_it_was_interrupted(scene: Scene) -> None:
    scene.install()
    said = "Please forget my doctor."
    with scene.agent("one") as agent:
        agent.turn(DOCTOR, session="one")
        agent.call("on_session_end", [])
        agent.call("on_turn_start", 2, said)
        found = agent.tool("memory_search", query=DOCTOR)["result"]
        memory_id = ID.findall(found)[0]
        assert "Erased" in agent.tool("memory_forget", id=memory_id)["result"]
        agent.call("on_turn_start", 3, FACT)  # interrupted as well
        agent.call("on_turn_start", 4, MOVE)
        agent.call("on_pre_compress", history(DOCTOR, said, FACT, MOVE))
        agent.stop()
    texts = scene.texts()
    assert {FACT, MOVE} <= set(texts)
    assert not any("doctor" in text for text in texts)
