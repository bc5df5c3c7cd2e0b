"""Whole models: what correct ones may do differently is accepted, and what is wrong or unreadable is told."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from triu.conformance import check
from triu.conformance.candidates.models import louder
from triu.conformance.candidates.session import Built, open_session
from triu.conformance.candidates.target import Target
from triu.spec import load_spec

SPEC = load_spec()
FEW = ",".join(
    f"decoder-stack.{name}" for name in ("shape", "parallel", "reach", "memory", "every-layer", "state")
)


class Base(nn.Module):
    """A stack that others change in one respect: words, layers of PyTorch, head."""

    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__()
        self.words = nn.Embedding(V, d)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(d, H, d_ff, 0.0, batch_first=True) for _ in range(n_layers)
        )
        self.head = nn.Linear(d, V)

    def run(self, tgt, memory, blocked):
        x = self.words(tgt)
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=blocked)
        return self.head(x)

    def forward(self, tgt, memory):
        return self.run(tgt, memory, triangle(tgt.size(1)))


def triangle(T):
    return torch.ones(T, T).triu(1).bool()


def stack(forward, base=Base):
    """A class DecoderStack with another forward."""
    return type("DecoderStack", (base,), {"forward": forward})


def judged(candidate, claims="decoder-stack.*", **options):
    return check(candidate, spec=SPEC, claims=claims, seed=0, **options)


def outcome(report, claim):
    (verdict,) = [v for v in report.verdicts if v.claim == claim]
    return verdict


# what may differ


def flattened(self, tgt, memory):
    return Base.forward(self, tgt, memory).flatten(0, 1)


def log_probabilities_and_more(self, tgt, memory):
    return {"state": memory.mean(), "scores": Base.forward(self, tgt, memory).log_softmax(-1), "loss": None}


def hidden_states(self, tgt, memory):
    x = self.words(tgt)
    for layer in self.layers:
        x = layer(x, memory, tgt_mask=triangle(tgt.size(1)))
    return x


def own_mask_by_default(self, tgt, memory, tgt_mask=None):
    """tgt_mask: (T, T), True = allowed."""
    return self.run(tgt, memory, triangle(tgt.size(1)) if tgt_mask is None else ~tgt_mask)


def added_mask(self, tgt, memory, mask):
    return self.run(tgt, memory, torch.zeros_like(memory[0, 0, 0]) + mask.to(memory.dtype))


def single_precision_inside(self, tgt, memory):
    return Base.forward(self.float(), tgt, memory.float())


def talkative(self, tgt, memory):
    print("forward")
    return Base.forward(self, tgt, memory)


@pytest.mark.parametrize(
    "forward",
    [
        flattened,
        log_probabilities_and_more,
        hidden_states,
        own_mask_by_default,
        added_mask,
        single_precision_inside,
        talkative,
    ],
    ids=lambda forward: forward.__name__,
)
def test_a_correct_stack_is_not_accused(forward):
    report = judged(stack(forward), FEW)
    assert report.conforms, report
    assert report.counts["passed"] == 6


def test_a_stack_of_vectors_without_embedding_is_judged_as_one():
    class Decoder(nn.Module):
        def __init__(self, d_model, n_heads, n_layers):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.TransformerDecoderLayer(d_model, n_heads, 16, 0.0, batch_first=True)
                for _ in range(n_layers)
            )

        def forward(self, x, memory):
            for block in self.blocks:
                x = block(x, memory, tgt_mask=triangle(x.size(1)))
            return x

    report = judged(Decoder)
    assert report.conforms, report
    assert outcome(report, "decoder-stack.ids").verdict == "unsupported"


def test_single_sequences_are_judged_row_by_row():
    class DecoderStack:
        def __init__(self, V, d, layers):
            draw = np.random.default_rng(0)
            self.words, self.head = draw.normal(size=(V, d)), draw.normal(size=(d, V))
            self.mix = [draw.normal(size=(d, d)) / math.sqrt(d) for _ in range(layers)]

        def forward(self, ids, memory):
            x = self.words[ids]
            for mix in self.mix:
                seen = np.tri(len(ids)) / np.arange(1, len(ids) + 1)[:, None]
                weights = np.exp(x @ memory.T / 4)
                x = np.tanh(seen @ x @ mix + weights / weights.sum(-1, keepdims=True) @ memory)
            return x @ self.head

    report = judged(DecoderStack)
    assert report.conforms, report
    assert report.counts["passed"] >= 9
    assert outcome(report, "decoder-stack.batch").verdict == "unsupported"


def test_what_encode_returns_reaches_decode_whatever_it_is():
    class Translator(Base):
        def encode(self, src):
            return self.words(src), src.size(1)

        def decode(self, memory, tgt):
            states, length = memory
            return Base.forward(self, tgt, states[:, :length])

        def forward(self, src, trg):
            return self.decode(self.encode(src), trg)

    report = judged(Translator, "encoder-decoder.*")
    assert report.conforms, report
    for claim in ("composition", "memory-argument", "source"):
        assert outcome(report, f"encoder-decoder.{claim}").verdict == "passed"


def test_a_lesson_translator_without_forward_is_judged_by_its_steps():
    class TinyTranslator(nn.Module):
        def __init__(self, V, d, H, d_ff):
            super().__init__()
            self.stack = Base(V, d, H, d_ff, 1)

        def encode(self, src):
            return self.stack.words(src)

        def decode_step(self, tgt, enc_out):
            return self.stack(tgt, enc_out)

    report = judged(TinyTranslator, "encoder-decoder.*")
    assert report.conforms, report
    assert outcome(report, "encoder-decoder.encoder").verdict == "unsupported"  # it only embeds


# what is told


def test_the_other_polarity_is_told_and_can_be_declared():
    candidate = stack(lambda self, tgt, memory, mask: self.run(tgt, memory, ~mask))
    failure = outcome(judged(candidate, "decoder-stack.no-future"), "decoder-stack.no-future").failure
    assert failure is not None
    assert failure.meant.startswith("correct if you meant: True or 1 in the causal mask is allowed")
    assert judged(candidate, FEW, conventions={"decoder_stack": {"polarity": "allow"}}).conforms


def test_sequence_first_is_told_and_can_be_declared():
    class DecoderStack(Base):
        def forward(self, tgt, memory, tgt_key_padding_mask=None):
            turned = super().run(tgt.mT, memory.transpose(0, 1), triangle(len(tgt)))
            return turned.transpose(0, 1)

        def run(self, tgt, memory, blocked):
            assert tgt.shape[0] == memory.shape[0]
            return super().run(tgt, memory, blocked)

    candidate = DecoderStack
    wrong = outcome(judged(candidate, "decoder-stack.shape"), "decoder-stack.shape")
    assert wrong.verdict == "errored"
    assert 'layout = "sequence_first"' in wrong.reason
    report = judged(
        candidate,
        "decoder-stack.shape,decoder-stack.no-future",
        conventions={"decoder_stack": {"layout": "sequence_first"}},
    )
    assert report.conforms, report


def test_a_leak_is_not_explained_by_an_absurd_layout():
    leaky = stack(lambda self, tgt, memory: self.run(tgt, memory, None))
    failure = outcome(judged(leaky, "decoder-stack.no-future"), "decoder-stack.no-future").failure
    assert failure is not None
    assert failure.meant == ""


def test_a_leak_that_the_initial_weights_hide_is_seen():
    class DecoderStack(Base):
        def __init__(self, V, d, H, d_ff, n_layers):
            super().__init__(V, d, H, d_ff, n_layers)
            self.gate = nn.Linear(d, d)
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

        def forward(self, tgt, memory):
            return super().forward(tgt, memory) + self.head(self.gate(self.words(tgt).mean(1, keepdim=True)))

    assert (
        outcome(judged(DecoderStack, "decoder-stack.no-future"), "decoder-stack.no-future").verdict
        == "failed"
    )


def test_a_language_model_of_a_whole_models_name_is_not_accused():
    class Transformer(Base):
        def forward(self, x, y=None):
            logits = self.run(x, self.words(x) * 0, triangle(x.size(1)))
            return logits, None if y is None else nn.functional.cross_entropy(
                logits.flatten(0, 1), y.flatten()
            )

    report = judged(Transformer, "encoder-decoder.*")
    assert set(report.counts) >= {"unsupported"}
    assert report.counts["failed"] == report.counts["errored"] == 0


def nothing(self, tgt, memory):
    return None


def plain_lists(self, tgt, memory):
    return [[1.0, 2.0], [3.0]]


def one_number(self, tgt, memory):
    return torch.tensor(1.0)


def not_numbers(self, tgt, memory):
    return Base.forward(self, tgt, memory) * math.nan


def too_many_axes(self, tgt, memory):
    return Base.forward(self, tgt, memory)[None, None]


def whole_numbers(self, tgt, memory):
    return Base.forward(self, tgt, memory).argmax(-1)


def failing(self, tgt, memory):
    raise RuntimeError("needs CUDA")


@pytest.mark.parametrize(
    "forward",
    [nothing, plain_lists, one_number, not_numbers, too_many_axes, whole_numbers, failing],
    ids=lambda forward: forward.__name__,
)
def test_answers_of_any_kind_are_told_and_never_end_the_check(forward):
    report = judged(stack(forward), FEW)
    assert not report.conforms
    assert not report.suite_fault
    told = [v for v in report.verdicts if v.verdict in ("failed", "errored")]
    assert told
    assert all(v.failure is not None and v.failure.what for v in told)


# the machinery


def test_louder_weights_are_reproducible_and_keep_silent_rows():
    values = np.zeros((4, 3))
    values[1:] = 0.01
    once, again = louder("words", values), louder("words", values)
    assert np.array_equal(once, again)
    assert not once[0].any()
    assert once[1:].std() > 0.3
    assert not np.array_equal(once, louder("other", values))
    assert louder("head", np.zeros((3, 3))).any()


def test_a_session_lists_repeated_parts_and_passes_state_on():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2)] * 2)

        def forward(self, x):
            return x

    session = open_session(Target("live", {}), live={"Twice": Twice})
    session.open()
    one, other = Built("live:Twice"), Built("live:Twice", variant="other")
    assert [p["name"] for p in session.parameters(one)] == ["layers.0.weight", "layers.0.bias"]
    listed = {p["name"]: p["alias"] for p in session.parameters(one, repeated=True)}
    assert listed["layers.1.weight"] == "layers.0.weight"
    first = session.parameters(one)[0]
    session.load(one, {first["name"]: first["value"]})
    assert session.state(one, other) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
    ]
    session.close()
