"""The README's example is run, and its commands are those of the Makefile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_says_what_it_should():
    example = re.search(r"## Twenty lines\n\n```python\n(.*?)```", README, re.DOTALL)[1]
    assert "join()" in example
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["done: tenant-42: 3 pages", "not run: slot_busy"]


def test_every_make_target_that_it_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= targets


def test_every_local_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in link or (ROOT / link).exists(), link
