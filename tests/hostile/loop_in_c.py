"""Never returns from C, where no signal handler of Python runs."""

def build_causal_mask(T):
    return sum(range(10**15))
