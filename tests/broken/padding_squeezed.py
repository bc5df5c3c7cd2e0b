"""squeeze() takes the axis of a batch of one."""

import torch


def padding_mask(lengths, max_len):
    return (torch.arange(max_len)[None, :] >= lengths[:, None]).squeeze(0)
