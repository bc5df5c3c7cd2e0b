"""What the stand-in models offer: the names of their methods and attributes, and what they do not have.

Shared by generation (`generation_table.py` answers) and by training steps (`teaching_model.py` answers).
"""

from __future__ import annotations

import re

from .errors import CallFailed

BOS, EOS, PAD = 1, 2, 0  # as in the lesson, where nothing else is known

ENCODING = tuple(
    """
    encode encoder encode_source encode_src encoder_forward get_memory
    """.split()
)
DECODING = tuple(
    """
    forward decode decode_step decoder step decoder_forward decode_tokens logits get_logits predict
    next_logits next_token_logits transformer lm run
    """.split()
)
HEADS = tuple(
    """
    generator head lm_head fc_out fc out out_proj output output_layer output_proj output_projection
    project projection projection_layer proj linear final final_layer final_linear to_logits unembed
    classifier vocab_proj softmax log_softmax trg_word_prj tgt_proj linear_out norm ln_f final_norm pos
    pe pos_enc pos_encoding pos_encoder positional_encoding dropout
    """.split()
)
EMBEDDINGS = tuple(
    """
    embed embedding embeddings tok_emb token_embedding tgt_embed src_embed tgt_embedding src_embedding
    trg_embedding tgt_emb src_emb tgt_tok_emb src_tok_emb wte
    """.split()
)
METHODS = (*ENCODING, *DECODING, *HEADS, *EMBEDDINGS)
PADS, STARTS, ENDS = (  # attributes in which models keep these ids
    tuple(names.split())
    for names in (
        "pad pad_id pad_idx pad_index pad_token pad_token_id src_pad_idx trg_pad_idx tgt_pad_idx src_pad tgt_pad",
        "bos bos_id bos_idx bos_index bos_token_id sos sos_id sos_idx sos_index start_id decoder_start_token_id",
        "eos eos_id eos_idx eos_index eos_token_id end_id",
    )
)
CAPACITIES = tuple(
    """
    block_size context_length context_size max_len max_length max_seq_len n_positions
    max_position_embeddings n_ctx seq_len max_seq_length max_context context_len
    """.split()
)
PARTS = frozenset(
    """
    logits loss sample sequences last_hidden_state hidden_states encoder_last_hidden_state past_key_values
    prediction_logits decoder_outputs encoder_outputs outputs output memory cache
    """.split()
)


def lacks(error: CallFailed, asked: bool) -> bool:
    """Whether a call failed for want of what its stand-in offers, and not by an error of its own.

    That is so where it reads an attribute that the stand-in has not, and, once it has ``asked`` the stand-in
    something, where it takes an answer apart in another way than it was given: into more or fewer values, or by
    the name of a part.  Any other error is the candidate's own.
    """
    kind, message, code = (str(error.detail.get(name, "")) for name in ("type", "message", "code"))
    if "the stand-in model has no" in message or "StandIn" in message:
        return True
    if not asked:
        return False
    if "unpack" in message:
        return not re.search(r"\.shape\b|\.size\(", code)  # an array's own shape is no answer
    part = re.search(r"has no attribute '(\w+)'", message)
    named = (
        part[1] if part and kind == "AttributeError" else message.strip("'\"") if kind == "KeyError" else ""
    )
    return named in PARTS
