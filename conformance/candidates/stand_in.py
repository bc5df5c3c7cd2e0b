"""The stand-in model that generation is judged with: its plan, its answers, and the log of what it was asked.

It answers from a table that is keyed by the whole prefix: along the plan of a case every prefix has one next
token, and any other prefix has another one.  What a loop feeds is seen here, and not only what it returns.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import wire
from .errors import CallFailed

BOS, EOS, PAD = 1, 2, 0  # as in the lesson, where nothing else is known
MEMORY, EMBEDDED, CACHE = (
    0.25,
    0.5,
    0.75,
)  # the last coordinate says what a float array stands for

ENCODING = tuple(
    """
    encode encoder encode_source encode_src encoder_forward get_memory
    """.split()
)
DECODING = tuple(
    """
    forward decode decode_step decoder step decoder_forward decode_tokens logits get_logits predict
    next_logits next_token_logits transformer lm run
    """.split()
)
HEADS = tuple(
    """
    generator head lm_head fc_out fc out out_proj output output_layer output_proj output_projection
    project projection projection_layer proj linear final final_layer final_linear to_logits unembed
    classifier vocab_proj softmax log_softmax trg_word_prj tgt_proj linear_out norm ln_f final_norm pos
    pe pos_enc pos_encoding pos_encoder positional_encoding dropout
    """.split()
)
EMBEDDINGS = tuple(
    """
    embed embedding embeddings tok_emb token_embedding tgt_embed src_embed tgt_embedding src_embedding
    trg_embedding tgt_emb src_emb tgt_tok_emb src_tok_emb wte
    """.split()
)
METHODS = (*ENCODING, *DECODING, *HEADS, *EMBEDDINGS)
PADS, STARTS, ENDS = (  # attributes in which models keep these ids
    tuple(names.split())
    for names in (
        "pad pad_id pad_idx pad_index pad_token pad_token_id src_pad_idx trg_pad_idx tgt_pad_idx src_pad tgt_pad",
        "bos bos_id bos_idx bos_index bos_token_id sos sos_id sos_idx sos_index start_id decoder_start_token_id",
        "eos eos_id eos_idx eos_index eos_token_id end_id",
    )
)
PARTS = frozenset(
    """
    logits loss sample sequences last_hidden_state hidden_states encoder_last_hidden_state past_key_values
    prediction_logits decoder_outputs encoder_outputs outputs output memory cache
    """.split()
)


def lacks(error: CallFailed, asked: bool) -> bool:
    """Whether a call failed for want of what its stand-in offers, and not by an error of its own.

    That is so where it reads an attribute that the stand-in has not, and, once it has ``asked`` the stand-in
    something, where it takes an answer apart in another way than it was given: into more or fewer values, or by
    the name of a part.  Any other error is the candidate's own.
    """
    kind, message, code = (str(error.detail.get(name, "")) for name in ("type", "message", "code"))
    if "the stand-in model has no" in message or "StandIn" in message:
        return True
    if not asked:
        return False
    if "unpack" in message:
        return not re.search(r"\.shape\b|\.size\(", code)  # an array's own shape is no answer
    part = re.search(r"has no attribute '(\w+)'", message)
    named = (
        part[1] if part and kind == "AttributeError" else message.strip("'\"") if kind == "KeyError" else ""
    )
    return named in PARTS


@dataclass(frozen=True)
class Plan:
    """What a case has in mind: the ids, where every row starts, its source, and its next tokens.

    ``starts`` (B, P), ``sources`` (B, S), ``tokens`` (B, n) are integers; a row's tokens end with ``eos`` if it
    is to end there.
    """

    V: int
    bos: int
    eos: int
    pad: int
    starts: np.ndarray
    sources: np.ndarray
    tokens: tuple[tuple[int, ...], ...]
    seed: int
    lowered: bool = False  # all logits below zero
    peaked: bool = False  # all probability on the first two

    def next_token(self, row: int, prefix: tuple[int, ...]) -> int | None:
        """The planned token after a prefix, None where the prefix is not on the way."""
        start = tuple(int(n) for n in self.starts[row])
        count = len(prefix) - len(start)
        tokens = self.tokens[row]
        if 0 <= count < len(tokens) and prefix == (*start, *tokens[:count]):
            return tokens[count]
        return None

    def chosen(self, row: int, prefix: tuple[int, ...]) -> int:
        """The token with the largest logit after a prefix, planned or not."""
        planned = self.next_token(row, prefix)
        return self._off(row, prefix, 0) if planned is None else planned

    def leaders(self, row: int, prefix: tuple[int, ...]) -> tuple[int, int]:
        """The tokens with the largest and the second largest logit after a prefix."""
        return self.chosen(row, prefix), self._off(row, prefix, 1)

    def logits(self, row: int, prefix: tuple[int, ...]) -> np.ndarray:
        """(V,) logits after a prefix: one largest by 1, a clear second, the smallest larger in size."""
        code = self._code(row, prefix)
        values = np.round(np.linspace(-2.0, 2.0, self.V), 2)
        values = values[np.argsort(np.sin(np.arange(1, self.V + 1) * (1.0 + code)))]
        if self.peaked:
            values -= 60.0
        top, second = self.leaders(row, prefix)
        values[self._off(row, prefix, 2)] = -6.0 - 60.0 * self.peaked
        values[second] = 3.0
        values[top] = 4.0
        return values - 10.0 if self.lowered else values

    def _off(self, row: int, prefix: tuple[int, ...], rank: int) -> int:
        """An ordinary token that the prefix alone decides, other than the planned one."""
        planned = self.next_token(row, prefix)
        k = len(prefix) - self.starts.shape[1]
        here = self.tokens[row][k] if 0 <= k < len(self.tokens[row]) else None
        ids = [n for n in self.ordinary if n not in (planned, here)]
        return ids[(self._code(row, prefix) + rank) % len(ids)]

    @property
    def ordinary(self) -> list[int]:
        """Ids that are none of the special ones."""
        return [n for n in range(self.V) if n > 3 and n not in (self.bos, self.eos, self.pad)]

    def _code(self, row: int, prefix: tuple[int, ...]) -> int:
        source = self.sources[row].tolist() if self.sources.size else []
        return zlib.crc32(repr((self.seed, source, prefix)).encode()) % 9973


@dataclass(frozen=True)
class Asked:
    """One question to the stand-in: its target (B, t), the row of the plan for each, the token that leads."""

    target: np.ndarray
    rows: tuple[int, ...]
    best: tuple[int, ...]
    second: tuple[int, ...]
    memory: str  # what came with it: "memory" as encode returned it, "source", "other" or "none"
    alone: bool  # no other sequence of ids and no memory came with it
    cached: bool  # a cache came with it; the target holds what the cache stands for


@dataclass
class Table:
    """Answers for a plan, and the log: the responder of a call.

    ``form`` is what the model returns: ``logits`` (B, t, V), ``tuple`` (logits, cache), ``named`` or ``last``.
    """

    plan: Plan
    form: str
    framework: str
    limit: int
    source_given: bool = True
    paired: bool = False  # encoding answers with (memory, mask)
    asked: list[Asked] = field(default_factory=list)
    encoded: int = 0
    complaints: list[str] = field(default_factory=list)
    endless: bool = False
    calls: int = 0
    methods: dict[str, int | str] = field(default_factory=dict)
    turned: bool | None = None  # whether targets are (t, B)
    length: int = 1
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
            dull = bool(np.isin(ids, (0, 1)).all()) and not fits
            named = isinstance(place, str) and "mask" in place
            begins = bool((ids[..., :1] == self.plan.bos).all() or (ids[:1] == self.plan.bos).all())
            plain = bool(np.isin(ids, (0, 1)).all())
            found.append(((dull, named, source, not begins, plain, order), place, ids, value))
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
        if not self.source_given:  # rows are known by their prompts
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
        return default, "none"

    def _by_source(self, ids: np.ndarray, known: int) -> tuple[int, ...] | None:
        ids = ids.reshape((-1, ids.shape[-1]))
        for rows in (ids.tolist(), ids.T.tolist()):
            places = self._places(rows)
            if len(places) == known:
                return tuple(places)
            if len(places) == 1:
                return tuple(places * known)
        return None


def ids_of(value: Any) -> np.ndarray | None:
    """Token ids: an integer array, or a (nested) list of integers or of integer scalars."""
    if isinstance(value, wire.Array):
        return value.values.astype(np.int64) if value.values.dtype.kind in "iu" else None
    if isinstance(value, list | tuple) and value:
        items = [integer(item) for item in value]
        if None not in items:
            return np.array(items, dtype=np.int64)
        rows = [ids_of(item) for item in value]
        if all(row is not None and row.shape == rows[0].shape for row in rows):  # type: ignore[union-attr]
            return np.stack(rows)  # type: ignore[arg-type]
    return None


def integer(value: Any) -> int | None:
    """A whole number, from whatever holds it; None if it is none."""
    if isinstance(value, wire.Array) and value.values.size == 1 and value.values.ndim == 0:
        value = value.values.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 1 << 62 and value == int(value) else None


def arrays_of(value: Any) -> Iterator[wire.Array]:
    if isinstance(value, wire.Array):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in list(value.values() if isinstance(value, dict) else value)[:8]:
            yield from arrays_of(item)


def is_marked(value: Any) -> bool:
    return any(marked(value, mark) for mark in (MEMORY, EMBEDDED, CACHE))


def labelled(ids: np.ndarray, mark: float, container: str) -> wire.Array:
    """A float array (…, 4) that holds ids, and in its last coordinate what they stand for."""
    values = np.zeros((*ids.shape, 4), dtype=np.float32)
    values[..., 0], values[..., -1] = ids, mark
    return wire.Array(values, "float32", container)


def marked(value: Any, mark: float) -> bool:
    """Whether a float array is one that the stand-in made for that purpose."""
    if not isinstance(value, wire.Array) or value.values.dtype.kind != "f" or value.values.ndim < 2:
        return False
    last = value.values[..., -1]
    return value.values.shape[-1] == 4 and last.size > 0 and bool((last == mark).all())
