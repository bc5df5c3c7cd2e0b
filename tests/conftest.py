"""What all tests share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Torch with one thread: where arrays are this small a second one only waits, and others run beside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
