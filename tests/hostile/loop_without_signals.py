"""Blocks every signal that can be blocked, swallows every exception, and loops."""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))


def build_causal_mask(T):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
