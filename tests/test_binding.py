"""Binding: objects are found by name, arguments by parameter name, and only what the candidate defines counts."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import types

import numpy as np
import pytest
from triu.conformance import check
from triu.conformance.candidates import said
from triu.conformance.candidates.binding import bind
from triu.conformance.candidates.discover import describe
from triu.conformance.candidates.errors import ConventionError
from triu.conformance.candidates.names import near_misses
from triu.conformance.candidates.target import Declarations
from triu.spec import load_spec

SPEC = load_spec()


@pytest.fixture(autouse=True)
def no_other_submission(monkeypatch):
    """What another test imported by that name would answer for the source of the modules made here."""
    monkeypatch.delitem(sys.modules, "submission", raising=False)


def module(source, name="submission"):
    made = types.ModuleType(name)
    exec(compile(textwrap.dedent(source), f"{name}.py", "exec"), made.__dict__)
    return made


def described(source, named=()):
    return describe({"submission": module(source)}, {"submission"}, list(named))


def bindings(source, *, roles=None, only="", **declared):
    """All bindings of a source; ``roles`` and the like are what its triu.toml says."""
    assigned = {role: (name,) for role, name in (roles or {}).items()}
    named = [*([only] if only else []), *(roles or {}).values()]
    return bind(SPEC, described(source, named), Declarations(assigned, source="triu.toml", **declared), only)


def bound(source, **options):
    """Names of the usable objects and their roles."""
    return {b.name: b.role.id for b in bindings(source, **options) if not b.problem}


def one(source, **options):
    (binding,) = bindings(source, **options)
    return binding


def placed(source, **options):
    """Where the canonical arguments go: by parameter name, or by position."""
    binding = one(source, **options)
    assert binding.problem == ""
    return {a: p.name if p.position is None else p.position for a, p in binding.arguments.items()}


def problem(source, **options):
    return one(source, **options).problem


# names


@pytest.mark.parametrize(
    ("signature", "role"),
    [
        ("build_causal_mask(T)", "causal_mask"),
        ("create_causal_mask(seq_len)", "causal_mask"),
        ("subsequent_mask(size)", "causal_mask"),
        ("prefix_lm_mask(T, k)", "prefix_lm_mask"),
        ("attention(query, key, value, mask=None)", "attention"),
        ("masked_attention(Q, K, V, mask)", "attention"),
        ("positional_encoding(seq_len, d_model)", "positional_encoding"),
        ("autoregressive_decode(model, src, max_len)", "generate"),
    ],
)
def test_the_functions_of_the_lessons_are_found_without_configuration(signature, role):
    assert list(bound(f"def {signature}: return 1").values()) == [role]


@pytest.mark.parametrize(
    ("name", "init", "call", "role"),
    [
        ("PositionalEncoding", "d_model, max_len=5000", "x", "positional_encoding"),
        ("DecoderBlock", "d_model, n_heads, d_ff", "x, memory", "decoder_block"),
    ],
)
def test_the_classes_of_the_lessons_are_found_without_configuration(name, init, call, role):
    source = f"""
    class {name}:
        def __init__(self, {init}): pass
        def forward(self, {call}): return x
    """
    assert bound(source) == {name: role}


@pytest.mark.parametrize(
    ("name", "init", "call", "role", "places"),
    [
        ("FeedForwardNN", "dim_model, d_ffn", "x", "feed_forward", {"d_ff": "d_ffn"}),
        ("PositionWiseFeedForwardNetwork", "d_model, expand_dim", "x", "feed_forward", {"d_ff": "expand_dim"}),
        ("MHAttention", "d_model, query_heads", "query_X, key_X, value_X", "multihead_attention",
         {"n_heads": "query_heads", "query": "query_X", "key": "key_X", "value": "value_X"}),
        ("MultiHeadedSelfAttention", "d_model, n_heads", "x_q, x_kv", "multihead_attention",
         {"query": "x_q", "key": "x_kv"}),
        ("MultiHeadAttention", "d_model, n_heads, max_batch_size", "x_query, x_key, x_value",
         "multihead_attention", {"max_batch": "max_batch_size", "key": "x_key", "value": "x_value"}),
        ("DecoderLayer", "d_model, n_heads, d_ffn", "x, x_enc", "decoder_block", {"memory": "x_enc"}),
        ("DecoderLayer", "d_model, n_heads, d_ff", "x, encoder_representation", "decoder_block",
         {"memory": "encoder_representation"}),
        ("Decoder", "vocab_size, d_model, n_heads, d_ff", "x, x_enc, enc_dec_attn_mask", "decoder_stack",
         {"memory": "x_enc", "memory_mask": "enc_dec_attn_mask"}),
        ("Transformer",
         "src_vocab, tgt_vocab, src_padding_idx, trg_padding_idx, n_blocks_encoder, n_blocks_decoder, d_model",
         "src, tgt", "encoder_decoder",
         {"src_pad_id": "src_padding_idx", "tgt_pad_id": "trg_padding_idx",
          "n_encoder_layers": "n_blocks_encoder", "n_decoder_layers": "n_blocks_decoder"}),
        ("MaskedMultiHeadedSelfAttention", "d_model, n_heads", "q, kv", "causal_self_attention", {"keys": "kv"}),
    ],
)  # fmt: skip
def test_names_of_public_code_mean_what_they_say(name, init, call, role, places):
    source = f"""
    class {name}:
        def __init__(self, {init}): pass
        def forward(self, {call}): return 1
    """
    (binding,) = bind(SPEC, described(source), Declarations())
    assert (binding.role.id, binding.problem) == (role, "")
    found = {**binding.constructor, **binding.arguments}
    assert {n: found[n].name for n in places} == places


@pytest.mark.parametrize(
    "name",
    [
        "make_causal_mask",
        "get_causal_mask_np",
        "my_causal_mask_v2",
        "makeCausalMask",
        "buildCausalMask",
        "CausalMask",
        "CAUSAL_MASK",
        "causalMask",
        "causal_mask_torch",
        "generate_square_subsequent_mask",
    ],
)
def test_case_and_words_around_a_name_do_not_matter(name):
    assert bound(f"def {name}(T): return T") == {name: "causal_mask"}


@pytest.mark.parametrize(
    "name", ["casual_mask", "plot_causal_mask", "causal_masking_demo", "unmask", "attention_loss", "masked"]
)
def test_a_name_that_only_resembles_one_is_not_bound(name):
    assert bound(f"def {name}(T): return T") == {}


def test_a_near_miss_is_told_when_nothing_is_found():
    (line,) = near_misses(SPEC, described("def casual_mask(T): return T"))
    assert line == "casual_mask looks like causal_mask (role causal_mask)"


@pytest.mark.parametrize("name", ["_causal_mask", "__causal_mask"])
def test_a_private_name_is_not_bound_beside_a_public_one(name):
    source = f"def {name}(T): return T\ndef padding_mask(lengths): return lengths"
    assert bound(source) == {"padding_mask": "padding_mask"}


def test_a_private_name_is_bound_where_there_is_no_other():
    assert bound("def _make_causal_mask(T): return T") == {"_make_causal_mask": "causal_mask"}
    assert bound("def __causal_mask(T): return T") == {}


def test_several_objects_for_one_role_are_each_bound():
    source = "def causal_mask(T): return T\ndef subsequent_mask(size): return size"
    assert bound(source) == {"causal_mask": "causal_mask", "subsequent_mask": "causal_mask"}


def test_a_number_or_a_string_of_the_right_name_is_nothing():
    assert bindings("causal_mask = 3\nattention = 'yes'") == []


def test_one_object_of_many_is_picked_by_its_name():
    source = "def causal_mask(T): return T\ndef subsequent_mask(size): return size"
    assert bound(source, only="subsequent_mask") == {"subsequent_mask": "causal_mask"}


def test_an_object_that_is_picked_may_have_any_name():
    assert bound("def scores_to_output(query, key, value, mask): return value", only="scores_to_output") == {
        "scores_to_output": "attention"
    }


# arguments


@pytest.mark.parametrize(
    "spelling", ["T", "n", "size", "seq_len", "seqLen", "SEQ_LEN", "sz", "length", "tgt_len"]
)
def test_a_parameter_is_recognised_by_its_usual_spellings(spelling):
    assert placed(f"def causal_mask({spelling}): return {spelling}") == {"T": spelling}


def test_arguments_are_bound_by_name_and_not_by_position():
    assert placed("def attention(v, mask, k, q): return v") == {
        "value": "v",
        "mask": "mask",
        "key": "k",
        "query": "q",
    }


def test_an_argument_of_unknown_name_is_never_taken_for_the_next_one():
    assert "'a'" in problem("def attention(a, b, c): return a")


def test_words_around_a_parameter_do_not_matter():
    assert placed("def attention(input_Q, K_matrix, v_tensor): return K_matrix") == {
        "query": "input_Q",
        "key": "K_matrix",
        "value": "v_tensor",
    }


def test_an_exact_spelling_goes_before_one_in_another_case():
    assert placed("def causal_mask(S, T): return S") == {"T": "T", "S": "S"}


@pytest.mark.parametrize("name", ["S", "s", "N", "L"])
def test_a_lone_length_is_the_length_whatever_its_letter(name):
    assert placed(f"def causal_mask({name}): return {name}") == {"T": name}


def test_the_base_of_the_encoding_is_told_from_the_length():
    source = "def positional_encoding(seq_len, d, n=10000): return seq_len"
    assert placed(source) == {"T": "seq_len", "d": "d", "base": "n"}


def test_a_parameter_with_a_default_that_no_role_knows_is_left_alone():
    assert placed("def causal_mask(T, flavour='plain', *rest, **more): return T") == {"T": "T"}


def test_a_positional_only_parameter_goes_by_its_position():
    assert placed("def attention(k, q, /, v): return v") == {"key": 0, "query": 1, "value": "v"}


def test_a_keyword_only_parameter_goes_by_name():
    assert placed("def attention(*, v, k, q): return v") == {"value": "v", "key": "k", "query": "q"}


def test_a_positional_only_parameter_is_not_put_into_the_place_of_one_that_was_left_out():
    def attention(q, k, v, dropout=0.0, mask=None, /):
        assert dropout == 0.0
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    (verdict,) = check(attention, spec=SPEC, claims="attention.masked").verdicts
    assert (verdict.verdict, verdict.reason) == ("passed", "")


def test_an_argument_can_be_renamed_for_a_role():
    source = "def causal_mask(how_many): return how_many"
    assert placed(source, arguments={"causal_mask": {"T": "how_many"}}) == {"T": "how_many"}


def test_an_argument_can_be_renamed_for_one_object():
    source = "def causal_mask(T): return T\ndef subsequent_mask(how_many): return how_many"
    found = bindings(source, arguments={"subsequent_mask": {"T": "how_many"}})
    assert [b.arguments["T"].name for b in found] == ["T", "how_many"]


def test_a_renamed_argument_goes_before_what_its_name_says():
    source = "def attention(k, q, v): return v"
    swapped = {"attention": {"query": "k", "key": "q"}}
    assert placed(source, arguments=swapped) == {"query": "k", "key": "q", "value": "v"}


def test_renaming_to_a_parameter_that_is_not_there_is_refused():
    with pytest.raises(ConventionError, match="sise"):
        bindings("def causal_mask(size): return size", arguments={"causal_mask": {"T": "sise"}})


def test_a_constructor_is_bound_by_name_too():
    source = """
    class PositionalEncoding:
        def __init__(self, max_len, d_model): pass
        def forward(self, x): return x
    """
    constructor = one(source).constructor
    assert {a: p.name for a, p in constructor.items()} == {"max_len": "max_len", "d": "d_model"}


# what cannot be bound says why


def test_a_parameter_that_is_needed_and_unknown_is_named():
    assert problem("def causal_mask(T, flavour): return T") == (
        "it needs 'flavour', which is none of the role's arguments"
    )


def test_an_argument_that_the_signature_lacks_is_named_with_its_spellings():
    told = problem("def attention(query, key): return query")
    assert "no parameter for value" in told
    assert "v, values" in told


def test_a_constructor_that_cannot_be_bound_is_told():
    source = """
    class PositionalEncoding:
        def __init__(self, config): pass
        def forward(self, x): return x
    """
    assert problem(source) == "its constructor needs 'config', which is none of the role's arguments"


def test_a_method_that_cannot_be_bound_is_told():
    source = """
    class PositionalEncoding:
        def __init__(self, d_model): pass
        def forward(self, x, where): return x
    """
    assert problem(source).startswith("its forward needs 'where'")


def test_a_class_without_a_method_to_call_is_told():
    assert "no method to call" in problem("class PositionalEncoding:\n    def __init__(self, d_model): pass")


def test_an_object_that_cannot_be_bound_does_not_stand_beside_one_that_can():
    source = "def causal_mask(T): return T\ndef my_causal_mask_v2(T, flavour): return T"
    assert [b.name for b in bindings(source)] == ["causal_mask"]


def test_a_signature_is_shown_as_it_was_written():
    binding = one("def attention(q, k, v, mask=None, *rest, scale=0.5, **more): return v")
    assert binding.signature == "attention(q, k, v, mask=None, *rest, scale=0.5, **more)"


# what hides a signature


HIDDEN = """
import functools

def plain_decorator(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def wrapping_decorator(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def configured(times):
    return plain_decorator
"""


@pytest.mark.parametrize(
    "decorator",
    [
        "@plain_decorator",
        "@wrapping_decorator",
        "@configured(3)",
        "@functools.lru_cache",
        "@functools.lru_cache(maxsize=8)",
        "@functools.cache",
        "@plain_decorator\n@wrapping_decorator",
        "@wrapping_decorator\n@functools.cache",
    ],
)
def test_a_decorated_function_keeps_its_name_and_parameters(decorator):
    source = HIDDEN + f"\n{decorator}\ndef causal_mask(size): return size\n"
    assert placed(source) == {"T": "size"}


def test_a_decorator_that_passes_arguments_by_position_alone_is_no_fault(tmp_path):
    (tmp_path / "submission.py").write_text("""
import numpy as np

def by_position(function):
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

@by_position
def causal_mask(T):
    return ~np.tri(T, dtype=bool)
""")
    (verdict,) = check(tmp_path / "submission.py", spec=SPEC, claims="causal-mask.shape").verdicts
    assert verdict.verdict == "passed"


def test_a_lambda_is_found_by_the_name_it_was_given():
    assert placed("causal_mask = lambda size: size") == {"T": "size"}


def test_a_partial_of_an_own_function_is_found():
    source = """
    import functools
    def band(T, offset): return T
    causal_mask = functools.partial(band, offset=1)
    """
    assert placed(source) == {"T": "T"}


@pytest.mark.parametrize("decorator", ["staticmethod", "classmethod"])
def test_a_static_method_of_a_class_that_groups_functions_is_found(decorator):
    first = "cls, " if decorator == "classmethod" else ""
    source = f"""
    class Masks:
        @{decorator}
        def causal_mask({first}size): return size
    """
    assert bound(source) == {"Masks.causal_mask": "causal_mask"}
    assert placed(source) == {"T": "size"}


def test_a_callable_instance_is_found():
    source = """
    class Builder:
        def __call__(self, size): return size
    causal_mask = Builder()
    """
    assert placed(source) == {"T": "size"}


# whose objects they are


def test_an_alias_is_bound_once_under_the_name_it_was_written():
    source = "def causal_mask(T): return T\nbuild_causal_mask = causal_mask\nsubsequent_mask = causal_mask"
    assert bound(source) == {"causal_mask": "causal_mask"}


def test_an_alias_is_bound_once_wherever_it_stands():
    source = "subsequent_mask = None\ndef causal_mask(T): return T\nsubsequent_mask = causal_mask"
    assert bound(source) == {"causal_mask": "causal_mask"}


def test_what_one_file_of_the_candidate_takes_from_another_is_bound_once():
    masks = module("def causal_mask(T): return T", "masks")
    package = module("", "package")
    package.causal_mask = masks.causal_mask
    entries = describe({"package": package, "masks": masks}, {"package", "masks"}, [])
    assert len(bind(SPEC, entries, Declarations())) == 1


IMPORTED = """
from numpy import tri as causal_mask
from json import dumps as attention
"""


def test_what_a_candidate_merely_imports_is_not_bound():
    assert bindings(IMPORTED) == []


def test_what_a_candidate_assigns_from_a_library_is_not_bound():
    assert bindings("import numpy\ncausal_mask = numpy.tri") == []


def test_an_imported_name_is_bound_where_a_table_of_roles_names_it():
    assert bound(IMPORTED, roles={"causal_mask": "causal_mask"}) == {"causal_mask": "causal_mask"}


def test_a_table_of_roles_may_name_an_object_of_a_module_within():
    assert bound("import numpy", roles={"causal_mask": "numpy.tri"}) == {"numpy.tri": "causal_mask"}


def test_a_table_of_roles_goes_before_what_the_name_says():
    source = "def causal_mask(T, k): return T"
    assert bound(source, roles={"prefix_lm_mask": "causal_mask"}) == {"causal_mask": "prefix_lm_mask"}


def test_a_table_of_roles_gives_a_role_to_any_name():
    assert bound("def upper(size): return size", roles={"causal_mask": "upper"}) == {"upper": "causal_mask"}


def test_a_class_that_inherits_its_methods_is_the_candidates_own():
    source = """
    class Base:
        def __init__(self, d_model): pass
        def forward(self, x): return x
    class PositionalEncoding(Base): pass
    """
    assert placed(source) == {"x": "x"}


# conventions before any probing


def polarity(source, **options):
    return one(source, **options).conventions["polarity"]


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ("build_causal_mask(T)", "block"),
        ("causal_mask(T)", "block"),
        ("attn_mask(T)", "block"),
        ("subsequent_mask(size)", "allow"),
        ("attention(query, key, value, mask)", "allow"),
        ("attention(query, key, value, attn_mask)", "block"),
        ("scaled_dot_product_attention(query, key, value, attn_mask)", "allow"),
    ],
)
def test_the_polarity_of_a_mask_follows_from_the_name(signature, value):
    assert polarity(f"def {signature}: return 1") == (value, "by name")


def test_a_polarity_that_is_declared_for_the_role_holds():
    declared = {"causal_mask": {"polarity": "allow"}}
    assert polarity("def causal_mask(T): return T", conventions=declared) == ("allow", "declared")


def test_a_polarity_that_is_declared_for_the_object_goes_before_that_of_the_role():
    declared = {"causal_mask": {"polarity": "allow"}, "build_causal_mask": {"polarity": "block"}}
    assert polarity("def build_causal_mask(T): return T", conventions=declared) == ("block", "declared")


MAKES = "def causal_mask(T):\n    {}\n    return T"
TAKES = "def attention(query, key, value, attn_mask):\n    {}\n    return value"


@pytest.mark.parametrize(
    ("source", "words", "value"),
    [
        (TAKES, "attn_mask[i, j] == 0 indicates that i should not be influenced by j", "allow"),
        (
            TAKES,
            "- attn_mask: of shape (T, S), where 0 denotes a place\n      that must not influence the query",
            "allow",
        ),
        (TAKES, "attn_mask (T, S): True signals a key\n    of the future", "block"),
        (TAKES, "keys that may be seen are marked with True in attn_mask", "allow"),
        (TAKES, "- attn_mask: of shape (T, S); 0 = blocked", "allow"),
        (MAKES, "Places that are hidden\n    are filled with ones in this mask.", "block"),
        (MAKES, "Returns a lower triangular matrix filled with ones", "allow"),
        (MAKES, "A mask with ones in the strictly upper triangular part.", "block"),
        (MAKES, "Upper triangular (above the diagonal) with ones.", "block"),
    ],
)
def test_the_polarity_of_a_mask_follows_from_what_its_author_writes(source, words, value):
    assert told(source, words) == value


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TAKES, "Blocked keys are set to 0 after the softmax, as attn_mask says."),  # weights
        (TAKES, "ids in which 0 marks padding are behind attn_mask"),  # tokens
        (TAKES, "attn_mask: 0 indicates keys\n    scores: those not allowed are -inf"),  # another item
        (TAKES, "ids: of shape (B, T) as attn_mask has them; 0 = padding"),
        (MAKES, "An upper triangular matrix of ones, which is then inverted."),
        (MAKES, "The upper triangular part is zero and the rest ones."),
        (MAKES, "Upper triangular with -inf."),
        (TAKES, "Scores are multiplied by a lower triangular matrix of ones."),
    ],
)
def test_what_is_said_of_something_else_is_not_taken_for_a_polarity(source, words):
    assert told(source, words) == ""


def test_a_comment_on_a_step_is_not_taken_for_what_comes_out():
    assert (
        told("def subsequent_mask(T):\n    up = T  # {}\n    return up == 0", "upper triangular, of ones")
        == ""
    )


def told(source, words):
    """The polarity that an author's words give, or nothing."""
    text = source.format(words if "#" in source else f'"""{words}"""')
    (node,) = ast.parse(text).body
    doc = ast.get_docstring(node, clean=False) or ""
    name = "attn_mask" if "attn_mask)" in text else ""
    return said.polarity("\n".join([*re.findall("#.*", text), doc, doc]), name)


# what probing shows


CONSTANT = """
import torch
d_k = d_v = 64

class ScaledDotProductAttention(torch.nn.Module):
    def forward(self, Q, K, V, mask=None):
        scores = Q @ K.mT / {scale}
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return scores.softmax(-1) @ V
"""
FUNCTION = CONSTANT.replace(
    "class ScaledDotProductAttention(torch.nn.Module):\n    def forward(self, ", "def attention("
)
DEFAULT = CONSTANT.replace("(self,", "(self, d_k=64,").replace(
    "self, d_k=64, Q, K, V,", "self, Q, K, V, d_k=64,"
)


@pytest.mark.parametrize(
    ("source", "scale", "verdict"),
    [
        (CONSTANT, "d_k ** 0.5", "passed"),
        (CONSTANT, "d_k", "failed"),
        (DEFAULT, "d_k ** 0.5", "passed"),
        (DEFAULT, "d_k", "failed"),
        (FUNCTION, "d_k ** 0.5", "unsupported"),  # nobody can set what a function reads
        (FUNCTION, "d_k", "failed"),
    ],
)
def test_the_width_that_attention_takes_from_a_constant_is_that_of_the_case(tmp_path, source, scale, verdict):
    (tmp_path / "submission.py").write_text(source.format(scale=scale))
    report = check(tmp_path / "submission.py", spec=SPEC, claims="attention.scaled,attention.trace-4")
    found = {v.claim: v for v in report.verdicts}
    assert found["attention.scaled"].verdict == verdict
    assert found["attention.trace-4"].verdict == {"failed": "blocked"}.get(verdict, verdict)
    if verdict == "failed" and source is CONSTANT:
        assert "__module__].d_k = " in found["attention.scaled"].failure.snippet


HEADS = """
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for layer, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, float("-inf"))
        weights = scores.softmax(-1)
        B, h, T, S = weights.shape
        return self.o((weights @ v).transpose(1, 2).flatten(2)), {shown}
"""


@pytest.mark.parametrize(
    ("shown", "result", "verdict"),
    [
        ("weights.mean(1)", "averaged over heads", "passed"),
        ("weights[:, 0]", "of one head", "passed"),
        ("weights[:, -1]", "of one head", "passed"),
        ("scores.mean(1).softmax(-1)", "averaged over heads", "failed"),
        ("weights.reshape(B, T, h, S).mean(2)", "averaged over heads", "failed"),
        ("(weights[:, 0] * 2).softmax(-1)", "averaged over heads", "failed"),
    ],
)
def test_weights_of_one_head_are_not_taken_for_the_average(tmp_path, shown, result, verdict):
    (tmp_path / "submission.py").write_text(HEADS.format(shown=shown))
    report = check(tmp_path / "submission.py", spec=SPEC, claims="multihead.recomputed")
    assert [v.verdict for v in report.verdicts] == [verdict]
    assert report.binding[0].conventions["result"][0] == f"(output, weights) {result}"


# what public code calls its parameters

LAYER = """
import torch
class {name}(torch.nn.Module):
    def __init__(self, {init}): super().__init__()
    def forward(self, {call}): return None
"""


def layer(name, init, call):
    return one(LAYER.format(name=name, init=init, call=call))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("heads_count", "n_heads"),
        ("number_of_heads", "n_heads"),
        ("num_of_heads", "n_heads"),
        ("dropout_probability", "dropout"),
        ("attention_drop_chance", "dropout"),
        ("rope_theta", "base"),
        ("norm_eps", "eps"),
        ("qkv_bias", "bias"),
        ("layer_idx", "layer_index"),
        ("num_kv_groups", "n_kv_heads"),
        ("verbose", "quiet"),
    ],
)
def test_sizes_and_settings_by_other_names(written, canonical):
    found = layer("MultiHeadAttention", f"d_model, {written}", "query, key, value, mask=None")
    assert not found.problem
    assert found.constructor[canonical].name == written


def test_what_nobody_knows_is_still_told():
    found = layer("MultiHeadAttention", "d_model, flavour", "query, key, value, mask=None")
    assert "needs 'flavour'" in found.problem


def test_two_dropouts_get_the_same():
    found = layer("MultiHeadAttention", "d_model, n_heads, attn_drop, proj_drop", "query, key, value")
    assert {found.constructor["dropout"].name, *found.constructor["dropout"].also} == {
        "attn_drop",
        "proj_drop",
    }


def test_a_width_that_is_asked_for_twice():
    found = layer("MultiheadAttention", "input_dim, embed_dim, num_heads", "x, mask=None")
    place = found.constructor["d_model"]
    assert {place.name, *place.also} == {"input_dim", "embed_dim"}


@pytest.mark.parametrize("name", ["resid_pre", "whatever"])
def test_the_one_thing_that_a_layer_needs_is_its_sequence(name):
    found = layer("TransformerBlock", "d_model, n_heads", name)
    assert (found.problem, found.arguments["x"].name) == ("", name)
    assert layer("TransformerBlock", "d_model, n_heads", f"{name}, other").problem


def test_the_mask_over_the_memory_comes_before_a_general_one():
    found = layer("CrossAttention", "d_model, n_heads", "x, context, mask=None, context_mask=None")
    assert found.arguments["mask"].name == "context_mask"


def test_a_model_by_the_end_of_its_name():
    source = LAYER.format(name="BigramLanguageModel", init="vocab_size", call="idx, targets=None")
    assert bound(source) == {"BigramLanguageModel": "language_model"}
    assert bound("def load_language_model(idx): return idx") == {}


def test_an_attention_without_heads_may_be_any():
    assert bound(LAYER.format(name="Attention", init="d_model", call="query, key")) == {}
    source = LAYER.format(name="Attention", init="d_model, n_heads", call="x")
    assert bound(source) == {"Attention": "multihead_attention"}


BLOCK = """
import torch
class MultiHeadAttention(torch.nn.Module):
    def __init__(self, d_model, n_heads): super().__init__()
    def forward(self, query, key, value, {attention}=None): return None
class EncoderLayer(torch.nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = {used}
    def forward(self, x, {block}): return None
"""


@pytest.mark.parametrize(
    ("attention", "used", "block", "value"),
    [
        ("mask", "MultiHeadAttention(d_model, n_heads)", "mask", "allow"),
        ("mask", "MultiHeadAttention(d_model, n_heads)", "padding_mask", "block"),  # a name that tells
        ("mask", "torch.nn.MultiheadAttention(d_model, n_heads)", "mask", "block"),  # another attention
        ("attn_mask", "MultiHeadAttention(d_model, n_heads)", "mask", "block"),
    ],
)
def test_a_mask_means_in_a_block_what_it_means_in_its_attention(attention, used, block, value):
    source = BLOCK.format(attention=attention, used=used, block=block)
    (found,) = (b for b in bindings(source) if b.name == "EncoderLayer")
    assert found.conventions["polarity"][0] == value
