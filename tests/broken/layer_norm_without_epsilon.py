"""Divided by the standard deviation as it is: a row of equal entries is 0 / 0."""


def layer_norm(x, gamma, beta):
    mean = x.mean(axis=-1)[..., None]
    spread = ((x - mean) ** 2).mean(axis=-1)[..., None] ** 0.5
    return gamma * (x - mean) / spread + beta
