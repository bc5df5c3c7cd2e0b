"""> for >=: the first padded position counts as real."""

import torch


def padding_mask(lengths, max_len):
    return torch.arange(max_len)[None, :] > lengths[:, None]
