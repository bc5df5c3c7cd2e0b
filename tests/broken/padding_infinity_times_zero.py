"""False times -inf is NaN, wherever there is a token."""

import torch


def padding_mask(lengths, max_len):
    return (torch.arange(max_len)[None, :] >= lengths[:, None]) * float("-inf")
