"""The stand-in model that generation is judged with: its answers, and the log of what it was asked.

It answers from a table that is keyed by the whole prefix (`generation_plan.py`).  What a loop feeds is seen
here, and not only what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import wire
from .errors import CallFailed
from .generation_plan import Plan
from .stand_in import EMBEDDINGS, ENCODING, HEADS
from .token_ids import arrays_of, ids_of

# a float array's last coordinate says what it stands for
MEMORY, EMBEDDED, CACHE = 0.25, 0.5, 0.75
WIDTH = 4  # d_model, as such arrays have it


@dataclass(frozen=True)
class Asked:
    """One question to a method of the stand-in: its target (B, t), the row of the plan for each, the tokens that lead.

    ``memory`` says what came with it: the ``memory`` as encoded, that of an ``other`` source, a ``strange`` array
    of its shape, the ``source`` itself, or ``none``.
    """

    method: str
    target: np.ndarray
    rows: tuple[int, ...]
    best: tuple[int, ...]
    second: tuple[int, ...]
    memory: str
    alone: bool  # no other sequence of ids and no memory came with it
    cached: bool  # a cache came with it; the target holds what the cache stands for


class Endless(CallFailed):
    """The loop goes on for ever; the checker stopped answering."""

    kind = "time-out"


@dataclass
class Table:
    """Answers for a plan, and the log: the responder of a call.

    ``form`` is what the model returns: ``logits`` (B, t, V), ``tuple`` (logits, cache), ``named`` or ``last``.
    """

    plan: Plan
    form: str
    framework: str
    limit: int
    source_given: bool = True  # otherwise rows are known by their prompts
    paired: bool = False  # encoding answers with (memory, mask)
    asked: list[Asked] = field(default_factory=list)
    encoded: int = 0
    complaints: list[str] = field(default_factory=list)
    endless: bool = False
    calls: int = 0
    methods: dict[str, int | str] = field(default_factory=dict)
    turned: bool | None = None  # whether targets are (t, B)
    length: int = 1  # of the last target
    _logits: dict[tuple[int, tuple[int, ...]], np.ndarray] = field(default_factory=dict)

    def __call__(self, name: str, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.calls += 1
        if self.calls > 4 * self.limit:
            self.endless = True
            raise RuntimeError("the stand-in model has been asked too often")
        given = [*((None, value) for value in args), *kwargs.items()]
        if name == "encoder" or method in ENCODING:
            self.encoded += 1
            self.methods.setdefault(method, 0)
            return self._memory(given)
        if method in HEADS:
            self.methods.setdefault(method, 0)
            return args[0] if args else next(iter(kwargs.values()))
        if method in EMBEDDINGS:
            return self._embedded(given)
        return self._decode(method, args, kwargs, given)

    # what the model is given

    def _memory(self, given: Sequence[tuple[str | None, Any]]) -> Any:
        """(B, S, 4): the ids of the source, from which the decoder knows the row again."""
        for _, value in given:
            found = ids_of(value)
            if found is None and marked(value, EMBEDDED):
                found = value.values[..., 0].round().astype(np.int64)
            if found is not None:
                memory = self._marked(found, MEMORY, value)
                seen = (
                    np.ones((*found.shape[:-1], 1, 1, found.shape[-1]), dtype=bool) if found.ndim else found
                )
                return (memory, wire.Array(seen, "bool", memory.container)) if self.paired else memory
        raise ValueError("the stand-in model was given no token ids to encode")

    def _embedded(self, given: Sequence[tuple[str | None, Any]]) -> Any:
        for _, value in given:
            found = ids_of(value)
            if found is not None:
                return self._marked(found, EMBEDDED, value)
        raise ValueError("the stand-in model was given no token ids to embed")

    def _marked(self, ids: np.ndarray, mark: float, like: Any) -> wire.Array:
        return labelled(ids, mark, self._container(like))

    def _container(self, like: Any) -> str:
        held = like.container if isinstance(like, wire.Array) else ""
        return held if held in ("torch", "numpy") else self.framework

    def _decode(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Sequence[tuple[str | None, Any]],
    ) -> Any:
        place, ids, like = self._target(args, kwargs)
        self.methods.setdefault(method, place)
        cached = next(
            (v for _, value in given for v in arrays_of(value) if marked(v, CACHE)),
            None,
        )
        shape = ids.shape
        target = self._rows_first(ids)
        if cached is not None:
            before = cached.values[..., 0].round().astype(np.int64)
            if len(before) == len(target):
                target = np.concatenate([before, target], axis=1)
        rows, memory = self._which_rows(target, given)
        if self.endless or len(self.asked) >= self.limit:
            self.endless = True
            raise RuntimeError("the stand-in model has been asked too often")
        t = shape[0] if len(shape) == 1 or self.turned else shape[1]
        if not target.size:
            self.complaints.append("the model was called with an empty target")
            raise ValueError("the stand-in model was called with an empty target")
        prefixes = [(row, tuple(ids)) for row, ids in zip(rows, target.tolist(), strict=True)]
        leaders = [self.plan.leaders(row, prefix) for row, prefix in prefixes]
        self.asked.append(
            Asked(
                method,
                target,
                rows,
                tuple(a for a, _ in leaders),
                tuple(b for _, b in leaders),
                memory,
                self._alone(place, args, kwargs),
                cached is not None,
            )
        )
        logits = np.stack([self._of_row(row, prefix)[-t:] for row, prefix in prefixes])  # (B, t, V)
        return self._answer(logits, shape, target, like)

    def _answer(self, logits: np.ndarray, shape: tuple[int, ...], target: np.ndarray, like: Any) -> Any:
        container = self._container(like)
        if self.form == "last":
            logits = logits[:, -1] if len(shape) > 1 else logits[0, -1]
        elif len(shape) == 1:
            logits = logits[0]
        elif self.turned:
            logits = np.ascontiguousarray(logits.swapaxes(0, 1))
        dtype = "float32" if container == "torch" else "float64"
        answer = wire.Array(logits.astype(dtype), dtype, container)
        if self.form == "tuple":
            return (answer, self._marked(target, CACHE, like))
        return {"logits": answer} if self.form == "named" else answer

    def _of_row(self, row: int, prefix: tuple[int, ...]) -> np.ndarray:
        """(t, V) logits at every position of a prefix."""
        rows = []
        for n in range(1, len(prefix) + 1):
            known = self._logits.get((row, prefix[:n]))
            if known is None:
                known = self._logits[row, prefix[:n]] = self.plan.logits(row, prefix[:n])
            rows.append(known)
        return np.stack(rows) if rows else np.zeros((0, self.plan.V))

    def _target(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int | str, np.ndarray, Any]:
        """Which argument holds the token ids so far; masks, flags, the source and the memory are passed over."""
        found: list[tuple[tuple[Any, ...], int | str, np.ndarray, Any]] = []
        floats = False
        expected = self.length + 1 if self.asked else self.plan.starts.shape[1]
        for order, (place, value) in enumerate([*enumerate(args), *kwargs.items()]):
            if marked(value, EMBEDDED):
                value = wire.Array(
                    value.values[..., 0].round().astype(np.int64),
                    "int64",
                    value.container,
                )
            ids = ids_of(value)
            if ids is None or ids.ndim > 2 or ids.ndim == 0:
                floats = floats or (
                    isinstance(value, wire.Array) and value.values.dtype.kind == "f" and not is_marked(value)
                )
                continue
            source = self.source_given and self._is_source(ids)
            fits = sorted(ids.shape) in (
                [expected],
                sorted((len(self.plan.starts), expected)),
            )
            plain = bool(np.isin(ids, (0, 1)).all())
            named = isinstance(place, str) and "mask" in place
            begins = bool((ids[..., :1] == self.plan.bos).all() or (ids[:1] == self.plan.bos).all())
            found.append(((plain and not fits, named, source, not begins, plain, order), place, ids, value))
        if not found:
            what = "ids of a floating-point dtype" if floats else "no token ids"
            self.complaints.append(f"the model was called with {what}, which an embedding cannot look up")
            raise ValueError(f"the stand-in model was called with {what}")
        _, place, ids, value = min(found, key=lambda item: item[0])
        return place, ids, value

    def _alone(self, place: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether nothing came beside the target but masks, flags and caches."""
        for other, value in [*enumerate(args), *kwargs.items()]:
            ids = ids_of(value)
            if other != place and ids is not None and ids.ndim and not np.isin(ids, (0, 1)).all():
                return False
            if any(marked(array, MEMORY) for array in arrays_of(value)):
                return False
        return True

    def _is_source(self, ids: np.ndarray) -> bool:
        """Whether ids are those of the source, as it was or with a token before or behind it."""
        extra = 2 * max(1, len(self.plan.sources))
        if not 0 <= ids.size - self.plan.sources.size <= extra or ids.ndim == 0:
            return False
        rows = ids.reshape((-1, ids.shape[-1]))
        return any(self._places(turned) for turned in (rows.tolist(), rows.T.tolist()))

    def _places(self, rows: list[list[int]]) -> list[int]:
        """The source that each row holds, nothing where one holds none."""
        sources = self.plan.sources.tolist()
        width = self.plan.sources.shape[1] if sources else 0
        found = []
        for row in rows:
            parts = [row[k : k + width] for k in range(len(row) - width + 1)]
            place = next((b for b, source in enumerate(sources) if source in parts), -1)
            if place < 0:
                return []
            found.append(place)
        return found

    def _rows_first(self, ids: np.ndarray) -> np.ndarray:
        """The target as (B, t)."""
        if ids.ndim == 1:
            self.turned = False
            target = ids[None]
        else:
            start = self.plan.starts.shape[1]
            expected = self.length + 1 if self.asked else start
            if self.turned is None and ids.shape[0] != ids.shape[1]:
                if ids.shape[1] == expected:
                    self.turned = False
                elif ids.shape[0] == expected and ids.shape[1] == len(self.plan.starts):
                    self.turned = True
                elif ids.shape[1] == start:
                    self.turned = False
            target = ids.T if self.turned else ids
        self.length = target.shape[1]
        return target

    def _which_rows(
        self, target: np.ndarray, given: Sequence[tuple[str | None, Any]]
    ) -> tuple[tuple[int, ...], str]:
        """The row of the plan that each row of the target belongs to: by its memory or source, or by its place."""
        B, known = len(self.plan.starts), len(target)
        default = tuple(min(b, B - 1) for b in range(known))
        if not self.source_given:
            starts = self.plan.starts.tolist()
            begun = [row[: len(starts[0])] for row in target.tolist()]
            if all(row in starts for row in begun):
                default = tuple(starts.index(row) for row in begun)
        arrays = [array for _, value in given for array in arrays_of(value)]
        for array in arrays:
            if marked(array, MEMORY):
                found = self._by_source(array.values[..., 0].round().astype(np.int64), known)
                return found or default, "memory" if found else "other"
        for array in arrays:
            ids = ids_of(array)
            if ids is not None and self.source_given and self._is_source(ids):
                return self._by_source(ids, known) or default, "source"
        return default, "strange" if any(self._like_memory(array) for array in arrays) else "none"

    def _like_memory(self, array: wire.Array) -> bool:
        """Whether an array has the shape of the memory, and is none that the stand-in made."""
        if not self.plan.sources.size or is_marked(array) or array.values.dtype.kind != "f":
            return False
        B, S = self.plan.sources.shape
        return array.values.shape in ((B, S, WIDTH), (S, B, WIDTH), (S, WIDTH))

    def _by_source(self, ids: np.ndarray, known: int) -> tuple[int, ...] | None:
        ids = ids.reshape((-1, ids.shape[-1]))
        for rows in (ids.tolist(), ids.T.tolist()):
            places = self._places(rows)
            if len(places) == known:
                return tuple(places)
            if len(places) == 1:
                return tuple(places * known)
        return None

    # for a report

    def as_python(self) -> list[str]:
        """Lines that define a small ``model`` with the same answers, for a snippet."""
        if self.form == "named":
            return []
        after: list[dict[tuple[int, ...], int]] = [{} for _ in self.plan.starts]
        for row, prefix in sorted(self._logits, key=lambda key: (key[0], len(key[1]))):
            after[row][prefix] = self.plan.chosen(row, prefix)
        as_array, make = "torch.as_tensor", "torch.tensor"
        if self.framework != "torch":
            as_array, make = "np.asarray", "np.array"
        rows = f"{as_array}(tgt).reshape(-1, {as_array}(tgt).shape[-1]).tolist()"
        answer = f"{make}(answer).reshape(*{as_array}(tgt).shape, {self.plan.V})"
        if self.turned:
            rows, answer = f"{as_array}(tgt).T.tolist()", f"{make}(answer).swapaxes(0, 1)"
        answer = f"({answer}, None)" if self.form == "tuple" else answer
        lines = [
            "class Model:",
            "    # the token that leads after each prefix, by row of the batch",
            f"    after = {after}",
            "",
            "    def __getattr__(self, name):  # eval, train, to",
            "        return lambda *args, **named: self",
        ]
        for method, place in self.methods.items():
            if method in ENCODING:
                encoded = "src, None" if self.paired else "src"
                lines += ["", f"    def {method}(self, src, *rest, **named):", f"        return {encoded}"]
            elif method in HEADS:
                lines += ["", f"    def {method}(self, x, **named):", "        return x"]
            else:
                target = f"named[{place!r}]" if isinstance(place, str) else f"args[{place}]"
                lines += [
                    "",
                    f"    def {'__call__' if method == 'forward' else method}(self, *args, **named):",
                    f"        tgt, answer = {target}, []",
                    f"        for after, row in zip(self.after, {rows}):",
                    "            best = [after.get(tuple(row[:n + 1])) for n in range(len(row))]",
                    f"            V = {self.plan.V}",
                    "            answer.append([[4.0 if v == b else -0.1 * v for v in range(V)] for b in best])",
                    f"        return {answer}",
                ]
        return [*lines, "", "model = encoder = Model()"]


def is_marked(value: Any) -> bool:
    return any(marked(value, mark) for mark in (MEMORY, EMBEDDED, CACHE))


def labelled(ids: np.ndarray, mark: float, container: str) -> wire.Array:
    """A float array (…, WIDTH) that holds ids, and in its last coordinate what they stand for."""
    values = np.zeros((*ids.shape, WIDTH), dtype=np.float32)
    values[..., 0], values[..., -1] = ids, mark
    return wire.Array(values, "float32", container)


def marked(value: Any, mark: float) -> bool:
    """Whether a float array is one that the stand-in made for that purpose."""
    if not isinstance(value, wire.Array) or value.values.dtype.kind != "f" or value.values.ndim < 2:
        return False
    last = value.values[..., -1]
    return value.values.shape[-1] == WIDTH and last.size > 0 and bool((last == mark).all())
