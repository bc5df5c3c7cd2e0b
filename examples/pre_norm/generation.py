"""From logits to tokens."""

import torch


def autoregressive_decode(model, src, max_len, bos_id=1, eos_id=2):
    """Greedy decoding of one source (1, S): a list that starts with BOS and holds at most max_len tokens."""
    model.eval()
    generated = [bos_id]
    with torch.no_grad():
        enc_out = model.encode(src)
        for _ in range(max_len - 1):
            logits = model.decode_step(torch.tensor([generated]), enc_out)
            generated.append(int(logits[0, -1].argmax()))
            if generated[-1] == eos_id:
                break
    return generated


def greedy_token(logits):
    """(B, V) -> (B,)."""
    return logits.argmax(dim=-1)


def next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None):
    """Probabilities (B, V): the temperature first, top-k on its result, top-p on what top-k has left."""
    if temperature < 0 or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError("temperature must not be negative, and top_p lies in (0, 1]")
    if temperature == 0:
        top_k, temperature = 1, 1.0
    probs = torch.softmax(logits / temperature, dim=-1)
    ranked, order = torch.sort(probs, dim=-1, descending=True, stable=True)
    if top_k:
        ranked[..., top_k:] = 0.0
        ranked = ranked / ranked.sum(dim=-1, keepdim=True)
    if top_p is not None:
        enough = torch.cumsum(ranked, dim=-1) >= top_p
        ranked[..., 1:] = ranked[..., 1:].masked_fill(enough[..., :-1], 0.0)
        ranked = ranked / ranked.sum(dim=-1, keepdim=True)
    return torch.empty_like(probs).scatter_(-1, order, ranked)


def sample_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """(B, V) -> (B,), drawn from next_token_distribution."""
    probs = next_token_distribution(logits, temperature, top_k, top_p)
    return torch.multinomial(probs, 1, generator=generator)[..., 0]
