"""The subject for decoder-only language models that may generate by methods of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ...spec import Argument
from ..engine.cases import Case, OutOfDomain
from . import wire
from .answers import leaves
from .errors import CallFailed
from .language import LogitsSubject
from .names import plain
from .parameters import Parameter, match, named
from .session import Built, Call
from .subject import WrongResult, arrange, kind_of

GENERATE = tuple(
    str(name)
    for name in """generate greedygenerate generategreedy greedydecode greedysearch decodegreedy generatetokens
    complete autoregressivegenerate autoregressivedecode""".split()
)


def _argument(name: str, names: str) -> Argument:
    return Argument(name, tuple(names.split()), "scalar", required=False)


GENERATE_ARGUMENTS = (  # of a method that generates
    _argument(
        "ids",
        "idx ids input_ids prompt prompts tokens x context prompt_ids start_ids inp start_tokens prompt_tokens src "
        "start seq input_tokens token_ids inputs sequence index initial_tokens data toks in_idx",
    ),
    _argument(
        "n",
        "max_new_tokens n_new num_tokens n_tokens max_tokens steps n_steps num_steps max_new new_tokens num_new_tokens "
        "n gen_len max_gen_len num_new n_new_tokens num_generate max_len max_length length total_len max_steps",
    ),
    _argument("temperature", "temperature temp tau T"),
    _argument("top_k", "top_k k topk"),
    _argument("do_sample", "do_sample sample sampling stochastic use_sampling"),
    _argument("greedy", "greedy"),
    _argument("eos", "eos_id eos_token_id eos eos_token stop_token stop_id end_id eos_idx end_token eot_id"),
    _argument("use_cache", "use_cache cached use_kv_cache kv_cache cache"),
    _argument("repetition_penalty", "repetition_penalty rep_penalty repeat_penalty"),
    _argument("context", "block_size context_size max_context context_length context_len"),
)  # fmt: skip

SHARP = 2.0**10  # logits so many times as large: to draw is then to choose, and half precision takes them
PROMPTS = 12  # that tell whether it ends at an id of its own


@dataclass(frozen=True)
class Generator:
    """How a model's own method generates: its name, its parameters, and whether it can be made greedy.

    Where nothing makes it choose the most probable token, its logits may be made so large that it does.
    """

    method: str
    arguments: Mapping[str, Parameter]
    greedy: str  # "greedy", or "samples" where nothing makes it choose the most probable token
    total: bool = False  # its bound counts the prompt too
    sharp: bool = False  # it draws, and is judged with logits SHARP times as large
    single: bool = False  # it takes one prompt at a time

    @property
    def draws(self) -> bool:
        """Whether its tokens are left to chance."""
        return self.greedy == "samples" and not self.sharp

    @property
    def told(self) -> str:
        """In words, how it generates and how it is judged."""
        sharp = " (judged with sharpened logits)" if self.sharp else ""
        return f"{self.method}, {self.greedy}{sharp}" + (", one prompt at a time" if self.single else "")


class LanguageSubject(LogitsSubject):
    """How its method generates is probed, and judged greedily where that can be had."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.generator: Generator | None = None
        self.ungenerated = ""  # why it does not generate, though it has a method that does
        self.sharpening: dict[str, dict[str, Any]] = {}  # by the object's arguments, the weights that do it
        # The id at which it ends of its own accord, and whether that one is returned.
        self.own_end: tuple[int, bool] | None = None

    def _probed(self, ids: np.ndarray, case: Case) -> None:
        super()._probed(ids, case)
        self._probe_generate(case)

    def lacks(self, need: str) -> str:
        if need != "generate" or not self._generating_methods():
            return super().lacks(need)
        if self.problem:
            return (
                f"its {self._generating_methods()[0]} was not tried, as no call of the model itself succeeded"
            )
        return self.ungenerated

    def has(self, need: str) -> bool:
        return self.generator is not None if need == "generate" else super().has(need)

    def _generating_methods(self) -> list[str]:
        """The methods that generate by their names, the likeliest first."""
        methods = self.binding.entry["methods"] if self.binding.entry["kind"] == "class" else {}
        return sorted((m for m in methods if plain(m) in GENERATE), key=lambda m: GENERATE.index(plain(m)))

    def _probe_generate(self, case: Case) -> None:
        for name in self._generating_methods():
            parameters = self.binding.entry["methods"][name] or ()
            found = match(parameters, GENERATE_ARGUMENTS, {})
            missing = [what for what in ("ids", "n") if what not in found]
            if isinstance(found, str) or missing:
                why = (
                    found
                    if isinstance(found, str)
                    else f"has no parameter for {named(GENERATE_ARGUMENTS, missing)}"
                )
                self.ungenerated = self.ungenerated or f"its {name} {why}"
                continue
            if "use_cache" in found and not self._is_flag(parameters, found["use_cache"].name):
                found = {argument: place for argument, place in found.items() if argument != "use_cache"}
            sampling = {"do_sample", "greedy", "temperature", "top_k"} & found.keys()
            self.generator = Generator(name, found, "greedy")
            self._probe_precision(case)
            told = bool(sampling & {"do_sample", "greedy", "top_k"}) or "greedy" in plain(name)
            if not told and self._varies(case):
                greedy = "greedy at a low temperature" if "temperature" in found else "samples"
                sharp = greedy == "samples" and bool(self._sharpening(case))
                self.generator = replace(self.generator, greedy=greedy, sharp=sharp)
            self.generator = replace(self.generator, total=self._counts_all(case))
            self.generator = replace(self.generator, single=self._takes_one(case))
            self.probed("generation", self.generator.told)
            return

    def _sharpening(self, case: Case) -> dict[str, Any]:
        """Weights by which all logits are SHARP times as large, by name; none where that was not found.

        These are of an output layer, or the gain and bias of the last norm where the output layer is tied.
        """
        key = self.built(case, self.double).key
        if key not in self.sharpening:
            self.sharpening[key] = next(self._sharpened(case), {})
        return self.sharpening[key]

    def _sharpened(self, case: Case) -> Iterator[dict[str, Any]]:
        """What makes all logits SHARP times as large, as a pass shows: the weights of one layer, the last first."""
        case = case.replaced(B=1, T=3)
        ids = self.draw_ids(case)
        items = {
            item["name"]: item["value"]
            for item in self.session.parameters(self.weighted(case))
            if item["trainable"] and not item["alias"]
        }
        layers: dict[str, list[str]] = {}
        for name in items:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        added = [name for name, value in items.items() if value.values.shape == (case["V"],)]
        alone = [[name] for name in items]
        for names, bias in product((*reversed(layers.values()), *reversed(alone)), (added, [])):
            larger = {
                name: replace(items[name], values=SHARP * items[name].values)
                for name in dict.fromkeys((*names, *bias))
            }
            try:
                before = self.scores(self.whole(ids, case))
                built = self.weighted(case, "sharpened")
                self.session.load(built, {**items, **larger})
                calls = [replace(call, built=built) for call in self.whole_calls(ids, case)]
                after = self.output_of(self.send(calls)[-1], self.pick, ids.shape)
            except CallFailed:
                continue
            if self._as_large(before, after):
                yield larger

    def _as_large(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Whether an output is that of logits SHARP times as large, from the scores of the one before."""
        expected = SHARP * before
        values = self.convention("values")
        if values != "logits":
            expected = expected - expected.max(axis=-1, keepdims=True)
            expected = expected - np.log(np.exp(expected).sum(axis=-1, keepdims=True))
        if values == "probabilities":
            expected = np.exp(expected)
        if after.shape != expected.shape or not np.isfinite(expected).all():
            return False
        close = 1e-9 if self.double else 1e-4
        return bool(np.abs(after - expected).max() <= close * np.abs(expected).max())

    def scores(self, output: np.ndarray) -> np.ndarray:
        """Logits up to a constant, from whatever the model gives in their place."""
        if self.convention("values") != "probabilities":
            return output
        with np.errstate(divide="ignore"):
            return np.log(output)

    def lead(self, output: np.ndarray) -> np.ndarray:
        """By how much the greatest logit leads, as the method that generates is judged, over the last axis."""
        sharp = self.generator is not None and self.generator.sharp
        top = np.sort(self.scores(output) if sharp else output, axis=-1)
        return (SHARP if sharp else 1.0) * (top[..., -1] - top[..., -2])

    def generating(self, case: Case, variant: str = "generating") -> Built:
        """An object that generates, apart from others, and with sharpened logits where it is judged so.

        Raises OutOfDomain where these are not found for its sizes.
        """
        built = self.weighted(case, variant)
        if self.generator is not None and self.generator.sharp:
            larger = self._sharpening(case)
            if not larger:
                raise OutOfDomain("it draws its tokens, and nothing makes it take the most probable one")
            self.session.load(built, larger)
        return built

    def prepared(self, call: Call) -> tuple[str, ...]:
        names = self.sharpening.get(replace(call.built, variant=self.owner).key, {})
        if self.generator is None or not self.generator.sharp or call.method != self.generator.method:
            return super().prepared(call)
        return (
            *super().prepared(call),
            "    # logits so large that to draw a token is to choose the most probable one",
            f"    for name in {list(names)}:",
            f"        layer.get_parameter(name).mul_({SHARP:g})",
        )

    def _takes_one(self, case: Case) -> bool:
        """Whether two prompts fail, with options and without, where one does not."""

        def works(B: int, bare: bool = False) -> bool:
            call = self.generation(self.draw_ids(case.replaced(B=B, T=2)), 2, case, bare=bare)
            own = replace(call, built=self.generating(case))
            return not isinstance(self.session.calls([own])[0], CallFailed)

        return not self.unbatched and not works(2) and works(1) and not works(2, bare=True)

    def ends_itself(self, case: Case) -> tuple[int, bool] | None:
        """The id at which it ends of its own accord, and whether that one is returned; None if there is none.

        Of several texts some are then shorter than they should be, and these all end there, and none goes on.
        """
        if self.own_end is not None or self.generator is None:
            return self.own_end
        n, prompts = 6, self.draw_ids(case.replaced(B=PROMPTS, T=2))
        built = self.generating(case)
        calls = [replace(self.generation(ids[None], n, case), built=built) for ids in prompts]
        begins = prompts.tolist()
        try:
            texts = [self.tokens(answer, 1)[0].tolist() for answer in self.session.calls(calls)]
            if all(text[:2] == begin for begin, text in zip(begins, texts, strict=True)):
                texts = [text[2:] for text in texts]
            short = [(begin, text) for begin, text in zip(begins, texts, strict=True) if len(text) < n]
            if not short or len({len(text) for text in texts}) == 1:
                return None
            last = {text[-1] if text else -1 for _, text in short}
            if len(last) == 1 and not last & {-1, *(token for text in texts for token in text[:-1])}:
                self.own_end = (min(last), True)
            elif not self.generator.draws:
                left_out = {int(self.whole(np.array([[*b, *t]]), case)[0, -1].argmax()) for b, t in short}
                if len(left_out) == 1 and not left_out & {token for text in texts for token in text}:
                    self.own_end = (min(left_out), False)
        except CallFailed:
            pass
        return self.own_end

    def _probe_precision(self, case: Case) -> None:
        """Float32, where it generates in that alone: a cache of its own may be made so."""
        ids, before = self.draw_ids(case.replaced(B=1, T=2)), self.double
        for self.double in dict.fromkeys((before, False)):
            call = self.generation(ids, 2, case, use_cache=True)
            own = replace(call, built=self.weighted(case, "generating"))
            answer = self.session.calls([own])[0]
            if not isinstance(answer, CallFailed):
                return
            if answer.kind != "exception":
                break
        self.double = before

    @staticmethod
    def _is_flag(parameters: Sequence[Mapping[str, Any]], name: str) -> bool:
        """Whether a parameter turns something on and off; ``cache=None`` takes a cache itself."""
        place = next(p for p in parameters if p["name"] == name)
        return not place["has_default"] or isinstance(place["default"], bool)

    def _varies(self, case: Case) -> bool:
        """Whether the same prompt is continued differently: 4 times 7 tokens, by weights that make none likely."""
        ids = self.draw_ids(case.replaced(B=1, T=1))
        built = self.weighted(case, "of little weight")
        small = {
            item["name"]: replace(item["value"], values=0.01 * item["value"].values)
            for item in self.session.parameters(built)
            if item["trainable"] and not item["alias"]
        }
        self.session.load(built, small)
        call = replace(self.generation(ids, 7, case), built=built)
        answers = self.session.calls([call] * 4)
        try:
            rows = [self.tokens(answer, 1).tolist() for answer in answers]
        except CallFailed:
            return False
        return any(row != rows[0] for row in rows)

    def _counts_all(self, case: Case) -> bool:
        """Whether the bound, by its name one on all tokens, counts the prompt: 2 and a bound of 5 make 5 in all."""
        assert self.generator is not None
        if re.search(r"new|gen|step|tokens|^n$", self.generator.arguments["n"].name):
            return False
        ids = self.draw_ids(case.replaced(B=1, T=2))
        try:
            found = self.tokens(self.session.calls([self.generation(ids, 5, case)])[0], 1)
        except CallFailed:
            return False
        return found.shape[1] == 5 and np.array_equal(found[:, :2], ids)

    def generation(self, ids: np.ndarray, n: int, case: Case, *, bare: bool = False, **options: Any) -> Call:
        """The call that continues ``ids`` by n tokens, greedily where that can be asked for.

        A bare one leaves everything at its default that has one.
        """
        generator = self.generator
        if generator is None:
            raise OutOfDomain("it has no method that generates")
        bound = n + ids.shape[1] if generator.total else n
        given: dict[str, Any] = {"ids": self._ids(ids), "n": bound, "repetition_penalty": 1.0}
        if generator.greedy != "samples":
            given |= {"do_sample": False, "greedy": True}
            if not {"do_sample", "greedy"} & generator.arguments.keys():
                given["top_k"] = 1
                if generator.greedy != "greedy" and "top_k" not in generator.arguments:
                    given["temperature"] = 1e-5
        given |= {"context": case["max_len"]} if self._required(generator, "context") else {}
        given |= (
            {"temperature": 1.0}
            if self._required(generator, "temperature") and "temperature" not in given
            else {}
        )
        given |= options
        kept = {name: value for name, value in given.items() if name in generator.arguments}
        if bare:
            kept = {
                name: value
                for name, value in kept.items()
                if name in ("ids", "n") or self._required(generator, name)
            }
        ends = generator.arguments.get("eos")  # none of these prompts shall end where it ends by default
        if ends is not None and "eos" not in kept and (ends.fixed or not ends.has_default):
            kept["eos"] = case["V"] + 5
        args, kwargs = arrange(generator.arguments, kept)
        return Call(self.weighted(case), generator.method, args, kwargs)

    @staticmethod
    def _required(generator: Generator, name: str) -> bool:
        place = generator.arguments.get(name)
        return place is not None and not place.has_default

    def tokens(self, answer: Any, B: int) -> np.ndarray:
        """(B, n) ids from what a generating method returned.  Raises CallFailed."""
        if isinstance(answer, CallFailed):
            raise answer
        found = answer
        if isinstance(found, list) and found and all(isinstance(token, int) for token in found):
            found = wire.Array(np.array(found, dtype=np.int64), "int64", "list")
        spots = [item.values for _, item in leaves(found) if item.values.dtype.kind in "iu"]
        if isinstance(found, list) and not found:
            spots = [np.zeros(0, dtype=np.int64)]
        if not spots:
            raise WrongResult(f"{self._generating()} returned {kind_of(answer)}; expected token ids")
        values = spots[0]
        if self.sequence_first and values.ndim == 2:
            values = values.T
        if values.ndim == 1 and B == 1:
            values = values[None]
        if values.ndim != 2 or len(values) != B:
            raise WrongResult(
                f"{self._generating()} returned ids of shape {values.shape} for {B} prompt{'s' if B > 1 else ''}"
            )
        return values

    def _generating(self) -> str:
        return self.generator.method if self.generator else "generate"
