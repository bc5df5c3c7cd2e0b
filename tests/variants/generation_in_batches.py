"""Decoding of whole batches: finished rows are filled up while the others go on."""

import torch


@torch.no_grad()
def greedy_decode(model, src, max_len, bos_idx=1, eos_idx=2, pad_idx=0):
    """src (B, S) -> (B, <= max_len), BOS first; after a row's EOS comes pad_idx."""
    memory = model.encode(src)
    B = src.shape[0]
    out = torch.full((B, max_len), pad_idx, dtype=torch.long)
    out[:, 0] = bos_idx
    alive = torch.ones(B, dtype=torch.bool)
    t = 1
    while t < max_len and alive.any():
        logits = model.decode(out[:, :t], memory)
        best = logits[:, -1].topk(1).indices[:, 0]
        out[:, t] = torch.where(alive, best, torch.full_like(best, pad_idx))
        alive &= out[:, t] != eos_idx
        t += 1
    return out[:, :t]


@torch.no_grad()
def generate(model, prompt_ids, max_new_tokens, eos_id=None):
    """Continues (B, P); rows that have ended repeat EOS until all have."""
    tokens = prompt_ids.clone()
    ended = torch.zeros(len(tokens), 1, dtype=torch.bool)
    for _ in range(max_new_tokens):
        step = model(tokens)[:, -1:].argmax(-1)
        if eos_id is not None:
            step = step.where(~ended, torch.tensor(eos_id))
            ended |= step == eos_id
        tokens = torch.cat((tokens, step), 1)
        if eos_id is not None and bool(ended.all()):
            return tokens
    return tokens


@torch.no_grad()
def generate_sampled(model, prompt_ids, max_new_tokens, temperature=1.0, top_k=None, top_p=None, eos_id=None):
    """Continues one prompt (1, P) by draws: temperature, then top-k, then the nucleus."""
    for _ in range(max_new_tokens):
        probs = next_token_distribution(model(prompt_ids)[:, -1], temperature, top_k, top_p)
        new = torch.multinomial(probs, 1)
        prompt_ids = torch.cat([prompt_ids, new], dim=1)
        if eos_id is not None and new.item() == eos_id:
            break
    return prompt_ids


def next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None):
    """(B, V) -> (B, V); temperature 0 gives the whole mass to the likeliest token."""
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    probs = torch.softmax(logits / temperature, -1)
    ranks = probs.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    if top_k:
        probs = probs * (ranks < top_k)
        probs = probs / probs.sum(-1, keepdim=True)
    if top_p is not None:
        # Mass of the strictly better ranked tokens, for each token where it stands.
        better = ranks[..., None, :] < ranks[..., :, None]
        ahead = (better * probs[..., None, :]).sum(-1)
        probs = probs * ((ahead < top_p) | (ranks == 0))
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


@torch.no_grad()
def beam_search(model, src, beam_size=4, max_len=20, bos=1, eos=2):
    """src (1, S) -> the best list of ids, BOS first; scores are sums of log-probabilities, no length penalty."""
    memory = model.encode(src)
    beams, finished = [(0.0, [bos])], []
    for _ in range(max_len - 1):
        grown = []
        for score, ids in beams:
            log_probs = model.decode_step(torch.tensor([ids]), memory)[0, -1].log_softmax(-1)
            values, tokens = log_probs.topk(min(beam_size, log_probs.numel()))
            grown += [(score + float(v), [*ids, int(t)]) for v, t in zip(values, tokens)]
        grown.sort(key=lambda beam: -beam[0])
        beams = []
        for score, ids in grown[:beam_size]:
            (finished if ids[-1] == eos else beams).append((score, ids))
        if not beams:
            break
    return max(finished + beams)[1]
