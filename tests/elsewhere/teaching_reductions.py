"""A loss of teacher forcing that is reduced as one likes, by logsumexp and indexing."""

import torch


def teacher_forcing_loss(scores, gold, pad_id=0, reduction="mean"):
    """scores (B, T, V), gold (B, T); with reduction "none" there is one loss for each label, 0 where it is padding."""
    counts = gold.ne(pad_id)
    index = torch.where(counts, gold, torch.zeros_like(gold))
    of_gold = torch.take_along_dim(scores, index[:, :, None], dim=2)[:, :, 0]
    nll = (scores.logsumexp(2) - of_gold) * counts
    if reduction == "sum":
        return nll.sum()
    if reduction == "mean":
        return nll.sum() / counts.sum()
    return nll
