"""Generation: which contracts are understood, and what is said of those that are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest
import torch
from triu.conformance.api import open_check
from triu.spec import load_spec

SPEC = load_spec()
CLAIMS = [claim for claim in SPEC.claims.values() if claim.role == "generate"]

LESSON = """
import torch

def autoregressive_decode(model, src, max_len=8):
    enc_out = model.encode(src)
    generated = [1]
    for _ in range(max_len):
        logits = model.decode_step(torch.tensor([generated]), enc_out)
        generated.append(logits[0, -1].argmax().item())
        if generated[-1] == 2:
            break
    return generated
"""

ANNOTATED = """
import torch

def greedy_decode(model, src, src_mask, max_len, start_symbol):
    memory = model.encode(src, src_mask)
    ys = torch.zeros(1, 1).fill_(start_symbol).type_as(src.data)
    for i in range(max_len - 1):
        mask = torch.tril(torch.ones(1, ys.size(1), ys.size(1))).type_as(src.data)
        out = model.decode(memory, src_mask, ys, mask)
        next_word = model.generator(out[:, -1]).argmax(dim=1)
        ys = torch.cat([ys, next_word[None]], dim=1)
    return ys
"""

SEQUENCE_FIRST = """
import torch
EOS_IDX = 3

def greedy_decode(model, src, src_mask, max_len, start_symbol):
    memory = model.encode(src, src_mask)
    ys = torch.ones(1, 1).fill_(start_symbol).type(torch.long)
    for i in range(max_len - 1):
        out = model.decode(ys, memory, torch.zeros(ys.size(0), ys.size(0)).bool()).transpose(0, 1)
        next_word = model.generator(out[:, -1]).argmax(dim=1).item()
        ys = torch.cat([ys, torch.full((1, 1), next_word)], dim=0)
        if next_word == EOS_IDX:
            break
    return ys
"""

NANO = """
import torch

@torch.no_grad()
def generate(model, idx, max_new_tokens, temperature=1.0, top_k=None):
    for _ in range(max_new_tokens):
        size = model.config.block_size
        logits, _ = model(idx if idx.size(1) <= size else idx[:, -size:])
        logits = logits[:, -1, :] / temperature
        if top_k is not None:
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
        idx = torch.cat((idx, torch.multinomial(logits.softmax(-1), 1)), dim=1)
    return idx
"""

PURE = """
def generate(model, prompt, max_new_tokens, eos=None):
    tokens = list(prompt)
    for _ in range(max_new_tokens):
        row = model(tokens)[-1]
        tokens.append(max(range(len(row)), key=lambda v: row[v]))
        if tokens[-1] == eos:
            break
    return tokens
"""

CACHED = """
import torch

def generate(model, idx, max_new_tokens):
    past, newest = None, idx
    for _ in range(max_new_tokens):
        logits, past = model(newest, past)
        newest = logits[:, -1:].argmax(-1)
        idx = torch.cat([idx, newest], dim=1)
    return idx
"""

STREAM = '''
import torch

def generate_stream(model, src, max_new_tokens, bos=1, eos=2):
    """Yields the new tokens only."""
    memory, ids = model.encode(src), [bos]
    for _ in range(max_new_tokens):
        ids.append(int(model.decode_step(torch.tensor([ids]), memory)[0, -1].argmax()))
        yield ids[-1]
        if ids[-1] == eos:
            return
'''

BUFFER = """
import torch

def greedy_decode(model, src, max_len, bos=1, eos=2, pad=0):
    memory, rows = model.encode(src), len(src)
    buffer = torch.full((rows, max_len), pad)
    buffer[:, 0] = bos
    alive = torch.ones(rows, dtype=torch.bool)
    for t in range(1, max_len):
        token = model.decode_step(buffer, memory)[:, t - 1].argmax(-1)
        buffer[:, t] = torch.where(alive, token, torch.full_like(token, pad))
        alive &= token != eos
    return buffer
"""


CROPPED = """
import torch

@torch.no_grad()
def sample(model, x, steps, temperature=1.0, sample=False, top_k=None):
    for _ in range(steps):
        logits, _ = model(x if x.size(1) <= model.block_size else x[:, -model.block_size:])
        probs = (logits[:, -1, :] / temperature).softmax(-1)
        ix = torch.multinomial(probs, 1) if sample else probs.argmax(-1, keepdim=True)
        x = torch.cat((x, ix), dim=1)
    return x
"""

PAIRED = '''
import torch

def translate(net, src, bos, eos, limit=30):
    """Ids of a batch, bos not returned, net.pad after eos."""
    z, m = net.encode(src)
    y = torch.full((src.size(0), 1), bos)
    over = torch.zeros(src.size(0), dtype=torch.bool)
    for _ in range(limit):
        t = net.decode(y, z, m)[:, -1].argmax(-1).masked_fill(over, net.pad)
        y = torch.cat([y, t[:, None]], 1)
        over |= t == eos
        if over.all():
            break
    return y[:, 1:]
'''


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def judged(tmp_path):
    """The verdicts on a piece of code: claim → verdict."""

    def judge(code, **options):
        path = tmp_path / "submission.py"
        path.write_text(textwrap.dedent(code), "utf-8")
        check = open_check(path, spec=SPEC, **{"in_process": True, "examples": 12} | options)
        found = {v.claim.removeprefix("generate."): v for c in CLAIMS for v in check.engine.verdicts(c)}
        (subject,) = check.candidate.filling("generate")
        return found, {name: value for name, (value, _) in subject.conventions.items()}

    return judge


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (LESSON, {"contract": "encoder_decoder", "bound": "new", "ends": "eos", "eos_id": "2"}),
        (LESSON.replace("range(max_len)", "range(max_len - 1)"), {"bound": "all"}),
        (ANNOTATED, {"bound": "all", "ends": "bound"}),
        (SEQUENCE_FIRST, {"bound": "all", "eos_id": "3"}),
        (NANO, {"contract": "decoder_only", "bound": "new", "ends": "bound", "model_answer": "(logits, …)"}),
        (PURE, {"contract": "decoder_only", "ends": "eos"}),
        (CACHED, {"model_answer": "(logits, …)"}),
        (STREAM, {"returns": "new", "bound": "new"}),
        (BUFFER, {"returns": "full", "bound": "all"}),
        (CROPPED, {"contract": "decoder_only", "choice": "greedy", "ends": "bound"}),
        (PAIRED, {"contract": "encoder_decoder", "returns": "new", "bound": "new"}),
        (PAIRED.replace("z, m =", "out =").replace("z, m", "out[0], out[1]"), {"returns": "new"}),
    ],
    ids="lesson counts-all annotated sequence-first nano pure cached stream buffer cropped pair parts".split(),
)
def test_contracts_of_public_code_are_understood(judged, code, expected):
    found, conventions = judged(code)
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}, found
    assert conventions | expected == conventions


def test_sampling_is_no_greedy_choice_and_the_message_says_which_convention_it_fits(judged):
    code = LESSON.replace(
        "logits[0, -1].argmax().item()", "torch.multinomial(logits[0, -1].softmax(-1), 1).item()"
    )
    failure = judged(code)[0]["greedy"].failure
    assert "was taken" in failure.what
    assert 'choice = "sampled"' in failure.meant


def test_a_declared_sampler_must_sample(judged):
    declared = {"autoregressive_decode": {"choice": "sampled"}}
    found, _ = judged(LESSON, conventions=declared)
    assert found["greedy"].verdict == "unsupported"
    assert "every time" in found["sampled"].failure.what


def test_a_result_without_bos_is_a_near_miss(judged):
    code = LESSON.replace("return generated", "return generated[1:]")
    found, _ = judged(code)
    assert 'returns = "new"' in found["start"].failure.meant
    found, _ = judged(code, conventions={"autoregressive_decode": {"returns": "new"}})
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}


def test_a_bound_that_the_author_explains_is_held_to_it(judged):
    told = LESSON.replace("    enc_out", '    """At most max_len tokens after BOS."""\n    enc_out')
    assert judged(told)[0]["bound"].verdict == "passed"
    failure = judged(told.replace("range(max_len)", "range(max_len - 1)"))[0]["bound"].failure
    assert 'bound = "all"' in failure.meant


def test_words_about_bos_that_do_not_speak_of_the_result_change_nothing(judged):
    told = LESSON.replace(
        "    enc_out", '    """No BOS in src. At most max_len tokens after BOS."""\n    enc_out'
    )
    assert judged(told)[1]["returns"] == "full"


UNBOUNDED = """
import torch

def greedy_decode(model, src, bos, eos):
    memory, tokens = model.encode(src), [bos]
    while tokens[-1] != eos:
        tokens.append(model.decode_step(torch.tensor([tokens]), memory)[0, -1].argmax().item())
    return tokens
"""


def test_a_loop_without_a_bound_is_held_to_eos_alone(judged):
    found, _ = judged(UNBOUNDED)
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}
    assert (found["eos"].verdict, found["repeatable"].verdict) == ("passed", "passed")
    found, _ = judged(UNBOUNDED.replace("return tokens", "return tokens + [5]"))
    assert found["eos"].verdict == "failed"


def test_a_whole_model_may_be_given_the_source_at_each_step(judged):
    code = LESSON.replace(
        "model.decode_step(torch.tensor([generated]), enc_out)", "model(src, torch.tensor([generated]))"
    )
    assert judged(code)[0]["memory"].verdict == "unsupported"
    code = LESSON.replace(", enc_out)", ", src)")
    assert judged(code)[0]["memory"].verdict == "failed"


def test_code_without_eos_owes_it_only_under_the_lessons_contract(judged):
    without = LESSON.replace("        if generated[-1] == 2:\n            break\n", "")
    assert judged(without)[0]["eos"].verdict == "failed"
    assert judged(ANNOTATED)[0]["eos"].verdict == "unsupported"


def test_a_second_eos_is_no_filler(judged):
    code = LESSON.replace("            break", "            generated.append(2)\n            break")
    assert judged(code)[0]["eos"].verdict == "failed"


def test_a_loop_without_end_is_told_once_and_the_check_goes_on(judged):
    found, _ = judged(LESSON.replace("for _ in range(max_len):", "while generated[-1] != 2:"))
    assert found["ends"].verdict == "errored"
    assert "did not end" in found["ends"].failure.what
    assert {v.verdict for name, v in found.items() if name != "ends"} <= {"blocked", "unsupported"}


def test_what_the_stand_in_cannot_offer_is_outside_and_no_fault(judged):
    found, _ = judged(LESSON.replace("model.encode(src)", "model.encode(model.tokenizer(src))"))
    assert {v.verdict for v in found.values()} == {"unsupported"}
    assert "tokenizer" in found["ends"].reason


def test_a_loop_that_draws_is_known_by_what_it_feeds_whatever_its_prompt_is_called(judged):
    code = CROPPED.replace(", sample=False, top_k=None", "").replace(
        " if sample else probs.argmax(-1, keepdim=True)", ""
    )
    found, conventions = judged(code)
    assert (conventions["contract"], conventions["choice"]) == ("decoder_only", "sampled")
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}


def test_a_source_in_the_targets_place_does_not_make_a_decoder_only_model(judged):
    code = PAIRED.replace("torch.full((src.size(0), 1), bos)", "src").replace("return y[:, 1:]", "return y")
    found, conventions = judged(code)
    assert conventions["contract"] == "encoder_decoder"
    assert found["first-call"].verdict == "failed"


def test_the_oldest_tokens_in_the_window_are_told(judged):
    found, _ = judged(CROPPED.replace("[:, -model.block_size:]", "[:, :model.block_size]"))
    assert "the oldest ones" in found["window"].failure.what
    assert judged(CACHED)[0]["window"].verdict == "unsupported"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (("z, m = net.encode(src)", "z, m, last = net.encode(src)"), "unsupported"),
        (("net.decode(y, z, m)", "net.decode(y, z, m).last_hidden_state"), "unsupported"),
        (("net.decode(y, z, m)", "net.layers[0](y, z, m)"), "unsupported"),
        (("t[:, None]", "tt[:, None]"), "errored"),
        (("over |= t == eos", "B, V = net.decode(y, z, m).shape"), "errored"),
        (("over |= t == eos", "assert y.size(1) < 1"), "errored"),
        (("z, m = net.encode(src)", "a, b = (1, 2, 3)\n    z, m = net.encode(src)"), "errored"),
    ],
)
def test_an_error_is_the_candidates_own_unless_it_asks_for_another_model(judged, change, verdict):
    found, _ = judged(PAIRED.replace(*change))
    assert found["ends"].verdict == verdict


def test_what_is_said_to_be_one_prompt_is_not_given_a_batch(judged):
    code = CROPPED.replace("    for _", '    """x: (1, T) prompt"""\n    for _')
    assert judged(code)[0]["batch"].verdict == "unsupported"


@pytest.mark.parametrize(
    "result", ["None", "'text'", "[[]]", "[None, 1]", "float('nan')", "{}", "torch.zeros(2, 3, 4)"]
)
def test_any_result_is_told_and_none_breaks_the_check(judged, result):
    found, _ = judged(LESSON.replace("return generated", f"return {result}"))
    assert not {"suite_fault", "errored"} & {v.verdict for v in found.values()}
    assert "failed" in {v.verdict for v in found.values()}


def test_ids_of_floating_point_are_refused_by_name(judged):
    found, _ = judged(LESSON.replace("torch.tensor([generated])", "torch.tensor([generated]).float()"))
    assert "floating-point" in found["ends"].failure.what


def test_the_snippet_of_a_failure_runs_and_shows_it(judged, tmp_path):
    found, _ = judged(LESSON.replace("logits[0, -1]", "logits[0, 0]"))
    failure = found["greedy"].failure
    done = subprocess.run(
        [sys.executable, "-c", failure.snippet], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    wrong = failure.observed
    assert done.stdout.strip().startswith(f"[1, {wrong}, {wrong}")


DRAWS = """
import torch

def generate_sampled(model, idx, max_new_tokens, seed=0):
    torch.manual_seed(seed)
    for _ in range(max_new_tokens):
        idx = torch.cat([idx, torch.multinomial(model(idx)[:, -1].softmax(-1), 1)], dim=1)
    return idx
"""


@pytest.mark.parametrize("seeding", ["torch.manual_seed(seed)", "torch.manual_seed(7)", "pass"])
def test_a_sampler_that_seeds_itself_still_samples(judged, seeding):
    found, _ = judged(DRAWS.replace("torch.manual_seed(seed)", seeding))
    assert found["sampled"].verdict == "passed"
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}


TEMPERED = """
import torch

@torch.no_grad()
def generate(model, idx, max_new_tokens, temperature=1.0, top_k=None, do_sample=True):
    for _ in range(max_new_tokens):
        logits = model(idx)[:, -1] / temperature
        if top_k is not None:
            kept, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < kept[:, [-1]]] = -float("inf")
        probs = logits.softmax(-1)
        new = torch.multinomial(probs, 1) if do_sample else probs.argmax(-1, keepdim=True)
        idx = torch.cat([idx, new], dim=1)
    return idx
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("pass", "pass", "passed"),
        (", top_k=None, do_sample=True", ", top_k=None, do_sample=False", "passed"),
        ("/ temperature", "/ max(temperature, 1e-6)", "passed"),
        (
            "    for _",
            "    if temperature < 0.1:\n        raise ValueError('too cold')\n    for _",
            "unsupported",
        ),
        ("/ temperature", "* temperature", "failed"),
        ("/ temperature", "", "failed"),
        ("logits.softmax(-1)", "(logits * temperature).softmax(-1) / temperature", "failed"),
        ("/ temperature", "* min(temperature, 1 / temperature if temperature < 2 else 1 / 0)", "failed"),
        ("    for _", "    if temperature < 0.1:\n        temperatur\n    for _", "errored"),
    ],
)
def test_logits_are_divided_by_the_temperature(judged, old, new, verdict):
    found, _ = judged(TEMPERED.replace(old, new))
    assert (found["greedy"].verdict, found["cold"].verdict) == ("passed", verdict)
    if verdict == "failed":
        assert "divided by 0.025 by 40" in found["cold"].failure.what


def test_a_sampler_owes_the_end_that_it_takes(judged):
    code = DRAWS.replace("seed=0", "seed=0, eos_id=2")
    found, _ = judged(code)
    assert found["eos"].verdict == "failed"
    stopping = "\n        if (idx[:, -1] == eos_id).any():\n            break\n    return"
    found, _ = judged(code.replace("\n    return", stopping))
    assert (found["eos"].verdict, found["batch"].verdict) == ("passed", "failed")


def test_a_batch_of_prompts_may_be_called_prompts(judged):
    found, shown = judged(CACHED.replace("idx", "prompts"))
    assert shown["contract"] == "decoder_only"
    assert {"passed"} == {found["bound"].verdict, found["greedy"].verdict}
    assert {v.verdict for v in found.values()} <= {"passed", "unsupported"}


def test_zeros_in_the_place_of_the_memory_are_told(judged):
    found, _ = judged(LESSON.replace(", enc_out)", ", torch.zeros_like(enc_out))"))
    assert "did not return" in found["memory"].failure.what


def test_the_snippet_of_a_loop_that_asks_nothing_has_a_model_too(judged):
    found, _ = judged("def autoregressive_decode(model, src, max_len=8):\n    return [1]\n")
    assert "model = encoder = Model()" in found["bound"].failure.snippet


def test_a_loop_that_goes_on_without_answers_is_stopped_once(judged):
    code = """
    def autoregressive_decode(model, src, max_len=8):
        memory, tokens = model.encode(src), [1]
        while tokens[-1] != 2:
            try:
                row = model.decode_step([tokens], memory)[0][-1]
                tokens.append(int(row.argmax()))
            except Exception:
                pass
        return tokens
    """
    began = time.monotonic()
    found, _ = judged(code, in_process=False, call_seconds=2.0)
    assert time.monotonic() - began < 100
    assert (found["ends"].verdict, "did not end" in found["ends"].failure.what) == ("errored", True)


SPOKEN = """
import torch

def take(logits):
    return {choice}

def generate_text(model, idx, max_new_tokens):
    for _ in range(max_new_tokens):
        newest = take(model(idx)[:, -1])
        idx = torch.cat([idx, newest], dim=1)  # the sampled token comes last
    return idx
"""


@pytest.mark.parametrize(
    ("choice", "convention", "broken"),
    [
        ("logits.argmax(-1, keepdim=True)", "greedy", set()),
        ("logits.softmax(-1).multinomial(1)", "sampled", set()),
        (
            "torch.distributions.Categorical(logits=logits.max() - logits).sample()[:, None]",
            "sampled",
            {"sampled"},
        ),
        ("logits.argmax(0, keepdim=True)[:, :1] * 0 + logits.topk(2).indices[:, 1:]", "greedy", {"greedy"}),
    ],
)
def test_who_speaks_of_sampling_samples_only_where_the_code_may_draw(judged, choice, convention, broken):
    found, conventions = judged(SPOKEN.format(choice=choice))
    assert conventions["choice"] == convention
    assert broken <= {claim for claim, v in found.items() if v.verdict in ("failed", "errored")}
    assert broken or {v.verdict for v in found.values()} <= {"passed", "unsupported"}
