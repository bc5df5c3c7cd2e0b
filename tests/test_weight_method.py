"""The weight method: a correct block passes in any style, a wrong one is refuted and told where it is wrong."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from triu.conformance.api import open_check
from triu.conformance.engine.base_state import base_state, is_gain
from triu.spec import load_spec

BLOCKS = Path(__file__).parent / "blocks"
SPEC = load_spec()
OF_THE_BLOCK = [claim for claim in SPEC.claims.values() if claim.role == "decoder_block"]


def alone(*parts):
    """Claims of the block without those that they rest on, which is quicker."""
    return [replace(SPEC.claims[f"decoder-block.{part}"], rests_on=()) for part in parts]


RECOMPUTED = alone("recomputed")
BAD = ("failed", "errored", "inconclusive", "suite_fault")

# What of a wrong block's failures has to be said, in the words of the failure.
TOLD = {
    "no_residual_self": "residual around the self-attention",
    "no_residual_cross": "residual around the cross-attention",
    "no_residual_feed_forward": "residual around the feed-forward",
    "scaled_by_width": "in the self-attention: .*model's width",
    "gelu": "feed-forward uses GELU",
    "shared_attention": "of the self-attention and as .* of the cross-attention",
    "early_query": "cross-attention's query",
    "keys_from_target": "memory row 0 was changed",
    "unbiased_deviation": "norms divide by the standard deviation with d - 1",
    "norm_before_residual": "norm of the cross-attention",
    "triangle_over_memory": "memory row . was changed",
    "no_activation": "feed-forward has no activation",
    "mixed_norms": "feed-forward .* norm on the other side",
}


def judge(path, seed=0, claims=OF_THE_BLOCK, **options):
    """The verdicts of a file by claim."""
    check = open_check(path, spec=SPEC, in_process=True, seed=seed, **options)
    try:
        return {claim.id: check.verdicts(claim)[0] for claim in claims}
    finally:
        check.close()


def told(verdicts):
    """What went wrong, as it is said."""
    return {c: (v.reason, v.failure and v.failure.what) for c, v in verdicts.items() if v.verdict in BAD}


# blocks in many styles


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("path", sorted((BLOCKS / "right").glob("*.py")), ids=lambda path: path.stem)
def test_a_correct_block_passes_in_any_style(path, seed):
    verdicts = judge(path, seed, RECOMPUTED if seed else OF_THE_BLOCK, examples=4)
    broken = {c: t for c, t in told(verdicts).items() if SPEC.claims[c].level == "MUST"}
    assert not broken
    assert verdicts["decoder-block.recomputed"].verdict == "passed"


def test_every_wrong_block_has_its_words():
    assert {path.stem for path in (BLOCKS / "wrong").glob("*.py")} == TOLD.keys()


@pytest.mark.parametrize("name", TOLD)
def test_a_wrong_block_is_refuted_and_told_where(name):
    telling = alone("memory" if TOLD[name].startswith("memory") else "recomputed")
    taught = {"decoder_block": {"activation": "relu"}}
    verdicts = judge(BLOCKS / "wrong" / f"{name}.py", claims=telling, examples=4, conventions=taught)
    said = [v.failure.what for v in verdicts.values() if v.verdict == "failed"]
    assert said, "it was not refuted"
    assert any(re.search(TOLD[name], what) for what in said), said


def test_a_missing_residual_is_not_told_as_attention_that_hides_too_much():
    """Without it a single row of memory makes all outputs alike, whatever the self-attention does."""
    verdicts = judge(BLOCKS / "wrong" / "no_residual_cross.py", claims=alone("reach"))
    assert verdicts["decoder-block.reach"].verdict == "passed"


@pytest.mark.parametrize("declared", [{}, {"decoder_block": {"activation": "gelu"}}])
def test_an_activation_that_is_declared_or_asked_for_by_name_is_no_mistake(declared):
    path = BLOCKS / "wrong" / "gelu.py"
    assert (
        judge(path, claims=RECOMPUTED, conventions=declared)["decoder-block.recomputed"].verdict == "passed"
    )


# parameters

BLOCK = """
import torch
import torch.nn.functional as F
from torch import nn

class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model, eps=1e-5) for _ in range(3))
        EXTRA

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross(x, memory, memory)[0])
        return self.norms[2](x + self.w2(self.w1(x).relu()))
"""


@pytest.fixture
def recomputed(tmp_path):
    """The verdict of decoder-block.recomputed on a block with replaced parts."""

    def judged(*replaced, source=BLOCK):
        for old, new in replaced:
            assert old in source
            source = source.replace(old, new)
        path = tmp_path / "candidate.py"
        path.write_text(source.replace("EXTRA", "pass"), "utf-8")
        return judge(path, claims=RECOMPUTED, examples=4)["decoder-block.recomputed"]

    return judged


def test_the_block_that_the_others_depart_from_passes(recomputed):
    assert recomputed().verdict == "passed"


@pytest.mark.parametrize("shape", ["3", "11, 13", "2, 3, 11"])
def test_a_parameter_of_unknown_shape_is_inconclusive(recomputed, shape):
    verdict = recomputed(
        ("EXTRA", f"self.strange = nn.Parameter(torch.full(({shape},), 0.1))"),
        ("self.w2(self.w1(x).relu())", "self.w2(self.w1(x).relu()) * (1 + self.strange.sum())"),
    )
    assert verdict.verdict == "inconclusive", verdict.failure
    assert "strange" in verdict.reason


def test_an_unknown_parameter_that_plays_no_part_is_no_reason_to_fail(recomputed):
    verdict = recomputed(("EXTRA", "self.strange = nn.Parameter(torch.zeros(11, 13))"))
    assert verdict.verdict in ("passed", "inconclusive"), verdict.failure


def test_a_gate_of_a_known_shape_is_never_passed(recomputed):
    verdict = recomputed(
        ("EXTRA", "self.gate = nn.Parameter(torch.zeros(d_model))"),
        ("self.w2(self.w1(x).relu())", "self.w2(self.w1(x).relu()) * (1 + self.gate)"),
    )
    assert verdict.verdict in ("failed", "inconclusive")


def test_a_parameter_that_serves_twice_is_told(recomputed):
    verdict = recomputed(
        ("self.cross = nn", "# nn"),
        ("self.cross(x,", "self.own(x,"),
    )
    assert verdict.verdict == "failed"
    what = verdict.failure.what
    assert re.search("own.* serves as .*self-attention.* and as .*cross-attention", what), what


# mistakes that equal heads, or weights that are all alike, do not show


@pytest.mark.parametrize(
    "mistake",
    [
        "heads = weights.mean(dim=1, keepdim=True) @ v",
        "heads = weights[:, [0, 0]] @ v",
    ],
)
def test_what_only_random_weights_show_is_refuted(recomputed, mistake):
    source = BLOCK + textwrap.dedent(
        """
        class Attention(nn.Module):
            def __init__(self, d, h, batch_first):
                super().__init__()
                self.h = h
                self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

            def forward(self, x, z, _, attn_mask=None):
                q, k, v = (
                    f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
                    for f, y in ((self.q, x), (self.k, z), (self.v, z))
                )
                scores = q @ k.mT / q.size(-1) ** 0.5
                if attn_mask is not None:
                    scores = scores.masked_fill(attn_mask, -torch.inf)
                weights = scores.softmax(-1)
                heads = weights @ v
                MISTAKE
                return self.o(heads.transpose(1, 2).flatten(2)), None
        """
    )
    verdict = recomputed(
        ("self.cross = nn.MultiheadAttention", "self.cross = Attention"), ("MISTAKE", mistake), source=source
    )
    told_apart = "mean" not in mistake
    assert verdict.verdict in ("failed", "inconclusive")[: 2 - told_apart], (verdict.verdict, verdict.reason)


# where the fault lies

PRE_NORM = (
    BLOCK.replace("nn.LayerNorm(d_model, eps=1e-5)", "Norm(d_model)")
    .replace(
        "self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])", "x + self.mixed(x, causal_mask)"
    )
    .replace(
        "self.norms[1](x + self.cross(x, memory, memory)[0])",
        "x + self.cross(self.norms[1](x), memory, memory)[0]",
    )
    .replace("self.norms[2](x + self.w2(self.w1(x).relu()))", "x + self.w2(self.w1(self.norms[2](x)).relu())")
    + """
    def mixed(self, x, mask):
        y = self.norms[0](x)
        return self.own(y, y, y, attn_mask=mask)[0]

class Norm(nn.LayerNorm):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / ROOT * self.weight + self.bias
"""
)


@pytest.mark.parametrize(
    ("root", "ff", "told"),
    [
        ("(x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()", ".relu()", ""),
        ("(x.var(-1, keepdim=True, unbiased=False) + 1e-5)", ".relu()", "in the norms or residuals"),
        (
            "(x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()",
            ".relu().sqrt()",
            "lies in the feed-forward, or in a norm or a residual",
        ),
    ],
    ids=["right", "norms without the root", "feed-forward"],
)
def test_a_sublayer_is_not_accused_of_what_its_norm_may_do(recomputed, root, ff, told):
    verdict = recomputed(("ROOT", root), (".relu()", ff), source=PRE_NORM)
    assert verdict.verdict == ("failed" if told else "passed"), (verdict.reason, verdict.failure)
    assert told in (verdict.failure.what if verdict.failure else "")


# heads whose features do not stand together

APART = """
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.dk = n_heads, d_model // n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = SPLIT
        y = (q @ k.mT / self.dk**0.5).softmax(-1) @ v  # (B, h, T, dk)
        return self.out(MERGE)

class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = Attention(d_model, n_heads), Attention(d_model, n_heads)
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, causal_mask))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + self.w2(self.w1(x).relu()))

class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dk = h, d // h
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, z, mask=None):
        B, T, D = x.shape
        q, k, v = (f(i) for f, i in ((self.q, x), (self.k, z), (self.v, z)))
        q, k, v = (HEADS for i in (q, k, v))
        scores = q @ k.mT / self.dk**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        y = scores.softmax(-1) @ v
        return self.out(MERGE)
"""
SPLITS = {
    "d k h": "self.qkv(x).view(B, T, self.dk, 3, self.h).permute(3, 0, 4, 1, 2)",
    "d h k": "self.qkv(x).view(B, T, self.dk, self.h, 3).permute(4, 0, 3, 1, 2)",
    "k d h": "self.qkv(x).view(B, T, 3, self.dk, self.h).permute(2, 0, 4, 1, 3)",
    "k h d": "self.qkv(x).view(B, T, 3, self.h, self.dk).permute(2, 0, 3, 1, 4)",
    "h d k": "self.qkv(x).view(B, T, self.h, self.dk, 3).permute(4, 0, 2, 1, 3)",
    "h k d": "self.qkv(x).view(B, T, self.h, 3, self.dk).permute(3, 0, 2, 1, 4)",
}
HEADS = {
    "h d": "i.view(B, -1, self.h, self.dk).transpose(1, 2)",
    "d h": "i.view(B, -1, self.dk, self.h).permute(0, 3, 1, 2)",
}
MERGES = {"h d": "y.transpose(1, 2).reshape(B, T, D)", "d h": "y.permute(0, 2, 3, 1).reshape(B, T, D)"}


def heads_apart(tmp_path, claim, split=SPLITS["d k h"], heads=HEADS["d h"], merge=MERGES["h d"]):
    path = tmp_path / "candidate.py"
    path.write_text(APART.replace("SPLIT", split).replace("HEADS", heads).replace("MERGE", merge), "utf-8")
    claims = [replace(SPEC.claims[claim], rests_on=())]
    return judge(path, claims=claims, examples=6)[claim]


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("split", SPLITS)
def test_heads_may_have_features_in_any_order(tmp_path, split, merge):
    verdict = heads_apart(tmp_path, "multihead.recomputed", SPLITS[split], merge=MERGES[merge])
    assert verdict.verdict == "passed", (verdict.reason, verdict.failure)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("heads", HEADS)
def test_heads_of_a_block_may_have_features_in_any_order(tmp_path, heads, merge):
    verdict = heads_apart(tmp_path, "decoder-block.recomputed", heads=HEADS[heads], merge=MERGES[merge])
    assert verdict.verdict == "passed", (verdict.reason, verdict.failure)


@pytest.mark.parametrize(
    ("split", "merge"),
    [
        ("self.qkv(x).view(B, self.dk, T, 3, self.h).permute(3, 0, 4, 2, 1)", MERGES["h d"]),
        ("self.qkv(x).view(B, self.h, T, 3, self.dk).permute(3, 0, 1, 2, 4)", MERGES["d h"]),
        ("self.qkv(x).view(B, T, self.dk, 3, self.h).permute(3, 0, 4, 1, 2)", "y.reshape(B, T, D)"),
        (SPLITS["d k h"], "y[:, [0] * self.h].transpose(1, 2).reshape(B, T, D)"),
        (SPLITS["d k h"], "(y * self.dk**0.5).transpose(1, 2).reshape(B, T, D)"),
        (SPLITS["d k h"].replace("3, 0, 4, 1, 2", "3, 0, 1, 2, 4"), "y.transpose(1, 2).reshape(B, T, D)"),
    ],
    ids=["positions in the split", "by view", "merged by view", "one head", "scaled", "within positions"],
)
def test_heads_that_mix_what_they_should_not_are_refuted(tmp_path, split, merge):
    assert heads_apart(tmp_path, "multihead.recomputed", split, merge=merge).verdict in ("failed", "errored")


# what is the author's own choice


@pytest.mark.parametrize("eps", ["1e-3", "1e-4", "2e-5"])
def test_the_epsilon_of_the_norms_is_the_authors_choice(recomputed, eps):
    verdict = recomputed(("eps=1e-5", f"eps={eps}"))
    assert verdict.verdict == "passed", (verdict.reason, verdict.failure)


# the base state


def test_the_base_state_goes_by_shape_alone():
    base = base_state(np.random.default_rng(0), unit=5, width=10, inner=7)
    assert base.kind((10,), True) == "gain"
    assert base.kind((10,), False) == base.kind((7,), False) == base.kind((2, 5), False) == "vector"
    assert base.kind((7, 10), False) == base.kind((7, 10, 1), False) == "feed-forward"
    for shape in ((10, 10), (30, 10), (2, 10, 5), (10, 2, 5), (5, 10), (10, 10, 1)):
        assert base.kind(shape, False) == "attention", shape
    for shape in ((), (3,), (11, 13)):
        assert base.kind(shape, False) == "", shape
        assert base.value(shape, False) is None


def test_gains_of_several_norms_in_one_array_are_gains():
    base = base_state(np.random.default_rng(0), unit=5, width=10, inner=7)
    assert base.kind((3, 10), True) == "gain"
    value = base.value((3, 10), True)
    assert value is not None
    assert np.array_equal(value, np.broadcast_to(base.gain, (3, 10)))


def test_a_layout_does_not_matter_in_the_base_state():
    """W_q of head 1 as (d, h, dh), (h, d, dh) or rows of a packed (3d, d): the same small symmetric matrix."""
    base = base_state(np.random.default_rng(0), unit=5, width=10, inner=7)
    square = base.square
    assert np.array_equal(square, square.T)
    packed, heads = base.value((30, 10), False), base.value((2, 10, 5), False)
    assert packed is not None
    assert heads is not None
    assert np.array_equal(packed[:5, :5], square)
    assert np.array_equal(packed[25:, 5:], square)
    assert np.array_equal(heads[1, 5:], square)


def test_ones_are_told_from_a_single_number():
    assert is_gain(np.ones(10))
    assert not is_gain(np.ones(1))
    assert not is_gain(np.zeros(10))
