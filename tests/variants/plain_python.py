"""Lists of floats and the math module. Slow and exact, for reading."""

import math
import random

BOS, EOS, PAD = 1, 2, 0


def causal_mask(n):
    """Rows are queries; True = blocked."""
    return [[j > i for j in range(n)] for i in range(n)]


def softmax(row):
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    total = math.fsum(powers)
    return [p / total for p in powers]


def next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature <= 0:
        raise ValueError("temperature must be above 0")
    probs = softmax([x / temperature for x in logits])
    ranking = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    if top_k:
        ranking = ranking[:top_k]
    if top_p is not None:
        left = math.fsum(probs[token] for token in ranking)
        nucleus, mass = [], 0.0
        for token in ranking:
            nucleus.append(token)
            mass += probs[token] / left
            if mass >= top_p:
                break
        ranking = nucleus
    kept = math.fsum(probs[token] for token in ranking)
    return [probs[token] / kept if token in ranking else 0.0 for token in range(len(probs))]


def sample_token(logits, temperature=1.0, top_k=None, top_p=None, rng=random):
    probs = next_token_distribution(logits, temperature, top_k, top_p)
    return rng.choices(range(len(probs)), weights=probs)[0]


def greedy_token(logits):
    best = 0
    for token, logit in enumerate(logits):
        if logit > logits[best]:
            best = token
    return best


def shift_right(target):
    """[BOS, a, b, EOS] -> [BOS, a, b], [a, b, EOS]"""
    return list(target)[:-1], list(target)[1:]


def cross_entropy_loss(logits, labels, pad_id=PAD):
    losses = []
    for row, label in zip(logits, labels):
        if label != pad_id:
            top = max(row)
            log_sum = top + math.log(math.fsum(math.exp(x - top) for x in row))
            losses.append(log_sum - row[label])
    return math.fsum(losses) / len(losses)


def scheduled_sampling(gold, predicted, p_model, rng=random):
    """Each token is the model's own with probability p_model."""
    return [p if rng.random() < p_model else g for g, p in zip(gold, predicted)]


def autoregressive_decode(model, src, max_new_tokens, bos=BOS, eos=EOS):
    """New tokens only, without BOS; EOS is the last of them if it came."""
    memory = model.encode(src)
    tokens = [bos]
    for _ in range(max_new_tokens):
        scores = model.decode_step([tokens], memory)[0][-1]
        tokens.append(greedy_token([float(s) for s in scores]))
        if tokens[-1] == eos:
            break
    return tokens[1:]
