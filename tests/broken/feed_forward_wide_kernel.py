"""The layers as convolutions, the first of them three positions wide."""

import torch.nn as nn


class PoswiseFeedForwardNet(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.conv1 = nn.Conv1d(d_model, d_ff, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(d_ff, d_model, kernel_size=1)

    def forward(self, inputs):
        hidden = self.conv1(inputs.transpose(1, 2)).relu()
        return self.conv2(hidden).transpose(1, 2)
