"""The page about conformance, made from the tests and their verdicts, so that it says what is tested and no more.

``python -m tests.conformance.page`` writes it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.conformance.verdicts import EXCLUDED, RULES, SCENARIOS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "conformance.md"
NAME = re.compile(r"test_s(\d{3})_\w+")
AS_WRITTEN, ADAPTED, NOT_YET, EXCLUDED_HERE = "as written", "adapted", "not yet", "excluded"

HEAD = """\
# Conformance

<!-- Made by `python -m tests.conformance.page` from the tests and their verdicts; do not edit. -->

slotkeeper matches the observable behaviour of [taskvisor](https://crates.io/crates/taskvisor), a task supervisor in
Rust, wherever a rule of its own does not say otherwise. That behaviour is stated in {scenarios} numbered scenarios.
Each has one test, or is excluded because what it is about does not exist here.

| Verdict | Scenarios | What it means |
| --- | --- | --- |
| as written | {as_written} | the test shows what the scenario says; a label may have another name |
| adapted | {adapted} | the test shows a rule of this project instead, named in the row |
| not yet | {not_yet} | the test is there and fails: a known fault |
| excluded | {excluded} | what the scenario is about does not exist here |
"""


@dataclass(frozen=True)
class Shown:
    """The test of a scenario: where it is, what it says, and how the scenario stands."""

    number: int
    name: str
    file: str
    sentence: str
    verdict: str
    note: str


def find_tests():
    """Find every test of a scenario, in the order of numbers."""
    found = []
    for path in sorted(HERE.glob("test_*.py")):
        module = import_module(f"tests.conformance.{path.stem}")
        for name, value in vars(module).items():
            if (match := NAME.fullmatch(name)) and getattr(value, "__code__", None):
                found.append(_test(int(match[1]), name, path.name, value))
    return sorted(found, key=lambda test: (test.number, test.name))


def _test(number, name, file, function):
    sentence = (function.__doc__ or "").strip().partition("\n")[0]
    xfail = next((mark for mark in getattr(function, "pytestmark", ()) if mark.name == "xfail"), None)
    if xfail is not None:
        return Shown(number, name, file, sentence, NOT_YET, xfail.kwargs.get("reason", ""))
    verdict = getattr(function, "verdict", None)
    if verdict is None:
        return Shown(number, name, file, sentence, AS_WRITTEN, "")
    note = f"{verdict.difference.removesuffix('.')}. Rule: {RULES[verdict.rule]}"
    return Shown(number, name, file, sentence, ADAPTED, note)


def faults(tests):
    """Say what is wrong with this set of tests; nothing where all is well."""
    numbers = Counter(test.number for test in tests)
    unknown = [test.name for test in tests if test.number not in SCENARIOS]
    twice = [number for number, times in numbers.items() if times + (number in EXCLUDED) > 1]
    missing = [number for number in SCENARIOS if not numbers[number] and number not in EXCLUDED]
    silent = [test.name for test in tests if not test.sentence]
    found = {
        "without a test or an exclusion": missing,
        "with more than one test, or with a test and an exclusion": twice,
        "tests of an unknown number": unknown,
        "exclusions of an unknown number": [number for number in EXCLUDED if number not in SCENARIOS],
        "tests that do not say what they show": silent,
    }
    return [f"{what}: {', '.join(map(str, which))}" for what, which in found.items() if which]


def render(tests):
    """Return the page as text."""
    verdicts = Counter(test.verdict for test in tests)
    head = HEAD.format(
        scenarios=len(SCENARIOS),
        as_written=verdicts[AS_WRITTEN],
        adapted=verdicts[ADAPTED],
        not_yet=verdicts[NOT_YET],
        excluded=len(EXCLUDED),
    )
    rows = {test.number: _row(test) for test in tests}
    rows |= {number: _excluded_row(number, reason) for number, reason in EXCLUDED.items()}
    lines = ["| Scenario | What it says | Here | Test |", "| --- | --- | --- | --- |"]
    lines += [rows[number] for number in sorted(rows)]
    return head + "\n" + "\n".join(lines) + "\n"


def _row(test):
    here = f"{test.verdict}: {test.note}" if test.note else test.verdict
    return _cells(f"S{test.number:03}", test.sentence, here, f"`{test.name}` in `tests/conformance/{test.file}`")


def _excluded_row(number, reason):
    return _cells(f"S{number:03}", "", f"{EXCLUDED_HERE}: {reason}", "")


def _cells(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main():
    """Write the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(find_tests()), encoding="utf-8")


if __name__ == "__main__":
    main()
