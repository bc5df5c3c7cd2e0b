"""What public code does in its own way, and its wrong counterpart: the first is left alone, the second is not."""

import pytest
from triu.conformance import check

HEAD = """
import math
import torch
from torch import nn
import torch.nn.functional as F
"""


def broken(report):
    bad = ("failed", "errored", "inconclusive", "suite_fault")
    return {v.claim.partition(".")[2] for v in report.verdicts if v.verdict in bad and v.level == "MUST"}


def passed(report):
    return {v.claim.partition(".")[2] for v in report.verdicts if v.verdict == "passed"}


UNBATCHED = (
    HEAD
    + """
class MultiHeadAttention(nn.Module):
    '''query, key, value: (T, d_model), one sentence. mask: True = allowed.'''

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            f(x).view(len(x), self.h, -1).transpose(0, 1)
            for f, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if mask is not None and {used}:
            s = s.masked_fill(~mask, float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(0, 1).reshape(len(query), -1))
"""
)


@pytest.mark.parametrize("used", [True, False])
def test_the_mask_of_a_layer_without_a_batch(report_on, used):
    report = report_on(UNBATCHED.format(used=used), "multihead.mask", "multihead.shape")
    assert ("mask" in passed(report)) == used
    assert ("mask" in broken(report)) != used


GROUPED = (
    HEAD
    + """
class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.q = nn.Linear(d_model, {queries}, bias=False)
        self.kv = nn.Linear(d_model, 2 * self.d, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        parts = (self.q(x), *self.kv(x).chunk(2, -1))
        q, k, v = (p.view(B, T, -1, self.d).transpose(1, 2).expand(B, self.h, T, self.d) for p in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(B, T, C))
"""
)


def test_heads_may_share_keys_and_values_but_not_queries(report_on):
    right = report_on(GROUPED.format(queries="d_model"), "causal_self_attention")
    assert not broken(right)
    wrong = report_on(GROUPED.format(queries="self.d"), "causal_self_attention")
    assert "recomputed" in broken(wrong)


LONG = (
    HEAD
    + """
class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.qkv, self.o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.register_buffer("past", torch.ones(20, 20).tril().bool())

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (p.view(B, T, self.h, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        {mask}
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
"""
)


def test_a_table_may_end_but_not_the_mask(report_on):
    right = "s = s.masked_fill(~self.past[:T, :T], float('-inf'))"
    wrong = "s[..., :20, :20] = s[..., :20, :20].masked_fill(~self.past[:T, :T], float('-inf'))"
    assert not broken(report_on(LONG.format(mask=right), "causal_self_attention"))
    assert "no-future" in broken(report_on(LONG.format(mask=wrong), "causal_self_attention"))


TWO_MASKS = (
    HEAD
    + """
class CrossAttention(nn.Module):
    '''mask: True for real tokens of x; context_mask: True for real tokens of the context.'''

    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x, context, mask=None, context_mask=None):
        k, v = self.kv(context).chunk(2, -1)
        q, k, v = (t.view(t.size(0), t.size(1), self.h, -1).transpose(1, 2) for t in (self.q(x), k, v))
        s = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        if {which} is not None:
            s = s.masked_fill(~{which}[:, None, None, :], float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)


def test_of_two_masks_the_one_over_the_memory(report_on):
    claims = ("cross-attention.padding", "cross-attention.shape")
    assert "padding" in passed(report_on(TWO_MASKS.format(which="context_mask"), *claims))
    assert "padding" in broken(report_on(TWO_MASKS.format(which="mask"), *claims))


SHAPED = (
    HEAD
    + """
class LayerNormalization(nn.Module):
    def __init__(self, parameters_shape, eps=1e-5):
        super().__init__()
        self.dims = [-(i + 1) for i in range(len(parameters_shape))]
        self.gamma, self.beta = nn.Parameter(torch.ones(parameters_shape)), nn.Parameter(torch.zeros(parameters_shape))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(self.dims, keepdim=True)
        return centred / (centred.pow(2).{reduced}(self.dims, keepdim=True) + self.eps).sqrt() * self.gamma + self.beta
"""
)


def test_a_norm_that_takes_a_shape(report_on):
    assert "formula" in passed(report_on(SHAPED.format(reduced="mean"), "layer_norm"))
    assert "formula" in broken(report_on(SHAPED.format(reduced="sum"), "layer_norm"))


FLAGGED = (
    HEAD
    + """
def sequence_mask(lengths, pad=0):
    '''(B, S), True at padding; pad=1 gives the inverse.'''
    places = torch.arange(int(lengths.max()))
    hidden = places[None, :] {compared} lengths[:, None]
    return hidden if pad == 0 else ~hidden
"""
)


def test_lengths_know_no_padding_id(report_on):
    assert not broken(report_on(FLAGGED.format(compared=">="), "padding_mask"))
    assert broken(report_on(FLAGGED.format(compared=">"), "padding_mask"))


TABLE = (
    HEAD
    + """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len, device):
        super().__init__()
        place, even = torch.arange(max_len)[:, None], torch.arange(0, d_model, 2)
        self.table = torch.zeros(max_len, d_model, device=device)
        self.table[:, 0::2] = torch.sin(place / 10000 ** (even / d_model))
        self.table[:, 1::2] = torch.cos(place / 10000 ** (even / d_model))

    def forward(self, x):
        return {returned}
"""
)


@pytest.mark.parametrize(
    ("returned", "refused"),
    [("self.table[: x.size(1)]", False), ("x[:, : len(self.table)] + self.table[: x.size(1)]", True)],
)
def test_a_table_that_is_too_short_cannot_be_added(report_on, returned, refused):
    report = report_on(TABLE.format(returned=returned), "positional_encoding")
    assert ("capacity" in broken(report)) == refused


@pytest.mark.parametrize("divides", [True, False])
def test_the_width_of_the_output_is_that_of_the_input_where_heads_have_to_divide_it(report_on, divides):
    check = "assert d_out % num_heads == 0" if divides else "pass"
    source = (
        HEAD
        + f"""
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        {check}
        self.h, self.d = num_heads, d_out // num_heads
        self.q, self.k, self.v = (nn.Linear(d_in, self.h * self.d) for _ in range(3))
        self.o = nn.Linear(self.h * self.d, d_out)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (f(x).view(B, T, self.h, self.d).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(B, T, -1))
"""
    )
    (verdict,) = report_on(source, "multihead.remainder").verdicts
    assert verdict.verdict == ("passed" if divides else "failed")


def test_a_draw_of_its_own_for_every_token(report_on):
    source = (
        HEAD
        + """
def mix_tokens(gold, predicted, p):
    '''(N,) token ids of one sequence. With probability p the teacher's token, each by its own draw.'''
    keep = torch.rand({coins}) < p
    return torch.where(keep, gold, predicted)
"""
    )
    assert not broken(report_on(source.format(coins="gold.shape"), "scheduled_sampling"))
    assert "independent" in broken(report_on(source.format(coins="1"), "scheduled_sampling"))


UNBIASED = (
    HEAD
    + """
class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a, self.b, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std({axis}, keepdim=True) + self.eps) + self.b
"""
)


@pytest.mark.parametrize(("axis", "right"), [("-1", True), ("(1, 2)", False)])
def test_a_norm_by_d_minus_1_is_told_how_to_declare_it(tmp_path, axis, right):
    path = tmp_path / "norms.py"
    path.write_text(UNBIASED.format(axis=axis), "utf-8")
    (verdict,) = check(path, claims="layer-norm.formula", in_process=True).verdicts
    assert verdict.verdict == "failed"
    assert ('variance = "unbiased"' in verdict.failure.meant) == right
    declared = {"LayerNorm": {"variance": "unbiased"}}
    (verdict,) = check(path, claims="layer-norm.formula", in_process=True, conventions=declared).verdicts
    assert verdict.verdict == ("passed" if right else "failed")


STEP = (
    HEAD
    + """
def train_step(model, optimizer, src, tgt, pad_id=0):
    logits = model(src, tgt[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=pad_id)
    {steps}
    return loss.item()
"""
)


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        ("optimizer.zero_grad(); loss.backward(); optimizer.step()", True),
        ("model.zero_grad(); loss.backward(); optimizer.step()", True),
        ("loss.backward(); optimizer.step(); optimizer.zero_grad()", True),
        ("optimizer.zero_grad(set_to_none=True); torch.autograd.backward(loss); optimizer.step()", True),
        ("loss.backward(); optimizer.step()", False),
        ("optimizer.zero_grad(); optimizer.step()", False),
        ("optimizer.zero_grad(); loss.backward()", False),
        ("optimizer.zero_grad(); optimizer.step(); loss.backward()", False),
        ("loss.backward(); optimizer.zero_grad(); optimizer.step()", False),
    ],
)
def test_the_order_of_a_training_step(report_on, steps, right):
    (verdict,) = report_on(STEP.format(steps=steps), "training-step.update").verdicts
    assert verdict.verdict == ("passed" if right else "failed")


@pytest.mark.parametrize("forgets", ["p.grad = None", "p.grad is not None and p.grad.zero_()"])
def test_gradients_that_are_forgotten_by_hand_are_no_mistake(report_on, forgets):
    by_hand = f"for p in model.parameters(): {forgets}"
    steps = f"{by_hand}\n    loss.backward(); optimizer.step()"
    (verdict,) = report_on(STEP.format(steps=steps), "training-step.update").verdicts
    assert verdict.verdict == "unsupported"
    assert "itself" in verdict.reason


def test_a_step_without_an_optimizer_updates_nothing(report_on):
    source = STEP.format(steps="pass").replace("model, optimizer, ", "model, ")
    (verdict,) = report_on(source, "training-step.update").verdicts
    assert verdict.verdict == "unsupported"


TRAINED = (
    HEAD
    + """
class PositionalEmbedding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = {table}

    def forward(self, x):
        return x + {added}
"""
)
SINES = """
def fixed(T, d, base=10000.0):
    angle = torch.arange(T)[:, None] / base ** (torch.arange(0, d, 2) / d)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
"""
FIRST = "self.table[: x.size(1)]"


@pytest.mark.parametrize(
    ("table", "added"),
    [
        ("nn.Parameter(torch.randn(max_len, d_model))", FIRST),
        ("nn.Parameter(torch.zeros(1, max_len, d_model))", "self.table[:, : x.size(1)]"),
        ("nn.Embedding(max_len, d_model)", "self.table(torch.arange(x.size(1)))"),
    ],
)
def test_trained_positions_are_no_wrong_sinusoids(report_on, table, added):
    report = report_on(TRAINED.format(table=table, added=added), "positional_encoding")
    assert not broken(report)
    told = {v.claim.split(".")[1]: (v.verdict, v.reason) for v in report.verdicts}
    assert told["formula"][0] == told["no-parameters"][0] == "unsupported"
    assert "learned (by its code: a trained table" in told["formula"][1]
    assert told["learned"][0] == told["distinct"][0] == "passed"


@pytest.mark.parametrize(
    ("table", "added", "claim"),
    [
        ("nn.Parameter(fixed(max_len, d_model))", FIRST, "no-parameters"),
        ("nn.Parameter(fixed(max_len, d_model) * 2)", FIRST, "no-parameters"),  # the code says sine
        ("nn.Parameter(fixed(max_len, d_model) * 2)", FIRST, "zero"),
        ("fixed(max_len, d_model, 100.0)", FIRST, "one"),
        ("torch.randn(max_len, d_model)", FIRST, "zero"),  # nobody trains it
        ("nn.Embedding(max_len, d_model)", "self.table(torch.arange(x.size(1)).flip(0))", "prefix"),
        ("nn.Embedding(max_len, d_model)", "self.table(torch.arange(x.size(1)).clamp(max=9))", "capacity"),
        ("nn.Parameter(torch.zeros(max_len, d_model))", "self.table[:1]", "distinct"),
    ],
)
def test_mistakes_beside_trained_positions_are_seen(report_on, table, added, claim):
    source = TRAINED.format(table=table, added=added)
    report = report_on(source + SINES if "fixed" in table else source, "positional_encoding")
    assert claim in broken(report), (broken(report), [v.reason for v in report.verdicts])


def test_a_trained_table_that_holds_sinusoids_is_one(report_on):
    table = "nn.Parameter(torch.view_as_real(torch.polar(torch.ones(()), ANGLES)).flip(-1).flatten(1)[:, :d_model])"
    angles = "torch.arange(max_len)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)"
    source = TRAINED.format(table=table.replace("ANGLES", angles), added=FIRST)
    assert broken(report_on(source, "positional_encoding")) == {"no-parameters"}
