import torch
import torch.nn.functional as F
from torch import Tensor


def top_k_top_p_filtering(
    logits: Tensor, top_k: int = 0, top_p: float = 1.0, filter_value: float = -float("Inf")
) -> Tensor:
    """Logits (B, V) in which all but the likeliest tokens have filter_value.

    top_k = 0 and top_p = 1 leave everything. Of equal logits at the border all are kept.
    """
    if top_k > 0:
        top_k = min(top_k, logits.size(-1))
        indices_to_remove = logits < torch.topk(logits, top_k)[0][..., -1, None]
        logits = logits.masked_fill(indices_to_remove, filter_value)
    if top_p < 1.0:
        sorted_logits, sorted_indices = torch.sort(logits, descending=True)
        cumulative_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
        sorted_indices_to_remove = cumulative_probs >= top_p
        # moved by one, because the token with which top_p is reached belongs to the nucleus
        sorted_indices_to_remove[..., 1:] = sorted_indices_to_remove[..., :-1].clone()
        sorted_indices_to_remove[..., 0] = False
        indices_to_remove = sorted_indices_to_remove.scatter(-1, sorted_indices, sorted_indices_to_remove)
        logits = logits.masked_fill(indices_to_remove, filter_value)
    return logits


def sample_next_token(
    logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, do_sample: bool = True
) -> Tensor:
    """(B, V) -> (B, 1)"""
    if not do_sample or temperature == 0.0:
        return greedy_token(logits).unsqueeze(-1)
    probs = F.softmax(top_k_top_p_filtering(logits / temperature, top_k, top_p), dim=-1)
    return torch.multinomial(probs, num_samples=1)


def greedy_token(logits: Tensor) -> Tensor:
    return torch.argmax(logits, dim=-1)


@torch.no_grad()
def generate(
    model, input_ids: Tensor, max_new_tokens: int = 20, eos_token_id: int | None = None, pad_token_id: int = 0
):
    """Greedy continuation of (B, T); finished rows are filled with pad_token_id."""
    unfinished = torch.ones(input_ids.size(0), dtype=torch.long)
    for _ in range(max_new_tokens):
        outputs = model(input_ids)
        logits = outputs.logits if hasattr(outputs, "logits") else outputs
        next_tokens = greedy_token(logits[:, -1, :])
        if eos_token_id is not None:
            next_tokens = next_tokens * unfinished + pad_token_id * (1 - unfinished)
        input_ids = torch.cat([input_ids, next_tokens[:, None]], dim=-1)
        if eos_token_id is not None:
            unfinished = unfinished.mul((next_tokens != eos_token_id).long())
            if unfinished.max() == 0:
                break
    return input_ids
