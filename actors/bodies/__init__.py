"""How bodies run: one file per kind, all behind `BodyRunner`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.bodies.context import AsyncTaskContext, TaskContext, cancel
from actors.bodies.coroutine import CoroutineRunner
from actors.bodies.job import BodyJob, BodyRunner
from actors.bodies.thread import ThreadRunner

if TYPE_CHECKING:
    from admission.spec import TaskSpec

__all__ = ["AsyncTaskContext", "BodyJob", "BodyRunner", "BodyRunners", "TaskContext", "cancel"]


class BodyRunners:
    """The runners of one runtime, and which of them a spec's body belongs to."""

    def __init__(self, *, max_threads: int = 512) -> None:
        self.coroutines = CoroutineRunner()
        self.threads = ThreadRunner(self.coroutines, max_threads=max_threads)

    def of(self, spec: TaskSpec[object]) -> BodyRunner:
        """Return the runner for this spec's body."""
        return self.coroutines if spec.is_coroutine else self.threads

    def close(self) -> None:
        """Start nothing more; threads and loop end with their last body."""
        self.threads.close()
        self.coroutines.close()
