from __future__ import annotations

import re
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("actors", "admission")
MACHINE_PATH = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+)/|\.\./shared\b")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", directory, ROOT], check=True, timeout=50)
    (path,) = directory.iterdir()
    with ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def dist_info(wheel):
    (path,) = {name.partition("/")[0] for name in wheel.namelist() if name.startswith("slotkeeper-")}
    return path


@pytest.fixture(scope="module")
def metadata(wheel, dist_info):
    return Parser().parsestr(wheel.read(f"{dist_info}/METADATA").decode())


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel, dist_info):
    shipped = {name for name in wheel.namelist() if not name.startswith(f"{dist_info}/")}
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == sources


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_marked_as_typed(wheel, package):
    assert f"{package}/py.typed" in wheel.namelist()


def test_the_wheel_carries_the_license(wheel, dist_info, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{dist_info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_pykka_and_structlog_are_all_that_it_requires(metadata):
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(re.split(r"[^\w-]", line)[0] for line in required) == ["pykka", "structlog"]
    assert metadata["Requires-Python"] == ">=3.11"


def test_no_file_names_a_place_on_the_machine_it_was_written_on():
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, check=True, capture_output=True, timeout=30).stdout.decode().split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in names if (ROOT / name).is_file()]
    assert [str(path) for path in files if MACHINE_PATH.search(path.read_bytes())] == []
