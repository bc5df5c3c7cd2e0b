"""Layers beside the lesson's form: other known kinds are not accused, and mistakes beside them are still found."""

from __future__ import annotations

import textwrap

import pytest
from triu.conformance.api import open_check
from triu.spec import load_spec

SPEC = load_spec()
BAD = ("failed", "errored", "inconclusive", "suite_fault")


@pytest.fixture
def judge(tmp_path):
    """Verdicts by claim for the claims of a role, or some of them, on a candidate."""

    def judged(source, role, *parts, **options):
        path = tmp_path / "candidate.py"
        path.write_text(HEAD + textwrap.dedent(source), "utf-8")
        check = open_check(path, spec=SPEC, in_process=True, seed=0, **options)
        try:
            claims = [c for c in SPEC.claims.values() if c.role == role]
            found = {}
            for claim in claims:
                short = claim.id.split(".")[1]
                if not parts or short in parts:
                    (found[short],) = check.verdicts(claim)
            assert found
            return found
        finally:
            check.close()

    return judged


def verdicts(found):
    return {part: verdict.verdict for part, verdict in found.items()}


def accused(found):
    return {
        part: (v.verdict, v.reason, v.failure and v.failure.what)
        for part, v in found.items()
        if v.verdict in BAD and v.level == "MUST"
    }


HEAD = """
import torch
import torch.nn.functional as F
from torch import nn


def rotate(x):
    c, T = x.shape[-1], x.shape[-2]
    rate = 10000.0 ** (-torch.arange(0, c, 2, dtype=x.dtype) / c)
    angle = torch.arange(T, dtype=x.dtype)[:, None] * rate
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def slopes(scores):
    T, S = scores.shape[-2:]
    away = torch.arange(S)[None] - torch.arange(T)[:, None]
    return away * 0.5 ** torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype)[:, None, None]


def rms(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def attend(self, x, z, mask=None, turn=lambda y: y, bias=lambda s: 0.0, scale=None):
        q, k, v = turn(self.split(self.q(x))), turn(self.split(self.k(z))), self.split(self.v(z))
        scores = q @ k.mT * (q.size(-1) ** -0.5 if scale is None else scale)
        scores = scores + bias(scores)
        if mask is not None:
            scores = torch.where(mask, scores, -1e9)
        weights = scores.softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2)), weights


def past(x):
    return torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()

"""

OWN = """
class CausalSelfAttention(Heads):
    def forward(self, x):
        return self.attend(x, x, past(x), {options})[0]
"""
KINDS = {
    "rotary": "turn=rotate",
    "alibi": "bias=slopes",
    "norms": "turn=rms",
    "layer norms": "turn=lambda y: F.layer_norm(y, y.shape[-1:])",
    "cosines": "turn=lambda y: F.normalize(y, dim=-1), scale=10.0",
    "rotary and norms": "turn=lambda y: rotate(rms(y))",
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_positions_and_norms_inside_attention_are_no_mistake(judge, options):
    found = judge(OWN.format(options=options), "causal_self_attention")
    assert not accused(found)
    assert verdicts(found)["recomputed"] == "unsupported"
    assert verdicts(found)["no-future"] == verdicts(found)["reach"] == "passed"


SAME = ("", "")
WRONG = {
    "unscaled": ("scale=1.0", SAME),
    "scaled by the width": ("scale=x.size(-1) ** -0.5", SAME),
    "scaled by the length": ("scale=x.size(1) ** -0.5", SAME),
    "not projected": ("", ("self.o(", "(")),
    "values not projected": ("", ("self.split(self.v(z))", "self.split(z)")),
    "rotary, values not projected": ("turn=rotate", ("self.split(self.v(z))", "self.split(z)")),
    "norms, not projected": ("turn=rms", ("self.o(", "(")),
    "rotary, values turned too": (
        "turn=rotate",
        (", self.split(self.v(z))", ", rotate(self.split(self.v(z)))"),
    ),
    "alibi, weights do not sum to one": ("bias=slopes", ("scores.softmax(-1)", "scores.sigmoid()")),
    "uniform": ("scale=0.0", SAME),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_in_attention_is_not_taken_for_another_kind(judge, case):
    options, (right, wrong) = case
    assert right in HEAD
    source = (
        HEAD.replace(right, wrong) + OWN.format(options=options) if right else OWN.format(options=options)
    )
    assert verdicts(judge(source, "causal_self_attention", "recomputed"))["recomputed"] == "failed"


BLOCK = """
class GPTBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attn = Heads(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range({count}))

    def forward(self, x):
        a = lambda y: self.attn.attend(y, y, past(y), {options})[0]
        n = self.norms
        {body}
"""
PARALLEL = "y = n[0](x); return x + a(y) + self.ff(y)"
SANDWICH = "x = x + n[1](a(n[0](x))); return x + n[3](self.ff(n[2](x)))"
PRE = "x = x + a(n[0](x)); return x + self.ff(n[1](x))"


@pytest.mark.parametrize(("count", "body"), [(1, PARALLEL), (4, SANDWICH)], ids=["parallel", "sandwich"])
def test_blocks_of_other_architectures_are_no_mistake(judge, count, body):
    found = judge(BLOCK.format(count=count, body=body, options=""), "decoder_only_block")
    assert not accused(found)
    assert verdicts(found)["norms"] == verdicts(found)["recomputed"] == "unsupported"


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (1, "x = x + a(n[0](x)); return x + self.ff(n[0](x))"),
        (1, "y = n[0](x); return a(y) + self.ff(y)"),
        (4, "x = x + n[1](a(n[0](x))); return n[3](self.ff(n[2](x)))"),
        (3, "x = x + a(n[0](x)); return x + self.ff(n[1](x)) + 0 * n[2](x)"),
    ],
)
def test_a_wrong_number_of_norms_is_still_one(judge, count, body):
    found = judge(BLOCK.format(count=count, body=body, options=""), "decoder_only_block", "norms")
    assert verdicts(found)["norms"] == "failed"


@pytest.mark.parametrize("options", ["turn=rotate", "bias=slopes"])
def test_positions_inside_a_block_are_no_mistake(judge, options):
    found = judge(BLOCK.format(count=2, body=PRE, options=options), "decoder_only_block")
    assert not accused(found)
    assert verdicts(found)["recomputed"] == "unsupported"


def test_a_missing_residual_beside_rotary_positions_is_told(judge):
    body = "x = a(n[0](x)); return x + self.ff(n[1](x))"
    source = BLOCK.format(count=2, body=body, options="turn=rotate")
    assert verdicts(judge(source, "decoder_only_block", "recomputed"))["recomputed"] == "failed"


def test_a_layer_that_takes_no_odd_width_for_no_reason_is_told(judge):
    source = """
    class CausalSelfAttention(Heads):
        def forward(self, x):
            x.unflatten(-1, (self.h, 2, -1)) if x.size(-1) // self.h > 1 else x
            return self.attend(x, x, past(x))[0]
    """
    assert verdicts(judge(source, "causal_self_attention", "shape"))["shape"] == "errored"


# masks

CROSS = """
class CrossAttention(Heads):
    def forward(self, x, memory, memory_padding_mask=None):
        mask = None if memory_padding_mask is None else ~memory_padding_mask[{axes}]
        {result}
"""
ALONE = "return self.attend(x, memory, mask)[0]"
ALONG_KEYS, ALONG_QUERIES = ":, None, None, :", ":, None, :, None"


def test_a_padding_mask_along_the_keys_is_right(judge):
    found = judge(CROSS.format(axes=ALONG_KEYS, result=ALONE), "cross_attention", "padding")
    assert verdicts(found)["padding"] == "passed"


def test_a_padding_mask_along_the_queries_is_told(judge):
    found = judge(CROSS.format(axes=ALONG_QUERIES, result=ALONE), "cross_attention", "padding")
    assert verdicts(found)["padding"] in ("failed", "errored")


def test_a_padding_mask_along_the_queries_of_a_block_is_told(judge):
    source = """
    class DecoderBlock(nn.Module):
        def __init__(self, d_model, n_heads, d_ff):
            super().__init__()
            self.own, self.cross = Heads(d_model, n_heads), Heads(d_model, n_heads)
            self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
            self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

        def forward(self, x, memory, src_padding_mask=None):
            real = None if src_padding_mask is None else ~src_padding_mask[:, None, :, None]
            x = self.norms[0](x + self.own.attend(x, x, past(x))[0])
            x = self.norms[1](x + self.cross.attend(x, memory, real)[0])
            return self.norms[2](x + self.ff(x))
    """
    found = judge(source, "decoder_block", "memory-padding", "recomputed")
    assert verdicts(found)["memory-padding"] in ("failed", "errored")
    assert verdicts(found)["recomputed"] == "passed"


def test_a_mask_of_attention_that_fits_where_lengths_are_equal_is_judged_there(judge):
    source = """
    class MultiHeadAttention(Heads):
        def forward(self, query, key, value, mask=None):
            '''mask: (B, S), True = allowed'''
            mask = None if mask is None else mask[:, None, :, None]
            q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
            scores = q @ k.mT / q.size(-1) ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, -1e9)
            return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    """
    assert verdicts(judge(source, "multihead_attention", "mask"))["mask"] == "failed"
    right = source.replace(":, None, :, None", ":, None, None, :")
    assert verdicts(judge(right, "multihead_attention", "mask"))["mask"] == "passed"


def test_weights_with_a_row_for_each_key_are_told(judge):
    turned = "y, w = self.attend(x, memory, mask); return y, w{}.mT"
    for average in ("", ".mean(1)"):
        source = CROSS.format(axes=ALONG_KEYS, result=turned.format(average))
        assert verdicts(judge(source, "cross_attention", "weights"))["weights"] == "failed"
    right = CROSS.format(axes=ALONG_KEYS, result="return self.attend(x, memory, mask)")
    assert verdicts(judge(right, "cross_attention", "weights"))["weights"] == "passed"


FULL = """
class MultiHeadAttention(Heads):
    def forward(self, query, key, value, {parameter}=None):
        '''{words}'''
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        scores = q @ k.mT / q.size(-1) ** 0.5
        if {parameter} is not None:
            m = {parameter}
            {use}
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
FILL = "scores = scores.masked_fill(~m, -1e9)"


def full(parameter="mask", words="mask: (T, S) or (B, T, S), True = allowed", shape="", use=FILL):
    name = parameter.split(":")[0]
    return FULL.replace("{parameter}=None", "{first}=None").format(
        first=parameter, parameter=name, words=words, use=f"{shape}; {use}" if shape else use
    )


def test_each_sequence_has_a_mask_of_its_own(judge):
    axis = "m = m[:, None] if m.dim() == 3 else m"
    assert verdicts(judge(full(shape=axis), "multihead_attention", "mask"))["mask"] == "passed"
    first = "m = m[0] if m.dim() == 3 else m"
    assert verdicts(judge(full(shape=first), "multihead_attention", "mask"))["mask"] == "failed"


def test_a_layer_with_one_mask_for_all_sequences_is_not_asked_for_more(judge):
    source = full(shape="assert m.dim() == 2")
    assert verdicts(judge(source, "multihead_attention", "mask"))["mask"] == "passed"


ADD = "scores = scores + m"


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("mask", "mask: True = allowed. Padding is (B, 1, 1, S)."),
        ("mask", "mask: a boolean tensor, for padding too"),
        ("allowed", ""),
        ("blocked", ""),
        ("mask: 'torch.BoolTensor'", ""),
    ],
)
def test_a_boolean_mask_is_not_added(judge, parameter, words):
    source = full(parameter, words, use=ADD)
    assert verdicts(judge(source, "multihead_attention", "mask"))["mask"] == "failed"


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("mask", ""),
        ("mask", "mask: additive, 0 = allowed, -inf = blocked"),
        ("mask", "mask: float, not boolean"),
        ("attn_mask", "attn_mask is added to the scores; padding is hidden in it as well"),
    ],
)
def test_a_float_mask_is_added(judge, parameter, words):
    source = full(parameter, words, use=ADD)
    assert verdicts(judge(source, "multihead_attention", "mask"))["mask"] == "passed"


PADDED = """
class GPTBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attn = Heads(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.n1, self.n2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, {name}=None):
        '''{name}: (B, T), True = real tokens'''
        own = past(x)
        if {name} is not None:
            own = {mask}
        x = self.n1(x + self.attn.attend(x, x, own)[0])
        return self.n2(x + self.ff(x))
"""


@pytest.mark.parametrize("name", ["padding_mask", "attention_mask", "mask"])
def test_padding_in_a_decoder_only_block(judge, name):
    right, wrong = f"own & {name}[:, None, None]", f"own & {name}[:, None, :, None]"
    found = judge(PADDED.format(name=name, mask=right), "decoder_only_block")
    assert not accused(found)
    assert verdicts(found)["padding"] == verdicts(found)["recomputed"] == "passed"
    for mask in (wrong, "own", f"{name}[:, None, None]"):
        found = judge(PADDED.format(name=name, mask=mask), "decoder_only_block", "padding")
        assert verdicts(found)["padding"] == "failed", mask


OWN_AND_PADDING = """
class SelfAttention(Heads):
    def forward(self, x, attention_mask=None):
        '''attention_mask: (B, T), 1 = token, 0 = padding'''
        mask = past(x)
        if attention_mask is not None:
            mask = {mask}
        return self.attend(x, x, mask)[0]
"""


def test_self_attention_may_hide_the_future_beside_padding(judge):
    source = OWN_AND_PADDING.format(mask="mask & attention_mask.bool()[:, None, None]")
    found = judge(source, "multihead_attention")
    assert not accused(found)
    assert verdicts(found)["mask"] == verdicts(found)["recomputed"] == "passed"
    for mask in ("mask", "mask & ~attention_mask.bool()[:, None, None]"):
        found = judge(OWN_AND_PADDING.format(mask=mask), "multihead_attention", "mask")
        assert verdicts(found)["mask"] == "failed"


def test_a_full_mask_is_the_one_that_hides_the_future(judge):
    source = """
    class SelfAttention(Heads):
        def forward(self, x, mask=None):
            '''mask: (T, T) or (B, T, T), True = allowed'''
            own = past(x)
            if mask is not None:
                own = own & (mask[:, None] if mask.dim() == 3 else mask)
            return self.attend(x, x, own)[0]
    """
    assert verdicts(judge(source, "multihead_attention", "mask"))["mask"] == "failed"


@pytest.mark.parametrize("arguments", ["q, kv", "x, enc_outputs, blocked=None"])
def test_further_names_of_arguments(judge, arguments):
    name = "MultiHeadAttention" if "kv" in arguments else "CrossAttention"
    first, second = arguments.split(", ")[:2]
    hidden = "~blocked[:, None, None]" if "blocked" in arguments else "None"
    source = f"""
    class {name}(Heads):
        def forward(self, {arguments}):
            mask = {hidden} if {"blocked is not None" if "blocked" in arguments else "False"} else None
            return self.attend({first}, {second}, mask)[0]
    """
    role = "multihead_attention" if "kv" in arguments else "cross_attention"
    found = judge(source, role)
    assert not accused(found)
    assert verdicts(found)["recomputed"] == "passed"
    if "blocked" in arguments:
        assert verdicts(found)["padding"] == "passed"


@pytest.mark.parametrize(("words", "verdict"), [("-> scores (B, V)", "unsupported"), ("", "inconclusive")])
def test_a_stack_that_is_said_to_give_the_last_position_alone(judge, words, verdict):
    source = f"""
    class DecoderStack(nn.Module):
        def __init__(self, V, d, H, d_ff):
            super().__init__()
            self.embed = nn.Embedding(V, d)
            self.block = nn.TransformerDecoderLayer(d, H, d_ff, 0.0, batch_first=True)
            self.head = nn.Linear(d, V)

        def forward(self, tgt, memory):
            '''{words}'''
            x = self.embed(tgt)
            return self.head(self.block(x, memory, tgt_mask=~past(x))[:, -1])
    """
    assert verdicts(judge(source, "decoder_stack", "no-future"))["no-future"] == verdict


# norms and feed-forwards of another kind, which their code asks for by name

ASKED = """
class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.gain

class LayerNorm(nn.Module):
    '''Subtract the mean, divide by the deviation.'''

    def __init__(self, d):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.gain + self.shift

class Gated(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.w1, self.w3 = nn.Linear(d, inner, bias=False), nn.Linear(d, inner, bias=False)
        self.w2 = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        return self.w2({gate})

class Plain(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d, inner), nn.Linear(inner, d)

    def forward(self, x):
        return self.w2({act})

class {name}(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attn = Heads(d_model, n_heads)
        self.ff = {ff}
        self.n1, self.n2 = {norm}(d_model), {norm}(d_model)

    def forward(self, x):
        a = lambda y: self.attn.attend(y, y, past(y))[0]
        {body}

class FeedForward({base}):
    pass
"""
SILU, PLAIN_RELU, RESIDUALS = (
    "F.silu(self.w1(x)) * self.w3(x)",
    "F.relu(self.w1(x))",
    "x = x + a(self.n1(x)); return x + self.ff(self.n2(x))",
)


def asked(
    norm="nn.LayerNorm",
    ff="Plain(d_model, 4 * d_model)",
    body=RESIDUALS,
    gate=SILU,
    act=PLAIN_RELU,
    base="Plain",
):
    return ASKED.format(name="GPTBlock", norm=norm, ff=ff, body=body, gate=gate, act=act, base=base)


POST = "x = self.n1(x + a(x)); return self.n2(x + self.ff(x))"
NO_RESIDUAL = "x = x + a(self.n1(x)); return self.ff(self.n2(x))"
GATED = "Gated(d_model, 4 * d_model)"


@pytest.mark.parametrize("norm", ["RMSNorm", "nn.RMSNorm"])
@pytest.mark.parametrize("body", [RESIDUALS, POST], ids=["pre", "post"])
def test_a_block_with_an_rmsnorm_is_recomputed_with_it(judge, norm, body):
    found = judge(asked(norm=norm, body=body), "decoder_only_block")
    assert not accused(found)
    assert verdicts(found)["recomputed"] == "passed"


def test_a_block_that_is_to_have_a_layernorm_is_held_to_it(judge):
    taught = {"decoder_only_block": {"norm_kind": "layer"}}
    found = judge(asked(norm="nn.RMSNorm"), "decoder_only_block", "recomputed", conventions=taught)
    assert verdicts(found)["recomputed"] == "failed"


def test_a_layernorm_that_leaves_the_mean_in_is_told(judge):
    found = judge(
        asked(norm="LayerNorm").replace("class RMSNorm", "class Unused"), "decoder_only_block", "recomputed"
    )
    assert verdicts(found)["recomputed"] == "failed"
    assert "norm_kind" in found["recomputed"].failure.meant


@pytest.mark.parametrize("parts", [{"norm": "RMSNorm"}, {"ff": GATED}, {"norm": "nn.RMSNorm", "ff": GATED}])
def test_a_missing_residual_beside_an_rmsnorm_or_a_gate_is_told(judge, parts):
    found = judge(asked(body=NO_RESIDUAL, **parts), "decoder_only_block", "recomputed")
    assert verdicts(found)["recomputed"] == "failed"
    assert "The residual around the feed-forward is missing" in found["recomputed"].failure.what


GATES = {
    "silu": SILU,
    "gelu": "F.gelu(self.w3(x)) * self.w1(x)",
    "tanh": "F.gelu(self.w1(x), approximate='tanh') * self.w3(x)",
}


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("inner", ["4 * d_model", "d_model", "256", "8 * d_model // 3"])
def test_a_gated_feed_forward_of_any_inner_width(judge, gate, inner):
    made = f"Gated(d_model, {inner})"
    source = (
        asked(ff=made, gate=gate, base="Gated")
        + f"""
    def __init__(self, d_model):
        super().__init__(d_model, {inner})
"""
    )
    found = judge(source, "feed_forward")
    assert not accused(found)
    assert verdicts(found)["recomputed"] == "passed"
    if inner != "d_model":  # matrices that are all square may as well be those of attention
        found = judge(source, "decoder_only_block", "recomputed")
        assert verdicts(found)["recomputed"] == "passed"


@pytest.mark.parametrize("gate", ["self.w1(x) * self.w3(x)", "F.relu(self.w1(x)) * self.w3(x)"])
def test_a_gate_where_relu_is_taught_is_told(judge, gate):
    source = asked(ff=GATED, gate=gate, base="Gated")
    assert verdicts(judge(source, "decoder_only_block", "recomputed"))["recomputed"] == "failed"
    assert verdicts(judge(source, "feed_forward", "recomputed"))["recomputed"] == "failed"


def test_a_gate_without_its_activation_is_told(judge):
    source = asked(gate="F.silu(self.w3(x)) + self.w1(x)", base="Gated")
    assert verdicts(judge(source, "feed_forward", "recomputed"))["recomputed"] == "failed"


@pytest.mark.parametrize(
    "act", ["F.relu(self.w1(x)).square()", "F.relu(self.w1(x)) ** 2", "self.w1(x).relu().pow(2)"]
)
def test_a_squared_relu_is_asked_for(judge, act):
    for role in ("feed_forward", "decoder_only_block"):
        found = judge(asked(act=act), role)
        assert not accused(found)
        assert verdicts(found)["recomputed"] == "passed"


@pytest.mark.parametrize("act", ["F.relu(self.w1(x)) * self.w1(x)", "self.w1(x).square()"])
def test_a_square_that_nobody_asks_for_is_told(judge, act):
    assert verdicts(judge(asked(act=act), "feed_forward", "recomputed"))["recomputed"] == "failed"


NORM = """
class {name}(nn.Module):
    '''{words}'''

    def __init__(self, d):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.gain
"""


@pytest.mark.parametrize(
    ("name", "words", "verdict"),
    [
        ("Norm", "RMSNorm, as the large models have it", "unsupported"),
        ("Norm", "Root mean square layer normalization", "unsupported"),
        ("Norm", "LayerNorm, which unlike RMSNorm subtracts the mean", "failed"),
        ("Norm", "every row gets mean 0", "failed"),
        ("LayerNorm", "like RMSNorm", "failed"),
    ],
)
def test_what_is_called_an_rmsnorm_is_not_judged_as_a_layernorm(judge, name, words, verdict):
    found = judge(NORM.format(name=name, words=words), "layer_norm", "formula")
    assert verdicts(found)["formula"] == verdict


def test_a_function_that_its_author_calls_an_rmsnorm(judge):
    source = """
    def norm(x):
        # an RMSNorm without a gain
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    """
    assert verdicts(judge(source, "layer_norm", "formula"))["formula"] == "unsupported"
    source = source.replace("an RMSNorm", "a norm")
    assert verdicts(judge(source, "layer_norm", "formula"))["formula"] == "failed"


# gradients by hand

BY_HAND = """
import math
import numpy as np


class Param:
    def __init__(self, *shape):
        self.data = np.random.default_rng(math.prod(shape)).normal(size=shape) / shape[0] ** 0.5
        self.grad = np.zeros_like(self.data)


class Linear:
    def __init__(self, d_in, d_out):
        self.w, self.bias = Param(d_in, d_out), np.zeros(d_out)
        self.d_bias = np.zeros(d_out)
        self._x = None

    def forward(self, x):
        self._x = x  # for the way back
        return x @ self.w.data + self.bias


class LayerNorm:
    def __init__(self, d_model):
        self.params = {"gain": np.ones(d_model), "bias": np.zeros(d_model)}
        self.grads = {"gain": np.zeros(d_model), "bias": np.zeros(d_model)}

    def forward(self, x):
        self._normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return self._normed * self.params["GAIN"] + self.params["bias"]


class FeedForward:
    def __init__(self, d_model, d_ff):
        self.one, self.two = Linear(d_model, d_ff), Linear(d_ff, d_model)
        EXTRA

    def forward(self, x):
        return self.two.forward(np.maximum(0, self.one.forward(x)))


class MultiHeadAttention:
    def __init__(self, d_model, n_heads):
        self.h, self.parts = n_heads, [Linear(d_model, d_model) for _ in range(4)]

    def forward(self, q, k, v, mask=None):
        def split(x):
            return x.reshape(*x.shape[:2], self.h, -1).swapaxes(1, 2)

        q, k, v = (split(part.forward(x)) for part, x in zip(self.parts, (q, k, v)))
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = np.where(mask, scores, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self._weights = weights / weights.sum(-1, keepdims=True)
        x = (self._weights @ v).swapaxes(1, 2)
        return self.parts[3].forward(x.reshape(*x.shape[:2], -1))


class DecoderLayer:
    def __init__(self, d_model, n_heads, d_ff):
        self.own, self.cross = MultiHeadAttention(d_model, n_heads), MultiHeadAttention(d_model, n_heads)
        self.ff, self.norms = FeedForward(d_model, d_ff), [LayerNorm(d_model) for _ in range(3)]

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        self._memory = memory
        x = self.norms[0].forward(x + self.own.forward(x, x, x, tgt_mask))
        x = self.norms[1].forward(x + self.cross.forward(x, memory, memory, src_mask))
        return self.norms[2].forward(x + self.ff.forward(x))


class Decoder:
    def __init__(self, vocab_size, d_model, n_layers, n_heads, d_ff):
        self.table, self.last = Param(vocab_size, d_model), Linear(d_model, vocab_size)
        self.layers = LAYERS

    def forward(self, tgt, memory, src_mask=None, tgt_mask=None):
        d = self.table.data.shape[1]
        angle = np.arange(tgt.shape[1])[:, None] / 10000 ** (2 * (np.arange(d) // 2) / d)
        x = self.table.data[tgt] * d**0.5 + np.where(np.arange(d) % 2, np.cos(angle), np.sin(angle))
        for layer in self.layers:
            x = layer.forward(x, memory, src_mask, tgt_mask)
        return self.last.forward(x)
"""
ANEW = "[DecoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)]"


def by_hand(judge, role, *parts, layers=ANEW, gain="gain", extra=""):
    source = BY_HAND.replace("LAYERS", layers).replace("GAIN", gain).replace("EXTRA", extra)
    return judge(source, role, *parts)


@pytest.mark.parametrize("role", ["layer_norm", "feed_forward", "multihead_attention", "decoder_block"])
def test_gradients_that_a_layer_keeps_are_no_weights(judge, role):
    found = by_hand(judge, role)
    assert not accused(found)
    assert found["formula" if role == "layer_norm" else "recomputed"].verdict == "passed"
    assert found["formula" if role == "layer_norm" else "count"].verdict == "passed"


def test_what_calls_leave_behind_is_no_weight_of_a_stack(judge):
    parts = ("masked-future", "layers", "every-layer", "layer-memory", "recomputed")
    found = by_hand(judge, "decoder_stack", *parts)
    assert not accused(found)
    assert {found[part].verdict for part in ("layers", "every-layer", "layer-memory")} == {"passed"}


def test_mistakes_of_layers_with_gradients_are_seen(judge):
    shared = by_hand(
        judge, "decoder_stack", "layers", layers="[DecoderLayer(d_model, n_heads, d_ff)] * n_layers"
    )
    assert shared["layers"].verdict == "failed"
    ignored = by_hand(judge, "layer_norm", "formula", gain="bias")
    assert ignored["formula"].verdict == "failed"
    more = by_hand(judge, "feed_forward", "count", extra="self.three = Linear(d_model, d_ff)")
    assert more["count"].verdict == "failed"


BY_DEFAULT = """
from dataclasses import dataclass

ACTS = {{"relu": {relu}, "gelu": F.gelu, "swish": F.silu}}
CONFIG = {{"d_model": 8, "act": "{named}"}}


@dataclass
class Config:
    d_model: int = 8
    act: str = "{named}"


class MLP(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.up, self.down = nn.Linear({d}, 4 * {d}), nn.Linear(4 * {d}, {d})
        self.act = {act}

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class GPTBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attn, self.ff = Heads(d_model, n_heads), MLP({given})

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn.attend(h, h, past(x))[0]
        return x + self.ff(self.n2(x))
"""


def by_default(parameters, act, named="gelu", relu="F.relu"):
    by_key = "config" in parameters
    d = "d_model" if not by_key else 'config["d_model"]' if "Config" not in parameters else "config.d_model"
    given = (
        "d_model"
        if not by_key
        else "Config(d_model)"
        if "Config" in parameters
        else "{**CONFIG, 'd_model': d_model}"
    )
    return BY_DEFAULT.format(parameters=parameters, act=act, named=named, relu=relu, d=d, given=given)


@pytest.mark.parametrize("named", ["gelu", "swish"])
@pytest.mark.parametrize(
    ("parameters", "act"),
    [
        ('d_model, act="NAMED"', "ACTS[act]"),
        ('d_model, *, act="NAMED"', "ACTS[act]"),
        ("d_model, act=ACTS['NAMED']", "act"),
        ("d_model, act=nn.LAYER()", "act"),
        ("d_model, act=nn.LAYER", "act()"),
        ("config: Config", "ACTS[config.act]"),
        ("config", 'ACTS[config["act"]]'),
    ],
)
def test_an_activation_that_is_a_default_is_asked_for(judge, parameters, act, named):
    layer = {"gelu": "GELU", "swish": "SiLU"}[named]
    source = by_default(parameters.replace("NAMED", named).replace("LAYER", layer), act, named)
    assert verdicts(judge(source, "feed_forward", "recomputed"))["recomputed"] == "passed"


@pytest.mark.parametrize(
    ("parameters", "act"),
    [
        ('d_model, act="relu"', "ACTS[act]"),
        ("d_model, act=nn.ReLU()", 'ACTS["relu"]'),
        ("config: Config", "ACTS[config.act]"),
        ("config", 'ACTS[config["act"]]'),
    ],
)
def test_another_activation_than_the_default_is_told(judge, parameters, act):
    source = by_default(parameters, act, "relu", "F.gelu")
    assert verdicts(judge(source, "feed_forward", "recomputed"))["recomputed"] == "failed"


def test_a_block_asks_for_the_default_of_its_feed_forward(judge):
    for relu, named, verdict in (("F.relu", "gelu", "passed"), ("F.gelu", "relu", "failed")):
        for parameters, act in (
            ('d_model, act="NAMED"', "ACTS[act]"),
            ("config: Config", "ACTS[config.act]"),
        ):
            source = by_default(parameters.replace("NAMED", named), act, named, relu)
            found = judge(source, "decoder_only_block", "recomputed")
            assert verdicts(found)["recomputed"] == verdict, parameters


@pytest.mark.parametrize(
    "inner",
    ["d_model // 4", "d_model // 2", "3 * d_model // 4", "2", "3", "d_model", "2 * d_model"],
)
def test_a_feed_forward_as_wide_as_it_likes_is_recomputed(judge, inner):
    source = asked(ff=f"Plain(d_model, {inner})")
    assert verdicts(judge(source, "decoder_only_block", "recomputed"))["recomputed"] == "passed"


@pytest.mark.parametrize("inner", ["d_model // 4", "d_model // 2"])
@pytest.mark.parametrize(
    "mistake",
    [
        {"act": "self.w1(x)"},
        {"act": "self.w1(x) * (1 + torch.erf(self.w1(x) / 2**0.5)) / 2"},
        {"act": "F.relu(self.w1(x)) * 1.1"},
        {"body": NO_RESIDUAL},
        {"body": "x = x + a(self.n1(x)); return x + self.ff(x)"},
        {"body": "x = x + a(x); return x + self.ff(self.n2(x))"},
    ],
    ids=["no activation", "gelu", "scaled", "no residual", "no norm", "one norm"],
)
def test_mistakes_of_a_block_with_a_narrow_feed_forward_are_told(judge, inner, mistake):
    found = accused(judge(asked(ff=f"Plain(d_model, {inner})", **mistake), "decoder_only_block"))
    assert "failed" in {verdict for verdict, *_ in found.values()}


TWICE = """
class MaskedMultiHeadedSelfAttention(Heads):
    def forward(self, q, kv{more}):
        return self.attend(q, kv, {mask})[0]
"""


@pytest.mark.parametrize(
    ("mask", "wrong"),
    [("past(q)", set()), ("~past(q)", {"no-future"}), ("None", {"no-future"}), ("past(q).triu()", {"reach"})],
)
def test_causal_attention_that_is_handed_its_sequence_twice(judge, mask, wrong):
    found = accused(judge(TWICE.format(mask=mask, more=""), "causal_self_attention"))
    assert wrong <= found.keys()
    assert wrong or not found


def test_a_mask_from_outside_is_not_missed(judge):
    source = TWICE.format(mask="mask", more=", mask=None")
    assert not {v.verdict for v in judge(source, "causal_self_attention").values()} & {"passed", "failed"}
