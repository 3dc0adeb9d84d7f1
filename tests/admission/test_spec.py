"""Specs, defaults and submissions: what is explicit, what is inherited, and what is refused at the call."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from admission import INHERIT, AdmissionPolicy, Backoff, RestartPolicy, Submission, TaskDefaults, TaskSpec
from admission.spec import RunSettings


def body(ctx):
    return "done"


async def coroutine(ctx):
    return "done"


class Callable:
    def __call__(self, ctx):
        return "done"


class AsyncCallable:
    async def __call__(self, ctx):
        return "done"


class Proxy:
    """Like the proxies of remote calls: whatever attribute is asked for, there is one."""

    def __getattr__(self, name):
        return Proxy()

    def __call__(self, ctx):
        return "done"


class Nameless:
    def __init__(self):
        self.__qualname__ = ""

    def __call__(self, ctx):
        return "done"


MAKERS = {
    "once": TaskSpec.once,
    "restartable": TaskSpec.restartable,
    "periodic": partial(TaskSpec.periodic, every=5),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
SETTINGS = ("restart", "backoff", "attempt_timeout", "max_retries")

DEFAULTS = TaskDefaults(restart=RestartPolicy.NEVER, backoff=Backoff.constant(1), attempt_timeout=30, max_retries=3)


# -- what the ways to make a spec set ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "restart"),
    [
        (TaskSpec.once(body), RestartPolicy.NEVER),
        (TaskSpec.restartable(body), RestartPolicy.ON_FAILURE),
        (TaskSpec.periodic(body, 5), RestartPolicy.always(5)),
        (TaskSpec.from_defaults(body), INHERIT),
    ],
    ids=["once", "restartable", "periodic", "from_defaults"],
)
def test_a_maker_sets_the_restart_policy_and_leaves_the_rest_to_the_defaults(spec, restart):
    assert [getattr(spec, name) for name in SETTINGS] == [restart, INHERIT, INHERIT, INHERIT]


@every_maker
def test_every_maker_takes_every_setting(make):
    backoff = Backoff.constant(1)
    spec = make(body, args=(1,), kwargs={"a": 2}, name="n", attempt_timeout=3, backoff=backoff, max_retries=4)
    assert (spec.body, spec.args, spec.kwargs, spec.name) == (body, (1,), {"a": 2}, "n")
    assert (spec.attempt_timeout, spec.backoff, spec.max_retries) == (3.0, backoff, 4)


def test_from_defaults_takes_what_is_no_setting():
    spec = TaskSpec.from_defaults(body, args=(1,), kwargs={"a": 2}, name="n")
    assert (spec.body, spec.args, spec.kwargs, spec.name) == (body, (1,), {"a": 2}, "n")


@pytest.mark.parametrize("every", [0, None, timedelta(0)])
def test_a_period_of_nothing_means_at_once(every):
    assert TaskSpec.periodic(body, every).restart == RestartPolicy.always()


@pytest.mark.parametrize(("every", "interval"), [(timedelta(minutes=1), 60.0), (math.inf, math.inf)])
def test_a_period_is_kept_in_seconds(every, interval):
    assert TaskSpec.periodic(body, every).restart == RestartPolicy.always(interval)


@pytest.mark.parametrize(("every", "error"), [(-1, ValueError), ("1", TypeError), (math.nan, ValueError)])
def test_a_wrong_period_is_named(every, error):
    with pytest.raises(error, match="every"):
        TaskSpec.periodic(body, every)


# -- what a run takes from where -----------------------------------------------------------------------------------


def test_a_spec_without_settings_of_its_own_takes_all_defaults():
    settings = TaskSpec.from_defaults(body).resolve(DEFAULTS)
    assert settings == RunSettings(RestartPolicy.NEVER, Backoff.constant(1), 30.0, 3)


@every_maker
def test_a_maker_leaves_all_but_the_restart_policy_to_the_defaults(make):
    spec = make(body)
    assert spec.resolve(DEFAULTS) == RunSettings(spec.restart, Backoff.constant(1), 30.0, 3)


@every_maker
@pytest.mark.parametrize(("name", "own"), [("backoff", Backoff()), ("attempt_timeout", 1.0), ("max_retries", 0)])
def test_a_setting_of_its_own_is_taken_alone(make, name, own):
    defaults = make(body).resolve(DEFAULTS)
    assert make(body, **{name: own}).resolve(DEFAULTS) == replace(defaults, **{name: own})


def test_a_spec_with_all_settings_of_its_own_takes_no_default():
    own = TaskSpec(body, restart=RestartPolicy.ON_FAILURE, backoff=Backoff(), attempt_timeout=1, max_retries=0)
    assert own.resolve(DEFAULTS) == RunSettings(RestartPolicy.ON_FAILURE, Backoff(), 1.0, 0)


def test_none_says_no_limit_whatever_the_defaults_say():
    settings = TaskSpec.once(body, attempt_timeout=None, max_retries=None).resolve(DEFAULTS)
    assert (settings.attempt_timeout, settings.max_retries) == (None, None)


def test_none_and_inherit_can_be_told_apart():
    assert TaskSpec.once(body, attempt_timeout=None).attempt_timeout is None
    assert TaskSpec.once(body).attempt_timeout is INHERIT
    assert repr(INHERIT) == "INHERIT"


def test_without_other_defaults_failures_are_retried_without_limit():
    settings = TaskSpec.from_defaults(body).resolve(TaskDefaults())
    assert settings == RunSettings(RestartPolicy.ON_FAILURE, Backoff(), None, None)


def test_the_defaults_do_not_change_a_spec():
    spec = TaskSpec.from_defaults(body)
    spec.resolve(DEFAULTS)
    assert spec.restart is INHERIT


# -- settings that are refused, of a spec and of the defaults ------------------------------------------------------

both = pytest.mark.parametrize("make", [partial(TaskSpec, body), TaskDefaults], ids=["spec", "defaults"])


@both
@pytest.mark.parametrize(("value", "seconds"), [(3, 3.0), (timedelta(seconds=3), 3.0), (None, None), (math.inf, None)])
def test_a_timeout_comes_out_in_seconds_or_as_none_for_no_limit(make, value, seconds):
    assert make(attempt_timeout=value).attempt_timeout == seconds


@both
@pytest.mark.parametrize("value", [0, -1, math.nan, timedelta(0)])
def test_a_timeout_that_no_attempt_could_meet_is_refused(make, value):
    with pytest.raises(ValueError, match="attempt_timeout"):
        make(attempt_timeout=value)


@both
def test_no_retry_is_a_number_of_retries(make):
    assert make(max_retries=0).max_retries == 0


@both
def test_a_negative_number_of_retries_is_refused(make):
    with pytest.raises(ValueError, match="max_retries"):
        make(max_retries=-1)


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restart", "never"),
        ("restart", None),
        ("backoff", 5),
        ("backoff", None),
        ("attempt_timeout", "1"),
        ("attempt_timeout", True),
        ("max_retries", 1.0),
        ("max_retries", True),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(make, name, value):
    with pytest.raises(TypeError, match=name):
        make(**{name: value})


@pytest.mark.parametrize("name", SETTINGS)
def test_defaults_inherit_from_nobody(name):
    settings: dict[str, Any] = {name: INHERIT}
    with pytest.raises(TypeError, match=name):
        TaskDefaults(**settings)


# -- the body and its arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [TaskSpec.once, Submission])
@pytest.mark.parametrize("thing", ["body", 5, None], ids=repr)
def test_a_body_must_be_callable(make, thing):
    with pytest.raises(
        TypeError, match=f"(body must be|work must be a TaskSpec or a) callable .* not {type(thing).__name__}"
    ):
        make(thing)


@pytest.mark.parametrize(
    ("callable_", "is_coroutine"),
    [
        (body, False),
        (coroutine, True),
        (partial(partial(body), 1), False),
        (partial(partial(coroutine), 1), True),
        (Callable(), False),
        (AsyncCallable(), True),
        (partial(AsyncCallable()), True),
        (AsyncCallable().__call__, True),
        (print, False),
        (Proxy(), False),
    ],
)
def test_a_body_that_is_a_coroutine_function_is_seen_as_one(callable_, is_coroutine):
    assert TaskSpec.once(callable_).is_coroutine is is_coroutine


@pytest.mark.parametrize(
    ("callable_", "label"),
    [
        (body, "body"),
        (Callable().__call__, "Callable.__call__"),
        (Callable(), "Callable"),
        (partial(body), "partial"),
        (Proxy(), "Proxy"),
        (Nameless(), "Nameless"),
    ],
)
def test_a_spec_is_labelled_by_its_callables_name(callable_, label):
    assert TaskSpec.once(callable_).label == label


@pytest.mark.parametrize("args", [(1, 2), [1, 2], iter([1, 2]), range(1, 3)], ids=lambda args: type(args).__name__)
def test_any_iterable_of_arguments_will_do(args):
    assert TaskSpec.once(body, args=args).args == (1, 2)


@pytest.mark.parametrize("args", ["ab", b"ab", 5, None], ids=repr)
def test_what_is_no_sequence_of_arguments_is_named(args):
    with pytest.raises(TypeError, match=f"args .* not {type(args).__name__}"):
        TaskSpec.once(body, args=args)


@pytest.mark.parametrize("kwargs", [{1: 2}, 5, None, [("a", 1)]], ids=repr)
def test_what_are_no_keyword_arguments_is_named(kwargs):
    with pytest.raises(TypeError, match="kwargs must be a mapping of str keys"):
        TaskSpec.once(body, kwargs=kwargs)


def test_a_spec_keeps_arguments_of_its_own():
    args, kwargs = [1], {"a": 1}
    spec = TaskSpec.once(body, args=args, kwargs=kwargs)
    args.append(2)
    kwargs["b"] = 2
    assert (spec.args, spec.kwargs) == ((1,), {"a": 1})


def test_keyword_arguments_may_be_any_mapping():
    assert TaskSpec.once(body, kwargs=MappingProxyType({"a": 1})).kwargs == {"a": 1}


def test_a_name_is_optional():
    assert TaskSpec.once(body).name is None


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (42, TypeError)])
def test_a_wrong_name_is_refused(name, error):
    with pytest.raises(error, match="name"):
        TaskSpec.once(body, name=name)


def test_a_spec_can_not_be_changed():
    spec: Any = TaskSpec.once(body)
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"


def test_a_spec_is_equal_to_itself_only():
    assert TaskSpec.once(body) != TaskSpec.once(body)


# -- submissions ---------------------------------------------------------------------------------------------------


SPEC = TaskSpec.once(body)


def test_a_submission_queues_by_default_and_leaves_its_slot_to_the_tasks_name():
    submission = Submission(SPEC)
    assert (submission.slot, submission.policy) == (None, AdmissionPolicy.QUEUE)


def test_a_submission_keeps_its_spec():
    spec = TaskSpec.restartable(body)
    assert Submission(spec, slot="k").spec is spec


def test_a_bare_callable_is_a_spec_of_one_attempt():
    bare: Any = body
    spec = Submission(bare).spec
    assert isinstance(spec, TaskSpec)
    assert (spec.body, spec.restart) == (body, RestartPolicy.NEVER)


@pytest.mark.parametrize("policy", ["replace", AdmissionPolicy.REPLACE])
def test_a_policy_may_be_named(policy):
    assert Submission(SPEC, policy=policy).policy is AdmissionPolicy.REPLACE


@pytest.mark.parametrize("policy", ["Replace", "", 1, None, []], ids=repr)
def test_an_unknown_policy_is_refused_and_the_known_ones_told(policy):
    with pytest.raises(ValueError, match=r"policy must be .* 'queue', 'replace', 'drop_if_running'"):
        Submission(SPEC, policy=policy)


@pytest.mark.parametrize(("slot", "error"), [("", ValueError), (42, TypeError), (b"k", TypeError), (("a",), TypeError)])
def test_a_slot_that_is_no_text_is_refused(slot, error):
    with pytest.raises(error, match="slot"):
        Submission(SPEC, slot=slot)
