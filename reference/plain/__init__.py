"""The second opinion: the same parts in NumPy with plain loops, written without a look at the baseline.

It shares no code and no vectorised shortcut with it, so that an error in one is not an error in both.
Every function works on one sequence or on any number of leading axes.
"""

from .attention import attention, causal_attention, scaled_dot_product_attention
from .layers import DecoderBlock, MultiheadAttention
from .masks import causal_mask, padding_mask, padding_mask_from_ids, prefix_lm_mask
from .positions import positional_encoding

__all__ = [
    "DecoderBlock",
    "MultiheadAttention",
    "attention",
    "causal_attention",
    "causal_mask",
    "padding_mask",
    "padding_mask_from_ids",
    "positional_encoding",
    "prefix_lm_mask",
    "scaled_dot_product_attention",
]
