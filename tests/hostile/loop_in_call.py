"""Never returns."""

def build_causal_mask(T):
    while True:
        pass
