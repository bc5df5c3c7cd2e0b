"""Sampling beyond the rows of tests/broken: what is accepted, what is told, and which cases are tried."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from triu.conformance.api import check
from triu.conformance.candidates.sampling_cases import CLEAR, ORDERS, kept_counts, logits_of
from triu.conformance.engine.cases import Case
from triu.conformance.properties.sampling import expected
from triu.reference.plain import next_token_distribution
from triu.spec import Report, Verdict, load_spec

SPEC = Path(__file__).parents[1] / "spec"
FILES = [SPEC / f"{name}.toml" for name in ("next_token_distribution", "sample_token", "greedy_token")]

ONLY = load_spec(FILES, built_in=False)

Judge = Callable[..., Report]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def run(code: str, **options: Any) -> Report:
        path = tmp_path / "submission.py"
        path.write_text(dedent(code), "utf-8")
        return check(path, spec=ONLY, in_process=True, **{"examples": 8, **options})

    return run


def broken(report: Report, level: str = "MUST") -> dict[str, Verdict]:
    wrong = ("failed", "errored", "inconclusive", "suite_fault")
    return {v.claim: v for v in report.verdicts if v.verdict in wrong and v.level == level}


def shown(report: Report, name: str) -> str:
    return report.binding[0].conventions[name][0]


# forms

FORMS = {
    "log-probabilities": "logits.log_softmax(-1)",
    "probabilities": "logits.softmax(-1)",
    "logits": "logits",
}


@pytest.mark.parametrize("form", FORMS)
def test_probabilities_their_logarithms_and_filtered_logits_are_told_apart(judge: Judge, form: str):
    report = judge(
        f"""
        import torch
        def next_token_distribution(logits, top_k=None):
            if top_k is not None:
                border = logits.topk(min(top_k, logits.size(-1))).values[..., -1:]
                logits = logits.masked_fill(logits < border, -1e9)
            return {FORMS[form]}
        """
    )
    assert shown(report, "result") == form
    assert not broken(report)


LISTS = """
import math

def nucleus_filter(probs, p):
    order = sorted(range(len(probs)), key=lambda i: -probs[i])
    total, kept = 0.0, []
    for i in order:
        kept.append(i)
        total += probs[i]
        if total >= p:
            break
    return [probs[i] / total if i in kept else 0.0 for i in range(len(probs))]
"""


def test_lists_of_probabilities_are_passed_where_these_are_taken(judge: Judge):
    report = judge(LISTS)
    assert shown(report, "layout") == "(V,)"
    assert not broken(report)


def test_values_with_the_ids_that_they_belong_to_are_read(judge: Judge):
    report = judge(
        """
        import torch
        def top_k_probs(logits, k):
            values, ids = logits.topk(min(k, logits.size(-1)))
            return values.softmax(-1), ids
        """
    )
    assert not broken(report)
    assert "next-token-distribution.top-k" in {v.claim for v in report.verdicts if v.verdict == "passed"}


@pytest.mark.parametrize(
    "body",
    ["return logits >= logits.topk(min(k, 3)).values[..., -1:]", "return logits.topk(2).indices"],
)
def test_a_mask_or_ids_under_such_a_name_are_not_judged(judge: Judge, body: str):
    report = judge(f"import torch\ndef top_k(logits, k=3):\n    {body}\n")
    assert {v.verdict for v in report.verdicts} == {"unsupported"}


def test_code_for_one_row_is_not_held_to_batches_unless_it_says_so(judge: Judge):
    code = '''
        import torch
        def top_p_filter(logits, p):
            """{words}"""
            ordered, order = logits.sort(descending=True)
            mass = ordered.softmax(-1).cumsum(-1)
            removed = mass > p
            removed[1:] = removed[:-1].clone()
            removed[0] = False
            return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), float("-inf"))
    '''
    assert not broken(judge(code.format(words="Nucleus.")))
    assert broken(judge(code.format(words="logits (B, V) -> (B, V)")))


SAYS = ["(B, V)", "(…, V)", "(..., V) floats", "(*, V)", "[batch, vocab_size]", "(V,) or (B, V)"]


@pytest.mark.parametrize("words", [*SAYS, "one score a token, on the last axis"])
def test_the_axis_is_judged_where_its_author_speaks_of_a_batch(judge: Judge, words: str):
    code = 'import torch\ndef next_token_distribution(logits):\n    """logits {}"""\n    return logits.softmax({})\n'
    assert set(broken(judge(code.format(words, "dim=0")))) == {"next-token-distribution.sums"}
    assert not broken(judge(code.format(words, "dim=-1")))


@pytest.mark.parametrize("words", SAYS)
def test_a_batch_is_owed_its_tokens_and_its_axis_where_its_author_speaks_of_one(judge: Judge, words: str):
    code = 'import torch\ndef greedy_token(logits):\n    """logits {}"""\n    return logits.{}\n'
    assert "greedy-token.largest" in broken(judge(code.format(words, "argmax(dim=0)")))
    assert "greedy-token.largest" in broken(judge(code.format(words, "max(-1, True)[1].squeeze()")))
    assert not broken(judge(code.format(words, "max(-1, True)[1].squeeze(-1)")))


@pytest.mark.parametrize(
    "words", ["", "(V,)", "(V,), a row of the model's (B, V)", "(B, T, V) at its last position"]
)
def test_a_function_of_one_row_is_left_alone_where_no_batch_is_promised(judge: Judge, words: str):
    for body in ("argmax(dim=0)", "max(-1, True)[1].squeeze()"):
        code = (
            f'import torch\ndef greedy_token(logits):\n    """logits {words}"""\n    return logits.{body}\n'
        )
        assert not broken(judge(code))


KEPT = """
import torch

def sample_token(logits, top_k=None, top_p=None):
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(-1)
    if top_k is not None:
        probabilities = (torch.arange(logits.size(-1)) < top_k) * {k}
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    if top_p is not None:
        probabilities = (probabilities.cumsum(-1) - probabilities < top_p) * {p}
    return order.gather(-1, torch.multinomial(probabilities.double(), 1)).squeeze(-1)
"""


@pytest.mark.parametrize("seed", [0, 7])
def test_what_is_kept_is_not_drawn_as_equally_likely(judge: Judge, seed: int):
    found = {}
    own, alike = "probabilities", "probabilities.sign()"
    for k, p in ((own, own), (alike, own), (own, alike)):
        code = KEPT.format(k=k, p=p)
        found[k, p] = set(broken(judge(code, seed=seed, claims="sample-token.top-*")))
    assert list(found.values()) == [set(), {"sample-token.top-k"}, {"sample-token.top-p"}]


def test_a_default_that_cuts_is_switched_off_where_nothing_is_to_be_cut(judge: Judge):
    report = judge(
        """
        import torch
        class Sampler(torch.nn.Module):
            def __init__(self, temperature=0.8, top_k=2):
                super().__init__()
                self.temperature, self.top_k = temperature, top_k
            def forward(self, logits):
                logits = logits / self.temperature
                border = logits.topk(min(self.top_k, logits.size(-1))).values[..., -1:]
                return torch.multinomial(logits.masked_fill(logits < border, float("-inf")).softmax(-1), 1)
        """
    )
    assert not broken(report)


def test_a_default_of_infinity_can_be_described(judge: Judge):
    report = judge(
        """
        import torch
        def top_k_filter(logits, k, filter_value=-float("inf")):
            border = logits.topk(min(k, logits.size(-1))).values[..., -1:]
            return logits.masked_fill(logits < border, filter_value)
        """
    )
    assert not broken(report)


def test_a_generator_that_is_required_is_made(judge: Judge):
    report = judge(
        """
        import numpy as np
        def sample_token(logits, rng, temperature=1.0):
            powers = np.exp((logits - logits.max()) / temperature)
            return int(rng.choice(len(logits), p=powers / powers.sum()))
        """
    )
    assert not broken(report)


# conventions

ORDERED = """
import torch

def keep(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    mass = ordered.softmax(-1)
    return (mass.cumsum(-1) - mass < p).gather(-1, order.argsort(-1))

def {name}(logits, temperature=1.0, top_k=None, top_p=None):
    seen = logits / temperature if {first} else logits
    kept = torch.ones_like(seen, dtype=torch.bool)
    if top_k is not None:
        kept = seen >= seen.topk(min(top_k, seen.size(-1)), dim=-1).values[..., -1:]
    if top_p is not None:
        kept = kept & keep(seen.masked_fill(~kept, float("-inf")) if {renormalised} else seen, top_p)
    probabilities = (logits / temperature).masked_fill(~kept, float("-inf")).softmax(-1)
    return {result}
"""
RESULTS = {
    "next_token_distribution": "probabilities",
    "sample_token": "torch.multinomial(probabilities, 1).squeeze(-1)",
}


@pytest.mark.parametrize(
    ("order", "name"),
    [*((order, "next_token_distribution") for order in ORDERS), (ORDERS[3], "sample_token")],
)
def test_another_order_is_named_and_right_once_it_is_declared(judge: Judge, order: str, name: str):
    code = ORDERED.format(
        name=name,
        first=order.startswith("temperature"),
        renormalised="top_k_top_p" in order,
        result=RESULTS[name],
    )
    assert not broken(judge(code, conventions={name: {"order": order}}))
    undeclared = broken(judge(code))
    if order == ORDERS[0]:
        assert not undeclared
    else:
        told = [v.failure.meant for v in undeclared.values() if v.failure is not None]
        assert any(f'order = "{order}"' in text for text in told), told


def test_ties_can_be_declared(judge: Judge):
    code = """
        import torch
        def top_k_filter(logits, k):
            return logits.masked_fill(logits < logits.topk(min(k, logits.size(-1))).values[..., -1:], -1e9)
    """
    assert shown(judge(code), "ties") == "all_equal"
    declared = judge(code, conventions={"top_k_filter": {"ties": "exactly_k"}})
    assert set(broken(declared)) == {"next-token-distribution.top-k-ties"}


def test_a_sampler_that_never_heard_of_temperature_zero_is_left_alone(judge: Judge):
    report = judge(
        """
        import numpy as np
        def gumbel_sample(logits, temperature=1.0):
            with np.errstate(all="ignore"):
                z = logits / temperature
                z = z - np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1, keepdims=True))
                return (z + np.random.gumbel(size=z.shape)).argmax(-1)
        """
    )
    assert not broken(report)


# what is told


def told(judge: Judge, code: str, claim: str) -> str:
    failure = broken(judge(code))[claim].failure
    assert failure is not None
    return failure.what


def test_each_token_above_p_is_recognised(judge: Judge):
    code = """
        import torch
        def top_p_filter(probs, p):
            kept = probs > p
            kept = kept | (probs == probs.max(-1, keepdim=True).values) if p < 1 else torch.ones_like(kept)
            return probs * kept / (probs * kept).sum(-1, keepdim=True)
    """
    text = told(judge, code, "next-token-distribution.top-p-one-token")
    assert "p bounds the sum" in text


def test_a_seed_set_inside_is_told_from_a_greedy_choice(judge: Judge):
    code = """
        import torch
        def sample(logits):
            return torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(5))
    """
    assert "fixed seed" in told(judge, code, "sample-token.fresh")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("next_token_distribution", "None"),
        ("next_token_distribution", "{}"),
        ("next_token_distribution", "[[1], [2, 3]]"),
        ("next_token_distribution", "torch.full_like(logits, float('nan'))"),
        ("sample_token", "'tea'"),
        ("sample_token", "float('nan')"),
        ("greedy_token", "[]"),
    ],
)
def test_whatever_comes_back_is_told_and_never_a_fault_of_ours(judge: Judge, name: str, answer: str):
    report = judge(f"import torch\ndef {name}(logits, top_k=None):\n    return {answer}\n")
    assert report.counts["suite_fault"] == 0
    assert not report.conforms


# cases


def test_no_sum_of_a_case_comes_near_its_p_and_the_orders_differ_on_many():
    differ = 0
    for seed in range(200):
        case = Case({"V": 7, "B": 3, "temperature": "2", "top_k": 4, "top_p": "0.6", "seed": seed})
        counts, nearest = kept_counts(logits_of(case), 2.0, 4, 0.6)
        assert nearest.min() >= CLEAR
        differ += bool((counts != counts[0]).any())
    assert differ > 190


def test_the_baseline_and_plain_loops_agree():
    for seed in range(20):
        logits = logits_of(
            Case({"V": 6, "B": 2, "temperature": "0.5", "top_k": 3, "top_p": "0.6", "seed": seed})
        )
        settings = {"temperature": 0.5, "top_k": 3, "top_p": 0.6}
        ours = expected({"logits": logits, **settings})
        assert np.allclose(ours, next_token_distribution(logits, **settings), atol=1e-12)
