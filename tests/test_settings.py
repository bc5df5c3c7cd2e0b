"""Sizes from a configuration and from constants: read, set for an object, and put back."""

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch import nn
from triu.conformance import check
from triu.conformance.candidates import settings

WIDTH = 6


class Rows(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(config.n_embd, WIDTH, bias=config.bias)
        self.drop = nn.Dropout(config.resid_pdrop)

    def forward(self, x):
        return self.drop(self.linear(x)) * torch.ones(WIDTH)


OWN = frozenset({__name__})


def test_fields_that_are_read_are_parameters():
    (found,) = settings.configs_of(Rows, OWN).values()
    assert found.fields == ("n_embd", "bias", "resid_pdrop")
    assert (found.kind, found.default("resid_pdrop"), found.default("bias")) == ("fields", 0.0, False)


def test_constants_are_set_while_an_object_is_used_and_put_back():
    named, constants = settings.filled(Rows, {"config.n_embd": 4, "global WIDTH": 3}, OWN)
    assert constants == {"WIDTH": 3}
    with settings.constants_set(Rows, constants, OWN):
        layer = Rows(**named)
        assert layer(torch.zeros(2, 4)).shape == (2, 3)
    assert WIDTH == 6
    with pytest.raises(ZeroDivisionError), settings.constants_set(Rows, constants, OWN):
        raise ZeroDivisionError
    assert WIDTH == 6


IN_DICT = {"n_embd": 5}


class Sizes:
    width = 7


class Reads:
    def __init__(self):
        self.sizes = IN_DICT["n_embd"], Sizes.width, WIDTH


def test_constants_may_stand_in_a_dict_or_a_class():
    given = {"global IN_DICT['n_embd']": 1, "global Sizes.width": 2}
    known, _ = settings.extended(Reads, [], OWN) or ([], {})
    assert [(p["name"], p["spelled"], p["default"]) for p in known] == [
        ("global WIDTH", "WIDTH", 6), ("global IN_DICT['n_embd']", "n_embd", 5), ("global Sizes.width", "width", 7),
    ]  # fmt: skip
    named, constants = settings.filled(Reads, given, OWN)
    with settings.constants_set(Reads, constants, OWN):
        assert Reads(**named).sizes == (1, 2, 6)
    assert Reads().sizes == (5, 7, 6)


HEAD = """
import dataclasses, types
from torch import nn
"""
CONFIGS = {
    "frozen": """
    @dataclasses.dataclass(frozen=True)
    class Sizes:
        d_model: int
        d_ff: int = 7
        base: float = 2.0
    def given(c: Sizes): pass
    """,
    "attributes": """
    class Config:
        d_model = 512
        d_ff = 2048
        base = 3.0
    """,
    "an_object": """
    hparams = types.SimpleNamespace(d_model=512, d_ff=2048, base=4.0)
    """,
    "nowhere": "",
}
BODY = """
class FeedForward(nn.Module):
    def __init__(self, {parameter}):
        super().__init__()
        self.config = {name}
        self.up, self.down = nn.Linear({name}.d_model, {name}.d_ff), nn.Linear({name}.d_ff, {name}.d_model)
        assert {name}.base

    def forward(self, x):
        return self.down({activation}(self.up(x)))
"""


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("wrong", [False, True])
def test_a_layer_with_a_configuration_is_judged_like_any_other(kind, wrong, tmp_path):
    annotated = (
        {"parameter": "c: Sizes", "name": "c"} if kind == "frozen" else {"parameter": "cfg", "name": "cfg"}
    )
    activation = "nn.functional.tanh" if wrong else "nn.functional.relu"
    path = tmp_path / "layers.py"
    path.write_text(HEAD + textwrap.dedent(CONFIGS[kind]) + BODY.format(activation=activation, **annotated))
    report = check(path, claims="feed_forward", in_process=True)
    found = {v.claim: v.verdict for v in report.verdicts}
    assert found["feed-forward.recomputed"] == ("failed" if wrong else "passed")
    assert found["feed-forward.shape"] == "passed"


def test_a_configuration_that_nobody_can_guess_is_no_fault(tmp_path):
    path = tmp_path / "layers.py"
    source = BODY.format(parameter="config", name="config", activation="config.chosen.activation")
    path.write_text(
        HEAD + source.replace("self.config = config", "self.config, self.chosen = config, config.a.b")
    )
    report = check(path, claims="feed_forward", in_process=True)
    assert {v.verdict for v in report.verdicts} == {"unsupported"}
    assert not report.conforms


MIXED = "AXIS"


def test_an_error_that_no_sizes_would_mend_is_the_candidates(tmp_path):
    path = tmp_path / "mistyped_layers.py"
    path.write_text(HEAD + BODY.format(parameter="config", name="config", activation="rleu"))
    report = check(path, claims="feed_forward.*,feed-forward.shape", in_process=True)
    assert [v.verdict for v in report.verdicts] == ["errored"]


def test_the_snippet_makes_the_configuration(tmp_path):
    path = tmp_path / "mixing_layers.py"
    body = BODY.format(parameter="config", name="config", activation="nn.functional.relu")
    body = body.replace("return ", f"return x.mean({MIXED}, keepdim=True) + ")
    path.write_text(
        HEAD + textwrap.dedent(CONFIGS["attributes"]) + f"{MIXED} = 1\nLOWEST = float('-inf')\n" + body
    )
    report = check(path, claims="feed_forward", in_process=True)
    failure = next(v.failure for v in report.verdicts if v.failure)
    space: dict[str, Any] = {}
    code = failure.snippet.replace(
        "from mixing_layers import",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom mixing_layers import",
    )
    exec(code, space)
    assert vars(space["config"])["d_ff"] in (7, 16)
    assert "config = " in failure.snippet


GATED = """
from torch import nn
import torch.nn.functional as F

class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden_dim), nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) {between} self.w3(x))
"""


@pytest.mark.parametrize(
    ("between", "verdicts"), [("*", ("passed", "unsupported")), ("+", ("failed", "failed"))]
)
def test_a_gated_feed_forward_is_recomputed_with_its_gate(between, verdicts, tmp_path):
    path = tmp_path / "gated_layers.py"
    path.write_text(GATED.format(between=between))
    report = check(path, claims="feed_forward", in_process=True)
    found = {v.claim: v.verdict for v in report.verdicts}
    assert (found["feed-forward.recomputed"], found["feed-forward.count"]) == verdicts


CACHED = """
import torch
from torch import nn

class KVCache:
    def __init__(self, n_layers):
        self.kept = [None] * n_layers

class GPTModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.places = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop = nn.Dropout(cfg["drop_rate"])
        self.qkv = nn.Linear(cfg["emb_dim"], 3 * cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"])
        self.before = 0

    def reset_kv_cache(self):
        self.before = 0

    def forward(self, in_idx, cache=None):
        B, T = in_idx.shape
        start = self.before if cache is not None else 0
        x = self.drop(self.tokens(in_idx) + self.places(torch.arange(start, start + T)))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if cache is not None:
            self.before += T
            if cache.kept[0] is not None:
                k, v = (torch.cat((old, new), dim={dim}) for old, new in zip(cache.kept[0], (k, v)))
            cache.kept[0] = k, v
        hidden = torch.ones(T, k.shape[1], dtype=torch.bool).triu(1 + start)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
        return self.head(x + scores.softmax(-1) @ v)
"""


@pytest.mark.parametrize(("dim", "verdict"), [(1, "passed"), (2, "errored")])
def test_a_cache_of_a_class_of_its_own_begins_anew_and_its_snippet_runs(tmp_path, dim, verdict):
    path = tmp_path / "gpt.py"
    path.write_text(CACHED.replace("{dim}", str(dim)))
    report = check(path, claims="language-model.cache-*")
    found = {v.claim: v for v in report.verdicts}
    assert found["language-model.cache-reach"].verdict == verdict
    assert verdict == "errored" or found["language-model.cache-forgets"].verdict == "passed"
    if verdict == "errored":
        failure = found["language-model.cache-reach"].failure
        command = [sys.executable, "-c", failure.snippet]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "in forward" in done.stderr
        assert "Sizes of tensors must match" in failure.what
        assert "Sizes of tensors must match" in done.stderr
