"""What an assignment's starter says of each role: a definition with its contract, and the usual name."""

from __future__ import annotations

# For each role a definition under the name @, with its contract.  A line ~ takes the conventions that are fixed.
STUBS = {
    "causal_mask": '''
def @(T):
    """The causal mask for T positions: position i sees position j exactly when j <= i.

    T: int. Returns (T, T), with a row for each query and a column for each key.
    ~
    """
''',
    "padding_mask": '''
def @(ids, pad_id=0):
    """The mask of the padding in a batch of token ids.

    ids: (B, S) int. Returns (B, S).
    ~
    """
''',
    "prefix_lm_mask": '''
def @(T, k):
    """A causal mask for T positions whose first k all see each other, and are seen by everyone.

    T, k: int, k from 0 to T. Returns (T, T), with a row for each query and a column for each key.
    ~
    """
''',
    "attention": '''
def @(query, key, value, mask=None):
    """Scaled dot-product attention: softmax(query keyᵀ / √d) value, over the keys that the mask shows.

    query: (..., T, d) float. key: (..., S, d) float. value: (..., S, dv) float.
    mask: (T, S), or with the leading axes of the scores; None hides nothing.
    Returns the output (..., T, dv) and the weights (..., T, S), both float.
    ~
    """
''',
    "causal_attention": '''
def @(query, key, value):
    """Scaled dot-product attention in which no position looks ahead; it makes its own mask.

    query, key: (..., T, d) float. value: (..., T, dv) float.
    Returns the output (..., T, dv) and the weights (..., T, T), both float.
    ~
    """
''',
    "clones": '''
def @(module, N):
    """N copies of a module, each with parameters of its own.

    module: nn.Module. N: int. Returns an nn.ModuleList.
    ~
    """
''',
    "multihead_attention": '''
class @(nn.Module):
    """Attention in n_heads heads of width d_model / n_heads, between four projections.

    d_model, n_heads: int.
    ~
    """

    def __init__(self, d_model, n_heads):

    def forward(self, query, key, value, mask=None):
        """query: (B, T, d_model) float. key, value: (B, S, d_model) float. mask: (T, S) or (B, T, S).

        Returns the output (B, T, d_model) and the weights (B, n_heads, T, S), both float.
        """
''',
    "causal_self_attention": '''
class @(nn.Module):
    """Self-attention in n_heads heads in which no position looks ahead; it makes its own mask.

    d_model, n_heads: int.
    ~
    """

    def __init__(self, d_model, n_heads):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "cross_attention": '''
class @(nn.Module):
    """Attention in n_heads heads from a target, which gives the queries, over a memory: keys and values.

    d_model, n_heads: int.
    ~
    """

    def __init__(self, d_model, n_heads):

    def forward(self, x, memory, mask=None):
        """x: (B, T, d_model) float, the target. memory: (B, S, d_model) float. mask: (B, S), of the memory.

        Returns the output (B, T, d_model) and the weights (B, n_heads, T, S), both float.
        """
''',
    "feed_forward": '''
class @(nn.Module):
    """Linear to d_ff, ReLU, Linear back to d_model; each position by itself.

    d_model, d_ff: int.
    ~
    """

    def __init__(self, d_model, d_ff):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "layer_norm": '''
class @(nn.Module):
    """Brings each row to mean 0 and variance 1, then scales and shifts it by parameters.

    d_model: int.
    ~
    """

    def __init__(self, d_model):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "positional_encoding": '''
class @(nn.Module):
    """Adds to each position its vector of sines and cosines.

    d_model: int, even or odd. max_len: int, the greatest length.
    ~
    """

    def __init__(self, d_model, max_len=5000):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "decoder_block": '''
class @(nn.Module):
    """Causal self-attention, cross-attention, feed-forward; a residual and a LayerNorm for each.

    d_model, n_heads, d_ff: int.
    ~
    """

    def __init__(self, d_model, n_heads, d_ff):

    def forward(self, x, encoder_out, causal_mask=None):
        """x: (B, T, d_model) float, the target. encoder_out: (B, S, d_model) float. causal_mask: (T, T).

        Returns (B, T, d_model) float.
        """
''',
    "encoder_block": '''
class @(nn.Module):
    """Self-attention over all positions and feed-forward; a residual and a LayerNorm for each.

    d_model, n_heads, d_ff: int.
    ~
    """

    def __init__(self, d_model, n_heads, d_ff):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "decoder_only_block": '''
class @(nn.Module):
    """Causal self-attention and feed-forward; a residual and a LayerNorm for each. It makes its own mask.

    d_model, n_heads, d_ff: int.
    ~
    """

    def __init__(self, d_model, n_heads, d_ff):

    def forward(self, x):
        """x: (B, T, d_model) float. Returns (B, T, d_model) float."""
''',
    "decoder_stack": '''
class @(nn.Module):
    """An embedding, n_layers decoder blocks and a projection to the vocabulary. It makes its own causal mask.

    V, d_model, n_heads, d_ff, n_layers: int; V is the number of words.
    ~
    """

    def __init__(self, V, d_model, n_heads, d_ff, n_layers):

    def forward(self, tgt, enc_out):
        """tgt: (B, T) int, from 0 to V - 1. enc_out: (B, S, d_model) float.

        Returns logits (B, T, V) float.
        """
''',
    "encoder_decoder": '''
class @(nn.Module):
    """A model that encodes a source and scores the words of a target. It makes its own causal mask.

    V, d_model, n_heads, d_ff: int; V is the number of words, of source and target alike.
    ~
    """

    def __init__(self, V, d_model, n_heads, d_ff):

    def encode(self, src):
        """src: (B, S) int, from 0 to V - 1. Returns (B, S, d_model) float."""

    def decode_step(self, tgt, enc_out):
        """tgt: (B, T) int, from 0 to V - 1. enc_out: what encode returned. Returns logits (B, T, V) float."""
''',
    "language_model": '''
class @(nn.Module):
    """A decoder-only model. It makes its own causal mask.

    vocab_size, d_model, n_heads, n_layers, d_ff, max_len: int.
    ~
    """

    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len):

    def forward(self, ids):
        """ids: (B, T) int, from 0 to vocab_size - 1, T at most max_len. Returns logits (B, T, vocab_size) float."""
''',
    "cached_attention": '''
class @(nn.Module):
    """Causal self-attention that keeps keys and values of earlier tokens in a cache.

    d_model, n_heads: int.
    ~
    """

    def __init__(self, d_model, n_heads):

    def forward(self, x, cache=None):
        """x: (B, T, d_model) float, the new tokens. cache: None at first, then what the last call returned.

        Returns the output (B, T, d_model) float and the grown cache.
        """
''',
    "generate": '''
def @(model, src, max_len=8, bos=1, eos=2):
    """Greedy generation: encodes the source once, starts with BOS, appends one token after the other.

    model: has encode(src) -> memory and decode_step(tgt, memory) -> logits (1, t, V), with tgt (1, t) int.
    src: (1, S) int. max_len, bos, eos: int. Stops behind the token eos, or when max_len tokens are there.
    Returns the tokens as a list of int.
    ~
    """
''',
    "greedy_token": '''
def @(logits):
    """The token with the largest logit, in each row.

    logits: (B, V) float. Returns (B,) int.
    ~
    """
''',
    "next_token_distribution": '''
def @(logits, temperature=1.0, top_k=None, top_p=None):
    """The probabilities of the next token.

    logits: (B, V) float. temperature: float, 0 or more. top_k: int or None. top_p: float in (0, 1] or None.
    Returns (B, V) float.
    ~
    """
''',
    "sample_token": '''
def @(logits, temperature=1.0, top_k=None, top_p=None):
    """The next token, drawn from its distribution, in each row.

    logits: (B, V) float. temperature: float, 0 or more. top_k: int or None. top_p: float in (0, 1] or None.
    Returns (B,) int.
    ~
    """
''',
    "shift_right": '''
def @(target):
    """The decoder's input and its labels: the target without its last token, and without its first.

    target: (B, T) or (T,) int, from BOS to EOS. Returns two of (B, T - 1) or (T - 1,) int.
    ~
    """
''',
    "teacher_forcing_loss": '''
def @(logits, labels, pad_id=0):
    """The cross-entropy of logits against labels, without labels that are padding.

    logits: (B, T, V) float. labels: (B, T) int. pad_id: int. Returns one float.
    ~
    """
''',
    "training_step": '''
def @(model, encoder_output, target_tokens, pad_id=0):
    """The loss of one pass over a target under teacher forcing, all positions in parallel.

    model: has decode_step(tgt, memory) -> logits (B, t, V). encoder_output: (B, S, d) float, the memory.
    target_tokens: (B, T) int, from BOS to EOS. pad_id: int. Returns one float.
    ~
    """
''',
    "scheduled_sampling": '''
def @(gold_tokens, predicted_tokens, epsilon):
    """Takes at each place the model's token with probability epsilon, else the true one; each by its own draw.

    gold_tokens, predicted_tokens: (N,) int. epsilon: float from 0 to 1. Returns (N,) int.
    ~
    """
''',
}

NAMES = {
    "causal_mask": "build_causal_mask",
    "padding_mask": "padding_mask",
    "prefix_lm_mask": "prefix_lm_mask",
    "attention": "attention",
    "causal_attention": "causal_attention",
    "clones": "clones",
    "multihead_attention": "MultiHeadAttention",
    "causal_self_attention": "CausalSelfAttention",
    "cross_attention": "CrossAttention",
    "feed_forward": "FeedForward",
    "layer_norm": "LayerNorm",
    "positional_encoding": "PositionalEncoding",
    "decoder_block": "DecoderBlock",
    "encoder_block": "EncoderBlock",
    "decoder_only_block": "GPTBlock",
    "decoder_stack": "DecoderStack",
    "encoder_decoder": "TinyTranslator",
    "language_model": "GPT",
    "cached_attention": "KVCacheAttention",
    "generate": "autoregressive_decode",
    "greedy_token": "greedy_token",
    "next_token_distribution": "next_token_distribution",
    "sample_token": "sample_token",
    "shift_right": "shift_right",
    "teacher_forcing_loss": "teacher_forcing_loss",
    "training_step": "training_step",
    "scheduled_sampling": "scheduled_sampling",
}
MASK_NAMES = {"allow": "subsequent_mask", "additive": "additive_causal_mask"}  # these say it themselves
