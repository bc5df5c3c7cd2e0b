"""The logits are multiplied by the temperature."""


def softmax_with_temperature(logits, temperature):
    return (logits * temperature).softmax(dim=-1)
