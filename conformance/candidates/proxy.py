"""The candidate's side of a stand-in model: an object whose methods call back to the checker.

What it answers is decided there (`stand_in.py` says what is offered).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from . import wire

# What the checker may be told beside the calls; no code asks a model for these names.
BACKWARD, ZERO_GRAD = "_backward", "_zero_grad"


class Asks(Protocol):
    """Who carries the questions: the worker."""

    @property
    def device(self) -> str: ...

    def ask(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Answer(dict[str, Any]):
    """Named parts of an answer, to be read as ``answer["logits"]`` or ``answer.logits``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class StandIn:
    """A model that is none: every method goes back to the checker.  Also callable, as ``forward``.

    A method is a stand-in too, so that ``model.generator(x)`` and ``model.decoder.eval()`` both work.  What
    code asks of any model without using it (its mode, its device, its parameters) is answered here.
    """

    def __init__(self, remote: wire.Remote, worker: Asks, method: str = "forward") -> None:
        self._remote, self._worker, self._method = remote, worker, method
        self.training = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        remote = self._remote
        if name in remote.methods:
            part = self.__dict__[name] = StandIn(remote, self._worker, name)
            return part
        if name in remote.attributes:
            value = remote.attributes[name]
            return Answer(value) if isinstance(value, dict) else value
        raise AttributeError(f"the stand-in model has no {name!r}; it has {', '.join(remote.methods)}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._worker.ask(self._remote.name, self._method, args, kwargs)
        if BACKWARD in self._remote.methods and getattr(answer, "requires_grad", False):
            answer.register_hook(lambda gradient: self._worker.ask(self._remote.name, BACKWARD, (), {}))
        return Answer(answer) if type(answer) is dict else answer

    def __deepcopy__(self, memo: Any) -> StandIn:
        return self

    def train(self, mode: bool = True) -> StandIn:
        self.training = bool(mode)
        return self

    def eval(self) -> StandIn:
        return self.train(False)

    def _itself(self, *args: Any, **kwargs: Any) -> StandIn:
        return self

    to = cpu = cuda = float = double = half = requires_grad_ = _itself

    def zero_grad(self, set_to_none: bool = True) -> None:
        """There is no gradient to forget; the checker is told where it wants to know."""
        if ZERO_GRAD in self._remote.methods:
            self._worker.ask(self._remote.name, ZERO_GRAD, (), {})

    @property
    def device(self) -> Any:
        torch = sys.modules.get("torch")
        return "cpu" if torch is None else torch.device(self._worker.device)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """One number, for code that reads a device or a dtype from it."""
        torch = sys.modules.get("torch")
        yield np.zeros(1) if torch is None else torch.zeros(1, device=self.device, requires_grad=True)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        yield from (("weight", value) for value in self.parameters())

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}

    def modules(self) -> Iterator[StandIn]:
        yield self
