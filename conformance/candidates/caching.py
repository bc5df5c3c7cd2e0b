"""Subjects that can be fed in pieces: how a key–value cache is passed on, kept, and forgotten.

``feeds.py`` says what a way of feeding is.  What a candidate calls its cache is never looked into.  It stays
on the candidate's side: a later call of the same frame refers to what an earlier one returned or was given
(``wire.Earlier``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .answers import at, leaves
from .errors import CallFailed
from .feeds import Feed, cache_in, squeezed
from .names import plain
from .parameters import Parameter, match
from .session import Built, Call
from .subject import Subject, WrongResult, arrange, kind_of

RESETS = frozenset(
    """reset resetcache clearcache resetkvcache clearkvcache resetcaches clearcaches emptycache clear resetstate
    flushcache dropcache initcache initkvcache initstate setupcache setupcaches newsequence startsequence
    beginsequence resetkv clearkv clearstate""".split()
)
MAKERS = frozenset(
    """initcache makecache newcache emptycache createcache initkvcache makekvcache newkvcache emptykvcache
    createkvcache getemptycache initcaches makecaches newcaches emptycaches initialcache buildcache startcache
    freshcache initialstate initstate getcache blankcache""".split()
)
CACHED_METHODS = frozenset(
    """forwardwithcache forwardcached cachedforward forwardcache step decodestep forwardstep decode
    incrementalforward forwardincremental infer cachedstep stepwithcache prefill forwardkv extend feed""".split()
)
SIZES: Mapping[str, tuple[str, ...]] = {  # what a cache may want to know when it is made
    "B": ("batch_size", "batch", "b", "bsz", "max_batch_size", "n_batch", "B", "max_batch"),
    "max_len": ("max_len", "max_seq_len", "max_length", "capacity", "block_size", "max_seq_length", "size", "T",
                "max_tokens", "seq_len"),
    "L": ("n_layers", "num_layers", "n_layer", "layers", "depth", "N", "L"),
    "h": ("n_heads", "num_heads", "n_head", "heads", "h", "H", "n_kv_heads", "num_kv_heads"),
    "d": ("head_dim", "d_head", "d_k", "dim_head", "head_size", "hd"),
    "width": ("d_model", "n_embd", "dim", "embed_dim", "hidden_size"),
}  # fmt: skip


class CachingSubject(Subject, ABC):
    """A module that may have a cache: ``content`` is the argument that is cut into pieces along axis 1."""

    content = "x"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.double = bool(self.binding.entry["module_class"])
        self.feed: Feed | None = None
        self.pick: tuple[str | int, ...] = ()
        self.unbatched = False
        self.whole_feed: Feed | None = None  # for one that is never called without a cache
        self.unfed = ""  # why it cannot be fed in pieces, though it has a parameter for that
        self.chains: list[list[tuple[Call, ...]]] = []  # the calls behind what `sequences` last gave
        self.holds_keys = False  # whether what came back of the first piece are keys and values
        self.built_with_cache = False  # where the constructor has a switch for it
        self.fresh = [0]  # counts objects that are built anew; shared with copies
        self.drawn: dict[str, dict[str, Any]] = {}  # the weights that were drawn, by the object's arguments

    def built(self, case: Mapping[str, Any], double: bool = False) -> Built:
        built = super().built(case, double)
        place = self.binding.constructor.get("use_cache")
        if place is None or not self.built_with_cache:
            return built
        if place.position is not None:
            args = tuple(True if n == place.position else value for n, value in enumerate(built.args))
            return replace(built, args=args)
        return replace(built, kwargs={**built.kwargs, **dict.fromkeys((place.name, *place.also), True)})

    # weights

    def weighted(self, case: Mapping[str, Any], variant: str = "") -> Built:
        """The object for a case, with weights large enough that small effects are seen."""
        built = self.built(case, self.double)
        if variant:
            built = replace(built, variant=f"{built.variant} {variant}")
        if not self.session.holds(built):
            self.session.build(built)
            if self.binding.entry["kind"] == "class":
                self.draw_weights(built)
        return built

    def another(self, case: Mapping[str, Any]) -> Built:
        """An object for a case that was never called: what others did leaves no trace in it."""
        if self.binding.entry["kind"] != "class":
            return self.weighted(case)
        self.fresh[0] += 1
        return self.weighted(case, f"sequence {self.fresh[0]}")

    def draw_weights(self, built: Built) -> None:
        """Overwrite the trainable parameters: std 1/√fan_in, gains near 1; the same for equal names and shapes."""
        alike = replace(built, variant="").key
        if alike not in self.drawn:
            self.drawn[alike] = self._drawn(built)
        if self.drawn[alike]:
            self.session.load(built, self.drawn[alike])

    def _drawn(self, built: Built) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for item in self.session.parameters(built):
            old = item["value"].values
            if not item["trainable"] or item["alias"] or not old.size:
                continue
            rng = np.random.default_rng([*map(ord, item["name"]), *old.shape])
            if old.ndim < 2:
                new = 0.3 * rng.normal(size=old.shape) + (1.0 if (old == 1).all() else 0.0)
            elif re.search(r"emb|wte|wpe|pos|tok", item["name"], re.IGNORECASE) and old.ndim == 2:
                new = rng.normal(size=old.shape)
            else:
                new = 1.2 * rng.normal(size=old.shape) / np.sqrt(old.shape[-1])
            values[item["name"]] = wire.Array(
                new.astype(old.dtype), item["value"].dtype, item["value"].container
            )
        return values

    # calling

    @abstractmethod
    def given(self, piece: np.ndarray, start: int, case: Mapping[str, Any]) -> dict[str, Any]:
        """The canonical arguments of a call on one piece, of which ``start`` tokens came before."""

    def width(self, case: Mapping[str, Any]) -> int:
        """The last axis of the output."""
        return int(case["h"] * case["d"])

    @abstractmethod
    def output_of(self, raw: Any, pick: Sequence[str | int], shape: tuple[int, ...]) -> np.ndarray:
        """The output (B, n, …) in what came back, for a piece whose ids or vectors have ``shape``."""

    def whole_calls(
        self, content: np.ndarray, case: Case, extra: Mapping[str, Any] | None = None
    ) -> list[Call]:
        """The pass over everything at once, without a cache."""
        if self.whole_feed is not None:
            return self.chain(self.whole_feed, case, [content], self.weighted(case))[0]
        given = {**self.given(content, 0, case), **(extra or {})}
        if "use_cache" in self.binding.arguments:
            given["use_cache"] = False
        built = self.weighted(case)
        kept = {name: value for name, value in given.items() if name in self.binding.arguments}
        call = replace(self.make_call(case, kept, self.double), built=built)
        if self.feed is not None and self.feed.reset:
            return [self._sized(built, self.feed.reset, case), replace(call, follows=True)]
        return [call]

    def chain(
        self, feed: Feed, case: Case, pieces: Sequence[np.ndarray], on: Built | None = None
    ) -> tuple[list[Call], list[int]]:
        """The calls that feed pieces one after another, and which of them are the pieces' own.

        They are calls of the object ``on`` where it can begin anew; otherwise of another one, which knows of no
        sequence before.
        """
        endless = feed.kind == "kept" and not (feed.reset or feed.start)
        built = self.another(case) if on is None or endless else on
        calls: list[Call] = []
        if feed.reset:
            calls.append(self._sized(built, feed.reset, case))
        if feed.first.startswith("."):
            calls.append(self._sized(built, feed.first[1:], case))
        places, start = [], 0
        for n, piece in enumerate(pieces):
            given = self.given(piece, start, case)
            if "use_cache" in feed.arguments:
                given["use_cache"] = True
            if feed.start:
                count = piece.shape[1]
                positions = self.array(np.arange(start, start + count, dtype=np.int64))
                given["start_pos"] = start if feed.start == "number" else positions
            if feed.kind != "kept" and (n or feed.first):
                given["cache"] = self._cache(feed, case, n)
            if feed.single:
                given = {name: squeezed(value) for name, value in given.items()}
            calls.append(self._piece_call(feed, built, case, given, follows=bool(calls)))
            places.append(len(calls) - 1)
            start += piece.shape[1]
        return calls, places

    def _piece_call(
        self, feed: Feed, built: Built, case: Case, given: Mapping[str, Any], follows: bool
    ) -> Call:
        kept = {name: value for name, value in given.items() if name in feed.arguments}
        for argument in self.role.arguments:
            place = feed.arguments.get(argument.name)
            if place is not None and argument.name not in kept and not place.has_default:
                kept[argument.name] = self._constant(argument, case)
        args, kwargs = arrange(feed.arguments, kept)
        return Call(built, feed.method, args, kwargs, follows=follows)

    def _cache(self, feed: Feed, case: Case, n: int) -> Any:
        if n:
            if feed.kind == "returned":
                return wire.Earlier(1, feed.path)
            return wire.Earlier(1, (), feed.arguments["cache"].name)
        if feed.first.startswith("."):
            return wire.Earlier(1)
        if ":" in feed.first:
            self.fresh[0] += 1
            args, kwargs = self._sizes(self._class_parameters(feed.first), case)
            built = Built(
                feed.first.removeprefix("*"),
                args,
                kwargs,
                variant=f"{self.owner} of {self.binding.path}, cache {self.fresh[0]}",
            )
            layers = case.get("L", 1)
            many = [replace(built, variant=f"{built.variant} {n}") for n in range(layers)]
            return many if feed.first.startswith("*") else built
        layers = case.get("L", 1)
        return {"{}": {}, "[]": [], "[None, …]": [None] * layers, "[{}, …]": [{} for _ in range(layers)]}[
            feed.first
        ]

    def _class_parameters(self, path: str) -> Sequence[Mapping[str, Any]]:
        objects = self.session.description.get("objects", ())
        return next(e.get("init") or [] for e in objects if e["path"] == path.removeprefix("*"))

    def _sizes(
        self, parameters: Sequence[Mapping[str, Any]] | None, case: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Sizes for the required parameters of whatever makes a cache.  Raises KeyError for an unknown one."""
        width = case["h"] * case["d"]
        sizes = {"L": 1, "max_len": 16, **case, "width": width}
        known = {plain(name): sizes[size] for size, names in SIZES.items() for name in names if size in sizes}
        given = {}
        for parameter in parameters or ():
            if parameter["kind"] in ("VAR_POSITIONAL", "VAR_KEYWORD"):
                continue
            name = plain(parameter["name"])
            if not parameter["has_default"] or name in ("maxlen", "maxseqlen", "batchsize"):
                given[parameter["name"]] = known[name]
        return (), given

    def _sized(self, built: Built, method: str, case: Mapping[str, Any]) -> Call:
        args, kwargs = self._sizes(self.binding.entry["methods"].get(method), case)
        return Call(built, method, args, kwargs)

    def whole(self, content: np.ndarray, case: Case) -> np.ndarray:
        """The output of the full pass, (B, T, …)."""
        return self.call(self._inputs(content, case))["output"]

    def anew(self, content: np.ndarray, case: Case) -> np.ndarray:
        """The output of the full pass from an object of its own, which was never called before."""
        built = self.another(case)
        calls = [replace(call, built=built) for call in self.whole_calls(content, case)]
        return self.output_of(self.send(calls)[-1], self.pick, content.shape)

    def _inputs(self, content: np.ndarray, case: Case) -> Inputs:
        return Inputs(case, {self.content: content})

    def pieces(
        self,
        content: np.ndarray,
        case: Case,
        *sizes: tuple[int, ...],
        anew: bool = False,
        on: Built | None = None,
    ) -> list[list[np.ndarray]]:
        """Outputs of the pieces, for each way of cutting the content; all in one frame, each from the beginning.

        They are fed to one object, which was never called before unless it is given as ``on``; with ``anew``
        each way has an object of its own.

        Raises:
            CallFailed: a call failed.
            OutOfDomain: the candidate refuses a later piece of several tokens.
        """
        return self.sequences(case, *((content, cut) for cut in sizes), anew=anew, on=on)

    def sequences(
        self,
        case: Case,
        *fed: tuple[np.ndarray, tuple[int, ...]],
        anew: bool = False,
        on: Built | None = None,
    ) -> list[list[np.ndarray]]:
        """The same for several contents, one after the other in one frame."""
        feed = self.feed
        if feed is None:
            raise OutOfDomain(self.unfed or "it has no cache")
        if self.unbatched and any(len(content) > 1 for content, _ in fed):
            return self._rows_apart(case, fed, anew, on)
        if on is None and not anew:
            on = self.another(case)
        calls: list[Call] = []
        plan: list[tuple[list[int], list[np.ndarray]]] = []
        for content, cut in fed:
            edges = np.arange(content.shape[1] + 1) if feed.single else np.cumsum((0, *cut))
            parts = [content[:, a:b] for a, b in pairwise(edges)]
            own, places = self.chain(feed, case.replaced(B=len(content)), parts, on)
            plan.append(([len(calls) + place for place in places], parts))
            calls += own
        answers = self.session.calls(calls)
        results = []
        self.chains = []
        for places, parts in plan:
            outputs = []
            self.chains.append([])
            for place, part in zip(places, parts, strict=True):
                begin = place
                while calls[begin].follows:
                    begin -= 1
                self.last_calls = tuple(calls[begin : place + 1])
                self.chains[-1].append(self.last_calls)
                failed = next((a for a in answers[begin : place + 1] if isinstance(a, CallFailed)), None)
                if failed is not None:
                    if failed.kind == "exception" and place != places[0] and part.shape[1] > 1:
                        raise OutOfDomain("it refuses a later piece of several tokens")
                    raise failed
                outputs.append(self.piece_output(feed, answers[place], part.shape))
            results.append(outputs)
        if feed.single:  # joined to what the pieces would have been
            for n, (_, cut) in enumerate(fed):
                edges = np.cumsum((0, *cut))
                results[n] = [np.concatenate(results[n][a:b], axis=1) for a, b in pairwise(edges)]
                self.chains[n] = [self.chains[n][b - 1] for b in edges[1:]]
        return results

    def _rows_apart(
        self, case: Case, fed: Sequence[tuple[np.ndarray, tuple[int, ...]]], anew: bool, on: Built | None
    ) -> list[list[np.ndarray]]:
        """For a candidate of single sequences: each row of what would be a batch by itself."""
        count = len(fed[0][0])
        rows = [
            self.sequences(case, *((content[b : b + 1], cut) for content, cut in fed), anew=anew, on=on)
            for b in range(count)
        ]
        return [
            [np.concatenate(parts) for parts in zip(*(row[n] for row in rows), strict=True)]
            for n in range(len(fed))
        ]

    def piece_output(self, feed: Feed, raw: Any, shape: tuple[int, ...]) -> np.ndarray:
        """The output (B, n, …) of one piece of the given shape."""
        if not feed.single:
            return self.output_of(raw, feed.pick, shape)
        item = at(raw, feed.pick)
        if not isinstance(item, wire.Array) or not item.values.ndim:
            raise WrongResult(f"{feed.method} returned {kind_of(raw)}; expected the output of one token")
        return item.values if item.values.ndim == 3 else item.values[:, None]

    # finding out

    def has(self, need: str) -> bool:
        if need == "cache":
            return self.feed is not None or bool(self.unfed)
        if need == "reset":
            return bool(self.unfed) or (
                self.feed is not None
                and (self.feed.kind != "kept" or bool(self.feed.reset or self.feed.start))
            )
        return super().has(need)

    def probe_cache(self, content: np.ndarray, case: Case) -> None:
        """The first way of feeding that agrees with the full pass; failing that, the first that runs.

        A cache that is allocated in float32 raises in float64: then everything is computed in float32.
        """
        errors: list[str] = []
        right, runs = self._fed(content, case, errors)
        if right is None and errors and self.double:
            self.double = False
            right, single = self._fed(content, case, [])
            self.double = right is None and (runs is not None or single is None)
            runs = runs or single
        self.feed = right or runs
        self.built_with_cache = self.feed is not None and self.feed.kind == "kept"
        if self.feed is not None:
            self.probed("cache", self.feed.words)
            return
        for name in ("cache", "use_cache"):
            if name in self.binding.arguments:
                self.unfed = f"nothing is kept or returned by way of its {self.binding.arguments[name].name}"
        if errors:
            self.unfed = f"no way of feeding its cache succeeded; the first attempt: {errors[0]}"

    def _fed(self, content: np.ndarray, case: Case, errors: list[str]) -> tuple[Feed | None, Feed | None]:
        """The first way of feeding that agrees with the full pass, and the first that runs.

        ``errors`` receives what was raised where a parameter tells of a cache.
        """
        runs: Feed | None = None
        broken: Feed | None = None
        for feed in self._feeds():
            self.feed = feed if feed.kind == "kept" else None
            self.built_with_cache = feed.kind == "kept"
            found: Feed | None = None
            try:
                expected = self.anew(content, case)
                self.feed = found = self._tried(feed, content, case)
                if found is None:
                    continue
                rows = self.pieces(content, case, (2,) + (1,) * (content.shape[1] - 2), anew=True)[0]
                joined = np.concatenate(rows, axis=1) if all(r.ndim > 1 for r in rows) else np.empty(0)
                if joined.shape == expected.shape and np.allclose(
                    joined, expected, atol=1e-4, equal_nan=True
                ):
                    return found, runs
                runs = runs or (found if self._is_cache(found, content, case) else None)
            except CallFailed as error:
                if {"cache", "use_cache", "start_pos"} & feed.arguments.keys():
                    errors.append(str(error))
                if broken is None and found is not None and self._is_own_fault(found, error):
                    broken = found
            except (OutOfDomain, KeyError, ValueError):
                continue
            finally:
                self.remembered.clear()
        return None, runs or broken

    def _is_own_fault(self, feed: Feed, error: CallFailed) -> bool:
        """Whether the second piece fails by the candidate's fault, as the first gave what is plainly a cache."""
        if error.is_slip:
            return True
        if error.kind != "exception" or error.detail.get("type") in (
            "TypeError",
            "AttributeError",
            "KeyError",
        ):
            return False
        return ":" in feed.first or (feed.kind == "returned" and not feed.first and self.holds_keys)

    def _looks_like_keys(self, raw: Any, path: Sequence[str | int], case: Case, length: int) -> bool:
        """Whether what stands there are arrays of keys and values: as wide as the model or a head, and as long."""
        arrays = [item.values.shape for _, item in leaves(at(raw, path))]
        wide = {case["d"], case["h"] * case["d"]}
        return bool(arrays) and all(s and s[-1] in wide and length in s[:-1] for s in arrays)

    def _is_cache(self, feed: Feed, content: np.ndarray, case: Case) -> bool:
        """Whether something is kept or filled at all, where what is called so may be something else."""
        if feed.kind == "returned":
            return True
        if feed.kind == "filled" and feed.first in ("{}", "[]", "[None, …]", "[{}, …]"):
            calls, places = self.chain(feed, case, [content[:, :1]])
            calls[places[0]] = replace(calls[places[0]], return_inputs=True)
            after = self.send(calls)[places[0]][1][1][feed.arguments["cache"].name]
            return any(True for _ in leaves(after)) or repr(after).count("Opaque") > 0
        if feed.kind == "filled" or re.search(r"cache|kv|past", feed.reset + feed.method, re.IGNORECASE):
            return True
        same = np.concatenate([content[:, :1]] * 2, axis=1)
        other = np.concatenate([content[:, 1:2], content[:, :1]], axis=1)
        (first, second), (_, third) = self.sequences(case, (same, (1, 1)), (other, (1, 1)), anew=True)
        return bool(max(np.abs(first - second).max(), np.abs(third - second).max()) > 1e-9)

    def _tried(self, feed: Feed, content: np.ndarray, case: Case) -> Feed | None:
        """The feed with what its first piece shows: where the output is, where the cache; None if it does not fit."""
        first = content[:, : 1 if feed.single else 2]
        calls, places = self.chain(feed, case, [first])
        raw = self.send(calls)[places[0]]
        spots = [path for path, _ in leaves(raw)]
        fits = [p for p in spots if self._fits(replace(feed, pick=p), raw, first.shape, self.width(case))]
        wide = [path for path, item in leaves(raw) if item.values.shape[-1:] == (self.width(case),)]
        pick = (fits or wide or spots or [()])[0]
        path = cache_in(raw, pick)
        self.holds_keys = path is not None and self._looks_like_keys(raw, path, case, first.shape[1])
        if feed.kind == "returned" and path is None:
            return None
        if feed.kind == "filled" and path is not None and not feed.first:
            return None
        return replace(feed, pick=pick, path=path or ())

    def _fits(self, feed: Feed, raw: Any, shape: tuple[int, ...], width: int) -> bool:
        try:
            return self.piece_output(feed, raw, shape).shape == (*shape[:2], width)
        except CallFailed:
            return False

    def _feeds(self) -> Iterator[Feed]:
        """Ways of feeding that the candidate's parameters and methods suggest."""
        methods = self.binding.entry["methods"]
        renewable = (
            self.binding.entry["kind"] == "class"
        )  # another object begins anew where nothing else does
        resets = [m for m in methods if plain(m) in RESETS and self._callable(methods[m])]
        makers = [m for m in methods if plain(m) in MAKERS and self._callable(methods[m])]
        ways: list[tuple[str, Mapping[str, Parameter]]] = [(self.binding.method, self.binding.arguments)]
        for name, parameters in methods.items():
            if plain(name) in CACHED_METHODS and parameters is not None and name != self.binding.method:
                found = match(parameters, self.role.arguments, {})
                if not isinstance(found, str) and self.content in found:
                    ways.append((name, found))
        for method, arguments in ways:
            starts = ("number", "positions") if "start_pos" in arguments else ("",)
            if "cache" in arguments:
                # Where it can be told to forget, it is, though the cache be passed in: it may count the tokens.
                forgetting = [m for m in resets if plain(m) not in MAKERS]
                for start, reset in product(starts, (*forgetting, "")):
                    bare = Feed("returned", method, arguments, start=start, reset=reset)
                    yield bare
                    firsts = [
                        *(f".{m}" for m in makers),
                        *self._classes(),
                        "{}",
                        "[None, …]",
                        "[]",
                        "[{}, …]",
                    ]
                    for first in firsts:
                        yield replace(bare, first=first)
                        yield replace(bare, first=first, kind="filled")
            elif method == self.binding.method or "start_pos" in arguments or resets:
                tell = {"use_cache", "start_pos"} & arguments.keys()
                for start in starts:
                    kept = Feed("kept", method, arguments, start=start)
                    for reset in resets:
                        yield replace(kept, reset=reset)
                    if start or (tell and renewable):
                        yield kept
        for method, arguments in ways[1:]:  # single tokens, without an axis of time
            for reset in resets:
                yield Feed("kept", method, arguments, reset=reset, single=True)
            if "cache" in arguments:
                for first in ("", *(f".{m}" for m in makers), *self._classes(), "{}", "[]"):
                    bare = Feed("returned", method, arguments, first, single=True)
                    yield from (bare, replace(bare, kind="filled")) if first else (bare,)

    def _callable(self, parameters: Sequence[Mapping[str, Any]] | None) -> bool:
        try:
            self._sizes(parameters, {"B": 1, "h": 1, "d": 1})
        except KeyError:
            return False
        return parameters is not None

    def _classes(self) -> list[str]:
        """Classes of the candidate that are caches by their names, alone and as one for each layer."""
        found = []
        for entry in self.session.description.get("objects", ()):
            named = entry["kind"] == "class" and entry["own"] and re.search(r"(?i)cache", entry["name"])
            if named and entry["path"] != self.binding.path and self._callable(entry.get("init")):
                found += [entry["path"], f"*{entry['path']}"]
        return found[:6]
