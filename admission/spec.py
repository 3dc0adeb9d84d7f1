"""What is to be run and how: specs, supervisor-wide defaults, and the submission that names a slot and a policy."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from admission.backoff import Backoff
from admission.checks import check_count, check_optional_duration, check_text
from admission.policy import AdmissionPolicy, RestartPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import timedelta
    from types import MappingProxyType

__all__ = ["INHERIT", "Inherit", "RunSettings", "Submission", "TaskDefaults", "TaskSpec"]

T = TypeVar("T")
_EMPTY: Final[dict[str, Any]] = {}


class Inherit(Enum):
    """The type of INHERIT: *not set here*, as opposed to None, which says *explicitly no limit*."""

    INHERIT = "inherit"

    def __repr__(self) -> str:
        return "INHERIT"


INHERIT: Final = Inherit.INHERIT
"""Leave a setting to the supervisor's `TaskDefaults`, read when the run is registered."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one run, resolved: nothing in here is inherited any more. Durations in seconds."""

    restart: RestartPolicy
    backoff: Backoff
    attempt_timeout: float | None
    max_retries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefaults:
    """Settings for every spec that leaves them to INHERIT; resolved once, when a run is registered.

    `attempt_timeout` in seconds or timedelta, None = no limit, 0 is refused. `max_retries` counts retries since the
    last success: 0 = one attempt, None = **unlimited**.

    Raises:
        TypeError, ValueError: a setting of the wrong type or out of range, named in the message.

    """

    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    backoff: Backoff = field(default_factory=Backoff)
    attempt_timeout: float | timedelta | None = None
    max_retries: int | None = None
    settings: RunSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_settings(self)
        timeout = check_optional_duration("attempt_timeout", self.attempt_timeout, positive=True)
        object.__setattr__(self, "attempt_timeout", timeout)
        object.__setattr__(self, "settings", RunSettings(self.restart, self.backoff, timeout, self.max_retries))


@dataclass(frozen=True, slots=True, eq=False)
class TaskSpec(Generic[T]):
    """An immutable description of one run; may be submitted any number of times.

    Made by :meth:`once`, :meth:`restartable`, :meth:`periodic` or :meth:`from_defaults`. The body is called once
    per attempt as ``body(ctx, *args, **kwargs)``: in a thread of its own for the time of the call, or, where it
    is a coroutine function or returns an awaitable, on the runtime's event loop. What it returns is the run's value.
    """

    body: Callable[..., T | Awaitable[T]]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | MappingProxyType[str, Any] = field(default_factory=lambda: _EMPTY)
    name: str | None = None
    restart: RestartPolicy | Inherit = INHERIT
    backoff: Backoff | Inherit = INHERIT
    attempt_timeout: float | timedelta | Inherit | None = INHERIT
    max_retries: int | Inherit | None = INHERIT
    is_coroutine: bool = field(init=False, repr=False)
    label: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.body):
            msg = f"body must be callable as body(ctx, *args, **kwargs), not {type(self.body).__name__}"
            raise TypeError(msg)
        if self.name is not None:
            check_text("name", self.name)
        if type(self.args) is not tuple:
            if isinstance(self.args, str):
                msg = "args must be a sequence of positional arguments, not a str; write args=(value,)"
                raise TypeError(msg)
            object.__setattr__(self, "args", tuple(self.args))
        if self.kwargs is not _EMPTY:
            object.__setattr__(self, "kwargs", dict(self.kwargs))
        _check_settings(self)
        if self.attempt_timeout is not INHERIT:
            timeout = check_optional_duration("attempt_timeout", self.attempt_timeout, positive=True)
            object.__setattr__(self, "attempt_timeout", timeout)
        object.__setattr__(self, "is_coroutine", _is_coroutine_function(self.body))
        object.__setattr__(self, "label", getattr(self.body, "__qualname__", None) or type(self.body).__name__)

    @classmethod
    def once(
        cls,
        body: Callable[..., T | Awaitable[T]],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _EMPTY,
        name: str | None = None,
        attempt_timeout: float | timedelta | Inherit | None = INHERIT,
        backoff: Backoff | Inherit = INHERIT,
        max_retries: int | Inherit | None = INHERIT,
    ) -> TaskSpec[T]:
        """One attempt, whatever its result.

        Args:
            body: called as ``body(ctx, *args, **kwargs)``.
            args: positional arguments after the context.
            kwargs: keyword arguments.
            name: unique among registered runs; default: the slot's key, else the callable's name and the id.
            attempt_timeout: seconds (or timedelta) that one attempt may take, None = no limit.
            backoff: delay before a retry.
            max_retries: retries since the last success; 0 = one attempt, None = unlimited.

        Raises:
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        return cls(body, args, kwargs, name, RestartPolicy.NEVER, backoff, attempt_timeout, max_retries)

    @classmethod
    def restartable(
        cls,
        body: Callable[..., T | Awaitable[T]],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _EMPTY,
        name: str | None = None,
        attempt_timeout: float | timedelta | Inherit | None = INHERIT,
        backoff: Backoff | Inherit = INHERIT,
        max_retries: int | Inherit | None = INHERIT,
    ) -> TaskSpec[T]:
        """Again after every retryable failure. Unless `max_retries` is set somewhere, **without limit**."""
        return cls(body, args, kwargs, name, RestartPolicy.ON_FAILURE, backoff, attempt_timeout, max_retries)

    @classmethod
    def periodic(
        cls,
        body: Callable[..., T | Awaitable[T]],
        every: float | timedelta | None,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _EMPTY,
        name: str | None = None,
        attempt_timeout: float | timedelta | Inherit | None = INHERIT,
        backoff: Backoff | Inherit = INHERIT,
        max_retries: int | Inherit | None = INHERIT,
    ) -> TaskSpec[T]:
        """Again `every` seconds after each success ended (fixed delay), and after every retryable failure.

        0 or None = at once. Ends when it is cancelled, fails fatally, or exhausts `max_retries`.
        """
        restart = RestartPolicy.always(check_optional_duration("every", every) or None)
        return cls(body, args, kwargs, name, restart, backoff, attempt_timeout, max_retries)

    @classmethod
    def from_defaults(
        cls,
        body: Callable[..., T | Awaitable[T]],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _EMPTY,
        name: str | None = None,
    ) -> TaskSpec[T]:
        """Every setting from the supervisor's `TaskDefaults`."""
        return cls(body, args, kwargs, name)

    def resolve(self, defaults: TaskDefaults) -> RunSettings:
        """Return the settings of a run of this spec under these defaults."""
        base = defaults.settings
        return RunSettings(
            base.restart if self.restart is INHERIT else self.restart,
            base.backoff if self.backoff is INHERIT else self.backoff,
            base.attempt_timeout if self.attempt_timeout is INHERIT else self.attempt_timeout,  # type: ignore[arg-type]
            base.max_retries if self.max_retries is INHERIT else self.max_retries,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Submission(Generic[T]):
    """A spec together with the slot that it competes for and the policy by which it does.

    `slot` defaults to the task's name. A bare callable counts as ``TaskSpec.once`` of it.

    Raises:
        TypeError: `spec` is neither a TaskSpec nor callable, `slot` not a str.
        ValueError: an empty slot, an unknown policy.

    """

    spec: TaskSpec[T]
    slot: str | None = None
    policy: AdmissionPolicy = AdmissionPolicy.QUEUE

    def __post_init__(self) -> None:
        if not isinstance(self.spec, TaskSpec):
            object.__setattr__(self, "spec", TaskSpec.once(self.spec))
        if self.slot is not None:
            check_text("slot", self.slot)
        if type(self.policy) is not AdmissionPolicy:
            object.__setattr__(self, "policy", _policy(self.policy))


def _policy(value: object) -> AdmissionPolicy:
    try:
        return AdmissionPolicy(value)
    except ValueError:
        known = ", ".join(repr(policy.value) for policy in AdmissionPolicy)
        msg = f"policy must be an AdmissionPolicy or one of {known}"
        raise ValueError(msg) from None


def _check_settings(owner: TaskSpec[Any] | TaskDefaults) -> None:
    for name, kind in (("restart", RestartPolicy), ("backoff", Backoff)):
        value = getattr(owner, name)
        if value is not INHERIT and not isinstance(value, kind):
            msg = f"{name} must be a {kind.__name__}, not {type(value).__name__}"
            raise TypeError(msg)
    if owner.max_retries is not INHERIT and owner.max_retries is not None:
        check_count("max_retries", owner.max_retries)


def _is_coroutine_function(body: Callable[..., Any]) -> bool:
    while hasattr(body, "func") and hasattr(body, "keywords"):  # functools.partial
        body = body.func
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None))  # noqa: B004
