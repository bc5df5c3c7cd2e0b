"""Telling single numbers of parameters apart by their gradients, for the weight method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


class Numbers:
    """The numbers of several arrays in a row."""

    def __init__(self, arrays: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        self.names = [name for name, _ in arrays]
        self.shapes = dict(arrays)
        self.starts = np.cumsum([0, *(int(np.prod(shape)) for _, shape in arrays)])
        self.size = int(self.starts[-1])

    def flat(self, gradients: Sequence[np.ndarray]) -> np.ndarray:
        """(size, K) from arrays (K, *shape)."""
        return np.concatenate([g.reshape(len(g), -1).T for g in gradients]).astype(np.float64)

    def join(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.asarray(values[name], dtype=np.float64).reshape(-1) for name in self.names])

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: flat[self.starts[n] : self.starts[n + 1]].reshape(self.shapes[name])
            for n, name in enumerate(self.names)
        }

    def name_of(self, place: int) -> str:
        return self.names[int(np.searchsorted(self.starts, place, side="right")) - 1]

    def move(self, state: Mapping[str, np.ndarray], place: int, by: float) -> None:
        name = self.name_of(place)
        state[name].reshape(-1)[place - self.starts[self.names.index(name)]] += by


def classes(
    prints_c: np.ndarray, prints_r: np.ndarray, labels_c: np.ndarray, labels_r: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Equal labels for equal gradients, within the classes there were before."""
    prints = np.concatenate([prints_c, prints_r])
    labels = np.concatenate([labels_c, labels_r])
    for column in prints.T:
        order = np.lexsort((column, labels))
        new = np.empty_like(labels)
        apart = (np.diff(column[order]) > tolerance) | (np.diff(labels[order]) != 0)
        new[order] = np.concatenate([[0], np.cumsum(apart)])
        labels = new
    return labels[: len(labels_c)], labels[len(labels_c) :]


def pairs(
    labels_c: np.ndarray, labels_r: np.ndarray, silent_c: np.ndarray, silent_r: np.ndarray
) -> list[tuple[int, int]]:
    """Places of candidate and reference that are each other's only likeness."""
    own = {}
    for labels, silent in ((labels_c, silent_c), (labels_r, silent_r)):
        places = np.flatnonzero(~silent)
        values, first, counts = np.unique(labels[places], return_index=True, return_counts=True)
        own[id(labels)] = {
            int(v): int(places[n]) for v, n, k in zip(values, first, counts, strict=True) if k == 1
        }
    one, other = own[id(labels_c)], own[id(labels_r)]
    return [(one[label], other[label]) for label in one if label in other]


def sum_of_two(
    wanted: np.ndarray, prints: np.ndarray, labels: np.ndarray, tolerance: float
) -> tuple[int, int] | None:
    """Two numbers of the reference whose gradients add up to ``wanted``: one parameter does the work of both."""
    unique, places = np.unique(labels, return_index=True)
    kinds = prints[places]
    for n in range(len(unique)):
        rest = np.abs(kinds - (wanted - kinds[n])).max(axis=1)
        found = np.flatnonzero(rest <= 4 * tolerance)
        for m in found:
            if min(np.abs(kinds[n]).max(), np.abs(kinds[m]).max()) <= 4 * tolerance:
                continue  # a number that moves nothing adds nothing
            if m != n or (labels == unique[n]).sum() > 1:
                return int(places[n]), int(places[m])
    return None
