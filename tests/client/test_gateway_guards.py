"""Whose turns are remembered, as which agent, in which namespace."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrelay.gateway.guards import (
    agent_of,
    capture_refusal,
    namespace_of,
    recall_refusal,
    run_refusal,
)
from memrelay.gateway.host_events import USER, Context, Message, Prompt, Turn
from memrelay.gateway.settings import PROFILES, GatewaySettings

MEMWAL = GatewaySettings()
CORE_PLUS = PROFILES["core-plus"]
STRICT = PROFILES["memwal-strict"]
QUERY = "Where is the staging server?"
TURN = Turn(messages=(Message(USER, "The staging server moved to Frankfurt."),))


def session(key, **members):
    return Context(session_key=key, **members)


def test_an_ordinary_turn_is_recalled_for_and_captured():
    for context in (Context(), session("agent:main:main", agent_id="main", trigger="user")):
        assert run_refusal(context, MEMWAL) is None
        assert recall_refusal(QUERY, context, MEMWAL) is None
        assert capture_refusal(TURN, context, MEMWAL) is None


@pytest.mark.parametrize("query", ["", "hi", "what is i", "猫の名前は？"])
def test_prompts_under_ten_characters_are_skipped(query):
    """capability 0.8: a prompt under ten characters leads to no recall, in MemWal's own profile."""
    assert recall_refusal(query, Context(), STRICT) == "trivial"


def test_a_prompt_of_ten_characters_is_not_skipped():
    assert recall_refusal("What is it", Context(), STRICT) is None
    assert recall_refusal("What is i", Context(), replace(STRICT, prompt_chars_min=9)) is None


@pytest.mark.parametrize(
    "query",
    [
        "Oslo?",
        "my dog?",
        "猫の名前は？",
        "我的狗叫什么名字？",
        "猫？",
        "개 이름?",
        "หมาชื่ออะไร",
        "Где ключ?",
    ],
)
def test_a_short_prompt_that_asks_for_something_is_recalled_for_in_every_script(query):
    assert recall_refusal(query, Context(), MEMWAL) is None


@pytest.mark.parametrize(
    "query", ["", "hi", "ok", "👍", "thanks!", "y", "?", "/status", "谢谢", "네"]
)
def test_a_prompt_that_says_nothing_is_skipped(query):
    assert recall_refusal(query, Context(), MEMWAL) == "trivial"


def test_the_core_plus_profile_skips_prompts_under_five_characters():
    """capability 1.4: that profile recalls five results for prompts of five characters on.
    capability 1.8: a prompt that is too short is skipped.
    """
    assert (CORE_PLUS.auto_recall, CORE_PLUS.recall_results_max) == (True, 5)
    assert recall_refusal("Oslo", Context(), CORE_PLUS) == "trivial"
    assert recall_refusal("Oslo?", Context(), CORE_PLUS) is None


@pytest.mark.parametrize(
    "query", ["Thank you very much!", "Alles klar, vielen Dank", "okay okay ok"]
)
def test_a_prompt_that_is_filler_is_skipped(query):
    assert recall_refusal(query, Context(), MEMWAL) == "trivial"


MEMORY_RUNS = [
    Context(trigger="memory"),
    Context(trigger="MEMORY", session_key="agent:main:main"),
    Context(trigger="memory_flush"),
    Context(trigger="Pre-Compaction"),
    session("agent:main:memory-capture:1f"),
    session("agent:researcher:main:memory-capture:1f", trigger="user"),
    session("memory-capture:1f"),
]


@pytest.mark.parametrize("context", MEMORY_RUNS)
def test_runs_on_memory_itself_are_not_recalled_for(context):
    """capability 1.9: a run triggered by memory, or in a capture session, gets no recall."""
    assert recall_refusal(QUERY, context, MEMWAL) == "memory_run"


@pytest.mark.parametrize("context", MEMORY_RUNS)
def test_runs_on_memory_itself_are_not_captured(context):
    """capability 1.16: a run triggered by memory is not captured.
    capability 1.17: a run in a capture session is not captured.
    capability 1.26: neither setting lets memory feed on itself.
    """
    eager = replace(MEMWAL, skip_cron=False, skip_heartbeat=False, skip_subagents=False)
    assert capture_refusal(TURN, context, eager) == "memory_run"


@pytest.mark.parametrize(
    ("context", "setting", "word"),
    [
        (Context(trigger="cron"), "skip_cron", "cron"),
        (session("agent:main:cron:daily:run:7", trigger="user"), "skip_cron", "cron"),
        (session("cron:daily"), "skip_cron", "cron"),
        (Context(trigger="scheduled"), "skip_cron", "cron"),
        (Context(trigger="heartbeat"), "skip_heartbeat", "heartbeat"),
        (session("agent:main:main:heartbeat"), "skip_heartbeat", "heartbeat"),
        (Context(trigger="sub_agent"), "skip_subagents", "subagent"),
        (session("agent:main:subagent:1f"), "skip_subagents", "subagent"),
        (session("agent:main:subagent:1f:subagent:2e"), "skip_subagents", "subagent"),
        (session("Subagent:1f"), "skip_subagents", "subagent"),
        (Context(trigger="user", origin="inter_session"), "skip_subagents", "subagent"),
        (Context(trigger="user", origin="internal_system"), "skip_heartbeat", "heartbeat"),
    ],
)
def test_runs_that_no_person_began_are_left_alone_unless_wanted(context, setting, word):
    """capability 4.3: sub-agents, like cron and heartbeat runs, get no memories and leave none."""
    assert recall_refusal(QUERY, context, MEMWAL) == word
    assert capture_refusal(TURN, context, MEMWAL) == word
    change: dict[str, Any] = {setting: False}
    wanted = replace(MEMWAL, **change)
    assert recall_refusal(QUERY, context, wanted) is None
    assert capture_refusal(TURN, context, wanted) is None


@pytest.mark.parametrize(
    "key",
    [
        "agent:cron:main",
        "agent:subagent:main",
        "agent:memory-capture:main",
        "agent:main:telegram:group:crontab",
        "agent:main:telegram:direct:7:thread:9",
        "agent:main:heartbeat-recovered-1",
    ],
)
def test_names_that_look_like_such_runs_are_ordinary(key):
    assert run_refusal(session(key), MEMWAL) is None


@pytest.mark.parametrize(
    ("provenance", "refusal"),
    [
        ({"kind": "inter_session", "sourceTool": "sessions_send"}, "subagent"),
        ({"kind": "internal_system"}, "heartbeat"),
        ({"kind": "external_user"}, None),
        ({"kind": 5}, None),
        ({}, None),
        ("inter_session", None),
        (None, None),
    ],
)
def test_the_origin_of_the_input_is_read_beside_the_trigger(provenance, refusal):
    context = Context.from_json({"trigger": "user", "inputProvenance": provenance})
    assert run_refusal(context, MEMWAL) == refusal


def test_either_hook_can_be_switched_off_alone():
    """capability 1.3: recall and capture are switched on and off apart from each other."""
    quiet = replace(MEMWAL, auto_recall=False)
    assert recall_refusal(QUERY, Context(), quiet) == "off"
    assert capture_refusal(TURN, Context(), quiet) is None
    forgetful = replace(MEMWAL, auto_capture=False)
    assert capture_refusal(TURN, Context(), forgetful) == "off"
    assert recall_refusal(QUERY, Context(), forgetful) is None


@pytest.mark.parametrize("success", [False, None, 1, "true"])
def test_only_a_successful_turn_with_messages_is_captured(success):
    """capability 0.19: only a turn that succeeded and has messages is captured."""
    said = [{"role": "user", "content": "hello"}]
    failed = Turn.from_json({"success": success, "messages": said})
    assert capture_refusal(failed, Context(), MEMWAL) == "failed"
    assert capture_refusal(Turn(messages=()), Context(), MEMWAL) == "empty"
    good = Turn.from_json({"success": True, "messages": said})
    assert capture_refusal(good, Context(), MEMWAL) is None


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        ("agent:researcher:4ac1", "researcher"),
        ("agent:researcher:telegram:group:-100:thread:7", "researcher"),
        ("agent:Researcher:main", "researcher"),
        ("AGENT:coder_2:x", "coder_2"),
        ("main:4ac1", "default"),
        ("agent:main:main", "default"),
        ("agent:main:cron:daily", "default"),
        ("global", "default"),
        ("telegram:agent:coder:x", "default"),
        (None, "default"),
    ],
)
def test_the_namespace_follows_from_the_session_key(key, namespace):
    """capability 0.9: `agent:NAME:…` is the namespace NAME, `main:…` is the default one."""
    assert namespace_of(session(key)) == namespace
    assert namespace_of(session(key), default="team") == namespace.replace("default", "team")


def test_the_agents_own_id_counts_more_than_the_session_key():
    """capability 2.23: one agent always gets one and the same namespace."""
    assert agent_of(session("agent:coder:main", agent_id="Researcher")) == "researcher"
    assert agent_of(session("main:1", agent_id="coder")) == "coder"
    assert namespace_of(session("agent:coder:a")) == namespace_of(session("agent:coder:b"))


@pytest.mark.parametrize(
    "names",
    [
        ("foo bar", "foo-bar", "foo/bar", "foo.bar"),
        ("研究", "开发", "main", "agent"),
        ("../main", "main", "..", "."),
        ("a" * 64, "a" * 65, "a" * 66),
        ("", "-", "--", "main"),
    ],
)
def test_two_agents_never_share_a_name(names):
    assert len({agent_of(Context(agent_id=name)) for name in names}) == len(names)


def test_an_agent_called_like_the_main_agents_namespace_does_not_share_it():
    for name in ("default", "team"):
        own = namespace_of(Context(agent_id=name), default=name)
        assert re.fullmatch(rf"{name}-[0-9a-f]{{16}}", own)
        assert namespace_of(session(f"agent:{name}:main"), default=name) == own
        assert namespace_of(Context(agent_id=name), default="other") == name
        assert namespace_of(Context(), default=name) == name


@pytest.mark.parametrize("key", ["agent:", "agent::x", "agent: :x", "Agent::main"])
def test_a_malformed_session_key_never_opens_the_main_agents_memory(key):
    assert agent_of(session(key)) != "main"
    assert namespace_of(session(key)) != "default"


@given(st.text())
def test_a_name_is_safe_in_a_path_and_in_a_namespace(name):
    found = agent_of(Context(agent_id=name))
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", found)
    assert agent_of(Context(agent_id=found)) == found


@pytest.mark.parametrize(
    ("event", "prompt"),
    [
        ({"prompt": "wrapped", "currentUserMessage": "Where is it?"}, "Where is it?"),
        ({"prompt": "history", "currentUserMessage": ""}, ""),
        ({"prompt": "Where is it?", "currentUserMessage": None}, "Where is it?"),
        ({"prompt": "Where is it?", "currentUserMessage": 5}, "Where is it?"),
        ({"prompt": 5}, ""),
        ({}, ""),
        (None, ""),
        ([], ""),
        ({"prompt": "half \ud83d"}, "half ?"),
    ],
)
def test_the_query_is_what_the_user_wrote(event, prompt):
    assert Prompt.from_json(event).prompt == prompt
