"""Replays recorded scenarios and says of each whether it went here as recorded.

``python -m tests.conformance.golden.replay [DIR] [--threads] [--json]`` (or ``make golden DIR=folder``) prints every
difference and one line per file: *same*, *explained* (and by which rules), or *DIFFERENT*. It ends with 0 only if no
file is different. Every file is replayed under several seeds: how the actors take turns must make no difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.golden.compare import Difference, differences
from tests.conformance.golden.recording import read
from tests.conformance.golden.rules import RULES, Case, rule_for
from tests.conformance.golden.stage import perform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.golden.recording import Recording

__all__ = ["FOLDER", "SEEDS", "Result", "judge", "main", "recordings", "replay"]

FOLDER = Path(__file__).parent
"""Where the recordings are."""
SEEDS = (0, 1, 2)


@dataclass
class Result:
    """How one file went: every difference with the rule that explains it, if one does."""

    file: str
    name: str
    found: list[tuple[Difference, str | None]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if not self.found:
            return "same"
        return "explained" if all(rule for _, rule in self.found) else "DIFFERENT"

    @property
    def rules(self) -> list[str]:
        return [name for name in RULES if any(rule == name for _, rule in self.found)]

    def lines(self) -> list[str]:
        """Return what is printed about it."""
        lines = [f"  {rule or 'NOT EXPLAINED'}: {difference}" for difference, rule in self.found]
        by = f" by {', '.join(self.rules)}" if self.verdict == "explained" else ""
        return [*lines, f"{self.file} {self.name}: {self.verdict}{by}"]

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "file": self.file,
            "name": self.name,
            "verdict": self.verdict.lower(),
            "rules": self.rules,
            "differences": [
                {"part": difference.part, "rule": rule, "text": str(difference)} for difference, rule in self.found
            ],
        }


def recordings(folder: Path) -> list[Path]:
    """Return the files of a folder."""
    return sorted(folder.glob("*.json"))


def replay(path: Path, *, threads: bool = False, seeds: Sequence[int] = SEEDS) -> Result:
    """Replay one file. Whatever goes wrong with it is a difference of that file."""
    try:
        recording = read(path)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Result(path.name, "?", [(Difference("file", path.name, "can be read", repr(error)), None)])
    return judge(recording, path.name, threads=threads, seeds=seeds)


def judge(recording: Recording, file: str, *, threads: bool = False, seeds: Sequence[int] = SEEDS) -> Result:
    """Replay one recording under every seed."""
    result = Result(file, recording.name)
    told: set[tuple[str, str | None]] = set()
    for seed in seeds:
        try:
            account = perform(recording, killable=not threads, seed=seed)
        except Exception as error:  # noqa: BLE001 - a scenario that can not be performed is not as recorded
            result.found.append((Difference("replay", f"seed {seed}", "performed", repr(error)), None))
            break
        case = Case(recording, account, threads)
        for difference in differences(recording, account):
            rule = rule_for(difference, case)
            if (str(difference), rule) not in told:  # once, not once per seed
                told.add((str(difference), rule))
                result.found.append((difference, rule))
    return result


def main(arguments: Sequence[str]) -> int:
    """Replay a folder; 0 only if there is something in it and all of it is same or explained."""
    parser = argparse.ArgumentParser(prog="replay", description="Replay recorded scenarios and compare.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--threads", action="store_true", help="bodies can not be ended from outside")
    parser.add_argument("--json", action="store_true", help="print a report for programs")
    options = parser.parse_args(arguments)
    results = [replay(path, threads=options.threads) for path in recordings(options.folder)]
    counts = Counter(result.verdict for result in results)
    good = bool(results) and not counts["DIFFERENT"]
    if options.json:
        report = {
            "folder": str(options.folder),
            "bodies": "threads" if options.threads else "killable",
            "same": counts["same"],
            "explained": counts["explained"],
            "different": counts["DIFFERENT"],
            "rules": {name: text for name, (text, _) in RULES.items()},
            "files": [result.as_json() for result in results],
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return int(not good)
    for result in results:
        sys.stdout.write("\n".join(result.lines()) + "\n")
    words = f"{counts['same']} same, {counts['explained']} explained, {counts['DIFFERENT']} different"
    sys.stdout.write(f"{words}\n" if results else f"no recordings in {options.folder}\n")
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
