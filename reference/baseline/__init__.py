"""The PyTorch baseline: the decoder's parts as the paper and the lessons teach them, one idea a function.

Shapes: B batch, T queries (target length), S keys (source length), h heads, d width.
Masks here follow their names: a causal, prefix or padding mask is True where attention is BLOCKED
(as ``nn.MultiheadAttention`` reads it); the ``mask`` of :func:`attention` is True where it is ALLOWED.
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
from .masks import (
    additive_causal_mask,
    build_causal_mask,
    look_ahead_mask,
    padding_mask,
    padding_mask_from_ids,
    prefix_lm_mask,
    subsequent_mask,
)
from .models import DecoderStack, TinyTranslator, Transformer, clones
from .positions import LearnedPositionalEncoding, PositionalEncoding, positional_encoding
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
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "MultiheadAttention",
    "PositionalEncoding",
    "TinyTranslator",
    "Transformer",
    "additive_causal_mask",
    "attention",
    "autoregressive_decode",
    "beam_search",
    "build_causal_mask",
    "causal_attention",
    "clones",
    "generate",
    "generate_sampled",
    "greedy_decode",
    "greedy_token",
    "look_ahead_mask",
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
    "subsequent_mask",
    "teacher_forcing_loss",
    "training_step",
]
