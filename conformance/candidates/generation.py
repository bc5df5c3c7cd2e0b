"""The subject for generation: a loop that is run on a stand-in model, in whatever contract it was written for.

Here is how a loop is called and what it should return.  What is found out by calls stands in
`generation_probe.py`, what follows from the author's words in `generation_words.py`; the stand-in answers
from `generation_table.py`, by the plan of `generation_plan.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import generation_words as said
from . import wire
from .errors import CallFailed, CallTimeout, WorkerLost
from .generation_plan import Plan
from .generation_probe import Manner, find_out
from .generation_table import MEMORY, WIDTH, Endless, Table, labelled
from .session import Call
from .stand_in import BOS, CAPACITIES, ENDS, EOS, METHODS, PAD, PADS, STARTS
from .subject import Results, Subject, WrongResult, kind_of
from .token_ids import rows_of

USUAL = {"bos": BOS, "eos": EOS, "pad": PAD}
UNUSUAL = {"bos": 9, "eos": 7, "pad": 8}
# Temperatures: the largest logit leads by 1, so that in the cold another token comes up in 1 of 1e17 draws.
HEAT = {"cold": 0.025, "usual": 1.0, "hot": 40.0}
STEPWISE = re.compile(r"greedy|autoregressive|argmax|beam", re.IGNORECASE)


class GenerationSubject(Subject):
    """Generation with a stand-in model: what it returned, and what it asked.

    Results: ``rows`` (token lists, as returned), ``table`` (the log), ``plan``, ``case``, ``call``, ``inputs``.
    """

    told_by_answers = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.manner = Manner(self.framework)
        self.bos = BOS  # where it is built in
        self.barred: CallFailed | OutOfDomain | None = None  # why it is not called any more
        self.table: Table | None = None  # of the last call

    # what the engine asks

    def has(self, need: str) -> bool:
        if need == "batches":
            return 2 in self.limits.get("B", (1, 2))
        return super().has(need)

    def probe(self) -> None:
        self._by_words()
        find_out(self)

    # what is known of it

    @property
    def given(self) -> Mapping[str, Any]:
        return self.binding.arguments

    @property
    def words(self) -> str:
        return str(self.binding.entry.get("doc", ""))

    @property
    def source_name(self) -> str:
        """What it calls the source or prompt, or nothing."""
        return self.given["src"].name.lower() if "src" in self.given else ""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Whose arrays it may take, likely ones first."""
        return tuple(dict.fromkeys([*self.binding.entry["frameworks"], self._default_framework()]))

    @property
    def ends(self) -> bool:
        return self.convention("ends") == "eos"

    @property
    def drops_end(self) -> bool:
        """Whether EOS ends the loop and is not returned."""
        return self.convention("end_token") == "dropped"

    @property
    def bound_is_known(self) -> bool:
        return self.conventions["bound"][1] in ("declared", "by name", "by its own words")

    def declared(self, name: str) -> str:
        """The declared value of a convention, or nothing."""
        value, how = self.conventions.get(name, ("", ""))
        return value if how == "declared" else ""

    def adopt(self, manner: Manner) -> None:
        self.manner, self.framework = manner, manner.framework

    def _by_words(self) -> None:
        """What follows from names and from the author's own words, where nothing was declared."""
        words, name = self.words, self.binding.entry["name"]

        def told(convention: str, value: str) -> None:
            if value and not self.declared(convention):
                self.conventions[convention] = (value, "by its own words")

        told("returns", said.on_start(words))
        tamed = {"top_k", "do_sample", "greedy", "temperature"} & self.given.keys()
        draws = self.binding.entry.get("draws", True)
        if said.SAMPLES.search(words) and draws and not STEPWISE.search(name) and not tamed:
            told("choice", "sampled")
        off = (("do_sample", True), ("greedy", False))
        may_be_off = any(n in self.given and self._default(n) is not sampling for n, sampling in off)
        if may_be_off and self.conventions["choice"] == ("sampled", "by name"):
            self.conventions["choice"] = ("greedy", "by its parameter's default")
        bound = self.given["max_len"].name if "max_len" in self.given else ""
        if re.search(r"new|step|gen", bound.lower()) and not self.declared("bound"):
            self.conventions["bound"] = ("new", "by name")
        elif bound:
            told("bound", said.on_bound(words, bound, self.convention("returns") != "new"))
        if "beam" in self.given and (self._default("beam") != 1 or "beam" in self.binding.name):
            self.conventions["search"] = ("beam", "by name")

    def _default(self, name: str) -> Any:
        """The default of a parameter, None where it has none."""
        place = self.given[name].name
        found = (p["default"] for p in self.binding.parameters if p["name"] == place and p["has_default"])
        return next(found, None)

    def _id_by_default(self, name: str) -> int | None:
        default = self._default(name)
        return default if isinstance(default, int) and not isinstance(default, bool) else None

    def passed(self, case: Case) -> int:
        """What is passed as the bound for that number of new tokens."""
        start = case["S"] if self.manner.contract == "prompt" and "src" in self.given else 1
        return case["new_tokens"] + (start if self.convention("bound") == "all" else 0)

    def bound_in_words(self, case: Case) -> str:
        """The bound that is passed, or nothing."""
        place = self.given.get("max_len")
        return f"{place.name} = {self.passed(case)}" if place is not None else ""

    # calling

    def plan(self, case: Case, tokens: Sequence[int] | None = None) -> Plan:
        """What a case has in mind, in the ids that this candidate uses."""
        rng = case.rng
        unusual = case.get("ids") == "other"
        ids = {"bos": self.bos, "eos": int(self.convention("eos_id")), "pad": PAD}
        for name in ids:
            if name in self.given:
                usual = self._id_by_default(name)
                ids[name] = UNUSUAL[name] if unusual else USUAL[name] if usual is None else usual
        if not self.ends:
            ids["eos"] = -1
        V, B = case["V"], case.get("B", 1)
        ordinary = [n for n in range(V) if n > 3 and n not in ids.values()]
        S = case["S"]
        given = np.array([[ordinary[int(n)] for n in rng.integers(len(ordinary), size=S)] for _ in range(B)])
        for b in range(B):  # rows that differ, so that none is taken for another
            given[b, 0] = ordinary[(b + int(case["seed"])) % len(ordinary)]
        if self.manner.contract == "prompt" and "src" not in self.given and "start" not in self.given:
            given = np.full((B, 1), ids["bos"])
        if case.get("prompt_ends") and S > 1 and ids["eos"] >= 0:
            given[:, S - 2] = ids["eos"]
        starts = given if self.manner.contract == "prompt" else np.full((B, 1), ids["bos"])
        planned = []
        for b in range(B):
            row: list[int] = []
            for _ in range(12):
                options = [n for n in ordinary if n not in (*row[:1], *row[-1:])]
                row.append(options[int(rng.integers(len(options)))])
            stop = self._stop(case, b)
            if self.ends and stop:
                row = [*row[: stop - 1], ids["eos"]]
            planned.append(tuple(row))
        if tokens is not None:
            planned = [tuple(tokens)] * B
        sources = given if self.manner.contract == "source" else np.zeros((0, 0), dtype=np.int64)
        # a loop that draws is judged by a plan that leaves it no choice, but where its choice is the question
        sampled = self.convention("choice") == "sampled" and "heat" not in case
        likely = (2 if case.get("peaked") else 1) if sampled else 0
        return Plan(
            V,
            ids["bos"],
            ids["eos"],
            ids["pad"],
            starts,
            sources,
            tuple(planned),
            case["seed"],
            lowered=case["seed"] % 3 == 0,
            likely=likely,
        )

    def _stop(self, case: Case, b: int) -> int:
        """The new token, counted from 1, that is EOS in row b; 0 for none.  Rows of a batch end at different ones."""
        stop = case.get("eos_at", 0)
        return (stop - 1 + 2 * b) % 5 + 1 if stop and b else stop

    def _ended(self, case: Case, b: int) -> bool:
        """Whether EOS comes in row b before the bound, if there is one."""
        stop = self._stop(case, b)
        return self.ends and stop > 0 and ("max_len" not in self.given or stop <= case["new_tokens"])

    def _source(self, ids: np.ndarray) -> wire.Array:
        """(B, S) in the form in which it is passed."""
        form = self.manner.form
        if form == "(S, B)":
            ids = np.ascontiguousarray(ids.T)
        elif form in ("(S,)", "list"):
            ids = ids[0]
        return wire.Array(ids, "int64", "list") if form.startswith("list") else self.array(ids)

    def _call(self, case: Case, plan: Plan, free: bool = False, **options: Any) -> Call:
        if self.barred is not None:
            raise self.barred
        B = case.get("B", 1)
        if B not in self.limits.get("B", (1, 2, 3)) or (B > 1 and self.manner.form in ("(S,)", "list")):
            raise OutOfDomain("it takes single sequences")
        if "max_len" not in self.given and not free and not (self.ends and self._stop(case, 0)):
            raise OutOfDomain("it has no bound, and nothing else would end it")
        usual = case.get("ids") != "other"
        given = plan.sources if self.manner.contract == "source" else plan.starts
        capacity = case.get("window", 64)
        attributes: dict[str, Any] = {
            **dict.fromkeys(CAPACITIES, capacity),
            "vocab_size": plan.V,
            "d_model": WIDTH,
        }
        for value, names in ((plan.pad, PADS), (plan.bos, STARTS), (plan.eos, ENDS)):
            attributes |= dict.fromkeys(names, value)
        attributes["config"] = dict(attributes)
        S = given.shape[-1] if given.size else 1
        values: dict[str, Any] = {
            "model": wire.Remote("model", METHODS, attributes),
            "encoder": wire.Remote("encoder", METHODS, attributes),
            "src": self._source(given),
            "memory": labelled(given, MEMORY, self.framework),
            "start": self._source(plan.starts),
            "src_mask": self.array(np.ones((1, 1, S), dtype=bool)),
            "max_len": self.passed(case),
            "bos": plan.bos, "eos": plan.eos, "pad": plan.pad, "vocab": plan.V, "context": capacity, "beam": 1,
            "device": "cpu", "do_sample": False, "greedy": True, "top_k": 1, "use_cache": False, "seed": case["seed"],
        }  # fmt: skip
        if self.convention("choice") == "sampled" or "heat" in case:
            heat = HEAT[case.get("heat", "usual")]
            values |= {"do_sample": True, "greedy": False, "top_k": plan.V, "temperature": heat}
        elif "temperature" in self.given and not {"top_k", "do_sample", "greedy"} & self.given.keys():
            values["temperature"] = 0.0 if self._default("temperature") == 0 else 1e-3
        for name in ("bos", "eos", "pad"):
            if usual and name in self.given and self._id_by_default(name) is not None:
                del values[name]
        if "device" in self.given and self.given["device"].has_default:
            del values["device"]
        kept = {name: value for name, value in values.items() if name in self.given}
        return self.make_call(case, kept, **options)

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return [self._call(inputs.case, self.plan(inputs.case))]

    def prefetch(self, cases: Sequence[Inputs]) -> None:
        """Nothing: a call that never ends must not spoil the others of its frame."""

    def run(self, inputs: Inputs) -> Results:
        return self.run_plan(inputs.case)

    def run_plan(self, case: Case, tokens: Sequence[int] | None = None, **options: Any) -> Results:
        plan = self.plan(case, tokens)
        call = self._call(case, plan, free=tokens is not None, **options)
        manner = self.manner
        self.table = table = Table(
            plan,
            manner.answer,
            manner.framework,
            limit=2 * self.passed(case) + 110,
            source_given=manner.contract == "source",
            paired=manner.paired,
        )
        self.last_calls = (call,)
        raw: Any = self.session.calls([call], table)[0]
        if table.endless and not isinstance(raw, WorkerLost):
            endless = Endless(
                f"the loop did not end: {self.bound_in_words(case) or 'every plan ends with EOS'}, but the model was "
                f"called {len(table.asked)} times and would have been called again"
            )
            if isinstance(raw, CallTimeout):  # not even by an error; every further call would take as long
                self.barred = endless
            raise endless
        if isinstance(raw, CallFailed):
            raise raw
        changed = None
        if options.get("return_inputs"):
            raw, changed = cast(Any, raw)
        rows = rows_of(raw)
        if rows is None:
            raise WrongResult(f"it returned {kind_of(raw)}; expected token ids")
        if (
            isinstance(raw, wire.Array)
            and raw.values.ndim == 2
            and self._turned(raw.values.shape, case, table)
        ):
            rows = [list(row) for row in zip(*rows, strict=True)]
        return {
            "rows": rows,
            "table": table,
            "plan": plan,
            "case": case,
            "inputs": changed,
            "call": call,
        }

    def _turned(self, shape: tuple[int, ...], case: Case, table: Table) -> bool:
        """Whether a result (t, B) came from a loop that feeds (t, B)."""
        B = case.get("B", 1)
        return shape[1] == B and (shape[0] != B if B == 1 else bool(table.turned))

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        results = self.run_plan(inputs.case, return_inputs=True)
        call = results["call"]
        return [([list(call.args), dict(call.kwargs)], results["inputs"])]

    # what is expected

    def wanted(self, results: Results, b: int = 0) -> list[int]:
        """The row that should have been returned, in the candidate's own conventions."""
        plan, case = results["plan"], results["case"]
        start = plan.starts[b].tolist() if self.convention("returns") != "new" else []
        tokens = list(plan.tokens[b][: case["new_tokens"] if "max_len" in self.given else None])
        if self.drops_end and self._ended(case, b):
            tokens.pop()
        return start + tokens

    def cut(self, row: list[int], results: Results, b: int = 0) -> list[int]:
        """A row without the filler behind its end: padding, or EOS again."""
        plan, case, wanted = results["plan"], results["case"], self.wanted(results, b)
        rest = row[len(wanted) :]
        if not self._ended(case, b) or row[: len(wanted)] != wanted:
            return row
        fillers = {plan.pad, plan.eos} if "pad" in self.given else {plan.pad, plan.eos, PAD}
        start = 0 if self.convention("returns") == "new" else plan.starts.shape[1]
        longest = max(len(self.wanted(results, other)) for other in range(len(plan.starts)))
        bound = start + case["new_tokens"]
        filled = len(set(rest)) <= 1 and set(rest) <= fillers
        if filled and len(row) in (len(wanted), longest, longest + self.drops_end, bound):
            return wanted
        most = bound if len(plan.starts) > 1 else longest
        return wanted if self.convention("after_end") == "anything" and len(row) <= most else row

    def gist(self, inputs: Inputs, results: Results) -> Mapping[str, Any]:
        """What the model was asked, and the tokens behind the start; nothing where these are a matter of chance."""
        if "heat" in inputs.case:
            return {}
        plan: Plan = results["plan"]
        names = {plan.bos: -1, plan.eos: -2, plan.pad: -3}  # ids that a loop may have built in

        def named(ids: Sequence[int]) -> list[int]:
            return [names.get(int(n), int(n)) for n in ids]

        asked = [[named(row) for row in ask.target.tolist()] for ask in results["table"].asked]
        start = 0 if self.convention("returns") == "new" else plan.starts.shape[1]
        return {"asked": asked, "tokens": [named(row)[start:] for row in results["rows"]]}

    # for a report

    def prelude(self, call: Call) -> list[str]:
        """A small model that answers from the same table, for the snippet."""
        code = self.table.as_python() if self.table is not None else []
        if code and self.framework != "torch" and self.manner.form.startswith("list"):
            return ["import numpy as np", "", *code]
        return code

    def with_convention(self, name: str, value: str) -> Subject:
        other = super().with_convention(name, value)
        assert isinstance(other, GenerationSubject)
        if name == "eos_id":
            other.conventions["ends"] = ("eos", "tried")
        elif name == "logits" and value == "last":
            other.adopt(replace(other.manner, answer="last"))
        return other
