"""The language of interlocks: what it means, what it refuses, and that nothing unknown ever lets a device on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.board.interlock import RuleError, Undecided, parse
from zeroclawd.board.safety import Limits, interlocked

VALUES = {
    ("tank", "level"): 12.5,
    ("tank", "closed"): True,
    ("valve", "on"): False,
    ("1wire", "value"): -3,
    ("door-2", "state"): "open",
}


def lookup(device, value):
    return VALUES.get((device, value))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tank.closed", True),
        ("not valve.on", True),
        ("not not valve.on", False),
        ("tank.level > 10", True),
        ("tank.level>12.5", False),
        ("tank.level >= 12.5", True),
        ("10 < tank.level", True),
        ("1wire.value == -3", True),
        ("1wire.value != -3", False),
        ("tank.closed == true", True),
        ("tank.closed != valve.on", True),
        ("tank.closed and valve.on", False),
        ("tank.closed or valve.on", True),
        ("valve.on and valve.on or tank.closed", True),
        ("valve.on and (valve.on or tank.closed)", False),
        ("not valve.on and tank.closed", True),
        ("not (valve.on or tank.closed)", False),
        ("not tank.level > 20", True),
        ("true", True),
        ("(((tank.closed)))", True),
    ],
)
def test_what_a_rule_means(text, holds):
    assert parse(text).holds(lookup) is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a device value"),
        ("tank", "a device is named with one of its values"),
        ("tank.level >", "expected a device value"),
        ("tank.level > 10 20", "expected 'and', 'or' or the end"),
        ("1 < tank.level < 3", "two things at a time"),
        ("(tank.closed", r"expected '\)'"),
        ("tank.closed)", "expected 'and', 'or' or the end"),
        ("10", "no condition"),
        ("tank.level = 3", "cannot be read"),
        ("tank.level + 1 > 3", "cannot be read"),
        ("tank.closed and", "expected a device value"),
        ("and tank.closed", "expected a device value"),
        ("(not tank.closed) == true", "not conditions"),
        ("__import__('os')", "is named with one of its values|cannot be read"),
        ("tank.__class__()", "expected 'and', 'or' or the end"),
        ("tank.closed; valve.on", "cannot be read"),
        ("not " * 200 + "tank.closed", "too deeply"),
        ("(" * 200 + "tank.closed" + ")" * 200, "too deeply"),
    ],
)
def test_what_is_not_a_rule(text, why):
    with pytest.raises(RuleError, match=why):
        parse(text)


def test_an_error_says_where():
    with pytest.raises(RuleError, match="at column 14, found 'tank'"):
        parse("valve.on and tank")


@pytest.mark.parametrize(
    "text",
    [
        "missing.value",
        "missing.value > 3",
        "tank.closed or missing.value",
        "tank.closed or not missing.value",
        "tank.level",
        "not tank.level",
        "door-2.state == true",
        "tank.level == true",
        "tank.closed > 0",
        "tank.closed > valve.on",
    ],
)
def test_what_is_unknown_or_of_the_wrong_kind_is_undecided(text):
    with pytest.raises(Undecided):
        parse(text).holds(lookup)
    assert interlocked(Limits(interlocks=(parse(text),)), lookup).limit == "interlock"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_undecided(number):
    with pytest.raises(Undecided):
        parse("not tank.level > 10").holds(lambda _device, _value: number)


names = st.sampled_from(["a.on", "b.on", "c.level", "d.level"])
booleans = st.sampled_from(["a.on", "b.on", "true", "false"])
comparisons = st.builds(
    "{} {} {}".format,
    st.sampled_from(["c.level", "d.level", "3", "-1.5"]),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(["c.level", "d.level", "0", "7.25"]),
)
rules = st.recursive(
    booleans | comparisons,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
    ),
    max_leaves=12,
)


@given(rules, st.booleans(), st.booleans(), st.floats(-10, 10), st.floats(-10, 10))
def test_a_rule_means_what_python_would_say(text, a, b, c, d):
    known = {("a", "on"): a, ("b", "on"): b, ("c", "level"): c, ("d", "level"): d}
    meant = text
    for name, value in (("a.on", a), ("b.on", b), ("c.level", c), ("d.level", d)):
        meant = meant.replace(name, repr(value))
    expected = eval(meant.replace("true", "True").replace("false", "False"))
    assert parse(text).holds(lambda device, value: known[device, value]) is expected


@given(rules, st.data())
def test_a_rule_with_one_unknown_value_never_holds(text, data):
    rule = parse(text)
    if not rule.names:
        return
    missing = data.draw(st.sampled_from(sorted(rule.names, key=str)))
    known = {"on": True, "level": 1.0}
    with pytest.raises(Undecided):
        rule.holds(lambda device, value: None if (device, value) == (missing.device, missing.value) else known[value])


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_an_error(text):
    try:
        rule = parse(text)
    except RuleError:
        return
    assert rule.text == text
