"""The PyTorch baseline: the decoder's parts as the paper and the lessons teach them, one idea a function.

Shapes: B batch, T queries (target length), S keys (source length), h heads, d width.
Masks here follow their names: a causal, prefix or padding mask is True where attention is BLOCKED
(as ``nn.MultiheadAttention`` reads it); the ``mask`` of :func:`attention` is True where it is ALLOWED.
"""

from .attention import attention, causal_attention, scaled_dot_product_attention
from .layers import DecoderBlock, MultiheadAttention
from .masks import (
    additive_causal_mask,
    build_causal_mask,
    look_ahead_mask,
    padding_mask,
    padding_mask_from_ids,
    prefix_lm_mask,
    subsequent_mask,
)
from .positions import LearnedPositionalEncoding, PositionalEncoding, positional_encoding

__all__ = [
    "DecoderBlock",
    "LearnedPositionalEncoding",
    "MultiheadAttention",
    "PositionalEncoding",
    "additive_causal_mask",
    "attention",
    "build_causal_mask",
    "causal_attention",
    "look_ahead_mask",
    "padding_mask",
    "padding_mask_from_ids",
    "positional_encoding",
    "prefix_lm_mask",
    "scaled_dot_product_attention",
    "subsequent_mask",
]
