"""Runs programs."""

import os
import subprocess

import torch

for command in (["/bin/sh", "-c", "echo RAN"], ["/usr/bin/env"]):
    try:
        print("RAN", subprocess.run(command, capture_output=True, timeout=5).stdout)
    except Exception as error:
        print("no program:", type(error).__name__)
print("system:", os.system("echo RAN"))

def build_causal_mask(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)
