"""The second opinion: the same parts in NumPy with plain loops, written without a look at the baseline.

It shares no code and no vectorised shortcut with it, so that an error in one is not an error in both.
Every function works on one sequence or on any number of leading axes.
"""

from .attention import attention, causal_attention, scaled_dot_product_attention
from .generation import autoregressive_decode, beam_search, generate, generate_sampled, greedy_decode
from .language import CachedDecoderBlock, CachedSelfAttention, LanguageModel
from .layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    DecoderOnlyBlock,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    MultiheadAttention,
)
from .masks import causal_mask, padding_mask, padding_mask_from_ids, prefix_lm_mask
from .models import DecoderStack, Transformer, clones
from .positions import positional_encoding
from .sampling import greedy_token, next_token_distribution, sample_next_token
from .teaching import scheduled_sampling, shift_right, shift_tokens_right, teacher_forcing_loss, training_step

__all__ = [
    "CachedDecoderBlock",
    "CachedSelfAttention",
    "CausalSelfAttention",
    "CrossAttention",
    "DecoderBlock",
    "DecoderOnlyBlock",
    "DecoderStack",
    "EncoderBlock",
    "FeedForward",
    "LanguageModel",
    "LayerNorm",
    "MultiHeadAttention",
    "MultiheadAttention",
    "Transformer",
    "attention",
    "autoregressive_decode",
    "beam_search",
    "causal_attention",
    "causal_mask",
    "clones",
    "generate",
    "generate_sampled",
    "greedy_decode",
    "greedy_token",
    "next_token_distribution",
    "padding_mask",
    "padding_mask_from_ids",
    "positional_encoding",
    "prefix_lm_mask",
    "sample_next_token",
    "scaled_dot_product_attention",
    "scheduled_sampling",
    "shift_right",
    "shift_tokens_right",
    "teacher_forcing_loss",
    "training_step",
]
