"""Every scenario has its one test or its exclusion, and the page says so."""

from __future__ import annotations

import pytest

from tests.conformance import page
from tests.conformance.page import ADAPTED, PAGE, Shown, faults, find_tests, render
from tests.conformance.verdicts import EXCLUDED, RULES, adapted

MOST_EXCLUDED, MOST_ADAPTED = 25, 30


@pytest.fixture(scope="module")
def tests():
    return find_tests()


def test_every_scenario_has_one_test_or_one_exclusion(tests):
    wrong = faults(tests)
    assert not wrong, "\n".join(wrong)


def test_few_are_excluded_or_adapted(tests):
    assert len(EXCLUDED) <= MOST_EXCLUDED
    assert sum(test.verdict == ADAPTED for test in tests) <= MOST_ADAPTED


def test_the_page_is_up_to_date(tests):
    assert PAGE.read_text(encoding="utf-8") == render(tests), "run: python -m tests.conformance.page"


# -- the page itself -----------------------------------------------------------------------------------------------


@pytest.fixture
def two_scenarios(monkeypatch):
    """Only 1 and 2 exist, and 2 is excluded."""
    monkeypatch.setattr(page, "SCENARIOS", (1, 2))
    monkeypatch.setattr(page, "EXCLUDED", {2: "there is no | here"})


def made(number, name="test_s001_first", sentence="It says so.", verdict="as written", note=""):
    return Shown(number, name, "test_file.py", sentence, verdict, note)


def test_a_whole_set_has_no_faults(two_scenarios):
    assert faults([made(1)]) == []


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        ([], "without a test or an exclusion: 1"),
        ([made(1), made(1)], "with more than one test, or with a test and an exclusion: 1"),
        ([made(1), made(2)], "with more than one test, or with a test and an exclusion: 2"),
        ([made(1), made(3, "test_s003_third")], "tests of an unknown number: test_s003_third"),
        ([made(1, sentence="")], "tests that do not say what they show: test_s001_first"),
    ],
    ids=["missing", "twice", "both", "unknown", "silent"],
)
def test_a_fault_is_named(two_scenarios, tests, fault):
    assert faults(tests) == [fault]


def test_a_row_says_what_where_and_how(two_scenarios):
    text = render([made(1, verdict="adapted", note="Otherwise.")])
    assert (
        "| S001 | It says so. | adapted: Otherwise. | `test_s001_first` in `tests/conformance/test_file.py` |" in text
    )
    assert "| S002 |  | excluded: there is no \\| here |  |" in text
    assert "in 2 numbered scenarios" in text


def test_a_mark_names_a_rule_that_there_is():
    with pytest.raises(ValueError, match="there is no rule 'nonsense'"):
        adapted("different", rule="nonsense")


def test_what_is_adapted_shows_its_rule(tests):
    (test,) = (test for test in tests if test.number == 245)
    assert RULES["outcome"] in test.note


def test_a_test_that_fails_is_shown_as_such():
    @pytest.mark.xfail(strict=True, reason="to be mended")
    def test_s001_first():
        """It says so."""

    shown = page._test(1, "test_s001_first", "test_file.py", test_s001_first)
    assert (shown.verdict, shown.note) == ("not yet", "to be mended")
