"""A subject: one bound object, called with canonical inputs and answering with canonical results.

Canonical inputs are plain arrays, with masks as booleans (True = allowed).  A subject knows the
candidate's conventions (probed, by name, or declared) and translates both ways; properties never see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from ...spec import Argument, BoundObject
from ..engine.cases import Inputs, OutOfDomain
from . import wire
from .binding import Binding
from .errors import CallFailed
from .meanings import masks_of
from .parameters import Parameter
from .session import Built, Call, Session
from .usual import usual

Results = dict[str, Any]
FOLLOWING = ("d_head", "d_v", "n_kv_heads")  # they have to fit other sizes, which their defaults do not
LONG = 16  # layers and models may have a capacity beyond it
CLOSE = 1e-4  # two right ways of computing something are nearer, and every known fault is farther off
# The parts of results that are compared between objects; the rest tells of their conventions.
GIST = (
    "output",
    "weights",
    "allowed",
    "table",
    "input",
    "labels",
    "loss",
    "shown",
    "probabilities",
    "tokens",
)


class WrongResult(CallFailed):
    """The candidate returned something that is not what the role returns."""

    kind = "result"


class Subject:
    """The base: builds, calls and remembers.  Subclasses know the conventions of their role."""

    costly = False  # a case takes so many calls that no smaller failing one is looked for
    # Equal inputs give equal answers in all right ones: no weights, no choice; by chance, equal frequencies.
    told_by_answers = False
    answers_by_chance = False

    def __init__(self, session: Session, binding: Binding) -> None:
        self.session = session
        self.binding = binding
        self.role = binding.role
        self.conventions: dict[str, tuple[str, str]] = dict(binding.conventions)
        self.limits: dict[str, tuple[Any, ...]] = {}
        self.irrelevant: set[str] = set()  # dimensions that make no difference to this candidate
        self.framework = (binding.entry["frameworks"] or [self._default_framework()])[0]
        self.problem = binding.problem
        self.precision = ""  # "float32" where float64 inputs are computed in float32
        self.variant = ""
        self.preparation: tuple[str, ...] = ()  # lines of a snippet that prepare ``layer``: new weights
        self.dropout = 0.0  # what a constructor's dropout is given; modules are in eval mode all the same
        self.remembered: dict[tuple[Any, ...], Results | CallFailed] = {}
        self.last_calls: tuple[Call, ...] = ()
        self.tentative = False  # only tried out: what is wrong with it need not be told
        self.asked: list[Inputs] | None = None  # the inputs of all calls, while somebody wants to know

    # what the engine asks

    def probe(self) -> None:
        """Find out the conventions that are probed.  A failure to do so sets ``problem``."""

    def has(self, need: str) -> bool:
        """Whether the candidate offers what a claim needs (``mask``, ``gradient``, ``argument x`` …)."""
        if need.startswith("argument "):
            return need.removeprefix("argument ") in self.binding.arguments
        if need.startswith("parameter "):
            return need.removeprefix("parameter ") in self.binding.constructor
        if need.startswith("flag "):
            return need.removeprefix("flag ") in self.binding.arguments
        return {
            "batches": True,
            "mask": any(a.kind == "mask" and a.name in self.binding.arguments for a in self.role.arguments),
            "no mask": True,
            "weights": True,
            "gradient": self.framework == "torch",
            "torch": self.framework == "torch",
            "constructor": self.binding.entry["kind"] == "class",
        }[need]

    def lacks(self, need: str) -> str:
        """Why it does not have a need, where there is more to say than that; otherwise nothing."""
        return ""

    def prepared(self, call: Call) -> tuple[str, ...]:
        """The lines of a snippet that prepare ``layer`` for a call."""
        return self.preparation

    def call(self, inputs: Inputs, fresh: bool = False) -> Results:
        """Canonical results for canonical inputs, remembered unless ``fresh``.

        Raises:
            CallFailed: the candidate raised, took too long, or returned the wrong kind of thing.
            OutOfDomain: the candidate does not take such inputs.
        """
        if self.asked is not None:
            self.asked.append(inputs)
        key = inputs.key
        known = None if fresh else self.remembered.get(key)
        if known is None:
            try:
                known = self.run(inputs)
            except CallFailed as error:
                known = kept(error)
            if len(self.remembered) > 20000:
                self.remembered.clear()
            self.remembered[key] = known
        if isinstance(known, CallFailed):
            raise copy(known)
        return known

    def prefetch(self, cases: Sequence[Inputs]) -> None:
        """Make the calls of several cases in one frame, so that they need not be waited for one by one.

        Failures are left to be met, and told, one by one.
        """
        calls: list[Call] = []
        places: list[tuple[Inputs, int, int]] = []
        for inputs in cases:
            if inputs.key not in self.remembered:
                try:
                    own = self.calls_for(inputs)
                except CallFailed:
                    continue
                except OutOfDomain:
                    continue
                places.append((inputs, len(calls), len(calls) + len(own)))
                calls += own
        if len(places) < 2:
            return
        answers = self.session.calls(calls)
        for inputs, start, stop in places:
            part = answers[start:stop]
            if not any(isinstance(answer, CallFailed) for answer in part):
                try:
                    self.remembered[inputs.key] = self.read(part, inputs)
                except CallFailed:
                    continue

    def run(self, inputs: Inputs) -> Results:
        """The calls of a case and what they return, without memory."""
        return self.read(self.send(self.calls_for(inputs)), inputs)

    def run_up_to_capacity(self, inputs: Inputs) -> Results:
        """As :meth:`run`; but nobody promised to take long sequences, where a capacity cannot be set."""
        try:
            return Subject.run(self, inputs)
        except CallFailed as error:
            long = max(inputs.case.get("T", 0), inputs.case.get("S", 0)) > LONG
            if long and error.kind == "exception":
                raise OutOfDomain(f"it does not take so long a sequence: {error}") from None
            raise

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        """Canonical results from what came back.  The default suits functions that return arrays."""
        raw = answers[0]
        names = [result.name for result in self.role.results]
        items = (
            list(raw.values()) if isinstance(raw, dict) else raw if isinstance(raw, tuple | list) else [raw]
        )
        if raw is None or not items or not isinstance(items[0], wire.Array):
            raise WrongResult(f"it returned {kind_of(raw)}; expected an array")
        return {n: item.values for n, item in zip(names, items, strict=False) if isinstance(item, wire.Array)}

    def default(self, inputs: Inputs) -> Inputs:
        """The inputs of a call that nothing is said about."""
        return inputs

    def calls_for(self, inputs: Inputs) -> list[Call]:
        """The calls that :meth:`run` makes."""
        values = {
            name: self.plain_argument(inputs[name]) for name in self.binding.arguments if name in inputs
        }
        return [self.make_call(inputs.case, values)]

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        """For each call: what was passed, and what stood in its place afterwards (positional, by keyword)."""
        calls = [replace(call, return_inputs=True) for call in self.calls_for(inputs)]
        answers = self.send(calls)
        return [([list(c.args), dict(c.kwargs)], answer[1]) for c, answer in zip(calls, answers, strict=True)]

    def bound_object(self) -> BoundObject:
        """What was found, for the report."""
        return BoundObject(
            role=self.role.id,
            object=self.binding.name,
            signature=self.binding.signature,
            arguments={name: place.name for name, place in self.binding.arguments.items()},
            conventions={n: v for n, v in self.conventions.items() if self._shows(n)},
            judged=not self.problem,
            problem=self.problem,
            ignored=() if self.problem else self.binding.ignored,
            **place_of(self.binding.entry),
        )

    def prelude(self, call: Call) -> list[str]:
        """Lines that a snippet needs before the call: what stands for objects that do not cross."""
        return []

    def _shows(self, name: str) -> bool:
        """Whether a convention says anything of this object: no polarity where it takes no such mask."""
        convention = self.role.convention(name)
        if convention is None or not {"allow", "block"} <= convention.values.keys():
            return True
        return masks_of(convention, self.role, self.binding.arguments) is not None

    def with_convention(self, name: str, value: str) -> Self:
        """The same object under another convention, to see whether it would fit."""
        other = type(self)(self.session, self.binding)
        other.__dict__.update({**self.__dict__, "remembered": {}, "conventions": dict(self.conventions)})
        other.conventions[name] = (value, "tried")
        other.tentative = True
        return other

    def closeness(self, inputs: Inputs) -> float:
        """How far two equal gists may be apart, beside their largest entry."""
        return CLOSE

    def gist(self, inputs: Inputs, results: Results) -> Mapping[str, Any]:
        """What of an answer is the same for all that do the same, whatever their conventions."""
        return {name: results[name] for name in GIST if name in results}

    def with_dropout(self, p: float) -> Subject | None:
        """The same module built with dropout; None where there is none to set, or no eval mode."""
        if "dropout" not in self.binding.constructor or not self.binding.entry["module_class"]:
            return None
        other = type(self)(self.session, self.binding)
        other.__dict__.update({**self.__dict__, "remembered": {}, "dropout": p})
        return other

    # what subclasses use

    def convention(self, name: str) -> str:
        return self.conventions[name][0] if name in self.conventions else ""

    def probed(self, name: str, value: str) -> None:
        """Record a probed convention, unless it was declared."""
        if self.conventions.get(name, ("", ""))[1] != "declared":
            self.conventions[name] = (value, "probed")

    def plain_argument(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return wire.Array(value, value.dtype.name, self.framework)
        return value

    def array(self, values: np.ndarray, dtype: str | None = None) -> wire.Array:
        return wire.Array(values, dtype or values.dtype.name, self.framework)

    def send(self, calls: Sequence[Call]) -> list[Any]:
        """Results of several calls in one frame; the first failure is raised."""
        self.last_calls = tuple(calls)
        results = self.session.calls(calls)
        for result in results:
            if isinstance(result, CallFailed):
                raise result
        return results

    @property
    def owner(self) -> str:
        """What keeps its objects apart from those of other roles that the same class fills.

        Each role overwrites weights in its own way, and calls may leave something behind.
        """
        return f"{self.role.id} {self.variant}".rstrip()

    def built(self, case: Mapping[str, Any], double: bool = False) -> Built:
        """The object for a case; a class is constructed with the case's sizes."""
        if self.binding.entry["kind"] != "class":
            return Built(self.binding.path, double=double, variant=self.owner)
        given: dict[str, Any] = {}
        for argument in (*usual(), *self.role.constructor):
            place = self.binding.constructor.get(argument.name)
            if place is None:
                continue
            own = place.has_default
            if argument.name in FOLLOWING:
                own = own and not place.fixed and "." not in place.name
            if not (argument.only_if_required and own):
                given[argument.name] = (
                    self.dropout if argument.name == "dropout" else self._constant(argument, case)
                )
        args, kwargs = arrange(self.binding.constructor, given)
        factory = self.binding.entry.get("factory", "")
        return Built(factory or self.binding.path, args, kwargs, double, self.owner, called=bool(factory))

    def make_call(
        self, case: Mapping[str, Any], values: Mapping[str, Any], double: bool = False, **options: Any
    ) -> Call:
        """A call with canonical values put where the candidate's parameters are.

        Required parameters that have no value get the role's constant for them, or None.
        """
        given = dict(values)
        for argument in self.role.arguments:
            place = self.binding.arguments.get(argument.name)
            if place is not None and argument.name not in given and not place.has_default:
                given[argument.name] = self._constant(argument, case)
        args, kwargs = arrange(self.binding.arguments, given)
        return Call(self.built(case, double), self.binding.method, args, kwargs, **options)

    def _constant(self, argument: Argument, case: Mapping[str, Any]) -> Any:
        if argument.value is None:
            return None
        value = argument.value(case)
        if argument.kind == "size":
            return int(value)
        return bool(value) if argument.kind == "flag" else value

    def _default_framework(self) -> str:
        return "torch" if "torch" in self.session.description.get("versions", {}) else "numpy"


def arrange(
    places: Mapping[str, Parameter], values: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional-only parameters by position, all others by keyword."""
    positional = {
        p.position: values[name] for name, p in places.items() if p.position is not None and name in values
    }
    args = tuple(
        positional.get(position, wire.DEFAULT) for position in range(max(positional, default=-1) + 1)
    )
    kwargs = {places[name].name: value for name, value in values.items() if places[name].position is None}
    kwargs |= {also: value for name, value in values.items() for also in places[name].also}
    return args, kwargs


E = TypeVar("E", bound=BaseException)


def kept(error: E) -> E:
    """An error without its traceback: that would keep alive all that was where it was met.  To raise: a copy."""
    error.__context__ = None
    return error.with_traceback(None)


def place_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """File (as seen from the current folder, or its bare name) and line of what was found; empty where unknown."""
    file, line = entry.get("file"), entry.get("line")
    if not isinstance(file, str) or not file or type(line) is not int or not 0 <= line < 2**31:
        return {}
    path = Path(file)
    inside = path.is_relative_to(Path.cwd())
    return {"file": path.relative_to(Path.cwd()).as_posix() if inside else path.name, "line": line}


def kind_of(value: Any) -> str:
    """What came back, in words."""
    if isinstance(value, wire.Array):
        return f"an array of shape {value.values.shape}"
    if isinstance(value, wire.Opaque):
        return f"an object of type {value.type}"
    if isinstance(value, tuple | list):
        arrays = [str(x.values.shape) for x in value if isinstance(x, wire.Array)]
        shapes = f" with arrays of shape {' and '.join(arrays[:4])}" if arrays else ""
        return f"a {type(value).__name__} of {len(value)}{shapes}"
    return "None" if value is None else f"a {type(value).__name__}"
