"""GELU where ReLU is taught.  A wrapper around PyTorch's layer."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(d_model, n_heads, d_ff, activation="gelu", batch_first=True)

    def forward(self, tgt, memory, memory_key_padding_mask=None):
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        return self.layer(tgt, memory, tgt_mask=future, memory_key_padding_mask=memory_key_padding_mask)
