"""nn.MultiheadAttention without batch_first=True: the rows of the batch attend to each other."""

import torch.nn as nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads)

    def forward(self, x):
        output, _ = self.attention(x, x, x, need_weights=False)
        return output
