"""What the documentation names exists: tests, links, files."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@cache
def names_in(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        assert name in names_in(path), f"{page.name} names {path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_local_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), f"{page.name} links {link}"


def test_the_page_on_semantics_names_a_test_for_its_rules():
    assert len(re.findall(r"`tests/", (ROOT / "docs/explanation/semantics.md").read_text(encoding="utf-8"))) > 20
