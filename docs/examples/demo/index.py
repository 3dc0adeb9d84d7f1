"""What a job builds: a full-text index of the Python standard library's own sources, one SQLite file per slot.

An index is built beside the one in use and takes its place when it is complete, so a cancelled job leaves the
previous revision as it was. How much a job has to do is measured on the machine at hand, not assumed.
"""

from __future__ import annotations

import os
import sqlite3
import sysconfig
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = [
    "BATCHES",
    "Build",
    "Document",
    "IndexUnavailableError",
    "Stamp",
    "measure",
    "plan",
    "read_documents",
    "stamp",
]

BATCHES: Final = 6
"""Batches of one job; between two of them it looks whether it is to stop."""
SMALLEST, LARGEST = 200, 100_000
"""Characters of a document: nothing trivial, and nothing that would be a batch by itself."""
_MEASURED_FOR: Final = 0.15
_NOT_OURS: Final = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}


class IndexUnavailableError(Exception):
    """There are no sources to index, or no SQLite that can; the message says which."""


@dataclass(frozen=True, slots=True)
class Document:
    """A source file: its path below the standard library, and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """What an index says of itself, and how many documents are really in it."""

    rev: str
    stamped: int
    found: int


def read_documents(most: int | None = None) -> list[Document]:
    """Read the standard library's sources, at most so many, in the order of their paths.

    Raises:
        IndexUnavailableError: there are none.

    """
    root = Path(sysconfig.get_path("stdlib"))
    documents: list[Document] = []
    for directory, below, names in os.walk(root):
        below[:] = sorted(set(below) - _NOT_OURS)
        for name in sorted(name for name in names if name.endswith(".py")):
            path = Path(directory, name)
            text = path.read_text("utf-8", errors="replace")
            if SMALLEST <= len(text) <= LARGEST:
                documents.append(Document(path.relative_to(root).as_posix(), text))
            if len(documents) == most:
                return documents
    if not documents:
        msg = f"there are no sources of the standard library under {root}"
        raise IndexUnavailableError(msg)
    return documents


def measure(documents: Sequence[Document]) -> float:
    """Return how many characters this machine indexes per second of computing, whatever else it does at the moment.

    Raises:
        IndexUnavailableError: SQLite lacks FTS5 with the trigram tokenizer.

    """
    with tempfile.TemporaryDirectory() as directory:
        characters = 0
        started = time.thread_time()
        with Build(Path(directory, "scratch.sqlite")) as build:
            for document in documents:
                build.add((document,))
                characters += len(document.text)
                if time.thread_time() - started > _MEASURED_FOR:
                    break
            build.publish("scratch")
        return characters / (time.thread_time() - started)


def plan(documents: Sequence[Document], first: float, size: float) -> tuple[tuple[Document, ...], ...]:
    """Choose a job's documents, and divide them into batches.

    Args:
        documents: to choose from.
        first: where among them to begin, from 0 to 1; past the last one it goes on with the first.
        size: characters of a batch. Less if there are not enough documents; none is taken twice.

    """
    size = min(size, sum(len(document.text) for document in documents) / BATCHES)
    start = int(first * len(documents))
    batches: list[tuple[Document, ...]] = []
    batch: list[Document] = []
    characters = 0
    for document in (*documents[start:], *documents[:start]):
        batch.append(document)
        characters += len(document.text)
        if characters >= size * (len(batches) + 1):
            batches.append(tuple(batch))
            batch = []
            if len(batches) == BATCHES:
                break
    return (*batches, tuple(batch)) if batch else tuple(batches)


class Build:
    """A new index on its way. Leaving the block without `publish` throws it away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._documents = 0

    def __enter__(self) -> Self:
        self._partial.unlink(missing_ok=True)  # of a process that was killed
        self._db = sqlite3.connect(self._partial, isolation_level=None)
        try:
            # No journal, no waiting for the disk: what is not complete is thrown away as a whole.
            self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")
            self._db.execute("CREATE TABLE stamp (rev TEXT NOT NULL, documents INTEGER NOT NULL)")
            self._db.execute("CREATE VIRTUAL TABLE documents USING fts5(path, text, tokenize = trigram, detail = none)")
        except sqlite3.OperationalError as error:
            self._throw_away()
            msg = f"SQLite 3.34 or later with FTS5 is needed, this is {sqlite3.sqlite_version}: {error}"
            raise IndexUnavailableError(msg) from None
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._throw_away()

    def add(self, batch: Sequence[Document]) -> None:
        """Index these documents too."""
        self._db.executemany("INSERT INTO documents VALUES (?, ?)", [(each.path, each.text) for each in batch])
        self._documents += len(batch)

    def publish(self, rev: str) -> int:
        """Stamp the index with its revision, and put it in the place of the one before; return its documents."""
        self._db.execute("INSERT INTO stamp VALUES (?, ?)", (rev, self._documents))
        self._db.execute("COMMIT")
        self._db.close()
        self._partial.replace(self._path)
        return self._documents

    def _throw_away(self) -> None:
        self._db.close()
        self._partial.unlink(missing_ok=True)


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of an index, None where there is no index.

    Raises:
        ValueError: it is there and can not be read.

    """
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            ((rev, stamped),) = db.execute("SELECT rev, documents FROM stamp").fetchall()
            ((found,),) = db.execute("SELECT count(*) FROM documents").fetchall()
    except (sqlite3.Error, ValueError) as error:
        msg = f"can not be read: {error}"
        raise ValueError(msg) from None
    return Stamp(rev, stamped, found)
