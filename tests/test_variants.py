"""Correct implementations in many styles are never accused; and the traps where a suite must stay quiet."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest
from triu.conformance.api import check, open_check
from triu.conformance.engine.cases import change
from triu.spec import load_spec

VARIANTS = Path(__file__).parent / "variants"
EXPECTED = tomllib.loads((VARIANTS / "expected.toml").read_text("utf-8"))
SPEC = load_spec()
BAD = ("failed", "errored", "inconclusive", "suite_fault")


def judge(path, roles=None, **options):
    """All verdicts of a file, and what was bound; by the claims of some roles, or of all."""
    check = open_check(path, spec=SPEC, in_process=True, seed=0, **options)
    try:
        claims = [c for c in SPEC.claims.values() if roles is None or c.role in roles]
        verdicts = [v for claim in claims for v in check.verdicts(claim)]
        shown = {s.bound_object().role: s.bound_object() for s in check.candidate.subjects}
        return verdicts, shown
    finally:
        check.close()


def accused(verdicts, advice=()):
    """What is neither passed nor unsupported, advice that was expected left out, in words."""
    return {
        (v.claim, v.object): (v.verdict, v.reason, v.failure and v.failure.what)
        for v in verdicts
        if v.verdict not in ("passed", "unsupported")
        and not (v.claim in advice and v.verdict in ("failed", "errored"))
        and not (v.verdict == "blocked" and v.reason.removeprefix("rests on ") in advice)
    }


# the files


def test_every_file_has_its_row():
    assert {path.stem for path in VARIANTS.glob("*.py")} == EXPECTED.keys()
    assert {path.stem for path in VARIANTS.glob("*.toml")} - {"expected"} <= EXPECTED.keys()


def test_only_advice_may_be_ignored():
    levels = {claim: SPEC.claims[claim].level for row in EXPECTED.values() for claim in row["advice"]}
    assert set(levels.values()) <= {"SHOULD", "MAY"}, levels


def test_every_role_is_written_in_at_least_two_files():
    written = [role for row in EXPECTED.values() for role in set(row["roles"])]
    claimed = {claim.role for claim in SPEC.claims.values() if "+" not in claim.role}
    few = {role: written.count(role) for role in claimed if written.count(role) < 2}
    assert not few


@pytest.mark.parametrize("name", EXPECTED)
def test_a_correct_file_is_not_accused(name):
    row, toml = EXPECTED[name], VARIANTS / f"{name}.toml"
    options = {"conventions": toml} if toml.exists() else {}
    verdicts, _ = judge(VARIANTS / f"{name}.py", **options)
    assert not accused(verdicts, row["advice"])
    passed = [v for v in verdicts if v.verdict == "passed"]
    assert set(row["roles"]) <= {v.role for v in passed}
    assert len(passed) >= row["passed"], len(passed)


# where a suite must stay quiet


HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
HEADS = """
class Heads(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        assert d % h == 0
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def weights(self, x, z, blocked=None):
        scores = self.split(self.q(x)) @ self.split(self.k(z)).mT / (x.size(-1) // self.h) ** 0.5
        if blocked is not None:
            scores = scores.masked_fill(blocked, -1e9)
        return scores.softmax(-1)

    def forward(self, x, z, blocked=None):
        return self.o((self.weights(x, z, blocked) @ self.split(self.v(z))).transpose(1, 2).flatten(2))


def triangle(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)

"""


@pytest.fixture
def quiet(tmp_path):
    """Writes a candidate, judges a role of it and asserts that it is not accused; returns verdicts by claim."""

    def judged(source, role, *, advice=(), conventions=None, head=HEAD):
        path = tmp_path / "candidate.py"
        path.write_text(head + textwrap.dedent(source), "utf-8")
        verdicts, shown = judge(path, {role}, conventions=conventions)
        verdicts = [v for v in verdicts if v.role == role]
        assert not accused(verdicts, advice)
        assert role in shown, "it was not judged at all"
        return {v.claim: v.verdict for v in verdicts}, shown[role]

    return judged


@pytest.mark.parametrize("garbage", ["0.0", "1e4", "math.nan"])
def test_what_stands_in_rows_of_padded_queries_does_not_matter(quiet, garbage):
    """PyTorch's own fast path writes zeros there."""
    source = f"""
    class EncoderBlock(nn.Module):
        def __init__(self, d_model, n_heads, d_ff):
            super().__init__()
            self.attn = Heads(d_model, n_heads)
            self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
            self.n1, self.n2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

        def forward(self, x, padding_mask=None):
            '''padding_mask: (B, T), True = padding.'''
            blocked = None if padding_mask is None else padding_mask[:, None, None]
            x = self.n1(x + self.attn(x, x, blocked))
            x = self.n2(x + self.ff(x))
            return x if padding_mask is None else x.masked_fill(padding_mask[..., None], {garbage})
    """
    found, _ = quiet(source, "encoder_block", head=HEAD + HEADS)
    assert found["encoder-block.padding"] == "passed"


@pytest.mark.parametrize("garbage", ["0.0", "1e4", "math.nan"])
def test_logits_at_padding_do_not_matter(quiet, garbage):
    source = f"""
    class GPT(nn.Module):
        def __init__(self, vocab_size, d_model, n_heads, max_len):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
            self.attn, self.head = Heads(d_model, n_heads), nn.Linear(d_model, vocab_size)
            self.norm = nn.LayerNorm(d_model)

        def forward(self, ids, padding_mask=None):
            '''padding_mask: (B, T), True = padding.'''
            T = ids.size(1)
            blocked = triangle(T)
            if padding_mask is not None:
                blocked = blocked | padding_mask[:, None, None].bool()
            x = self.embed(ids) + self.place(torch.arange(T))
            logits = self.head(self.norm(x + self.attn(x, x, blocked)))
            return logits if padding_mask is None else logits.masked_fill(padding_mask[..., None].bool(), {garbage})
    """
    found, _ = quiet(source, "language_model", head=HEAD + HEADS)
    assert found["language-model.padding"] == "passed"
    assert found["language-model.padding-content"] == "passed"


RENORMALISED = """
def attention(query, key, value, mask=None):
    '''mask: True = allowed'''
    weights = (query @ key.mT / math.sqrt(query.size(-1))).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ value, weights
"""


def test_a_mask_after_the_softmax_that_renormalises_is_a_mask(quiet):
    """Scores of 1e4, where only vanishing weights are left to divide by, are the business of a claim of their own."""
    extreme = {"attention.large-logits", "attention.finite-gradient", "attention.half"}
    found, _ = quiet(RENORMALISED, "attention", advice=extreme)
    for part in ("row-sums", "blocked-zero", "visible-softmax", "masked", "causal", "reach"):
        assert found[f"attention.{part}"] == "passed", part


def test_rows_need_not_sum_to_one_where_dropout_acts_on_weights(quiet):
    source = """
    class MultiHeadAttention(Heads):
        def __init__(self, d_model, n_heads, dropout=0.5):
            super().__init__(d_model, n_heads)
            self.dropout = nn.Dropout(dropout)

        def forward(self, query, key, value, mask=None):
            '''mask: (T, S) or (B, 1, 1, S), True = blocked'''
            weights = self.dropout(self.weights(query, key, mask))
            return self.o((weights @ self.split(self.v(value))).transpose(1, 2).flatten(2)), weights
    """
    found, _ = quiet(source, "multihead_attention", head=HEAD + HEADS)
    assert found["multihead.weights"] == "passed"


def test_rows_need_not_sum_to_one_where_dropout_is_an_argument_of_a_function(quiet):
    source = """
    def attention(q, k, v, mask=None, dropout_p=0.0, training=False):
        '''mask: True = allowed'''
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask.bool(), -torch.inf)
        weights = F.dropout(scores.softmax(-1), dropout_p, training)
        return weights @ v, weights
    """
    found, _ = quiet(source, "attention", advice={"attention.finite-gradient"})
    assert found["attention.row-sums"] == "passed"


@pytest.mark.parametrize("check", ["temperature <= 0", "temperature < 1e-6", "not temperature > 0"])
def test_a_temperature_of_zero_may_be_rejected_with_a_clear_error(quiet, check):
    source = f"""
    def next_token_distribution(logits, temperature=1.0):
        if {check}:
            raise ValueError(f"temperature must be positive, but it is {{temperature}}")
        return (logits / temperature).softmax(-1)
    """
    found, _ = quiet(source, "next_token_distribution")
    assert found["next-token-distribution.temperature-zero"] == "passed"


def test_a_sampler_may_reject_a_temperature_of_zero_as_well(quiet):
    source = """
    def sample_next_token(logits, temperature=1.0):
        if temperature == 0:
            raise ValueError("temperature 0 is greedy: use argmax")
        return torch.multinomial((logits / temperature).softmax(-1), 1)
    """
    quiet(source, "sample_token")


BOTTOM_RIGHT = """
def attention(q, k, v, is_causal=False):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if is_causal:
        T, S = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(S - T + 1), -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v
"""


def test_alignment_in_the_lower_right_corner_is_right_where_it_is_declared(quiet):
    declared = {"attention": {"alignment": "bottom_right"}}
    found, _ = quiet(BOTTOM_RIGHT, "attention", conventions=declared)
    assert found["attention.is-causal"] == "passed"


PRE_NORM = """
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = Heads(d_model, n_heads), Heads(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.n1, self.n2, self.n3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory):
        y = self.n1(x)
        x = x + self.own(y, y, triangle(x.size(1)))
        x = x + self.cross(self.n2(x), memory)
        return x + self.ff(self.n3(x))
"""


@pytest.mark.parametrize("conventions", [None, {"decoder_block": {"norm": "pre"}}], ids=["seen", "declared"])
def test_the_norm_may_come_first(quiet, conventions):
    found, shown = quiet(PRE_NORM, "decoder_block", head=HEAD + HEADS, conventions=conventions)
    assert found["decoder-block.recomputed"] == "passed"
    assert shown.conventions["norm"][0] == "pre"


def test_sines_and_cosines_in_halves_are_right_where_it_is_declared(quiet):
    source = """
    def positional_encoding(T, d):
        angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :d]
    """
    found, _ = quiet(source, "positional_encoding", conventions={"positional_encoding": {"order": "halves"}})
    assert found["positional-encoding.formula"] == "passed"


@pytest.mark.parametrize("sentinel", ["-1e9", "-1e18", "-1e20", "-1e30", "torch.finfo(scores.dtype).min"])
def test_a_finite_sentinel_hides_as_well_as_minus_infinity(quiet, sentinel):
    source = f"""
    def attention(query, key, value, mask=None):
        '''mask: True = allowed'''
        scores = query @ key.mT / math.sqrt(query.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask.bool(), {sentinel})
        weights = scores.softmax(-1)
        return weights @ value, weights
    """
    quiet(source, "attention", advice={"attention.half"})


@pytest.mark.parametrize("sentinel", ["-1e9", "-1e20", "torch.finfo(torch.float32).min", "-torch.inf"])
def test_a_mask_may_hold_a_finite_sentinel(quiet, sentinel):
    source = f"""
    def causal_mask(T):
        '''0 where allowed; it is added to the scores'''
        return torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1) == 1, {sentinel})
    """
    found, shown = quiet(source, "causal_mask", advice={"causal-mask.half"})
    assert found["causal-mask.additive"] == "passed"
    assert shown.conventions["polarity"][0] == "additive"


def test_weights_may_be_averaged_over_heads(quiet):
    source = """
    class MultiHeadAttention(Heads):
        def forward(self, query, key, value, mask=None):
            '''mask: (T, S) or (B, 1, 1, S), True = blocked'''
            weights = self.weights(query, key, mask)
            out = (weights @ self.split(self.v(value))).transpose(1, 2).flatten(2)
            return self.o(out), weights.mean(dim=1)
    """
    found, shown = quiet(source, "multihead_attention", head=HEAD + HEADS)
    assert found["multihead.weights"] == "passed"
    assert "averaged over heads" in str(shown.conventions)


def test_what_a_candidate_does_not_provide_is_not_judged(tmp_path):
    path = tmp_path / "candidate.py"
    path.write_text(
        HEAD
        + "def causal_mask(T):\n    return torch.ones(T, T).triu(1).bool()\n\n"
        + "def helper(x):\n    raise NotImplementedError\n\n"
        + "class Config:\n    n_heads = 0\n",
        "utf-8",
    )
    verdicts, shown = judge(path)
    assert set(shown) == {"causal_mask"}
    assert not accused(verdicts)
    assert {v.role for v in verdicts if v.verdict == "passed"} == {"causal_mask"}
    assert {v.verdict for v in verdicts if v.role != "causal_mask"} == {"unsupported"}


def test_a_model_owes_neither_a_loss_nor_generation_nor_a_cache(quiet):
    source = """
    class GPT(nn.Module):
        def __init__(self, vocab_size, d_model, n_heads, max_len):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
            self.attn, self.head = Heads(d_model, n_heads), nn.Linear(d_model, vocab_size)

        def forward(self, ids):
            T = ids.size(1)
            x = self.embed(ids) + self.place(torch.arange(T))
            return self.head(x + self.attn(x, x, triangle(T)))
    """
    found, _ = quiet(source, "language_model", head=HEAD + HEADS)
    for part in ("loss", "generate", "cache-steps", "padding"):
        assert found[f"language-model.{part}"] == "unsupported", part


@pytest.mark.parametrize("seed", [9, 16, 30])
def test_what_a_padded_query_gets_is_nobodys_business(seed):
    report = check(VARIANTS / "log_probability_model.py", claims="multihead.*", seed=seed)
    assert not [v for v in report.verdicts if v.verdict not in ("passed", "unsupported")]


def test_a_vector_of_width_2_is_changed_wherever_a_change_is_called_for():
    report = check(VARIANTS / "time_major.py", claims="multihead.mask", seed=47)
    assert [v.verdict for v in report.verdicts] == ["passed"]
    drawn = change(np.random.default_rng(0), (4000, 1), 1.0, 0.3)
    assert (np.abs(drawn) > 0.05).all()
