"""What a mask means: by the attention that it is handed to, by other names, in the shape that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from triu.conformance import check
from triu.spec import Verdict, load_spec

SPEC = load_spec()


def verdicts(tmp_path: Path, text: str, claims: str = "") -> dict[str, Verdict]:
    (tmp_path / "submission.py").write_text(text)
    report = check(tmp_path / "submission.py", spec=SPEC, **({"claims": claims} if claims else {}))
    return {f"{v.object}: {v.claim}": v for v in report.verdicts if v.verdict != "unsupported"}


def broken(tmp_path: Path, text: str, claims: str = "") -> dict[str, str]:
    """What MUST hold and does not, by claim."""
    found = verdicts(tmp_path, text, claims)
    assert any(v.verdict == "passed" for v in found.values()) or any(
        v.verdict != "passed" for v in found.values()
    )
    return {k: v.verdict for k, v in found.items() if v.level == "MUST" and v.verdict != "passed"}


PYTORCHS = """
from torch import nn

class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.a, self.b, self.c = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, tgt_mask=None, memory_key_padding_mask=None):
        x = self.a(x + self.own(x, x, x, attn_mask={mask})[0])
        x = self.b(x + self.cross(x, memory, memory, {padding}=memory_key_padding_mask)[0])
        return self.c(x + self.feed(x))
"""


@pytest.mark.parametrize(
    ("mask", "wrong"),
    [
        ("tgt_mask", False),  # what PyTorch's attention takes: True blocks
        ("None if tgt_mask is None else ~tgt_mask", False),  # what the name says: True allows
        ("None", True),
    ],
)
def test_a_mask_that_is_handed_on_means_what_it_means_to_pytorch(
    tmp_path: Path, mask: str, wrong: bool
) -> None:
    found = broken(tmp_path, PYTORCHS.format(mask=mask, padding="key_padding_mask"))
    assert any("no-future" in claim for claim in found) == wrong, found


@pytest.mark.parametrize(("padding", "wrong"), [("key_padding_mask", False), ("attn_mask", True)])
def test_a_mask_called_key_padding_mask_has_one_row_for_a_sequence(
    tmp_path: Path, padding: str, wrong: bool
) -> None:
    found = broken(
        tmp_path, PYTORCHS.format(mask="tgt_mask", padding=padding), "decoder-block.memory-padding"
    )
    assert bool(found) == wrong, found


FILE = '''
import torch
from torch import nn

def look_up(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / Q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill({hides}, -1e9)
    return scores.softmax(-1) @ V

class MultiHeadAttention(nn.Module):
    """{words}"""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        return self.o(look_up(q, k, v, mask).transpose(1, 2).flatten(2))

class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.attend = MultiHeadAttention(d_model, num_heads)
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.a, self.b = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, src_mask):
        x = self.a(x + self.attend(x, x, x, src_mask))
        return self.b(x + self.feed(x))

def make_tgt_mask(tgt, pad_idx=1):
    padding = (tgt {equal} pad_idx)[:, None, None, :]
    return padding {join} torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).{triangle}
'''
BLOCKS = {
    "hides": "mask", "equal": "==", "join": "|", "triangle": "triu(1)",
    "words": "mask: broadcasts to (B, h, T, S); True marks what is masked out.",
}  # fmt: skip
ALLOWS = {
    "hides": "mask == 0", "equal": "!=", "join": "&", "triangle": "tril()",
    "words": "mask: broadcasts to (B, h, T, S); True where attention is allowed.",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (BLOCKS, ()),
        (ALLOWS, ()),
        ({**ALLOWS, "words": ""}, ()),
        ({**BLOCKS, "triangle": "triu(0)"}, ("make_tgt_mask",)),
        ({**ALLOWS, "triangle": "tril(-1)"}, ("make_tgt_mask",)),
        ({**ALLOWS, "triangle": "triu(1)"}, ("make_tgt_mask",)),
        ({**BLOCKS, "hides": "~mask"}, ("MultiHeadAttention", "EncoderLayer", "look_up")),
    ],
    ids=["blocks", "allows", "unsaid", "hides itself", "misses itself", "mixed up", "against its words"],
)
def test_one_file_has_one_meaning(tmp_path: Path, change: dict[str, str], wrong: tuple[str, ...]) -> None:
    found = broken(tmp_path, FILE.format(**change).replace("look_up", "scaled_dot_product_attention"))
    names = {claim.partition(":")[0].replace("scaled_dot_product_attention", "look_up") for claim in found}
    names = {name for name in names if " + " not in name}
    assert names == set(wrong), found


def test_a_mask_function_beside_attention_that_means_the_contrary_is_read_as_that_attention_reads_it(
    tmp_path: Path,
) -> None:
    text = FILE.format(**{**ALLOWS, "words": ""})
    text += "\n\ndef get_pad_mask(seq, pad_idx):\n    return (seq != pad_idx).unsqueeze(-2)\n"
    assert broken(tmp_path, text) == {}
    assert "get_pad_mask: padding-mask.pattern" in broken(
        tmp_path, text.replace("seq != pad_idx", "seq > pad_idx + 1")
    )


MASKED = """
import torch


def masked_attention(query, key, value, {name}=None):
    {words}
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if {name} is not None:
        scores = {masked}
    return scores.softmax(-1) @ value
"""
ADDED = "scores + {name}"
HIDDEN = "scores.masked_fill({name}, float('-inf'))"
SHOWN = "scores.masked_fill({name} == 0, float('-inf'))"


@pytest.mark.parametrize(
    ("name", "masked", "words"),
    [
        ("maske", ADDED, "pass"),
        ("attention_bias", ADDED, "pass"),
        ("causal", ADDED, "pass"),
        ("look_ahead", HIDDEN, "pass"),
        ("future_positions", HIDDEN, "pass"),
        ("blocked_positions", HIDDEN, "pass"),
        ("masque", HIDDEN, '"""masque : booléen, True = position interdite"""'),
        ("visible_keys", SHOWN, "pass"),
        ("M", SHOWN, "pass"),
    ],
)
def test_a_mask_of_another_name_is_a_mask(tmp_path: Path, name: str, masked: str, words: str) -> None:
    text = MASKED.format(name=name, masked=masked.format(name=name), words=words)
    assert broken(tmp_path, text) == {}
    wrong = text.replace("scores.softmax(-1)", "scores.softmax(-2)")
    assert broken(tmp_path, wrong) != {}


@pytest.mark.parametrize("name", ["rel_pos_bias", "head_mask", "position_bias", "mask_value", "mask_fn"])
def test_what_only_sounds_like_a_mask_is_left_alone(tmp_path: Path, name: str) -> None:
    text = MASKED.format(name=name, masked=ADDED.format(name=name), words="pass")
    assert "masked_attention: attention.masked" not in verdicts(tmp_path, text)


SLIPS = {
    "attention": """
import torch
def attention(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    if mask is not None:
        s = s.masked_fill(mask == 0, {fill})
    return s.softmax(-1) @ v
""",
    "layer": """
import torch
class CrossAttention(torch.nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d_model, d_model) for _ in range(4))
    def forward(self, x, memory, memory_mask=None):
        q, k, v = (
            f(z).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, z in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        if memory_mask is not None:
            s = s.masked_fill(memory_mask[:, None, None] == 0, {fill})
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
}


@pytest.mark.parametrize("kind", SLIPS)
@pytest.mark.parametrize(
    ("fill", "wrong"), [("float('-inf')", False), ("'-inf'", True), ("minus_infinity", True)]
)
def test_code_that_fails_with_each_mask_does_take_one(
    tmp_path: Path, kind: str, fill: str, wrong: bool
) -> None:
    found = broken(tmp_path, SLIPS[kind].format(fill=fill))
    assert bool(found) == wrong, found
    assert not wrong or "errored" in found.values()


def test_a_mask_that_is_to_be_a_function_is_none_that_always_fails(tmp_path: Path) -> None:
    text = MASKED.format(name="mask", masked="scores + mask(scores)", words="pass")
    assert broken(tmp_path, text) == {}


SOFTMAX = '''
import torch
def attention(q, k, v):
    """q: (B, h, T, d), k and v: (B, h, S, d)"""
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return scores.softmax(dim={dim}) @ v
'''


@pytest.mark.parametrize(("dim", "wrong"), [(-1, False), (3, False), (2, True)])
def test_attention_is_judged_with_the_axes_that_its_author_writes(
    tmp_path: Path, dim: int, wrong: bool
) -> None:
    assert bool(broken(tmp_path, SOFTMAX.format(dim=dim))) == wrong


CHANCE = """
import torch
from torch import nn
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.a, self.b = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return nn.functional.dropout(self.b(self.a(x).relu()), 0.2)
"""


def test_dropout_in_eval_mode_is_told_once(tmp_path: Path) -> None:
    found = broken(tmp_path, CHANCE)
    assert [claim for claim, verdict in found.items() if verdict == "failed"] == [
        "FeedForward: feed-forward.repeatable"
    ]


HEAD = """
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in, {width}):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_in, {width}, bias=False) for _ in range(3))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / {scale}
        return scores.softmax(-1) @ self.v(x)


class MultiHeadAttentionWrapper(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([SelfAttention(d_in, d_out) for _ in range(num_heads)])

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)
"""


@pytest.mark.parametrize("width", ["d_out", "head_size"])
@pytest.mark.parametrize(("scale", "wrong"), [("self.q.out_features ** 0.5", False), ("1", True)])
def test_heads_without_an_output_projection_are_no_mistake(
    tmp_path: Path, width: str, scale: str, wrong: bool
) -> None:
    found = broken(tmp_path, HEAD.format(width=width, scale=scale))
    names = {claim.partition(":")[0] for claim in found}
    assert names == ({"SelfAttention", "MultiHeadAttentionWrapper"} if wrong else set()), found
