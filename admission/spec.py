"""What is to be run and how: specs, supervisor-wide defaults, and the submission that names a slot and a policy."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from admission.backoff import Backoff
from admission.checks import check_count, check_duration, check_member, check_optional_duration, check_text
from admission.policy import AdmissionPolicy, RestartPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta
    from types import MappingProxyType

__all__ = ["INHERIT", "Inherit", "RunSettings", "SpecOptions", "Submission", "TaskDefaults", "TaskSpec"]

T = TypeVar("T")
R = TypeVar("R")
_EMPTY: Final[dict[str, Any]] = {}
_NEVER: Final = RestartPolicy.NEVER


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
    once: RunSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_settings(self, may_inherit=False)
        timeout = check_optional_duration("attempt_timeout", self.attempt_timeout, positive=True)
        object.__setattr__(self, "attempt_timeout", timeout)
        object.__setattr__(self, "settings", RunSettings(self.restart, self.backoff, timeout, self.max_retries))
        object.__setattr__(self, "once", RunSettings(RestartPolicy.NEVER, self.backoff, timeout, self.max_retries))


class SpecOptions(TypedDict, total=False):
    """The settings of a spec; what is left out is inherited from the supervisor's `TaskDefaults`."""

    args: Sequence[Any]
    """Positional arguments of the body, after the context."""
    kwargs: Mapping[str, Any]
    """Keyword arguments of the body."""
    name: str | None
    """Unique among registered runs; default: the slot's key, else the callable's name and the id."""
    attempt_timeout: float | timedelta | Inherit | None
    """Seconds (or timedelta) that one attempt may take; None = no limit, 0 is refused."""
    backoff: Backoff | Inherit
    """How long to wait before a retry."""
    max_retries: int | Inherit | None
    """Retries since the last success: 0 = one attempt, None = unlimited."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskSpec(Generic[T]):
    """An immutable description of one run; may be submitted any number of times.

    Made by :meth:`once`, :meth:`restartable`, :meth:`periodic` or :meth:`from_defaults`. The body is called once
    per attempt as ``body(ctx, *args, **kwargs)``: in a thread of its own for the time of the call, or, where it
    is a coroutine function or returns an awaitable, on the runtime's event loop. What it returns is the run's value.
    """

    body: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | MappingProxyType[str, Any] = field(default_factory=lambda: _EMPTY)
    name: str | None = None
    restart: RestartPolicy | Inherit = INHERIT
    backoff: Backoff | Inherit = INHERIT
    attempt_timeout: float | timedelta | Inherit | None = INHERIT
    max_retries: int | Inherit | None = INHERIT
    is_coroutine: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.body):
            msg = f"body must be callable as body(ctx, *args, **kwargs), not {type(self.body).__name__}"
            raise TypeError(msg)
        if self.name is not None:
            object.__setattr__(self, "name", check_text("name", self.name))
        if type(self.args) is not tuple:
            object.__setattr__(self, "args", _args(self.args))
        if self.kwargs is not _EMPTY:
            object.__setattr__(self, "kwargs", _kwargs(self.kwargs))
        if not self._is_bare():
            _check_settings(self, may_inherit=True)
        if self.attempt_timeout is not INHERIT:
            timeout = check_optional_duration("attempt_timeout", self.attempt_timeout, positive=True)
            object.__setattr__(self, "attempt_timeout", timeout)
        object.__setattr__(self, "is_coroutine", _is_coroutine_function(self.body))

    @overload
    @classmethod
    def once(cls, body: Callable[..., Awaitable[R]], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @overload
    @classmethod
    def once(cls, body: Callable[..., R], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @classmethod
    def once(cls, body: Callable[..., Any], **options: Unpack[SpecOptions]) -> TaskSpec[Any]:
        """One attempt, whatever its result. Options: see `SpecOptions`.

        Raises:
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        return cls(body, restart=_NEVER, **options)

    @overload
    @classmethod
    def restartable(cls, body: Callable[..., Awaitable[R]], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @overload
    @classmethod
    def restartable(cls, body: Callable[..., R], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @classmethod
    def restartable(cls, body: Callable[..., Any], **options: Unpack[SpecOptions]) -> TaskSpec[Any]:
        """Again after every retryable failure. Unless `max_retries` is set somewhere, **without limit**."""
        return cls(body, restart=RestartPolicy.ON_FAILURE, **options)

    @overload
    @classmethod
    def periodic(
        cls, body: Callable[..., Awaitable[R]], every: float | timedelta | None, **options: Unpack[SpecOptions]
    ) -> TaskSpec[R]: ...
    @overload
    @classmethod
    def periodic(
        cls, body: Callable[..., R], every: float | timedelta | None, **options: Unpack[SpecOptions]
    ) -> TaskSpec[R]: ...
    @classmethod
    def periodic(
        cls, body: Callable[..., Any], every: float | timedelta | None, **options: Unpack[SpecOptions]
    ) -> TaskSpec[Any]:
        """Again `every` seconds after each success ended (fixed delay), and after every retryable failure.

        0 or None = at once. Ends when it is cancelled, fails fatally, or exhausts `max_retries`.
        """
        pause = None if every is None else check_duration("every", every) or None
        return cls(body, restart=RestartPolicy.always(pause), **options)

    @overload
    @classmethod
    def from_defaults(cls, body: Callable[..., Awaitable[R]], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @overload
    @classmethod
    def from_defaults(cls, body: Callable[..., R], **options: Unpack[SpecOptions]) -> TaskSpec[R]: ...
    @classmethod
    def from_defaults(cls, body: Callable[..., Any], **options: Unpack[SpecOptions]) -> TaskSpec[Any]:
        """Restart as the supervisor's `TaskDefaults` say, too."""
        return cls(body, **options)

    def _is_bare(self) -> bool:
        return self.restart is _NEVER and self.backoff is INHERIT and self.max_retries is INHERIT

    @property
    def label(self) -> str:
        """What the body is called; a proxy that answers any attribute with a proxy has no name of its own."""
        name = getattr(self.body, "__qualname__", None)
        return name if isinstance(name, str) and name else type(self.body).__name__

    def resolve(self, defaults: TaskDefaults) -> RunSettings:
        """Return the settings of a run of this spec under these defaults."""
        base = defaults.settings
        if self._is_bare() and self.attempt_timeout is INHERIT:
            return defaults.once  # the usual case, made once
        return RunSettings(
            base.restart if self.restart is INHERIT else self.restart,
            base.backoff if self.backoff is INHERIT else self.backoff,
            base.attempt_timeout if self.attempt_timeout is INHERIT else self.attempt_timeout,  # type: ignore[arg-type]
            base.max_retries if self.max_retries is INHERIT else self.max_retries,
        )


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Submission(Generic[T]):
    """A spec together with the slot that it competes for and the policy by which it does.

    `slot` defaults to the task's name. A bare callable counts as ``TaskSpec.once`` of it.

    Raises:
        TypeError: the work is neither a TaskSpec nor callable, `slot` not a str.
        ValueError: an empty slot, an unknown policy.

    """

    spec: TaskSpec[T]
    slot: str | None
    policy: AdmissionPolicy

    @overload
    def __init__(self, work: TaskSpec[T], slot: str | None = None, policy: AdmissionPolicy | str = ...) -> None: ...
    @overload
    def __init__(
        self, work: Callable[..., Awaitable[T]], slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> None: ...
    @overload
    def __init__(
        self, work: Callable[..., T], slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> None: ...
    def __init__(
        self, work: Any, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> None:
        object.__setattr__(self, "spec", work if isinstance(work, TaskSpec) else _bare(work))
        object.__setattr__(self, "slot", None if slot is None else check_text("slot", slot))
        object.__setattr__(
            self,
            "policy",
            policy if type(policy) is AdmissionPolicy else check_member("policy", AdmissionPolicy, policy),
        )


def _bare(body: Callable[..., Any]) -> TaskSpec[Any]:
    """Make ``TaskSpec.once(body)`` without checking what is not set: every submission of a callable pays for it."""
    if not callable(body):
        msg = f"work must be a TaskSpec or a callable as body(ctx, *args, **kwargs), not {type(body).__name__}"
        raise TypeError(msg)
    spec: TaskSpec[Any] = object.__new__(TaskSpec)  # pyright: ignore[reportUnknownVariableType]
    for assign, value in _UNSET:
        assign(spec, value)
    _assign_body(spec, body)
    _assign_kind(spec, _is_coroutine_function(body))
    return spec


def _setter(name: str) -> Callable[[TaskSpec[Any], Any], None]:
    return TaskSpec.__dict__[name].__set__  # type: ignore[no-any-return]


_assign_body, _assign_kind = _setter("body"), _setter("is_coroutine")
_UNSET: Final = tuple(
    (_setter(name), value)
    for name, value in (
        ("args", ()),
        ("kwargs", _EMPTY),
        ("name", None),
        ("restart", _NEVER),
        ("backoff", INHERIT),
        ("attempt_timeout", INHERIT),
        ("max_retries", INHERIT),
    )
)


def _args(value: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        msg = f"args must be a sequence of positional arguments, not {type(value).__name__}; write args=(value,)"
        raise TypeError(msg)
    return tuple(value)


def _kwargs(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        msg = "kwargs must be a mapping of str keys to keyword arguments"
        raise TypeError(msg)
    return dict(value)


def _check_settings(owner: TaskSpec[Any] | TaskDefaults, *, may_inherit: bool) -> None:
    restart, backoff, max_retries = owner.restart, owner.backoff, owner.max_retries
    if not isinstance(restart, RestartPolicy) and not (may_inherit and restart is INHERIT):
        msg = f"restart must be a RestartPolicy, not {type(restart).__name__}"
        raise TypeError(msg)
    if not isinstance(backoff, Backoff) and not (may_inherit and backoff is INHERIT):
        msg = f"backoff must be a Backoff, not {type(backoff).__name__}"
        raise TypeError(msg)
    if not (may_inherit and max_retries is INHERIT):
        check_count("max_retries", max_retries)


def _is_coroutine_function(body: Callable[..., Any]) -> bool:
    if type(body) is FunctionType and not body.__dict__:  # the usual case; nothing can have marked it as a coroutine
        return bool(body.__code__.co_flags & inspect.CO_COROUTINE)
    while isinstance(body, partial):
        body = body.func
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None))  # noqa: B004
