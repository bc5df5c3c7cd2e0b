"""The starter of an assignment: signatures with their contracts and nothing inside, declarations, a README."""

from __future__ import annotations

import json
import re

from ...spec import Profile, Role, Spec
from .profile import ProfileError

# For each role a definition under the name @, with its contract.  A line ~ takes the conventions that are fixed.
_STUBS = {
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

_NAMES = {
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
_MASK_NAMES = {"allow": "subsequent_mask", "additive": "additive_causal_mask"}  # these say it themselves


def starter(profile: Profile, spec: Spec) -> dict[str, str]:
    """What students get, as file name and text: ``submission.py``, ``README.md`` and, where the assignment fixes
    anything, ``triu.toml``.

    The submission holds a definition for each role of the assignment, and each raises ``NotImplementedError``.

    Raises:
        ProfileError: the assignment concerns a role for which there is no starter.
    """
    roles = _roles(profile, spec)
    stubs = [_stub(profile, spec.roles[role], name) for role in roles for name in _names(profile, role)]
    uses_torch = any(stub.startswith("class") for stub in stubs)
    head = f'"""{_inside_docstring(profile.title)}"""\n' + ("\nfrom torch import nn\n" if uses_torch else "")
    files = {
        "submission.py": "\n\n".join((head, *stubs)),
        "README.md": _readme(profile, roles),
    }
    declarations = _declarations(profile)
    return {**files, "triu.toml": declarations} if declarations else files


def _roles(profile: Profile, spec: Spec) -> list[str]:
    """The roles that the assignment counts or requires, in the order of this file."""
    claims = [spec.claims[claim] for claim in profile.claims]
    wanted = {*profile.required, *(c.role for c in claims), *(r for c in claims for r in c.partners)}
    for role in sorted(wanted):
        if role not in _STUBS:
            raise ProfileError(
                f"{profile.source}: there is no starter for role {role!r} (known: {', '.join(_STUBS)})"
            )
    return [role for role in _STUBS if role in wanted]


def _names(profile: Profile, role: str) -> tuple[str, ...]:
    """What the starter calls the objects of a role."""
    polarity = profile.conventions.get(role, {}).get("polarity", "")
    usual = _MASK_NAMES.get(polarity, _NAMES[role]) if role == "causal_mask" else _NAMES[role]
    return profile.roles.get(role, (usual,))


def _stub(profile: Profile, role: Role, name: str) -> str:
    fixed = {**profile.conventions.get(role.id, {}), **profile.conventions.get(name, {})}
    lines = []
    for key, value in fixed.items():
        convention = role.convention(key)
        if convention is not None and value in convention.values:
            lines.append(f"    Fixed ({key}): {convention.values[value]}.\n")
    usual = role.convention("polarity")
    if usual is not None and "polarity" not in fixed:
        named = (value for value, names in usual.by_name.items() if name in names)
        meaning = usual.values.get(next(named, usual.default))
        if meaning:
            lines.append(f"    {meaning}. Say so here if you decide otherwise.\n")
    text = _STUBS[role.id].lstrip("\n").replace("@", name, 1).replace("    ~\n", "".join(lines))
    renamed = {**profile.arguments.get(role.id, {}), **profile.arguments.get(name, {})}
    for argument in (*role.arguments, *role.constructor):
        for spelling in (argument.name, *argument.names) if argument.name in renamed else ():
            text = re.sub(rf"\b{re.escape(spelling)}\b(?=[,:)=])", renamed[argument.name], text)
    return _with_bodies(text)


def _with_bodies(text: str) -> str:
    """The definitions with ``raise NotImplementedError`` at the end of each function."""
    parts = re.split(r"(?m)^(?= *def )", text)
    done = []
    for part in parts:
        if part.lstrip().startswith("def "):
            indent = " " * (len(part) - len(part.lstrip()) + 4)
            part = f"{part.rstrip()}\n{indent}raise NotImplementedError\n"
        else:
            part = part.rstrip() + "\n" if part.strip() else ""
        done.append(part)
    return "\n".join(part for part in done if part)


def _inside_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")


def _declarations(profile: Profile) -> str:
    """The assignment's declarations as a ``triu.toml``, or nothing."""
    lines: list[str] = []
    if profile.roles:
        lines += ["[roles]", *(f"{role} = {json.dumps(list(n))}" for role, n in profile.roles.items()), ""]
    for group, tables in (("conventions", profile.conventions), ("arguments", profile.arguments)):
        for subject, entries in tables.items():
            lines += [f"[{group}.{subject}]", *(f"{k} = {json.dumps(v)}" for k, v in entries.items()), ""]
    if not lines:
        return ""
    return "\n".join(("# What the assignment fixes. Leave this file beside your code.", "", *lines))


def _readme(profile: Profile, roles: list[str]) -> str:
    lines = [f"# {profile.title}", ""]
    if profile.text:
        lines += [profile.text, ""]
    lines += [
        "Write your code into `submission.py`, in the place of each `raise NotImplementedError`. Keep the names of",
        "functions, classes and parameters: by these your work is found. You may add whatever else you need.",
    ]
    optional = [f"`{n}`" for role in roles if role not in profile.required for n in _names(profile, role)]
    if optional and profile.required:
        lines += ["", f"You may leave out {', '.join(optional)}; what is left out gives no points."]
    if _declarations(profile):
        lines += [
            "",
            "`triu.toml` holds what is fixed, such as what True means in a mask. Leave it as it is.",
        ]
    lines += [
        "",
        "## Check your work",
        "",
        "    triu check submission.py",
        "",
        "shows what holds, and for what does not the smallest case on which it breaks. Parts that you have not",
        "written yet are reported as errors.",
        "",
        "    triu check submission.py --claims 'causal-mask.*'"
        if "causal_mask" in roles
        else f"    triu check submission.py --claims {roles[0]}",
        "",
        "checks one part, and `triu claims ID` explains a claim.",
        "",
        "## What it is graded by",
        "",
        f"There are {_number(profile.points)} points in all.",
    ]
    for milestone in profile.milestones:
        lines += ["", f"### {milestone.title} ({_number(milestone.points)} points)", ""]
        lines += [
            f"- {item.title}: {_number(item.points)}{' (with inputs that are not shown)' if item.hidden else ''}"
            for item in milestone.items
        ]
    return "\n".join((*lines, ""))


def _number(points: object) -> str:
    text = str(points)
    return text.rstrip("0").rstrip(".") if "." in text else text
