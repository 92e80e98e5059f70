"""The thresholds of the hooks, their profiles and what is refused."""

from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from memrelay.errors import ConfigError
from memrelay.gateway.settings import PROFILES, GatewaySettings

DEFAULTS = {
    "auto_recall": True,
    "recall_results_max": 5,
    "recall_tokens_max": 0,
    "relevance_min": 0.3,
    "prompt_chars_min": 0,
    "recall_deadline_s": 1.0,
    "outage_pause_s": 10.0,
    "recall_shared": True,
    "injection_tokens_max": 800,
    "memory_tag": "memwal-memories",
    "memory_details": False,
    "cold_start": False,
    "cold_start_memories": 30,
    "auto_capture": True,
    "capture_scope": "window",
    "capture_messages_max": 10,
    "message_chars_min": 0,
    "capture_chars_min": 0,
    "capture_chars_max": 0,
    "conversation_chars_min": 0,
    "capture_emojis_max": 3,
    "capture_code": True,
    "capture_noise": True,
    "require_user_message": False,
    "capture_retry_s": 2.0,
    "debounce_s": 0.0,
    "spool_bytes_max": 16 * 1024 * 1024,
    "spool_turns_max": 1000,
    "skip_subagents": True,
    "skip_cron": True,
    "skip_heartbeat": True,
}
CHANGED: dict[str, dict[str, Any]] = {
    "memwal": {},
    "coding": {"require_user_message": True},
    "core-plus": {
        "prompt_chars_min": 5,
        "memory_tag": "relevant-memories",
        "memory_details": True,
        "capture_chars_min": 10,
        "capture_chars_max": 2000,
        "conversation_chars_min": 20,
        "capture_code": False,
        "require_user_message": True,
    },
    "memsearch": {
        "prompt_chars_min": 10,
        "message_chars_min": 11,
        "capture_chars_min": 30,
        "cold_start": True,
        "capture_scope": "turn",
        "capture_noise": False,
        "debounce_s": 5.0,
    },
    "memwal-strict": {
        "prompt_chars_min": 10,
        "message_chars_min": 11,
        "capture_chars_min": 30,
    },
}


@pytest.mark.parametrize("name", [item.name for item in fields(GatewaySettings)])
def test_every_setting_has_its_default(name):
    value = getattr(GatewaySettings(), name)
    assert (value, type(value)) == (DEFAULTS[name], type(DEFAULTS[name]))


@pytest.mark.parametrize("profile", [*PROFILES])
def test_a_profile_changes_only_what_it_names(profile):
    assert asdict(PROFILES[profile]) == DEFAULTS | CHANGED[profile]


def test_recall_takes_five_memories_of_relevance_from_three_tenths_on():
    """capability 0.11: five results from 0.3 on; one to twenty may be asked for."""
    plain = GatewaySettings()
    assert (plain.recall_results_max, plain.relevance_min) == (5, 0.3)
    assert GatewaySettings.of({"recallResultsMax": 1}).recall_results_max == 1
    assert GatewaySettings.of({"recallResultsMax": 20}).recall_results_max == 20
    for refused in (0, 21, -1):
        with pytest.raises(ConfigError, match="recall_results_max is from 1 to 20"):
            GatewaySettings.of({"recallResultsMax": refused})


def test_the_capture_window_is_one_to_fifty_messages():
    assert GatewaySettings().capture_messages_max == 10
    for refused in (0, 51):
        with pytest.raises(ConfigError, match="capture_messages_max is from 1 to 50"):
            GatewaySettings(capture_messages_max=refused)


@pytest.mark.parametrize("values", [None, {}, {"profile": "memwal"}])
def test_without_values_the_defaults_hold(values):
    assert GatewaySettings.of(values) == GatewaySettings()


def test_both_spellings_are_read_and_a_profile_is_the_base():
    found = GatewaySettings.of({"profile": "core-plus", "autoRecall": False, "debounce_s": 2})
    assert found == replace(PROFILES["core-plus"], auto_recall=False, debounce_s=2.0)
    assert isinstance(found.debounce_s, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"profile": "mem0"}, "profile is one of memwal, core-plus, memsearch, memwal-strict"),
        ({"profile": ["memwal"]}, "profile is one of"),
        ({"profile": None}, "profile is one of"),
        ({"autoRecal": True}, "There is no setting auto_recal"),
        ({"": True}, "There is no setting"),
        ({"auto_recall": "yes"}, "auto_recall has a value of the wrong type"),
        ({"auto_recall": 1}, "auto_recall has a value of the wrong type"),
        ({"recall_results_max": True}, "recall_results_max has a value of the wrong type"),
        ({"recall_results_max": 5.0}, "recall_results_max has a value of the wrong type"),
        ({"relevance_min": "0.3"}, "relevance_min has a value of the wrong type"),
        ({"relevance_min": True}, "relevance_min has a value of the wrong type"),
        ({"relevance_min": None}, "relevance_min has a value of the wrong type"),
        ({"memory_tag": 5}, "memory_tag has a value of the wrong type"),
        ({"relevance_min": 1.1}, "relevance_min is from 0 to 1"),
        ({"relevance_min": float("nan")}, "relevance_min is from 0 to 1"),
        ({"recall_deadline_s": 0}, "recall_deadline_s is from 0.05 to 15"),
        ({"recall_deadline_s": float("inf")}, "recall_deadline_s is from 0.05 to 15"),
        ({"capture_scope": "session"}, "capture_scope is window or turn"),
        ({"memory_tag": "system"}, "memory_tag is memwal-memories or relevant-memories"),
        ({"spool_bytes_max": -1}, "spool_bytes_max is from 0 to"),
        ({"injection_tokens_max": 99}, "injection_tokens_max is at least 100, or 0 for no bound"),
    ],
)
def test_what_is_not_a_setting_is_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=message):
        GatewaySettings.of(values)


def test_an_error_does_not_repeat_the_value():
    with pytest.raises(ConfigError) as refused:
        GatewaySettings.of({"memory_tag": "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_every_number_has_a_range():
    for item in fields(GatewaySettings):
        if isinstance(item.default, int | float) and not isinstance(item.default, bool):
            negative: dict[str, Any] = {item.name: -1}
            with pytest.raises(ConfigError, match=item.name):
                replace(GatewaySettings(), **negative)


def test_the_mapping_that_is_read_is_not_changed():
    given = {"profile": "memsearch", "autoRecall": False}
    GatewaySettings.of(given)
    assert given == {"profile": "memsearch", "autoRecall": False}
