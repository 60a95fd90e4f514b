"""docs/security.md: its tables and claims, put to the policy that decides."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import blocks, page, paragraph, prose, section, table, words
from zeroclawd import policy
from zeroclawd.catalog import Catalog
from zeroclawd.config import OperatorConfig, RiskProfile, parse
from zeroclawd.daemon.build import plan, rulings
from zeroclawd.locale import Texts
from zeroclawd.messages import Grant
from zeroclawd.tool import Assessment, Effect, Risk

PAGE = "docs/security.md"
RULINGS = {"runs": policy.Ruling.RUN, "asks": policy.Ruling.ASK, "blocked": policy.Ruling.BLOCK}
EFFECTS = {Risk.LOW: Effect.READ, Risk.MEDIUM: Effect.MUTATE, Risk.HIGH: Effect.UNKNOWN}
ROWS = table(section(PAGE, "How a call is decided"))


def ruled(level: str, risk: Risk, device: str = "", **lists: list[str]) -> policy.Ruling:
    profile = RiskProfile(level=level, **lists)
    return policy.rule(profile, "shell", Assessment(risk, EFFECTS[risk], device=device)).ruling


@pytest.mark.parametrize("row", ROWS, ids=lambda row: words(row[0])[0])
@pytest.mark.parametrize("risk", Risk)
def test_the_table_is_what_the_policy_rules(row: list[str], risk: Risk):
    assert ruled(words(row[0])[0], risk) is RULINGS[row[risk.value]]


def test_the_table_has_every_level():
    assert {words(row[0])[0] for row in ROWS} == set(policy.Level)


@pytest.mark.parametrize("level", ["supervised", "full"])
@pytest.mark.parametrize("risk", Risk)
def test_always_ask_asks_at_every_risk_and_comes_before_auto_approve(level: str, risk: Risk):
    both = {"always_ask": ["shell"], "auto_approve": ["shell"]}
    assert ruled(level, risk, **both) is policy.Ruling.ASK


def test_auto_approve_lets_medium_run_and_never_high():
    assert ruled("supervised", Risk.MEDIUM, auto_approve=["*"]) is policy.Ruling.RUN
    assert ruled("supervised", Risk.HIGH, auto_approve=["*"]) is policy.Ruling.BLOCK


def test_the_entries_of_the_page_name_what_they_say():
    assert words(paragraph(PAGE, "- Entries of both")) == ["*", "shell", "pump", "tool:device", "device_pulse:pump"]
    for entry in ("*", "device_pulse", "pump", "device_pulse:pump"):
        assert policy.names([entry], "device_pulse", "pump")
    assert not policy.names(["device_pulse:pump"], "device_write", "pump")


def test_the_example_asks_two_people_for_the_pump_and_nobody_for_the_lamp():
    planned = plan(parse(blocks(PAGE, "toml", "config")[0].text))
    found = {(row.tool, row.about): row.ruling for row in rulings(planned)}
    assert (found["device_write", "pump"], found["device_write", "lamp"]) == ("ask", "run")
    assert (found["shell", "reboot"], found["file_write", ""]) == ("ask", "run")
    assert "file_edit" not in {tool for tool, _ in found}
    operators = planned.config.operators
    assert [policy.entitled(one, Risk.HIGH, "pump") for one in operators.values()] == ["", ""]
    assert policy.entitled(operators["bob"], Risk.MEDIUM, "")


def test_defaults_are_as_written():
    assert OperatorConfig(public_key="x").may_approve == "medium"
    assert RiskProfile().level == "supervised"
    assert "`may_approve` (medium)" in page(PAGE)


def test_a_grant_is_for_everybody_who_does_not_sign_and_does_not_ask_who_gave_it():
    grant = Grant("q", "mqtt:home:unverified", "device_write", "device", "", "pump", "somebody who left", 100.0)
    given = {"principal": "mqtt:home:unverified", "tool": "device_write", "digest": "d", "device": "pump"}
    assert policy.granted([grant], **given, now=99.0) is grant
    assert policy.granted([grant], **given, now=100.0) is None
    assert policy.granted([grant], **{**given, "principal": "operator:alice"}, now=99.0) is None


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        *((line, Risk.LOW) for line in ("ls", "cat notes", "grep -r x .", "git log", "ls | wc -l && date > /dev/null")),
        *((line, Risk.MEDIUM) for line in ("mkdir x", "cp a b", "git commit -m x")),
        *((line, Risk.HIGH) for line in ("echo $HOME", "ls > out", "for x in a; do ls; done", "sleep 1 &", "reboot")),
        *((line, Risk.HIGH) for line in ("/bin/ls", "cat /etc/passwd", "cat ../x", "ls --no-such-flag")),
    ],
)
def test_the_shell_is_judged_as_written(line: str, risk: Risk):
    assert Catalog.load(Texts("en")).tools["shell"].assess({"command": line}).risk is risk


def test_the_programs_that_the_page_names_are_of_the_risk_it_says():
    tool = Catalog.load(Texts("en")).tools["shell"]
    text = prose(section(PAGE, "The shell"))
    low, medium = re.search(r"reads \((.*?)\); medium .*?\((.*?)\)", text).groups()  # type: ignore[union-attr]
    more = {"cp": "cp a b", "mkdir": "mkdir x", "grep": "grep x"}
    for names, risk in ((words(low), Risk.LOW), (words(medium), Risk.MEDIUM)):
        assert {tool.assess({"command": more.get(name, name)}).risk for name in names} == {risk}
