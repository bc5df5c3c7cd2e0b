"""The subject for generation: a loop that is run on a stand-in model, in whatever contract it was written for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .errors import CallFailed, WorkerLost
from .session import Call
from .stand_in import (
    BOS,
    EMBEDDINGS,
    ENCODING,
    ENDS,
    EOS,
    HEADS,
    MEMORY,
    METHODS,
    PAD,
    PADS,
    STARTS,
    Plan,
    Table,
    integer,
    labelled,
    lacks,
)
from .subject import Results, Subject, WrongResult, kind_of

UNUSUAL = {"bos": 9, "eos": 7, "pad": 8}
CAPACITIES = tuple(
    """
    block_size context_length context_size max_len max_length max_seq_len n_positions
    max_position_embeddings n_ctx seq_len max_seq_length max_context context_len
    """.split()
)
START = r"(the )?(leading |initial )?(bos|sos|prompt|start\w*)\b"
WITHOUT_START = re.compile(
    rf"\b(without|excluding|excludes?|not includ\w+|no|minus|drops?|dropped|strips?|stripped|omit\w*) {START}"
    r"|\bnew (tokens |ids )?(only|alone)|\bonly (the )?(new|generated)\b|\blist of new (ids|tokens)"
    rf"|\b{START} (id |token )?(is |are )?(not|never) (returned|included|part|kept|in)\b"
    rf"|\b{START} (id |token )?(is |are )?(left out|dropped|stripped|removed|excluded|omitted)\b",
    re.IGNORECASE,
)
WITH_START = re.compile(
    rf"\b(begin|start)\w* with {START}|\[\s*(bos|sos|start)\w*\b"
    rf"|\b(contain|includ)\w* {START}|\bwith {START} (first|in front)",
    re.IGNORECASE,
)
COUNTS_NEW = (
    r"\b(at most|up to|exactly) {bound} (tokens|ids|steps)? ?(are |is )?"
    r"(generated |produced |come )?(after|beyond|behind) {start}"
    r"|\b(at most|up to|exactly) {bound} new\b|\b{bound}\W{{1,4}}(the )?(maximum |max )?number of new\b"
)
COUNTS_ALL = (
    r"\b{bound} tokens (in total|in all)|\b{bound} (counts|includes|is|:|=) ?(all|the total|total)\b"
    r"|\b{bound} tokens,? (including|with|counting) {start}"
)
LENGTH_AT_MOST = r"\b(L|T|length)\b (is )?(<=|≤|at most|up to) {bound}\b(?! ?\+)"
LENGTH_ONE_MORE = r"\b(L|T|length)\b (is )?(<=|≤|at most|up to) {bound} ?\+ ?1\b"
EOS_WORD = r"(eos|end.of.(sequence|sentence|text)|end.token|stop.token|end.symbol)"
STOPPING = r"\b(stop|end|until|break|finish|terminat|halt)\w*\b"
EOS_WORDS = re.compile(
    rf"{STOPPING}[^.\n]{{0,40}}\b{EOS_WORD}|{EOS_WORD}[^.\n]{{0,40}}{STOPPING}",
    re.IGNORECASE,
)
NO_EOS_WORDS = re.compile(
    rf"\b(no|without|ignor\w+|not|never)\b[^.\n]{{0,30}}\b{EOS_WORD}|no (early )?stop|(not|never) (stop|end)",
    re.IGNORECASE,
)
SAMPLES = re.compile(r"\bsampl(e|es|ed|ing)\b|multinomial", re.IGNORECASE)


class Endless(CallFailed):
    """The loop goes on for ever; the checker stopped answering."""

    kind = "time-out"


def rows_of(raw: Any) -> list[list[int]] | None:
    """The token sequences in a result, whatever holds them; None if there are none."""
    if isinstance(raw, wire.Array):
        values = raw.values
        if values.dtype.kind == "f" and not (
            np.isfinite(values).all() and (values == np.round(values)).all()
        ):
            return None
        if values.dtype.kind not in "iuf" or values.ndim not in (1, 2):
            return None
        return [[int(n) for n in row] for row in np.atleast_2d(values).tolist()]
    if isinstance(raw, dict):
        named = [
            raw[k]
            for k in (
                "tokens",
                "sequences",
                "sequence",
                "ids",
                "output_ids",
                "output",
                "tgt",
            )
            if k in raw
        ]
        return next(
            (rows for item in (*named, *raw.values()) if (rows := rows_of(item)) is not None),
            None,
        )
    if isinstance(raw, list | tuple):
        numbers = [integer(item) for item in raw]
        if None not in numbers and (isinstance(raw, list) or len(raw) != 1):
            return [[n for n in numbers if n is not None]]
        flat = [
            integer(item.values.item()) if isinstance(item, wire.Array) and item.values.size == 1 else None
            for item in raw
        ]
        if flat and None not in flat:
            return [[n for n in flat if n is not None]]
        if isinstance(raw, tuple) or any(not isinstance(item, list | wire.Array) for item in raw):
            return next((rows for item in raw if (rows := rows_of(item)) is not None), None)
        found = [rows_of(item) for item in raw]
        if found and all(rows is not None and len(rows) == 1 for rows in found):
            return [rows[0] for rows in found if rows]
        return next((rows for rows in found if rows is not None), None)
    return None


class GenerationSubject(Subject):
    """Generation with a stand-in model: what it returned, and what it asked.

    Results: ``rows`` (token lists, as returned), ``wanted`` (what they should be, in the candidate's own
    conventions), ``table`` (the log), ``plan``.
    """

    FORMS = ("(B, S)", "(S,)", "list", "list of lists", "(S, B)")
    ANSWERS = ("logits", "tuple", "named")
    SOURCE_NAMES = re.compile(r"src|source|enc|sentence")
    PROMPT_NAMES = re.compile(r"prompt|idx|context|prefix|start|^ids$|^tokens$|seed|seq")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.form, self.answer, self.contract = "(B, S)", "logits", "source"
        self.paired = False  # whether its model's encoder answers with (memory, mask)
        self.bos, self.eos = BOS, EOS
        self.ends, self.total = True, True
        self.dropped = False
        self.says = ""  # what the author says of the result: full, new, or nothing
        self.outside = ""
        self.lost: CallFailed | None = None
        self.tables: list[Table] = []

    # what the engine asks

    def has(self, need: str) -> bool:
        if need == "batches":
            return 2 in self.limits.get("B", (1, 2))
        return super().has(need)

    @property
    def given(self) -> Mapping[str, Any]:
        return self.binding.arguments

    def probe(self) -> None:
        """One plan that never ends, one that goes through every id, one that ends, and one with two rows."""
        self._by_words()
        names = [self.given[n].name.lower() for n in ("src",) if n in self.given]
        contracts = ["source", "prompt"]
        if not {"src", "memory", "encoder"} & self.given.keys() or (
            names and self.PROMPT_NAMES.search(names[0]) and not self.SOURCE_NAMES.search(names[0])
        ):
            contracts = ["prompt", "source"]
        if {"memory", "encoder"} & self.given.keys():
            contracts = ["source"]
        declared = self._declared("contract")
        if declared:
            contracts = ["prompt" if declared == "decoder_only" else "source"]
        self._find_form(contracts)
        if self.lost is not None or self.outside:
            return
        self._find_end()
        self._find_batches()
        self.probed(
            "contract",
            "decoder_only" if self.contract == "prompt" else "encoder_decoder",
        )
        self.probed("ends", "eos" if self.ends else "bound")
        if self.ends:
            self.probed("end_token", "dropped" if self.dropped else "included")
        self.conventions["model_answer"] = (
            {
                "logits": "logits",
                "tuple": "(logits, …)",
                "named": "something with .logits",
            }[self.answer],
            "probed",
        )
        self.conventions["takes"] = (self.form, "probed")
        if not self.ends:
            self.irrelevant.add("eos_at")
        if not {"bos", "eos", "pad"} & self.given.keys():
            self.irrelevant.add("ids")

    def _declared(self, name: str) -> str:
        """The declared value of a convention, or nothing."""
        value, how = self.conventions.get(name, ("", ""))
        return value if how == "declared" else ""

    def _by_words(self) -> None:
        """What follows from names and from the author's own words, where nothing was declared."""
        words = str(self.binding.entry.get("doc", ""))

        def told(name: str, value: str) -> None:
            if not self._declared(name):
                self.conventions[name] = (value, "by its own words")

        self.says = self._words_on_start(words)
        if self.says:
            told("returns", self.says)
        held = re.search(
            r"greedy|autoregressive|argmax|beam",
            self.binding.entry["name"],
            re.IGNORECASE,
        )
        tamed = {"top_k", "do_sample", "greedy", "temperature"} & self.given.keys()
        if SAMPLES.search(words) and not held and not tamed:
            told("choice", "sampled")
        off = (("do_sample", True), ("greedy", False))
        may_be_off = any(n in self.given and self._flag(n) is not sampling for n, sampling in off)
        if may_be_off and self.conventions["choice"] == ("sampled", "by name"):
            self.conventions["choice"] = ("greedy", "by its parameter's default")
        bound = self.given["max_len"].name.lower() if "max_len" in self.given else ""
        counted = self._words_on_bound(words)
        if self._declared("bound"):
            self.total = self.convention("bound") == "all"
        elif "new" in bound or "step" in bound or "gen" in bound:
            self.conventions["bound"] = ("new", "by name")
            self.total = False
        elif counted:
            told("bound", counted)
            self.total = counted == "all"
        beam = next(
            (
                p
                for p in self.binding.parameters
                if "beam" in self.given and p["name"] == self.given["beam"].name
            ),
            None,
        )
        if beam is not None and not (
            beam["has_default"] and beam["default"] == 1 and "beam" not in self.binding.name
        ):
            self.conventions["search"] = ("beam", "by name")

    def _flag(self, name: str) -> Any:
        """The default of a flag, None where it has none."""
        place = self.given[name].name
        found = (p["default"] for p in self.binding.parameters if p["name"] == place and p["has_default"])
        return next(found, None)

    def _words_on_start(self, words: str) -> str:
        """Whether the author says that BOS or the prompt is returned: ``full``, ``new``, or nothing."""
        left = WITHOUT_START.sub("", words)
        if WITH_START.search(left):
            return "full"
        return "new" if left != words else ""

    def _words_on_bound(self, words: str) -> str:
        """What the author says that the bound counts: ``all``, ``new``, or nothing."""
        if "max_len" not in self.given:
            return ""
        known = {"bound": re.escape(self.given["max_len"].name), "start": START}

        def says(pattern: str) -> bool:
            return bool(re.search(pattern.format(**known), words, re.IGNORECASE))

        whole = self.convention("returns") != "new"
        all_said = says(COUNTS_ALL) or (whole and says(LENGTH_AT_MOST))
        new_said = (
            says(COUNTS_NEW) or (not whole and says(LENGTH_AT_MOST)) or (whole and says(LENGTH_ONE_MORE))
        )
        if all_said == new_said:
            return ""
        return "all" if all_said else "new"

    @property
    def bound_is_known(self) -> bool:
        return self.conventions.get("bound", ("", ""))[1] in ("declared", "by name", "by its own words")

    def _probe_case(self, **changes: Any) -> Case:
        case = {
            "new_tokens": 5,
            "eos_at": 0,
            "S": 7,  # so many that no answer is taken apart by its length alone
            "V": 13,
            "ids": "usual",
            "B": 1,
            "seed": 11,
        }
        return Case({**case, **changes})

    def _find_form(self, contracts: Sequence[str]) -> None:
        """The contract, the form of the source and of the model's answers: those in which it does as it should.

        Where there are none, those in which it runs at all.
        """
        case = self._probe_case(eos_at=0 if "max_len" in self.given else 4)
        failures: list[tuple[int, tuple[str, str, str, str], bool, CallFailed]] = []
        first: tuple[tuple[str, str, str, str], bool] | None = None
        endless: tuple[tuple[str, str, str, str], bool] | None = None
        for paired in (False, True):
            self.paired, encoded = paired, False
            tries = 0
            for tried in self._forms(contracts):
                if tries >= 32:
                    break
                tries += 1
                self.framework, self.contract, self.form, self.answer = tried
                try:
                    results = self._learn(case)
                except Endless as error:
                    failures.append((0, tried, paired, error))
                    endless = endless or (tried, paired)
                    tries += 12  # such a call costs as much as many others
                except (CallFailed, OutOfDomain) as error:
                    if isinstance(error, CallFailed):
                        if error.kind in ("time-out", "exit", "protocol"):
                            self.lost = error
                            return
                        calls = self.tables[-1].calls if self.tables else 0
                        failures.append((calls, tried, paired, error))
                        encoded = encoded or bool(self.tables and self.tables[-1].encoded)
                    continue
                else:
                    if self._fits(results):
                        return
                    if self.contract == "prompt" and "source" in contracts and results["table"].encoded:
                        continue  # what encodes is not a decoder alone
                    first = first or (tried, paired)
                if "prompt" in contracts and self._continues():
                    self._find_form(["prompt"])
                    return
            if not encoded:
                break
        first = first or endless
        if first is None and failures:
            calls, tried, paired, error = max(failures, key=lambda item: (item[0], item[2]))
            first = (tried, paired)
            if lacks(error, calls > 0):
                self.outside = f"it asks its model for more than triu's stand-in offers: {error}"
        first = first or (next(iter(self._forms(contracts))), False)
        (self.framework, self.contract, self.form, self.answer), self.paired = first
        if not self.bound_is_known and "max_len" in self.given and not self.outside:
            self._count_bound(case)

    def _forms(self, contracts: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
        """Framework, contract, form of the source, and form of the model's answers, likely ones first."""
        frameworks = list(dict.fromkeys([*self.binding.entry["frameworks"], self._default_framework()]))
        answers = ("last",) if self.convention("logits") == "last" else self.ANSWERS
        for framework, contract, form, answer in product(frameworks, contracts, self.FORMS, answers):
            if form == "(B, S)" or {"src", "start"} & self.given.keys():
                yield framework, contract, form, answer

    def _continues(self) -> bool:
        """Whether the last call, made as for an encoder and a decoder, shows a decoder alone that goes on from x.

        Then its model is given one sequence of ids a call, which starts out from the ids that were passed, and
        nothing is encoded.  An encoder and a decoder need a memory, or the source beside the target.
        """
        table = self.tables[-1]
        named = self.given["src"].name.lower() if "src" in self.given else ""
        if self.contract != "source" or not named or {"memory", "encoder", "start"} & self.given.keys():
            return False
        if "bos" in self.given and self.SOURCE_NAMES.search(named):
            return False
        passed = set(table.plan.sources.ravel().tolist())
        return (
            bool(table.asked)
            and not table.encoded
            and all(ask.alone for ask in table.asked)
            and set(table.asked[0].target.ravel().tolist()) <= passed
        )

    def _see_start(self, there: bool) -> None:
        """Whether BOS or the prompt came back.  Where it did not, only words make that a convention."""
        if self._declared("returns"):
            return
        if there:
            self.conventions["returns"] = ("full", "probed")
        elif not self.says:  # it may leave the work, and the words, to a class beside it
            entries = self.session.description.get("objects", ())
            beside = [self._words_on_start(str(entry.get("doc", ""))) for entry in entries]
            if "new" in beside and "full" not in beside:
                self.conventions["returns"] = ("new", "by the words beside it")

    def _count_bound(self, case: Case) -> None:
        """The reading of the bound by the number of tokens alone, where the tokens are not as they should be."""
        try:
            results = self._learn(case)
        except (CallFailed, OutOfDomain):
            return
        P, row = (
            results["plan"].starts.shape[1],
            results["rows"][0] if results["rows"] else [],
        )
        count = len(row) - P * (self.convention("returns") != "new")
        passed = self._passed(case)
        if count in (passed, passed - P):
            self.total = count == passed - P
            self.conventions["bound"] = ("all" if self.total else "new", "probed")

    def _learn(self, case: Case) -> Results:
        """The probe's first call; where the start is built in, it is learnt from the log and the call repeated."""
        results = self.run(Inputs(case, {}))
        asked = results["table"].asked
        if self.contract == "source" and "bos" not in self.given and asked and asked[0].target.shape[1] == 1:
            seen = int(asked[0].target[0, 0])
            if seen != self.bos and seen not in results["plan"].sources:
                self.bos = seen
                results = self.run(Inputs(case, {}))
        return results

    def _fits(self, results: Results) -> bool:
        """Whether the loop did what it should, under either reading of the bound; that reading is kept."""
        plan, rows, asked = results["plan"], results["rows"], results["table"].asked
        if not asked or len(rows) != 1 or (self.contract == "prompt" and results["table"].encoded):
            return False
        start, tokens = plan.starts[0].tolist(), list(plan.tokens[0])
        readings = (False, True) if not self.bound_is_known else (self.total,)
        for total in readings:
            count = self._passed(results["case"]) - (len(start) if total else 0)
            options = [tokens[:count]]
            if "max_len" not in self.given:
                options = [tokens, tokens[:-1]]
            if count > 0 and any(rows[0] in (start + option, option) for option in options):
                if not self.bound_is_known and "max_len" in self.given:
                    self.total = total
                    self.conventions["bound"] = ("all" if total else "new", "probed")
                self._see_start(rows[0][: len(start)] == start)
                return True
        return False

    def _passed(self, case: Case) -> int:
        """What is passed as the bound for that number of new tokens."""
        start = case["S"] if self.contract == "prompt" and "src" in self.given else 1
        return case["new_tokens"] + (start if self.total else 0)

    def _find_end(self) -> None:
        """The id that ends a sequence, where it is built in, and whether it is returned."""
        if self._declared("ends"):
            self.ends = self._declared("ends") == "eos"
        elif "eos" not in self.given and not self._declared("eos_id"):
            V = 13
            order = [n for n in (4, 2, 5, 3, 6, 1, 7, 0, *range(8, V)) if n != self.bos]
            self.ends = self._speaks_of_end()
            try:
                table = self._run_plan(self._probe_case(new_tokens=len(order)), tokens=order)["table"]
                last = table.asked[-1].best[0] if table.asked else None
                if (
                    last is not None
                    and len(table.asked) < len(order) - 1
                    and not (last == 0 and self.bos == 1)
                ):
                    self.eos, self.ends = last, True
                    self.conventions["eos_id"] = (str(last), "probed")
            except (CallFailed, OutOfDomain):
                pass
        if "eos" not in self.given and self._declared("eos_id"):
            self.eos = int(self._declared("eos_id"))
        if self._declared("end_token"):
            self.dropped = self._declared("end_token") == "dropped"
        if not self.ends or self._declared("end_token"):
            return
        try:
            results = self.run(Inputs(self._probe_case(eos_at=3), {}))
        except (CallFailed, OutOfDomain):
            return
        tokens, row = (
            list(results["plan"].tokens[0]),
            results["rows"][0] if results["rows"] else [],
        )
        start = results["plan"].starts[0].tolist() if self.convention("returns") != "new" else []
        if row == start + tokens[:2]:
            self.dropped = True

    def _speaks_of_end(self) -> bool:
        """Whether it owes an end at EOS though it takes no id for it; docs/conventions.md has the rule."""
        name, words = self.binding.entry["name"], str(self.binding.entry.get("doc", ""))
        if "autoregressive" in name.lower():
            return True
        if NO_EOS_WORDS.search(words):
            return False
        if EOS_WORDS.search(words):
            return True
        return self.contract == "source" and "bos" not in self.given and "src" in self.given

    def _find_batches(self) -> None:
        rows, words = 1, str(self.binding.entry.get("doc", ""))
        place = self.given.get("src") or self.given.get("start")
        if place and re.search(rf"\b{re.escape(place.name)}\b[^.\n]{{0,12}}[(\[]\s*1\s*,", words):
            self.limits["B"] = (1,)  # its author says that it is one
            return
        if "start" in self.given or {"src", "memory"} & self.given.keys():
            try:
                rows = len(self.run(Inputs(self._probe_case(B=2), {}))["rows"])
            except (CallFailed, OutOfDomain):
                rows = 1
        self.limits["B"] = (1, 2, 3) if rows == 2 else (1,)

    # calling

    def plan(self, case: Case, tokens: Sequence[int] | None = None) -> Plan:
        """What a case has in mind, in the ids that this candidate uses."""
        rng = case.rng
        unusual = case.get("ids") == "other"
        ids = {"bos": self.bos, "eos": self.eos, "pad": PAD}
        for name in ids:
            if name in self.given:
                default = self._default(name)
                usual = {"bos": BOS, "eos": EOS, "pad": PAD}[name] if default is None else default
                ids[name] = UNUSUAL[name] if unusual else usual
        if not self.ends:
            ids["eos"] = -1
        V, B = case["V"], case.get("B", 1)
        ordinary = [n for n in range(V) if n > 3 and n not in ids.values()]
        S = case["S"]
        given = np.array([[ordinary[int(n)] for n in rng.integers(len(ordinary), size=S)] for _ in range(B)])
        for b in range(B):  # rows that differ, so that none is taken for another
            given[b, 0] = ordinary[(b + int(case["seed"])) % len(ordinary)]
        if self.contract == "prompt" and "src" not in self.given and "start" not in self.given:
            given = np.full((B, 1), ids["bos"])
        if case.get("prompt_ends") and S > 1 and ids["eos"] >= 0:
            given[:, S - 2] = ids["eos"]
        starts = given if self.contract == "prompt" else np.full((B, 1), ids["bos"])
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
        sources = given if self.contract == "source" else np.zeros((0, 0), dtype=np.int64)
        lowered = bool(case["seed"] % 3 == 0)
        peaked = bool(case.get("peaked"))
        return Plan(
            V,
            ids["bos"],
            ids["eos"],
            ids["pad"],
            starts,
            sources,
            tuple(planned),
            case["seed"],
            lowered,
            peaked,
        )

    def _stop(self, case: Case, b: int) -> int:
        """The new token, counted from 1, that is EOS in row b; 0 for none.  Rows of a batch end at different ones."""
        stop = case.get("eos_at", 0)
        return (stop - 1 + 2 * b) % 5 + 1 if stop and b else stop

    def _default(self, name: str) -> int | None:
        place = self.given[name].name
        for parameter in self.binding.parameters:
            if parameter["name"] == place and parameter["has_default"]:
                default = parameter["default"]
                return default if isinstance(default, int) and not isinstance(default, bool) else None
        return None

    def _source(self, ids: np.ndarray) -> Any:
        if self.form == "(S,)":
            return self.array(ids[0])
        if self.form == "list":
            return wire.Array(ids[0], "int64", "list")
        if self.form == "list of lists":
            return wire.Array(ids, "int64", "list")
        return self.array(np.ascontiguousarray(ids.T) if self.form == "(S, B)" else ids)

    def _call(self, case: Case, plan: Plan, free: bool = False, **options: Any) -> Call:
        if self.outside:
            raise OutOfDomain(self.outside)
        if self.lost is not None:
            raise self.lost
        B = case.get("B", 1)
        if B not in self.limits.get("B", (1, 2, 3)) or (B > 1 and self.form in ("(S,)", "list")):
            raise OutOfDomain("it takes single sequences")
        if "max_len" not in self.given and not free and not (self.ends and self._stop(case, 0)):
            raise OutOfDomain("it has no bound, and nothing else would end it")
        usual = case.get("ids") != "other"
        given = plan.sources if self.contract == "source" else plan.starts
        capacity = case.get("window", 64)
        attributes: dict[str, Any] = {
            **dict.fromkeys(CAPACITIES, capacity),
            "vocab_size": plan.V,
            "d_model": 4,
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
            "max_len": self._passed(case),
            "bos": plan.bos, "eos": plan.eos, "pad": plan.pad, "vocab": plan.V, "context": capacity, "beam": 1,
            "device": "cpu", "do_sample": False, "greedy": True, "top_k": 1, "use_cache": False, "seed": 0,
        }  # fmt: skip
        if self.convention("choice") == "sampled":
            values |= {"do_sample": True, "greedy": False, "top_k": plan.V, "temperature": 1.0}
        elif "temperature" in self.given and not {"top_k", "do_sample", "greedy"} & self.given.keys():
            values["temperature"] = 1e-3 if self._positive_temperature() else 0.0
        for name in ("bos", "eos", "pad"):
            if usual and name in self.given and self._default(name) is not None:
                del values[name]
        if "device" in self.given and self.given["device"].has_default:
            del values["device"]
        kept = {name: value for name, value in values.items() if name in self.given}
        return self.make_call(case, kept, **options)

    def _positive_temperature(self) -> bool:
        place = self.given["temperature"].name
        return not any(
            p["name"] == place and p["has_default"] and p["default"] == 0 for p in self.binding.parameters
        )

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return [self._call(inputs.case, self.plan(inputs.case))]

    def prefetch(self, cases: Sequence[Inputs]) -> None:
        """Nothing: a call that never ends must not spoil the others of its frame."""

    def run(self, inputs: Inputs) -> Results:
        return self._run_plan(inputs.case)

    def _run_plan(self, case: Case, tokens: Sequence[int] | None = None, **options: Any) -> Results:
        plan = self.plan(case, tokens)
        call = self._call(case, plan, free=tokens is not None, **options)
        table = Table(
            plan,
            self.answer,
            self.framework,
            2 * self._passed(case) + 110,
            self.contract == "source",
            self.paired,
        )
        self.last_calls, self.tables = (call,), [table]
        raw: Any = self.session.calls([call], table)[0]
        if isinstance(raw, WorkerLost) or (isinstance(raw, CallFailed) and not table.endless):
            raise raw
        if table.endless:
            raise Endless(
                f"the loop did not end: {plan_bound(self, case)}, but the model was called {len(table.asked)} times "
                "and would have been called again"
            )
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
        results = self._run_plan(inputs.case, return_inputs=True)
        call = results["call"]
        return [([list(call.args), dict(call.kwargs)], results["inputs"])]

    # what is expected

    def wanted(self, results: Results, b: int = 0) -> list[int]:
        """The row that should have been returned, in the candidate's own conventions."""
        plan, case = results["plan"], results["case"]
        start = plan.starts[b].tolist() if self.convention("returns") != "new" else []
        tokens = list(plan.tokens[b][: case["new_tokens"]])
        if self.dropped and tokens and tokens[-1] == plan.eos and len(tokens) == self._stop(case, b):
            tokens.pop()
        return start + tokens

    def cut(self, row: list[int], results: Results, b: int = 0) -> list[int]:
        """A row without the filler behind its end: padding, or EOS again."""
        plan, wanted = results["plan"], self.wanted(results, b)
        rest = row[len(wanted) :]
        ended = (
            self._stop(results["case"], b) and self._stop(results["case"], b) <= results["case"]["new_tokens"]
        )
        if not (self.ends and ended) or row[: len(wanted)] != wanted:
            return row
        fillers = {plan.pad, plan.eos} if "pad" in self.given else {plan.pad, plan.eos, PAD}
        start = 0 if self.convention("returns") == "new" else plan.starts.shape[1]
        longest = max(len(self.wanted(results, other)) for other in range(len(plan.starts)))
        lengths = (len(wanted), longest, longest + self.dropped, start + results["case"]["new_tokens"])
        if len(row) in lengths and len(set(rest)) <= 1 and set(rest) <= fillers:
            return wanted
        if self.convention("after_end") == "anything" and len(row) <= (
            lengths[-1] if len(plan.starts) > 1 else longest
        ):
            return wanted
        return row

    # for a report

    def prelude(self, call: Call) -> list[str]:
        """A small model that answers from the same table, for the snippet."""
        table = self.tables[-1] if self.tables else None
        if table is None or not table.asked or self.answer == "named":
            return []
        after: list[dict[tuple[int, ...], int]] = [{} for _ in table.plan.starts]
        for row, prefix in sorted(table._logits, key=lambda key: (key[0], len(key[1]))):
            after[row][prefix] = table.plan.chosen(row, prefix)
        as_array, make = ("torch.as_tensor", "torch.tensor")
        if self.framework != "torch":
            as_array, make = ("np.asarray", "np.array")
        rows = f"{as_array}(tgt).reshape(-1, {as_array}(tgt).shape[-1]).tolist()"
        answer = f"{make}(answer).reshape(*{as_array}(tgt).shape, {table.plan.V})"
        if table.turned:
            rows, answer = f"{as_array}(tgt).T.tolist()", f"{make}(answer).swapaxes(0, 1)"
        answer = f"({answer}, None)" if self.answer == "tuple" else answer
        methods = {
            m: place for m, place in table.methods.items() if m not in (*ENCODING, *HEADS, *EMBEDDINGS)
        }
        encoders = [m for m in table.methods if m in ENCODING]
        heads = [m for m in table.methods if m in HEADS]
        lines = [
            *(["import numpy as np", ""] if make == "np.array" and self.form.startswith("list") else []),
            "class Model:",
            "    # the token that leads after each prefix, by row of the batch",
            f"    after = {after}",
            "",
            "    def __getattr__(self, name):  # eval, train, to",
            "        return lambda *args, **named: self",
        ]
        for method in encoders:
            answered = "src, None" if self.paired else "src"
            lines += ["", f"    def {method}(self, src, *rest, **named):", f"        return {answered}"]
        for method in heads:
            lines += ["", f"    def {method}(self, x, **named):", "        return x"]
        for method, place in methods.items():
            name = "__call__" if method == "forward" else method
            target = f"named[{place!r}]" if isinstance(place, str) else f"args[{place}]"
            lines += [
                "",
                f"    def {name}(self, *args, **named):",
                f"        tgt, answer = {target}, []",
                f"        for after, row in zip(self.after, {rows}):",
                "            best = [after.get(tuple(row[:n + 1])) for n in range(len(row))]",
                f"            V = {table.plan.V}",
                "            answer.append([[4.0 if v == b else -0.1 * v for v in range(V)] for b in best])",
                f"        return {answer}",
            ]
        return [*lines, "", "model = encoder = Model()"]

    def with_convention(self, name: str, value: str) -> Subject:
        other = super().with_convention(name, value)
        assert isinstance(other, GenerationSubject)
        other.limits = dict(self.limits)
        if name == "eos_id":
            other.eos, other.ends = int(value), True
            other.conventions["ends"] = ("eos", "tried")
        elif name == "bound":
            other.total = value == "all"
        elif name == "end_token":
            other.dropped = value == "dropped"
        elif name == "logits" and value == "last":
            other.answer = "last"
        return other


def plan_bound(subject: GenerationSubject, case: Case) -> str:
    """The bound that was passed, in words."""
    place = subject.given.get("max_len")
    return f"{place.name} = {subject._passed(case)}" if place else "every plan ends with EOS"
