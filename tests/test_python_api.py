"""``check`` from Python: live objects, tables of conventions, a readable repr."""

import pytest
import torch
from torch import nn
from triu.conformance import check
from triu.conformance.candidates.errors import ConventionError, TargetError


def my_causal_mask(T):
    return torch.ones(T, T).triu(1).bool()


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.size(-1)  # not the square root
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    return scores.softmax(-1) @ v


class MyDecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(d_model, n_heads, d_ff, dropout=0.0, batch_first=True)

    def forward(self, x, memory, causal_mask=None):
        return self.layer(x, memory, tgt_mask=causal_mask)


def test_a_live_class_is_recognised_by_its_name():
    report = check(MyDecoderBlock)
    assert report.conforms
    assert report.provides == ("decoder_block",)


def test_a_live_function_is_recognised_by_its_signature_where_its_name_says_nothing():
    def whatever(query, key, value, mask=None):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    assert check(whatever, claims="attention.scaled").conforms
    assert check(whatever, claims=["attention.scaled", "attention.row-*"]).conforms


def test_the_repr_says_what_is_broken():
    text = repr(check(attention))
    assert "does not conform" in text
    assert "attention.scaled" in text
    assert "expected" in text


def test_an_object_without_a_role_is_refused():
    with pytest.raises(TargetError, match="nothing in it fills a role"):
        check(lambda a, b: a)


def test_an_unknown_convention_is_refused_with_the_known_ones():
    with pytest.raises(ConventionError, match="polarity"):
        check(my_causal_mask, conventions={"causal_mask": {"polarty": "allow"}})


def test_a_role_can_be_assigned():
    def f(T):
        return my_causal_mask(T)

    assert check(f, roles={"causal_mask": "f"}).conforms
