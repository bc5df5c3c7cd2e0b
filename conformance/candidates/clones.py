"""The subject for ``clones``, N copies of a module."""

from __future__ import annotations

from dataclasses import replace

from ..engine.cases import Inputs, OutOfDomain
from . import wire
from .session import Built, Call
from .subject import Subject, arrange


class ClonesSubject(Subject):
    """``clones(module, N)``: what it returns stays on the candidate's side and is looked at there."""

    def copies(self, N: int) -> Built:
        """The result for a linear layer of width 3, as an object of its own."""
        given = {"module": wire.Layer(3, self.framework), "N": N}
        args, kwargs = arrange(self.binding.arguments, given)
        return replace(Built(self.binding.path, args, kwargs, called=True), variant=self.owner)

    def calls_for(self, inputs: Inputs) -> list[Call]:
        raise OutOfDomain("its result is no array")
