"""Telling people which mistake they made: the mutants, written by others in styles of their own, are recognised."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from triu.conformance import check
from triu.conformance.api import open_check
from triu.reference.mutants import load_mutants
from triu.reports import to_text
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
SPEC = load_spec()
MUTANTS = load_mutants()


def _elsewhere() -> Any:
    spec = importlib.util.spec_from_file_location("elsewhere", ROOT / "benchmarks" / "elsewhere.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["elsewhere"] = module
    spec.loader.exec_module(module)
    return module


elsewhere = _elsewhere()
ROWS = elsewhere.rows()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.mutant}-{Path(row.file).stem}")
def test_a_mistake_in_another_style_is_named(row: Any) -> None:
    outcome = elsewhere.judge(row, SPEC)
    assert outcome.broken, "nothing is wrong with it"
    first = (outcome.named or ("",))[0]
    assert first == row.expected or (row.by_chance and first in ("", row.mutant)), (first, outcome.broken)


def test_every_mutant_has_a_candidate_in_another_style() -> None:
    assert {row.mutant for row in ROWS} == set(MUTANTS)


def test_the_right_mistake_is_named_in_95_of_100_and_a_wrong_one_in_one_at_most() -> None:
    right = sum(row.expected == row.mutant for row in ROWS)
    wrong = sum(row.expected not in ("", row.mutant) for row in ROWS)
    assert right >= 0.95 * len(ROWS)
    assert wrong <= 0.01 * len(ROWS)


def likely(path: Path, **options: Any) -> dict[str, str]:
    report = check(path, in_process=True, **options)
    return {
        v.claim: v.failure.likely.mutant if v.failure.likely else ""
        for v in report.verdicts
        if v.failure is not None and v.verdict in ("failed", "errored")
    }


def test_a_mistake_that_is_none_of_the_known_ones_is_not_given_a_name(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def causal_mask(T):\n"
        '    """True = blocked."""\n'
        "    mask = torch.ones(T, T).triu(1).bool()\n"
        "    mask[T // 2, : T // 3] = True\n"
        "    return mask\n"
    )
    named = likely(path, claims="causal-mask.*")
    assert named
    assert set(named.values()) == {""}


def test_the_report_tells_mistake_and_correction(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def attention(q, k, v, mask=None):\n"
        '    """mask: True = allowed."""\n'
        "    w = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).softmax(-1)\n"
        "    if mask is not None:\n"
        "        w = w * mask\n"
        "    return w @ v, w\n"
    )
    text = " ".join(to_text(check(path, in_process=True, claims="attention.*")).split())
    mutant = MUTANTS["attention-softmax-then-zero"]
    assert mutant.misconception in text
    assert f"→ {mutant.correction}" in text
    assert "tell it from other known mistakes; attention-softmax-then-zero)" in text


def test_a_candidate_that_hangs_where_the_check_did_not_go_is_not_tried_again_and_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def attention(q, k, v, mask=None):\n"
        '    """mask: True = allowed."""\n'
        "    while mask is not None and float(q.abs().max()) > 40:\n"
        "        pass\n"
        "    scores = q @ k.transpose(-2, -1)\n"
        "    if mask is not None:\n"
        "        scores = scores.masked_fill(~mask.bool(), -1e9)\n"
        "    w = scores.softmax(-1)\n"
        "    return w @ v, w\n"
    )
    opened = open_check(path, spec=SPEC, call_seconds=5.0)
    try:
        report = opened.report([c for c in SPEC.claims.values() if c.role == "attention"])
    finally:
        opened.close()
    assert [v.claim for v in report.verdicts if v.verdict == "failed"] == ["attention.scaled"]
    late = [e for e in opened.session.log if e.error is not None and e.error.kind == "time-out"]
    assert len(late) <= 1


VARIANTS = ROOT / "tests" / "variants"
TRANSLATOR = "translator_by_pad_index.py"


def failures(tmp_path: Path, claims: str, text: str, *changes: tuple[str, str]) -> dict[str, Any]:
    """The failures of a candidate (a variant, or its text) with changes, by claim."""
    text = (VARIANTS / text).read_text("utf-8") if text.endswith(".py") else text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "submission.py"
    path.write_text(text, "utf-8")
    report = check(path, in_process=True, claims=claims)
    return {v.claim: v.failure for v in report.verdicts if v.verdict in ("failed", "errored")}


def name_of(failure: Any) -> str:
    return failure.likely.mutant if failure.likely else ""


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("enc_src = layer(enc_src, src_mask)", "enc_src = layer(enc_src, None)", ""),
        (
            "self.src_stem(src)",
            "self.src_stem(src.T).transpose(0, 1)",
            "model-source-positions-along-batch",
        ),
    ],
)
def test_a_mistake_that_as_many_cases_speak_against_as_for_it_is_not_named(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    found = failures(tmp_path, "encoder-decoder.*", TRANSLATOR, (old, new))
    assert name_of(found["encoder-decoder.source-padding"]) == named


def test_where_the_mistake_of_a_part_is_known_none_is_guessed_for_the_whole(tmp_path: Path) -> None:
    by_view = (
        "batch_size, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)",
        "batch_size, self.n_heads, -1, self.head_dim)",
    )
    found = failures(tmp_path, "multihead.*,encoder-decoder.*", TRANSLATOR, by_view)
    assert name_of(found["multihead.mask"]) == "heads-split-by-view"
    assert name_of(found["encoder-decoder.no-future"]) == ""


def test_a_whole_whose_parts_hold_is_named_by_what_it_does(tmp_path: Path) -> None:
    no_triangle = ("return trg_pad_mask & trg_sub_mask", "return trg_pad_mask")
    found = failures(tmp_path, "multihead.*,decoder-block.*,encoder-decoder.*", TRANSLATOR, no_triangle)
    assert name_of(found["encoder-decoder.no-future"]) == "model-no-mask-in-decode-step"


def test_another_argument_that_is_changed_is_another_mistake(tmp_path: Path) -> None:
    in_place = ("energy.masked_fill(mask == 0,", "energy.masked_fill(mask.logical_not_(),")
    found = failures(tmp_path, "multihead.*", TRANSLATOR, in_place)
    assert list(found) == ["multihead.unchanged-inputs"]
    assert name_of(found["multihead.unchanged-inputs"]) == ""  # queries that are scaled in place are known


def test_what_asks_for_an_error_is_not_met_by_a_declaration_under_which_no_call_succeeds(
    tmp_path: Path,
) -> None:
    found = failures(tmp_path, "multihead.*", TRANSLATOR, ("assert hid_dim % n_heads == 0", "pass"))
    assert list(found) == ["multihead.remainder"]
    assert found["multihead.remainder"].meant == ""
    negated = ("masked_fill(mask == 0", "masked_fill(mask == 1")
    assert (
        'polarity = "block"' in failures(tmp_path, "multihead.*", TRANSLATOR, negated)["multihead.mask"].meant
    )


def test_a_mistake_is_named_for_the_claims_alone_that_it_breaks(tmp_path: Path) -> None:
    norm = (
        "class Norm(nn.Module):\n"
        "    def __init__(self, d):\n"
        "        super().__init__()\n"
        "        self.gain, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))\n"
        "    def forward(self, x):\n"
        "        off = x - x.mean(-1, keepdim=True)\n"
        "        return self.gain * off / (x.std(-1, keepdim=True) + 1e-6) + self.shift\n"
        "class DecoderLayer("
    )
    found = failures(
        tmp_path,
        "decoder-block.*",
        TRANSLATOR,
        ("nn.LayerNorm(", "Norm("),
        ("class DecoderLayer(", norm),
        ("enc_src, enc_src, src_mask)", "enc_src, enc_src, None if src_mask is None else src_mask == 0)"),
    )
    assert name_of(found["decoder-block.recomputed"]) == "block-norms-unbiased"
    assert name_of(found["decoder-block.memory-padding"]) == ""


@pytest.mark.parametrize(("diagonal", "named"), [("1", "lm-mask-one-late"), ("block_size", "")])
def test_two_mistakes_that_are_alike_in_what_first_breaks_are_told_apart_by_where_they_do(
    tmp_path: Path, diagonal: str, named: str
) -> None:
    triangle = "torch.tril(torch.ones(block_size, block_size)"
    change = (f"{triangle})", f"{triangle}, {diagonal})")
    found = failures(tmp_path, "language-model.*", "lecture_gpt.py", change)
    assert name_of(found["language-model.no-future"]) == named


def test_where_nan_reaches_a_draw_the_advice_is_about_that(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "def sample_token(logits, temperature=1.0):\n"
        "    probs = torch.softmax(logits / temperature * float('inf'), dim=-1)\n"
        "    return torch.multinomial(probs, 1).squeeze(-1)\n"
    )
    found = failures(tmp_path, "sample-token.*", text)
    assert found
    assert all("axis of the softmax" in failure.hint for failure in found.values())


def test_a_mistake_is_not_named_for_one_case_that_is_right(tmp_path: Path) -> None:
    """All that speaks against the other suspects is a single case in which they fail and the object does not."""
    text = (
        "import torch\n"
        "from torch import nn\n"
        "class CachedSelfAttention(nn.Module):\n"
        "    def __init__(self, d_model, n_heads):\n"
        "        super().__init__()\n"
        "        self.h = n_heads\n"
        "        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))\n"
        "    def forward(self, x, cache=None):\n"
        "        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))\n"
        "        n = 0 if cache is None else cache[0].size(2)\n"
        "        if n:\n"
        "            k = torch.cat([cache[0], k], 2)\n"
        "            v = torch.cat([cache[1], v] if n == 1 else [v, cache[1]], 2)\n"
        "        seen = torch.ones(q.size(2), k.size(2)).tril(n).bool()\n"
        "        scores = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(~seen, -torch.inf)\n"
        "        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), (k, v)\n"
    )
    found = failures(tmp_path, "cached-attention.*", text)
    assert list(found) == ["cached-attention.steps"]
    assert name_of(found["cached-attention.steps"]) == ""


def test_what_a_mutant_keeps_from_one_use_does_not_show_in_the_next() -> None:
    row = next(row for row in ROWS if row.mutant == "mask-negated-in-place")
    mutant = MUTANTS[row.mutant]
    for _ in range(2):  # with a mask that was asked for once, and one that was asked for twice
        mutant.load().build_causal_mask(3)
        assert (elsewhere.judge(row, SPEC).named or ("",))[0] == row.mutant
