"""Every claim of the spec is failed by some wrong implementation, on its own account.

A claim that nothing can fail proves nothing when it passes, and one that is always blocked by another is
a claim in name only.  Each row of the table names a claim, a small wrong implementation in tests/broken
that fails it, and a claim that the same implementation still passes: it is wrong, not garbage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from triu.conformance.api import Check, open_check
from triu.spec import load_spec

BROKEN = Path(__file__).parent / "broken"
SPEC = load_spec()

# Claims that no implementation was found to fail on its own, and why.
EXCEPTIONS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Row:
    claim: str
    file: str
    passes: str = ""  # a claim on the same object that the mistake does not touch
    verdict: str = "failed"
    object: str = ""  # where the file has several
    conventions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)  # the first of them that shows a rare fault


ROWS = (
    Row("causal-mask.additive", "mask_additive_in_name_only", "causal-mask.shape"),
    Row("causal-mask.half", "mask_minus_a_billion", "causal-mask.pattern"),
    Row("multihead.both-masks", "multihead_one_mask_at_a_time", "multihead.attn-mask-blocks"),
    Row("multihead.repeatable", "multihead_dropout_always", "multihead.attn-mask-blocks"),
    Row("decoder-block.repeatable", "block_dropout_always", "decoder-block.no-future"),
    Row("parts.padding", "parts_byte_mask_negated", "attention.masked", object="attention + padding_mask"),
    Row("attention.shape", "attention_output_squeezed"),
    Row("attention.weights-shape", "attention_weights_squeezed", "attention.shape"),
    Row("attention.non-negative", "attention_sentinel_after_softmax", "attention.scaled"),
    Row("attention.row-sums", "attention_softmax_then_zero", "attention.blocked-zero"),
    Row("attention.scaled", "attention_unscaled", "attention.row-sums"),
    Row("attention.zero-score", "attention_scores_times_mask", "attention.scaled"),
    Row("attention.blocked-zero", "attention_mask_dropped", "attention.zero-score"),
    Row("attention.visible-softmax", "attention_softmax_twice", "attention.uniform"),
    Row("attention.masked", "attention_output_before_mask", "attention.visible-softmax"),
    Row("attention.uniform", "attention_recency_bias", "attention.causal"),
    Row("attention.first-row", "attention_output_before_mask", "attention.row-sums"),
    Row("attention.hull", "attention_values_zeroed", "attention.visible-softmax"),
    Row("attention.large-logits", "attention_bare_exp", "attention.masked"),
    Row("attention.batch", "attention_einsum_over_batch", "attention.visible-softmax"),
    Row("attention.permutation", "attention_recency_bias", "attention.row-sums"),
    Row("attention.causal", "attention_output_before_mask", "attention.uniform"),
    Row("attention.reach", "attention_values_zeroed", "attention.causal"),
    Row("attention.blocked-content", "attention_output_before_mask", "attention.blocked-zero"),
    Row("attention.mask-kinds", "attention_kind_guessed", "attention.masked", seeds=(4, 9, *range(40))),
    Row("attention.integer-mask", "attention_integers_added", "attention.mask-kinds"),
    Row("attention.dead-row", "attention_nan_guard", "attention.masked"),
    Row("attention.no-gradient", "attention_normaliser_detached", "attention.masked"),
    Row("attention.gradient", "attention_values_detached", "attention.no-gradient"),
    Row("attention.finite-gradient", "attention_nan_to_zero", "attention.gradient"),
    Row("attention.unchanged-inputs", "attention_scaled_in_place", "attention.masked"),
    Row("attention.repeatable", "attention_noise", "attention.row-sums"),
    Row("attention.lengths", "attention_blocks_not_rescaled", "attention.masked"),
    Row("attention.half", "attention_sentinel_in_half", "attention.masked", "errored"),
    Row("attention.is-causal", "attention_hint_bottom_right", "attention.masked"),
    Row("attention.trace-4", "attention_keys_to_one_decimal", "attention.masked"),
    Row("attention.numpy-4", "attention_keys_to_one_decimal", "attention.matrix-4"),
    Row(
        "attention.matrix-4",
        "attention_whole_numbers_refused",
        "attention.trace-4",
        "errored",
        seeds=(0, 1, 2, 3),
    ),
    Row(
        "attention.five-and-six",
        "attention_whole_numbers_refused",
        "attention.numpy-4",
        "errored",
        seeds=(0, 1, 2, 3),
    ),
    Row("parts.causal", "parts_byte_mask_negated", "attention.masked", object="attention + subsequent_mask"),
    Row("causal-attention.shape", "causal_attention_squeezed"),
    Row("causal-attention.no-future", "causal_attention_one_late", "causal-attention.batch"),
    Row("causal-attention.reach", "causal_attention_not_itself", "causal-attention.batch"),
    Row("causal-attention.oracle", "causal_attention_scaled_by_width", "causal-attention.no-future"),
    Row("causal-attention.large-logits", "causal_attention_zero_and_renormalise", "causal-attention.batch"),
    Row("causal-attention.batch", "causal_attention_centred", "causal-attention.repeatable"),
    Row("causal-attention.repeatable", "causal_attention_annealed", "causal-attention.large-logits"),
    Row(
        "causal-attention.repeatable",
        "causal_attention_keys_kept",
        "causal-attention.unchanged-inputs",
        seeds=tuple(range(6)),
    ),
    Row("causal-attention.unchanged-inputs", "causal_attention_scaled_in_place", "causal-attention.oracle"),
    Row("causal-attention.lengths", "causal_attention_table_of_64", "causal-attention.oracle"),
    Row("causal-attention.gradient", "causal_attention_weights_detached", "causal-attention.lengths"),
    Row("causal-mask.shape", "mask_squeezed", "causal-mask.edge"),
    Row("causal-mask.entries", "mask_tiny_sentinel", "causal-mask.shape"),
    Row("causal-mask.entries", "mask_infinity_times_zero", "causal-mask.shape"),
    Row("causal-mask.diagonal", "mask_hides_itself", "causal-mask.dtype"),
    Row("causal-mask.total", "mask_one_late", "causal-mask.diagonal"),
    Row("causal-mask.rows", "mask_transposed", "causal-mask.total"),
    Row("causal-mask.nested", "mask_wraps_around", "causal-mask.rows"),
    Row("causal-mask.pattern", "mask_wraps_around", "causal-mask.total"),
    Row("causal-mask.five", "mask_one_late", "causal-mask.dtype"),
    Row("causal-mask.repeatable", "mask_negated_in_the_cache", "causal-mask.shape"),
    Row("causal-mask.dtype", "mask_of_bytes", "causal-mask.pattern"),
    Row("causal-mask.zero-one", "mask_of_averages", "causal-mask.shape"),
    Row("causal-mask.additive", "mask_boolean_by_another_name", "causal-mask.shape"),
    Row("causal-mask.half", "mask_beyond_half", "causal-mask.zero"),
    Row("causal-mask.zero", "mask_starts_from_ones", "causal-mask.pattern"),
    Row("causal-mask.forms", "mask_forms_disagree", object="build_causal_mask + subsequent_mask"),
    Row("causal-mask.edge", "mask_at_least_one", "causal-mask.pattern"),
    Row("decoder-block.shape", "block_squeezed"),
    Row("decoder-block.no-future", "block_mask_not_passed", "decoder-block.memory"),
    Row("decoder-block.reach", "block_without_self_attention", "decoder-block.memory"),
    Row("decoder-block.memory", "block_attends_to_target_twice", "decoder-block.no-future"),
    Row("decoder-block.batch", "block_norm_over_everything", "decoder-block.memory"),
    Row("multihead.attn-mask-blocks", "multihead_mask_negated", "multihead.key-padding-mask-blocks"),
    Row(
        "multihead.attn-mask-float-blocks",
        "multihead_mask_clamped",
        "multihead.key-padding-mask-blocks",
        conventions={"multihead_attention": {"attn_mask": "additive"}},
    ),
    Row("multihead.key-padding-mask-blocks", "multihead_padding_negated", "multihead.attn-mask-blocks"),
    Row("multihead.attn-mask-additive", "multihead_floats_keep", "multihead.attn-mask-blocks"),
    Row("multihead.key-padding-additive", "multihead_floats_keep", "multihead.key-padding-mask-blocks"),
    Row("multihead.mask-shapes", "multihead_heads_first", "multihead.attn-mask-blocks"),
    Row("multihead.averaged-weights", "multihead_weights_summed", "multihead.attn-mask-blocks"),
    Row("multihead.integer-masks-refused", "multihead_everything_to_bool", "multihead.attn-mask-additive"),
    Row("multihead.ones-are-added", "multihead_everything_to_bool", "multihead.mask-shapes"),
    Row("multihead.negation", "multihead_scaled_twice", "multihead.attn-mask-additive"),
    Row("multihead.causal-hint", "multihead_hint_ignored", "multihead.negation"),
    Row("padding-mask.shape", "padding_squeezed"),
    Row("padding-mask.entries", "padding_infinity_times_zero", "padding-mask.shape"),
    Row("padding-mask.pattern", "padding_one_late", "padding-mask.entries"),
    Row("padding-mask.front", "padding_by_count", "padding-mask.pattern"),
    Row("positional-encoding.shape", "positions_multiple_of_four"),
    Row("positional-encoding.batch", "positions_first_row_only", "positional-encoding.repeatable"),
    Row("positional-encoding.zero", "positions_from_one", "positional-encoding.prefix"),
    Row("positional-encoding.one", "positions_in_degrees", "positional-encoding.zero"),
    Row("positional-encoding.bounded", "positions_scaled_table", "positional-encoding.distinct"),
    Row("positional-encoding.half-sines", "positions_parity_of_position", "positional-encoding.prefix"),
    Row("positional-encoding.pairs", "positions_own_frequencies", "positional-encoding.half-sines"),
    Row("positional-encoding.rotation", "positions_wraps_at_32", "positional-encoding.pairs"),
    Row("positional-encoding.distinct", "positions_wraps_at_32", "positional-encoding.one"),
    Row("positional-encoding.prefix", "positions_relative_to_length", "positional-encoding.pairs"),
    Row("positional-encoding.formula", "positions_from_worked_example", "positional-encoding.rotation"),
    Row("positional-encoding.wide", "positions_counted_in_bfloat16", "positional-encoding.formula"),
    Row("positional-encoding.adds", "positions_embedding_divided", "positional-encoding.formula"),
    Row("positional-encoding.far", "positions_clamped_at_10000", "positional-encoding.wide"),
    Row("positional-encoding.capacity", "positions_cut_to_capacity", "positional-encoding.adds"),
    Row("positional-encoding.no-parameters", "positions_trainable", "positional-encoding.formula"),
    Row("positional-encoding.learned", "positions_learned_but_frozen", "positional-encoding.distinct"),
    Row("positional-encoding.odd-width", "positions_odd_column_dropped", "positional-encoding.formula"),
    Row("positional-encoding.repeatable", "positions_noise_always", "positional-encoding.shape"),
    Row("positional-encoding.unchanged-inputs", "positions_added_in_place", "positional-encoding.adds"),
    Row("prefix-lm-mask.shape", "prefix_beside_length"),
    Row("prefix-lm-mask.entries", "prefix_infinity_times_zero", "prefix-lm-mask.shape"),
    Row("prefix-lm-mask.empty-prefix", "prefix_as_diagonal", "prefix-lm-mask.entries"),
    Row("prefix-lm-mask.count", "prefix_one_too_long", "prefix-lm-mask.empty-prefix"),
    Row("prefix-lm-mask.pattern", "prefix_at_the_end", "prefix-lm-mask.count"),
)


@pytest.fixture(scope="module")
def checks() -> Iterator[dict[tuple[str, int], Check]]:
    """The files opened so far; with one thread, since a second one only waits where arrays are this small."""
    opened: dict[tuple[str, int], Check] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield opened
    torch.set_num_threads(threads)
    for check in opened.values():
        check.close()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.claim}-{row.file}")
def test_claim_fails(row: Row, checks: dict[tuple[str, int], Check]) -> None:
    found: dict[str, str] = {}
    for seed in row.seeds:
        check = checks.get((row.file, seed))
        if check is None:
            path = BROKEN / f"{row.file}.py"
            check = open_check(
                path, spec=SPEC, in_process=True, examples=24, seed=seed, conventions=row.conventions
            )
            checks[row.file, seed] = check
        verdicts = check.engine.verdicts(check.spec.claims[row.claim])
        found = {v.object: v.verdict for v in verdicts if row.object in ("", v.object)}
        if set(found.values()) == {row.verdict}:
            break
    assert set(found.values()) == {row.verdict}, [(v.verdict, v.reason, v.failure) for v in verdicts]
    for verdict in verdicts:
        if verdict.failure is not None:
            assert verdict.failure.what
            assert verdict.failure.hint
    if row.passes:
        untouched = check.engine.verdicts(check.spec.claims[row.passes])
        assert {v.verdict for v in untouched} == {"passed"}, [
            (v.verdict, v.reason, v.failure) for v in untouched
        ]


def test_every_claim_has_a_row() -> None:
    assert {row.claim for row in ROWS} | EXCEPTIONS.keys() == set(SPEC.claims)


def test_exceptions_are_explained_and_needed() -> None:
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())
    assert not EXCEPTIONS.keys() & {row.claim for row in ROWS}


def test_every_file_is_used() -> None:
    assert {row.file for row in ROWS} == {path.stem for path in BROKEN.glob("*.py")}
