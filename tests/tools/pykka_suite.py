"""Runs Pykka's own tests, from the source distribution of the installed version, on an actor class of ours.

    python tests/tools/pykka_suite.py [--actor-class MODULE:CLASS] [further arguments of pytest]

As a script it fetches and unpacks the distribution, and starts pytest there with itself as a plugin; as the plugin it
puts the actor class into the runtime that Pykka's tests ask for. Nothing in the unpacked tree is changed. The three
tests of `test_threading_actor.py` derive from `ThreadingActor` by name and are about its threads: they stay on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILD = Path(__file__).parents[2] / "build" / "pykka-suite"
TESTS_OF = {"4.5.0": 152}
"""How many tests a version of Pykka has, so that a suite collected in part does not pass for the whole."""


def main(arguments: list[str]) -> int:
    sources = fetch(version("pykka"))
    command = [
        *(sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", ".", "-o", "testpaths=tests"),
        *("-p", "pykka_suite", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout", "60", "--quiet"),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(command, cwd=sources, env=environment, check=False).returncode


def fetch(pykka_version: str) -> Path:
    """Returns the unpacked source distribution, fetched on first use."""
    sources = BUILD / f"pykka-{pykka_version}"
    if not sources.exists():
        download = [*(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pykka")]
        subprocess.run([*download, "--dest", str(BUILD), f"pykka=={pykka_version}"], check=True)
        shutil.unpack_archive(f"{sources}.tar.gz", BUILD)
    return sources


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--actor-class", default="actors.runtime:DispatchedActor")


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.argname == "runtime":
        request.param.actor_class = resolve_name(request.config.getoption("actor_class"))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the last word comes after pytest's summary
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    passed = len(reporter.stats.get("passed", ()))
    on_ours = sum(isinstance(item, pytest.Function) and "runtime" in item.fixturenames for item in session.items)
    expected = TESTS_OF.get(version("pykka"), session.testscollected)
    actor_class = session.config.getoption("actor_class")
    reporter.write_line(f"{passed} of {expected} tests passed, {on_ours} of them with {actor_class}")
    if passed != expected or not on_ours:
        session.exitstatus = 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
