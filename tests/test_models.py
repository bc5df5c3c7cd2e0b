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


class TwoVocabularies(nn.Module):
    """A translator with a table of words for each side, which others tie or get wrong."""

    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads):
        super().__init__()
        self.src_words, self.tgt_words = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.layer = nn.TransformerDecoderLayer(d_model, n_heads, 16, 0.0, batch_first=True)
        self.head = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        mixed = self.layer(self.tgt_words(tgt), self.src_words(src), tgt_mask=triangle(tgt.size(1)))
        return self.head(mixed)


def tied(one, other):
    def build(self, *args):
        TwoVocabularies.__init__(self, *args)
        getattr(self, one).weight = getattr(self, other).weight

    return build


def too_large(self, src_vocab, tgt_vocab, d_model, n_heads):
    TwoVocabularies.__init__(self, tgt_vocab, tgt_vocab, d_model, n_heads)
    self.head.weight = self.tgt_words.weight


@pytest.mark.parametrize(
    ("build", "verdict"),
    [
        (TwoVocabularies.__init__, "passed"),
        (tied("src_words", "tgt_words"), "passed"),
        (tied("tgt_words", "src_words"), "passed"),
        (tied("head", "tgt_words"), "passed"),
        (too_large, "failed"),
    ],
    ids=["apart", "the target's", "the source's", "with the head", "too large"],
)
def test_tied_words_are_one_vocabulary(build, verdict):
    def init(self, src_vocab, tgt_vocab, d_model, n_heads):
        build(self, src_vocab, tgt_vocab, d_model, n_heads)

    candidate = type("Transformer", (TwoVocabularies,), {"__init__": init})
    report = judged(candidate, "encoder-decoder.source-ids,encoder-decoder.shape,encoder-decoder.target-ids")
    assert outcome(report, "encoder-decoder.shape").verdict == "passed"
    assert outcome(report, "encoder-decoder.source-ids").verdict == verdict


class Steps(Base):
    def encode(self, src):
        return self.words(src)

    def decode(self, tgt, memory):
        return Base.forward(self, tgt, memory)

    def forward(self, src, trg):
        return Base.forward(self, trg, self.encode(src))


def of_vectors(self, tgt, memory):
    return self.head(self.layers[0](tgt * 1.0, memory))


def one_word(self, tgt, memory):
    assert tgt.shape[1] == 1
    return Base.forward(self, tgt, memory)


@pytest.mark.parametrize(
    ("decode", "verdict", "told"),
    [
        (lambda self, tgt, memory: self.decoder(tgt, memory), "errored", "no attribute 'decoder'"),
        (lambda self, tgt, memory: no_such_name(tgt, memory), "errored", "no_such_name"),  # noqa: F821
        (of_vectors, "unsupported", "the first attempt: "),
        (one_word, "unsupported", "the first attempt: AssertionError"),
        (Steps.decode, "passed", ""),
    ],
    ids=["attribute", "name", "vectors", "one word", "right"],
)
def test_a_decode_that_can_never_answer_is_told(decode, verdict, told):
    report = judged(type("Translator", (Steps,), {"decode": decode}), "encoder-decoder.composition")
    found = outcome(report, "encoder-decoder.composition")
    assert found.verdict == verdict
    assert told in (found.failure.what if found.failure else found.reason)


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


class TimeMajor(Base):
    """Layers with the sequence first, as PyTorch makes them."""

    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__(V, d, H, d_ff, n_layers)
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(d, H, d_ff, 0.0) for _ in range(n_layers))
        self.places = nn.Parameter(torch.randn(80, d))

    def forward(self, tgt, memory):
        return self.run(tgt, memory, triangle(tgt.size(0)))


def test_sequence_first_is_seen_where_no_call_with_the_batch_first_succeeds():
    candidate = type("DecoderStack", (TimeMajor,), {})
    report = judged(candidate, FEW + ",decoder-stack.no-future,decoder-stack.batch")
    assert report.conforms, report
    assert report.binding[0].conventions["layout"] == ("sequence_first", "probed")
    leaky = type("DecoderStack", (TimeMajor,), {"forward": lambda self, tgt, mem: self.run(tgt, mem, None)})
    assert outcome(judged(leaky, "decoder-stack.no-future"), "decoder-stack.no-future").verdict == "failed"


def test_sequence_first_is_told_where_the_author_says_otherwise_and_can_be_declared():
    candidate = type("DecoderStack", (TimeMajor,), {"__doc__": "tgt: (B, T), memory: (B, S, d)"})
    wrong = outcome(judged(candidate, "decoder-stack.shape"), "decoder-stack.shape")
    assert wrong.verdict == "errored"
    assert 'layout = "sequence_first"' in wrong.reason
    report = judged(
        candidate,
        "decoder-stack.shape,decoder-stack.no-future",
        conventions={"decoder_stack": {"layout": "sequence_first"}},
    )
    assert report.conforms, report


def length_from_the_batch(self, tgt, memory):
    T, _ = tgt.shape
    return self.run(tgt, memory, triangle(T))


def batch_first_forgotten(self, tgt, memory):
    return self.run(tgt, memory, triangle(tgt.size(1)))


def places_along_the_batch(self, tgt, memory):
    x = self.words(tgt) + self.places[: tgt.size(1)]
    for layer in self.layers:
        x = layer(x, memory, tgt_mask=triangle(tgt.size(0)))
    return self.head(x)


@pytest.mark.parametrize(
    ("forward", "base"),
    [
        (length_from_the_batch, Base),
        (batch_first_forgotten, TimeMajor),
        (places_along_the_batch, TimeMajor),
    ],
    ids=lambda part: part.__name__,
)
def test_a_mistake_with_the_batch_first_is_not_taken_for_the_sequence_first(forward, base):
    report = judged(stack(forward, base), "decoder-stack.*")
    assert outcome(report, "decoder-stack.shape").verdict == "errored"
    assert "sequence_first" not in outcome(report, "decoder-stack.shape").reason
    assert report.counts["passed"] == 0


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
