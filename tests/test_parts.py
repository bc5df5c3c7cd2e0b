"""Constructors that take submodules: the parts are made from the candidate's own classes, or all by its factory."""

import sys

import pytest

PIECES = """
import copy
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        def split(f, x):
            return f(x).view(x.size(0), x.size(1), self.n_heads, -1).transpose(1, 2)

        q, k, v = split(self.q, query), split(self.k, key), split(self.v, value)
        scores = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, d_model, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, hidden), nn.ReLU(), nn.Linear(hidden, d_model))

    def forward(self, x):
        return self.net(x)
"""

BLOCK = """
class DecoderBlock(nn.Module):
    def __init__(self, self_attn{attention}, cross_attn{attention}, ff{feed}, d_model):
        super().__init__()
        self.self_attn, self.cross_attn, self.ff = self_attn, cross_attn, ff
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        x = self.norms[0](x + self.self_attn(x, x, x, tgt_mask))
        x = self.norms[1](x + self.cross_attn(x, memory, memory, src_mask))
        return {last}
"""
LAST = "self.norms[2](x + self.ff(x))"

STACK = """
class Decoder(nn.Module):
    def __init__(self, layers: nn.ModuleList, norm: nn.Module = None):
        super().__init__()
        self.layers = layers

    def forward(self, x, memory, tgt_mask, src_mask):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, src_mask)
        return x
"""


def broken(report):
    bad = ("failed", "errored", "inconclusive", "suite_fault")
    return {v.claim for v in report.verdicts if v.verdict in bad and v.level == "MUST"}


@pytest.mark.parametrize("annotated", [True, False])
def test_a_block_is_made_from_the_classes_of_its_file(report_on, annotated):
    attention, feed = (": Attention", ": FeedForward") if annotated else ("", "")
    report = report_on(PIECES + BLOCK.format(attention=attention, feed=feed, last=LAST), "decoder_block")
    assert not broken(report)
    assert any(v.claim == "decoder-block.recomputed" and v.verdict == "passed" for v in report.verdicts)
    (found,) = (item for item in report.binding if item.role == "decoder_block")
    assert "self_attn (Attention)" in found.conventions["sizes"][0]


@pytest.mark.parametrize(
    ("last", "claim"),
    [
        ("self.norms[2](self.ff(x))", "decoder-block.residual"),
        ("x", "decoder-block.recomputed"),  # one of the parts is not used at all
    ],
)
def test_a_block_with_parts_is_judged_as_any_other(report_on, last, claim):
    report = report_on(PIECES + BLOCK.format(attention="", feed="", last=last), "decoder_block")
    assert claim in broken(report)


def test_the_snippet_makes_the_parts(report_on, tmp_path):
    source = PIECES + BLOCK.format(attention="", feed="", last="self.norms[2](self.ff(x))")
    report = report_on(
        source.replace("x + self.self_attn(x, x, x, tgt_mask)", "x + self.self_attn(x, x, x)"),
        "decoder_block",
    )
    (snippet,) = (v.failure.snippet for v in report.verdicts if v.claim == "decoder-block.no-future")
    assert "Attention(d_model=" in snippet
    namespace = {}
    sys.path.insert(0, str(tmp_path))
    sys.modules.pop("candidate", None)
    try:
        exec(compile(snippet, "snippet", "exec"), namespace)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("candidate", None)
    assert isinstance(namespace["layer"].self_attn, type(namespace["layer"].cross_attn))


def test_a_list_of_layers_is_several_of_them_and_no_number(report_on):
    block = BLOCK.format(attention="", feed="", last=LAST)
    report = report_on(PIECES + block + STACK, "decoder_stack")
    assert not broken(report)
    assert any(v.verdict == "passed" for v in report.verdicts)


@pytest.mark.parametrize("parameter", ["layers", "layers: list[nn.Module]"])
def test_layers_for_which_there_is_no_class_are_not_judged(report_on, parameter):
    report = report_on(
        PIECES + STACK.replace("layers: nn.ModuleList", parameter), "decoder_stack", "feed_forward"
    )
    assert not broken(report)
    assert [item.object for item in report.binding if not item.judged] == ["Decoder"]


FACTORY = """
class Translator(nn.Module):
    def __init__(self, source, target, body, head):
        super().__init__()
        self.source, self.target, self.body, self.head = source, target, body, head

    def forward(self, src, tgt):
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).tril()
        x, memory = self.target(tgt), self.source(src)
        for block in self.body:
            x = block(x, memory, {mask})
        return self.head(x)


def make_model(src_vocab, tgt_vocab, d_model=32, n_heads=4, n_layers=2, d_ff=64):
    blocks = [
        DecoderBlock(Attention(d_model, n_heads), Attention(d_model, n_heads), FeedForward(d_model, d_ff), d_model)
        for _ in range(n_layers)
    ]
    source, target = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
    model = Translator(source, target, nn.ModuleList(blocks), nn.Linear(d_model, tgt_vocab))
    return model.eval()
"""


def test_a_model_is_made_by_the_function_that_returns_it(report_on):
    source = PIECES + BLOCK.format(attention="", feed="", last=LAST) + FACTORY
    right = report_on(source.replace("{mask}", "future"), "encoder_decoder")
    assert not broken(right) - {"encoder-decoder.source-order", "encoder-decoder.order"}
    assert any(v.claim == "encoder-decoder.no-future" and v.verdict == "passed" for v in right.verdicts)
    wrong = report_on(source.replace("{mask}", "None"), "encoder_decoder")
    assert "encoder-decoder.no-future" in broken(wrong)


def test_weights_that_nobody_has_written_yet_get_usual_values(report_on):
    source = PIECES.replace(
        "self.net = nn.Sequential(nn.Linear(d_model, hidden), nn.ReLU(), nn.Linear(hidden, d_model))",
        "self.up = nn.Parameter(torch.empty(hidden, d_model)); self.down = nn.Parameter(torch.empty(d_model, hidden))",
    ).replace("return self.net(x)", "return (x @ self.up.T).relu() @ self.down.T")
    report = report_on(source, "feed_forward")
    assert not broken(report)
    wrong = report_on(source.replace(".relu()", ".sigmoid()"), "feed_forward")
    assert "feed-forward.recomputed" in broken(wrong)


def test_parts_come_from_the_own_file_before_those_beside_it(tmp_path):
    from triu.conformance import check

    other = PIECES.replace("class Attention", "class CrossAttention").replace(
        "query, key, value", "query, source"
    )
    (tmp_path / "a_other.py").write_text(other, "utf-8")
    block = BLOCK.format(attention="", feed="", last=LAST)
    (tmp_path / "model.py").write_text(PIECES + block, "utf-8")
    report = check(tmp_path, claims="decoder-block.recomputed", in_process=True)
    assert [v.verdict for v in report.verdicts] == ["passed"]
