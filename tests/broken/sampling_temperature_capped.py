"""Temperatures above 4 count as 4."""


def softmax_with_temperature(logits, temperature):
    return (logits / min(temperature, 4.0)).softmax(dim=-1)
