"""Teacher forcing on labels alone: BOS is put in front, and the loss is a product with one-hot rows."""

import torch
from torch.nn import functional as F

BOS_ID, PAD_ID = 1, 0


def prepare_decoder_input_ids(labels, pad_id, bos_id):
    """(B, T) labels without BOS -> decoder input of the same shape."""
    ids = labels.roll(1, dims=-1)
    ids[..., 0] = bos_id
    return ids.masked_fill(ids == -100, pad_id)


def masked_cross_entropy(logits, targets, mask):
    """mask: 1 = counts, 0 = padding; (B, T, V), (B, T), (B, T) -> scalar."""
    rows = F.one_hot(targets.clamp(min=0), logits.size(-1)).to(logits.dtype)
    per_token = -(rows * logits.log_softmax(-1)).sum(-1)
    mask = mask.to(logits.dtype)
    return (per_token * mask).sum() / mask.sum()


def training_step(model, memory, labels):
    """labels (B, T) without BOS, EOS last; the step prepends BOS."""
    decoder_input = prepare_decoder_input_ids(labels, PAD_ID, BOS_ID)
    logits = model.decode(decoder_input, memory)
    return masked_cross_entropy(logits, labels, labels != PAD_ID)


class ScheduledSampler:
    """With probability sampling_prob a token of the teacher is replaced by the model's."""

    def __init__(self, sampling_prob=0.25):
        self.sampling_prob = sampling_prob

    def __call__(self, gold, predicted):
        flip = torch.bernoulli(torch.full(gold.shape, float(self.sampling_prob))).bool()
        return gold.masked_scatter(flip, predicted[flip])


@torch.no_grad()
def predictions_for_next_inputs(model, memory, decoder_input):
    """(B, T): what the model would have put in the place of each token; the first stays."""
    guess = model.decode(decoder_input, memory).argmax(-1)
    return torch.cat([decoder_input[:, :1], guess[:, :-1]], dim=1)
