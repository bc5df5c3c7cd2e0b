"""A layer of the candidate, built for itself, as the weight method sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cases import Inputs

if TYPE_CHECKING:
    from ..candidates.layers import LayerSubject
    from ..candidates.models import ModelSubject
    from ..candidates.session import Built


@dataclass(frozen=True)
class Weight:
    """One parameter of the candidate as it was built."""

    name: str
    value: np.ndarray
    dtype: str
    registered: bool  # a parameter of a module, not an array in some attribute


class OwnLayer:
    """Its weights can be overwritten, its output and the gradients of its output be had.

    ``items`` are what :meth:`Session.parameters` tells of the weights; what stands in memory twice counts once.
    """

    def __init__(
        self, subject: LayerSubject | ModelSubject, built: Built, items: Iterable[Mapping[str, Any]]
    ) -> None:
        self.subject, self.built = subject, built
        self.weights = [
            Weight(p["name"], p["value"].values, p["value"].dtype, p["kind"] == "parameter")
            for p in items
            if p["kind"] != "buffer" and not p["alias"]
        ]
        self._dtypes = {weight.name: weight.dtype for weight in self.weights}

    @property
    def single(self) -> bool:
        """Whether it computes in float32."""
        return "float32" in self._dtypes.values()

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        arrays = {
            name: self.subject.array(np.ascontiguousarray(value.astype(self._dtypes[name])))
            for name, value in values.items()
        }
        self.subject.session.load(self.built, arrays)
        self.subject.remembered.clear()

    def output(self, inputs: Inputs) -> np.ndarray:
        """In float64, canonical: the batch first.  Raises CallFailed and OutOfDomain as the subject does."""
        return self.subject.run(self.subject.default(inputs))["output"].astype(np.float64)

    def sensitivities(self, inputs: Inputs, names: Sequence[str], cotangents: np.ndarray) -> list[np.ndarray]:
        """d⟨output, cotangent⟩/dp for each named weight p: arrays (K, *shape) for K cotangents."""
        (call,) = self.subject.calls_for(self.subject.default(inputs))
        own = np.ascontiguousarray(np.stack([self.subject.to_own(c) for c in cotangents]))
        return self.subject.session.sensitivities(call, self.subject.pick, names, self.subject.array(own))

    def strange_constants(self) -> list[str]:
        """Buffers that are neither a mask nor a number: slopes, angles and the like, which no reference has."""
        found = []
        for item in self.subject.session.parameters(self.built):
            values = item["value"].values
            mask = np.isin(values, (0.0, 1.0)).all() or not np.isfinite(values).all() or (values <= 0).all()
            if item["kind"] == "buffer" and values.ndim and values.size and not mask:
                found.append(item["name"])
        return found
