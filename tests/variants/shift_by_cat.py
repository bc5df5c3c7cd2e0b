"""Log-probabilities all the way: the model ends in a log-softmax and the loss gathers from it."""

import torch


def shift_tokens(tokens, bos, eos):
    """A sentence without either (T,) or (B, T) -> ([BOS, tokens], [tokens, EOS])."""
    edge = torch.ones_like(tokens[..., :1])
    return torch.cat([edge * bos, tokens], dim=-1), torch.cat([tokens, edge * eos], dim=-1)


def nll_loss(log_probs, labels, lengths):
    """log_probs (B, T, V), labels (B, T), lengths (B,): the mean over the real labels."""
    picked = log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    real = torch.arange(labels.shape[1], device=labels.device) < lengths.unsqueeze(1)
    return -picked[real].mean()


def teacher_forcing_step(model, src, tgt, pad_idx=0):
    """tgt (B, T) with BOS; the model returns log-probabilities."""
    log_probs = model(src, tgt[:, :-1])
    gold = tgt[:, 1:]
    real = gold.ne(pad_idx)
    return -log_probs[real].gather(1, gold[real][:, None]).mean()


def scheduled_sampling(gold, predicted, sampling_prob, generator=None):
    """One coin for each row (B,): a whole sequence is either the teacher's or the model's."""
    coin = torch.rand(gold.shape[0], 1, generator=generator) < sampling_prob
    return torch.where(coin, predicted, gold)


def generate(model, prompt, max_len, eos_id, pad_id=0):
    """(B, P) -> (B, <= max_len), the prompt included; log-probabilities serve as well as logits."""
    rows, out = prompt.shape[0], prompt
    open_rows = torch.ones(rows, dtype=torch.bool)
    while out.shape[1] < max_len and open_rows.any():
        best = model(out)[:, -1].max(dim=-1).indices
        best = torch.where(open_rows, best, torch.full_like(best, pad_id))
        open_rows = open_rows & (best != eos_id)
        out = torch.cat([out, best.unsqueeze(1)], dim=1)
    return out
