"""What constructors of every role may ask for beside their sizes, and what they get."""

from __future__ import annotations

from functools import lru_cache

from ...spec import Argument
from ...spec.formula import parse

# Canonical name, kind, what is passed, and spellings.  Passed only where there is no default that will do.
KNOWN: tuple[tuple[str, str, str, str], ...] = (
    ("n_kv_heads", "size", "h", "n_kv_heads num_kv_heads n_kv_head kv_heads num_kv_groups n_kv_groups kv_groups "
     "num_query_groups n_query_groups num_key_value_heads n_key_value_heads kv_n_heads"),
    ("bias", "flag", "1", "bias use_bias qkv_bias attn_bias with_bias linear_bias"),
    ("eps", "scalar", "0.00001", "eps epsilon norm_eps layer_norm_eps layernorm_eps rms_norm_eps rms_eps ln_eps"),
    ("base", "scalar", "10000.0", "base theta rope_theta rope_base rotary_base theta_base"),
    ("layer_index", "size", "0", "layer_index layer_idx layer_id block_idx block_index block_id"),
    ("quiet", "flag", "0", "verbose debug log_attention_weights log_weights log print_shapes trace"),
    ("use_cache", "flag", "0", "use_cache use_kv_cache with_cache enable_cache kv_caching caching"),
    ("multiple_of", "size", "1", "multiple_of"),
    ("init_std", "scalar", "0.02", "init_std init_scale initializer_range init_range std_init"),
    ("expansion", "size", "2", "forward_expansion expansion ff_mult mlp_ratio ff_expansion expansion_factor "
     "expansion_ratio mlp_mult ffn_mult ffn_expansion widening_factor"),
    ("max_batch", "size", "16", "max_batch_size max_batch max_bsz"),
    ("device", "device", "'cpu'", "device dev"),
)  # fmt: skip


@lru_cache(maxsize=1)
def usual() -> tuple[Argument, ...]:
    """As arguments of a constructor, after those that a role names itself."""
    return tuple(
        Argument(name, tuple(names.split()), kind, "", False, "", parse(value), True)
        for name, kind, value, names in KNOWN
    )
