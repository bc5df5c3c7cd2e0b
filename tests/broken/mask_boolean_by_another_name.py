"""A boolean mask under the name of an additive one: added to the scores, it hides nothing."""

import torch


def generate_square_subsequent_mask(sz):
    return torch.triu(torch.ones(sz, sz), diagonal=1).bool()
