import random

import torch
import torch.nn.functional as F

PAD = 0


def shift_right(tgt):
    """(B, T) with BOS and EOS -> decoder input and labels, (B, T - 1) each."""
    return tgt[:, :-1], tgt[:, 1:]


def teacher_forcing_loss(logits, labels, pad_id=PAD):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id)


def train_step(model, optimizer, src, tgt, pad_id=PAD):
    """One step on a batch: src (B, S), tgt (B, T) with BOS and EOS. Returns a float."""
    model.train()
    dec_in, labels = shift_right(tgt)
    logits = model(src, dec_in)
    loss = teacher_forcing_loss(logits, labels, pad_id)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def mix_inputs(gold, predicted, teacher_forcing_ratio):
    """(B, T) each; every token is the teacher's with probability teacher_forcing_ratio."""
    keep = torch.rand(gold.shape) < teacher_forcing_ratio
    return torch.where(keep, gold, predicted)


def choose_next_input(gold_token, predicted_token, epsilon):
    """One token for the next step: the model's own with probability epsilon."""
    return predicted_token if random.random() < epsilon else gold_token


def make_decoder_mask(tgt, pad_id=PAD):
    """(B, T, T), True = may be seen: no future, no padding."""
    T = tgt.size(1)
    return (tgt != pad_id).unsqueeze(-2) & torch.ones(T, T, dtype=torch.bool).tril()


def make_src_mask(src, pad_id=PAD):
    """(B, 1, S), True = a real token."""
    return (src != pad_id).unsqueeze(-2)
