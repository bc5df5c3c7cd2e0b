"""Teacher forcing."""

import torch
from torch.nn import functional as F


def shift_right(labels, bos_id=1):
    """(B, T) labels, EOS last -> what the decoder is shown, BOS first."""
    decoder_input = labels.new_full(labels.shape, bos_id)
    decoder_input[..., 1:] = labels[..., :-1]
    return decoder_input


def teacher_forcing_loss(logits, labels, pad_id=0):
    """Cross-entropy, averaged over real labels; logits (B, T, V), labels (B, T)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad_id)


def train_step(model, optimizer, src, tgt, pad_id=0):
    """tgt (B, T + 1): BOS, tokens, EOS, padding.  Returns the loss as a number."""
    model.train()
    decoder_input, labels = tgt[:, :-1], tgt[:, 1:]
    loss = teacher_forcing_loss(model(src, decoder_input), labels, pad_id)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def scheduled_sampling(gold, predicted, teacher_forcing_ratio):
    """Keeps each gold token with probability teacher_forcing_ratio, otherwise takes the predicted one."""
    keep = torch.rand(gold.shape, device=gold.device) < teacher_forcing_ratio
    return torch.where(keep, gold, predicted)
