"""Sends itself SIGKILL."""

import os
import signal


def build_causal_mask(T):
    os.kill(os.getpid(), signal.SIGKILL)
