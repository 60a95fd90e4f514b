"""Policy: one table says what runs, asks or is blocked, and no list can be written that widens it by accident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.config import OperatorConfig, RiskProfile
from zeroclawd.messages import Grant
from zeroclawd.policy import (
    Level,
    Ruling,
    admitted,
    entitled,
    floor,
    granted,
    names,
    rule,
    unknown_entries,
    unsigned_allowed,
)
from zeroclawd.tool import Assessment, Effect, Risk

READ = Assessment(Risk.LOW, Effect.READ)
MEDIUM = Assessment(Risk.MEDIUM, Effect.MUTATE)
HIGH = Assessment(Risk.HIGH, Effect.MUTATE)
UNKNOWN = Assessment(Risk.HIGH, Effect.UNKNOWN)


def ruled(level: str, assessment: Assessment, **lists: Any) -> str:
    return rule(RiskProfile(level=level, **lists), "valve_set", assessment).ruling.value


# The table


@pytest.mark.parametrize(
    ("level", "assessment", "plain", "auto_approved", "always_asked", "both"),
    [
        ("read_only", READ, "run", "run", "ask", "ask"),
        ("read_only", MEDIUM, "block", "block", "block", "block"),
        ("read_only", HIGH, "block", "block", "block", "block"),
        ("read_only", UNKNOWN, "block", "block", "block", "block"),
        ("supervised", READ, "run", "run", "ask", "ask"),
        ("supervised", MEDIUM, "ask", "run", "ask", "ask"),
        ("supervised", HIGH, "block", "block", "ask", "ask"),
        ("supervised", UNKNOWN, "block", "block", "ask", "ask"),
        ("full", READ, "run", "run", "ask", "ask"),
        ("full", MEDIUM, "run", "run", "ask", "ask"),
        ("full", HIGH, "run", "run", "ask", "ask"),
        ("full", UNKNOWN, "run", "run", "ask", "ask"),
    ],
)
@pytest.mark.parametrize("entry", ["valve_set", " Valve_Set ", "*"])
def test_level_risk_and_lists_decide_as_the_table_says(
    level: str, assessment: Assessment, plain: str, auto_approved: str, always_asked: str, both: str, entry: str
) -> None:
    assert ruled(level, assessment) == plain
    assert ruled(level, assessment, auto_approve=[entry]) == auto_approved
    assert ruled(level, assessment, always_ask=[entry]) == always_asked
    assert ruled(level, assessment, auto_approve=[entry], always_ask=[entry]) == both


def test_supervised_is_the_default_level() -> None:
    assert Level.parse(RiskProfile().level) is Level.SUPERVISED


def test_readonly_is_accepted_as_another_spelling() -> None:
    assert Level.parse("readonly") is Level.parse("read_only") is Level.READ_ONLY
    assert ruled("readonly", MEDIUM) == "block"


def test_an_effect_that_is_not_known_counts_as_mutating() -> None:
    assert Effect.UNKNOWN.mutates
    assert ruled("read_only", Assessment(Risk.LOW, Effect.UNKNOWN)) == "block"
    assert ruled("supervised", Assessment(Risk.LOW, Effect.UNKNOWN)) == "ask"


def test_a_call_with_a_side_effect_is_never_low() -> None:
    assert floor(Assessment(Risk.LOW, Effect.MUTATE), None).risk is Risk.MEDIUM
    assert floor(Assessment(Risk.LOW, Effect.UNKNOWN), Risk.LOW).risk is Risk.MEDIUM
    assert ruled("supervised", Assessment(Risk.LOW, Effect.MUTATE)) == "ask"


def test_what_an_operator_writes_is_final_and_an_empty_list_is_empty() -> None:
    profile = RiskProfile()
    assert profile.auto_approve == profile.always_ask == profile.allowed_tools == profile.excluded_tools == []
    for tool in ("device_read", "file_read", "time", "shell"):
        assert rule(profile, tool, MEDIUM).ruling is Ruling.ASK


def test_auto_approve_lets_a_medium_call_run_and_never_lifts_a_high_one() -> None:
    assert ruled("supervised", MEDIUM, auto_approve=["valve_set"]) == "run"
    assert ruled("supervised", HIGH, auto_approve=["valve_set", "*"]) == "block"


def test_no_reason_names_a_setting() -> None:
    for level in ("read_only", "supervised", "full"):
        for assessment in (READ, MEDIUM, HIGH):
            for lists in ({}, {"always_ask": ["*"]}, {"auto_approve": ["*"]}):
                reason = rule(RiskProfile(level=level, **lists), "valve_set", assessment).reason
                assert reason
                for setting in (*RiskProfile.__struct_fields__, "profile"):
                    assert setting == "level" or setting not in reason


levels = st.sampled_from(("read_only", "readonly", "supervised", "full"))
tools = st.sampled_from(("a", "b", "srv__c"))
devices = st.sampled_from(("", "pump", "lamp"))
entries = st.lists(st.sampled_from(("a", "A ", "b", "*", "pump", "a:pump", "b:lamp", "srv__c", "nonsense")), max_size=4)
assessments = st.builds(Assessment, st.sampled_from(Risk), st.sampled_from(Effect), st.just(frozenset()), devices)
profiles = st.builds(RiskProfile, level=levels, auto_approve=entries, always_ask=entries)


@given(profiles, tools, assessments)
def test_read_only_never_runs_or_asks_for_a_mutating_or_unknown_effect(
    profile: RiskProfile, tool: str, assessment: Assessment
) -> None:
    ruling = rule(msgspec.structs.replace(profile, level="read_only"), tool, assessment).ruling
    if assessment.effect is not Effect.READ:
        assert ruling is Ruling.BLOCK


@given(profiles, tools, assessments)
def test_high_never_runs_in_supervised_and_asks_only_where_it_is_named(
    profile: RiskProfile, tool: str, assessment: Assessment
) -> None:
    ruling = rule(
        msgspec.structs.replace(profile, level="supervised"), tool, replace(assessment, risk=Risk.HIGH)
    ).ruling
    assert ruling is (Ruling.ASK if names(profile.always_ask, tool, assessment.device) else Ruling.BLOCK)


@given(profiles, tools, assessments)
def test_full_asks_for_nothing_but_what_is_named(profile: RiskProfile, tool: str, assessment: Assessment) -> None:
    ruling = rule(msgspec.structs.replace(profile, level="full"), tool, assessment).ruling
    assert ruling is (Ruling.ASK if names(profile.always_ask, tool, assessment.device) else Ruling.RUN)


@given(profiles, tools, assessments, entries)
def test_asking_for_more_never_lets_more_run(
    profile: RiskProfile, tool: str, assessment: Assessment, more: list[str]
) -> None:
    stricter = msgspec.structs.replace(profile, always_ask=[*profile.always_ask, *more])
    if rule(stricter, tool, assessment).ruling is Ruling.RUN:
        assert rule(profile, tool, assessment).ruling is Ruling.RUN


@given(profiles, tools, assessments, entries)
def test_approving_less_in_advance_never_lets_more_run(
    profile: RiskProfile, tool: str, assessment: Assessment, more: list[str]
) -> None:
    wider = msgspec.structs.replace(profile, auto_approve=[*profile.auto_approve, *more])
    if rule(profile, tool, assessment).ruling is Ruling.RUN:
        assert rule(wider, tool, assessment).ruling is Ruling.RUN


STRICT = (Ruling.RUN, Ruling.ASK, Ruling.BLOCK)


@given(entries, tools, devices, st.sampled_from(Effect), levels)
def test_a_higher_risk_is_never_ruled_more_freely(
    auto: list[str], tool: str, device: str, effect: Effect, level: str
) -> None:
    profile = RiskProfile(level=level, auto_approve=auto)
    found = [STRICT.index(rule(profile, tool, Assessment(risk, effect, frozenset(), device)).ruling) for risk in Risk]
    assert found == sorted(found)


@given(profiles, tools, assessments)
def test_a_stricter_level_never_lets_more_run(profile: RiskProfile, tool: str, assessment: Assessment) -> None:
    found = [
        rule(msgspec.structs.replace(profile, level=level), tool, assessment).ruling is Ruling.RUN
        for level in ("read_only", "supervised", "full")
    ]
    assert found == sorted(found)


# Devices


@pytest.mark.parametrize("configured", [None, *Risk])
@pytest.mark.parametrize("given_risk", [Risk.MEDIUM, Risk.HIGH])
def test_a_devices_configured_risk_is_a_floor(given_risk: Risk, configured: Risk | None) -> None:
    told = floor(Assessment(given_risk, Effect.MUTATE, frozenset({"device:pump"}), "pump"), configured)
    assert told.risk is max(given_risk, configured or given_risk)
    assert (told.effect, told.resources, told.device) == (Effect.MUTATE, frozenset({"device:pump"}), "pump")


def test_reading_a_device_of_high_risk_stays_low_since_it_changes_nothing() -> None:
    assert floor(Assessment(Risk.LOW, Effect.READ, frozenset(), "pump"), Risk.HIGH).risk is Risk.LOW


def test_lists_name_a_tool_a_device_or_a_tool_on_a_device() -> None:
    on_pump = replace(MEDIUM, device="pump")
    for entry in ("valve_set", "pump", " pump ", "valve_set:pump", "Valve_Set : pump", "*"):
        assert names([entry], "valve_set", "pump"), entry
        assert ruled("supervised", on_pump, auto_approve=[entry]) == "run"
    for entry in (
        "valve",
        "valve_set:lamp",
        "other:pump",
        "lamp",
        "Pump",
        "valve_*",
        "valve_set:*",
        "",
        " ",
        ":",
        ":pump",
    ):
        assert not names([entry], "valve_set", "pump"), entry
        assert ruled("supervised", on_pump, auto_approve=[entry]) == "ask"


@pytest.mark.parametrize("entry", ["", " ", ":", "pump", "valve_set:", "valve_set:pump"])
def test_a_call_without_a_device_is_not_named_by_an_entry_for_a_device_or_an_empty_one(entry: str) -> None:
    assert names([entry], "valve_set", "") == (entry == "valve_set:")


# What a turn may see and run


@pytest.mark.parametrize(
    ("lists", "per_run", "expected"),
    [
        ({}, None, ["file_read", "gh__issue", "shell"]),
        ({"allowed_tools": ["file_read"]}, None, ["file_read", "gh__issue"]),
        ({"allowed_tools": [" File_Read "]}, None, ["file_read", "gh__issue"]),
        ({"allowed_tools": ["file_read"], "excluded_tools": ["gh__issue"]}, None, ["file_read"]),
        ({"allowed_tools": ["file_read"], "excluded_tools": ["GH__Issue"]}, None, ["file_read"]),
        ({"allowed_tools": ["file_read"]}, ["shell"], []),
        ({"allowed_tools": ["file_read"]}, [], []),
        ({}, [], []),
        ({"allowed_tools": ["file_read"]}, ["gh__issue"], ["gh__issue"]),
        ({}, ["SHELL "], ["shell"]),
        ({"excluded_tools": ["shell"]}, ["shell", "file_read"], ["file_read"]),
        ({"allowed_tools": ["shell"], "excluded_tools": ["shell"]}, None, ["gh__issue"]),
        ({"allowed_tools": ["no_such_tool"]}, None, ["gh__issue"]),
        ({"allowed_tools": ["file_*"]}, None, ["gh__issue"]),
    ],
)
def test_what_a_turn_may_see(lists: dict[str, list[str]], per_run: list[str] | None, expected: list[str]) -> None:
    registry = ["shell", "file_read", "gh__issue"]
    assert list(admitted(RiskProfile(**lists), registry, per_run=per_run)) == expected


def test_excluded_tools_spare_the_local_cli_and_nobody_else() -> None:
    profile = RiskProfile(excluded_tools=["shell"])
    assert admitted(profile, ["shell"], local_cli=True) == ("shell",)
    assert admitted(profile, ["shell"]) == ()
    assert admitted(profile, ["shell"], per_run=[], local_cli=True) == ()


def test_only_a_server_and_a_tool_pass_a_list_unlisted() -> None:
    found = admitted(RiskProfile(allowed_tools=["time"]), ["time", "__shell", "shell__", "srv__shell", "__"])
    assert found == ("srv__shell", "time")


some = st.lists(st.sampled_from(("a", "b", "c", "s__d", "s__e")), max_size=5)
optional = st.none() | some
bounds = st.builds(RiskProfile, allowed_tools=some, excluded_tools=some)


@given(bounds, some, optional, st.booleans(), some)
def test_adding_a_deny_never_enlarges_what_is_admitted(
    profile: RiskProfile, registry: list[str], per_run: list[str] | None, cli: bool, more: list[str]
) -> None:
    stricter = msgspec.structs.replace(profile, excluded_tools=[*more, *profile.excluded_tools])
    before = admitted(profile, registry, per_run=per_run, local_cli=cli)
    assert set(admitted(stricter, registry, per_run=per_run, local_cli=cli)) <= set(before)


@given(bounds, some, optional, st.booleans(), some)
def test_narrowing_a_list_never_enlarges_what_is_admitted(
    profile: RiskProfile, registry: list[str], per_run: list[str] | None, cli: bool, kept: list[str]
) -> None:
    before = set(admitted(profile, registry, per_run=per_run, local_cli=cli))
    narrower = [name for name in profile.allowed_tools if name in kept] or ["nothing"]
    fewer = kept if per_run is None else [name for name in per_run if name in kept]
    stricter = msgspec.structs.replace(profile, allowed_tools=narrower)
    assert set(admitted(stricter, registry, per_run=per_run, local_cli=cli)) <= before
    assert set(admitted(profile, registry, per_run=fewer, local_cli=cli)) <= before & set(fewer)


@given(bounds, some, optional, st.booleans(), st.randoms())
def test_the_answer_is_sorted_and_no_order_of_anything_matters(
    profile: RiskProfile, registry: list[str], per_run: list[str] | None, cli: bool, random: Any
) -> None:
    told = admitted(profile, registry, per_run=per_run, local_cli=cli)
    assert list(told) == sorted(set(told))
    assert set(told) <= set(registry)
    shuffled = [list(names) for names in (profile.allowed_tools, profile.excluded_tools, registry, per_run or [])]
    for one in shuffled:
        random.shuffle(one)
    again = RiskProfile(allowed_tools=shuffled[0], excluded_tools=shuffled[1])
    run = None if per_run is None else shuffled[3]
    assert admitted(again, shuffled[2], per_run=run, local_cli=cli) == told


# Typos in lists


def test_an_entry_that_could_never_match_is_told() -> None:
    profile = RiskProfile(
        always_ask=["*", "shell", " Shell", "pump", "shell:pump", "srv__x", "srv__x:pump", "shel", "shell:pmp", ""],
        auto_approve=["shell", "shell*", "Pump", "shell:", "__x"],
        allowed_tools=["shell", "SHELL", "srv__x", "shll", "*", "pump", "shell:pump"],
        excluded_tools=["srv__x", "*", "gpio_*", "pump", " "],
    )
    assert unknown_entries(profile, ["shell"], ["pump"]) == [
        ("always_ask", "shel"),
        ("always_ask", "shell:pmp"),
        ("always_ask", ""),
        ("auto_approve", "shell*"),
        ("auto_approve", "Pump"),
        ("auto_approve", "shell:"),
        ("auto_approve", "__x"),
        ("allowed_tools", "shll"),
        ("allowed_tools", "*"),
        ("allowed_tools", "pump"),
        ("allowed_tools", "shell:pump"),
        ("excluded_tools", "*"),
        ("excluded_tools", "gpio_*"),
        ("excluded_tools", "pump"),
        ("excluded_tools", " "),
    ]


@given(
    st.lists(st.sampled_from(("shell", "srv__x")), max_size=3), st.sampled_from(("*", "shell", "pump", "shell:pump"))
)
def test_lists_without_a_typo_have_none(of_tools: list[str], of_calls: str) -> None:
    profile = RiskProfile(
        always_ask=[of_calls], auto_approve=[of_calls], allowed_tools=of_tools, excluded_tools=of_tools
    )
    assert unknown_entries(profile, ["shell"], ["pump"]) == []


# Who may say yes


def operator(**more: Any) -> OperatorConfig:
    return OperatorConfig(public_key="x", **more)


@pytest.mark.parametrize(
    ("may", "risk", "yes"),
    [
        ("low", Risk.LOW, True),
        ("low", Risk.MEDIUM, False),
        ("medium", Risk.MEDIUM, True),
        ("medium", Risk.HIGH, False),
        ("high", Risk.HIGH, True),
        ("high", Risk.LOW, True),
    ],
)
def test_who_may_approve_is_decided_per_risk(may: str, risk: Risk, yes: bool) -> None:
    why = entitled(operator(may_approve=may), risk, "pump")
    assert (why == "") is yes
    if not yes:
        assert may in why
        assert risk.word in why


def test_medium_is_what_an_operator_may_approve_unless_configured() -> None:
    assert entitled(operator(), Risk.MEDIUM, "") == ""
    assert entitled(operator(), Risk.HIGH, "") != ""


@pytest.mark.parametrize(
    ("limits", "device", "groups", "yes"),
    [
        ({}, "pump", [], True),
        ({}, "", [], True),
        ({"devices": ["pump"]}, "pump", [], True),
        ({"devices": ["pump"]}, "lamp", [], False),
        ({"devices": ["pump"]}, "", [], False),
        ({"groups": ["garden"]}, "pump", ["house", "garden"], True),
        ({"groups": ["garden"]}, "pump", ["house"], False),
        ({"groups": ["garden"]}, "pump", [], False),
        ({"groups": ["garden"]}, "", ["garden"], False),
        ({"devices": ["lamp"], "groups": ["garden"]}, "pump", ["garden"], True),
        ({"devices": ["lamp"], "groups": ["garden"]}, "lamp", [], True),
        ({"devices": ["garden"]}, "pump", ["garden"], False),
    ],
)
def test_an_operator_answers_for_the_devices_and_groups_that_are_theirs(
    limits: dict[str, list[str]], device: str, groups: list[str], yes: bool
) -> None:
    assert (entitled(operator(**limits), Risk.LOW, device, groups) == "") is yes


@pytest.mark.parametrize("risk", list(Risk))
@pytest.mark.parametrize(("setting", "highest"), [("none", 0), ("low", 1), ("medium", 2), ("high", 3)])
def test_an_unsigned_decision_lifts_no_more_than_is_configured(setting: str, highest: int, risk: Risk) -> None:
    assert unsigned_allowed(setting, risk) is (risk <= highest)


# Grants

GRANT = Grant("g1", "mqtt:home:ann", "valve_set", "exact", "d1", "pump", "bob", 1000.0)
CALL: dict[str, Any] = {
    "principal": "mqtt:home:ann",
    "tool": "valve_set",
    "digest": "d1",
    "device": "pump",
    "now": 999.0,
}


def test_an_exact_grant_covers_the_same_call() -> None:
    assert granted([GRANT], **CALL) is GRANT


def test_a_grant_for_a_device_covers_any_arguments_for_it() -> None:
    wide = replace(GRANT, match="device", digest="")
    assert granted([wide], **{**CALL, "digest": "d2"}) is wide
    assert granted([wide], **{**CALL, "device": "lamp"}) is None
    assert granted([replace(wide, device="")], **{**CALL, "device": ""}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "mqtt:home:eve"},
        {"principal": ""},
        {"tool": "valve_get"},
        {"tool": "Valve_Set"},
        {"digest": "d2"},
        {"digest": ""},
        {"now": 1000.0},
        {"now": 1000.5},
    ],
)
def test_always_is_bound_to_principal_tool_arguments_and_expiry(change: dict[str, Any]) -> None:
    assert granted([GRANT], **{**CALL, **change}) is None


@pytest.mark.parametrize("match", ["", "tool", "any", "*"])
def test_a_grant_of_another_kind_covers_nothing(match: str) -> None:
    assert granted([replace(GRANT, match=match)], **CALL) is None


def test_a_grant_without_a_digest_covers_no_call_without_one() -> None:
    assert granted([replace(GRANT, digest="")], **{**CALL, "digest": ""}) is None


def test_the_first_grant_that_covers_the_call_is_found_among_others() -> None:
    others = [replace(GRANT, id="old", expires_at=1.0), replace(GRANT, id="eve", principal="eve")]
    assert granted([*others, GRANT, replace(GRANT, id="later")], **CALL) is GRANT
    assert granted(others, **CALL) is None
    assert granted([], **CALL) is None
