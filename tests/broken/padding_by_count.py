"""The real tokens are counted, and taken to stand at the front."""

import torch


def padding_mask(ids, pad_id):
    real = (ids != pad_id).sum(dim=1, keepdim=True)
    return torch.arange(ids.size(1))[None, :] >= real
