"""Teacher forcing: what is accepted, what is told as a near miss, and how draws are made."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from triu.conformance.api import open_check
from triu.spec import load_spec

SPEC = load_spec()
ROLES = ("shift_right", "teacher_forcing_loss", "training_step", "scheduled_sampling")
BAD = ("failed", "errored", "inconclusive", "suite_fault")
HEAD = (
    "import random\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
)


@pytest.fixture
def judge(tmp_path):
    """Judges a source by the claims of these roles: the claims that failed with what was told, and the binding."""
    opened = []

    def judged(source, seed=0, claims=None, conventions=None):
        path = tmp_path / f"candidate_{len(opened)}.py"
        path.write_text(HEAD + textwrap.dedent(source), "utf-8")
        check = open_check(path, spec=SPEC, in_process=True, seed=seed, conventions=conventions)
        opened.append(check)
        wanted = [c for c in SPEC.claims.values() if c.role in ROLES and (not claims or c.id in claims)]
        verdicts = [v for claim in wanted for v in check.verdicts(claim)]
        bad = [v for v in verdicts if v.verdict in BAD]
        return {v.claim: v for v in (*verdicts, *bad) if v.object != "—"}, check

    yield judged
    for check in opened:
        check.close()


def broken(verdicts):
    return {
        c for c, v in verdicts.items() if v.verdict in ("failed", "errored", "inconclusive", "suite_fault")
    }


# what is accepted

SHIFTS = """
def shift_right(target): return target[:-1]

def right_shift(tokens, bos_id=1): return [bos_id] + tokens[:-1]

def prepare_targets(tokens, bos, eos): return [bos] + tokens, tokens + [eos]

def shift_targets(x, start_token): return F.pad(x, (1, 0), value=start_token)[..., :-1]

def shift_tokens_right(input_ids, pad_token_id, decoder_start_token_id):
    shifted = input_ids.new_zeros(input_ids.shape)
    shifted[:, 1:] = input_ids[:, :-1].clone()
    shifted[:, 0] = decoder_start_token_id
    return shifted.masked_fill(shifted == -100, pad_token_id)

def make_decoder_input(target, pad_id=0):
    '''(B, T): EOS is dropped in every row.'''
    out = target[:, :-1].clone()
    out[out == 2] = pad_id
    return out

def split_target(target): return dict(labels=target[:, 1:], decoder_input=target[:, :-1])

def split_sequence(tokens):
    '''The last label is -100, which is ignored.'''
    return tokens, np.concatenate([tokens[..., 1:], np.full_like(tokens[..., :1], -100)], -1)

def prepare_decoder_inputs(labels):
    return torch.cat([torch.full((len(labels), 1), 3), labels[:, :-1]], 1)
"""

LOSSES = """
def sequence_cross_entropy(logits, targets, mask):
    m = logits.max(-1, keepdims=True)
    lse = m[..., 0] + np.log(np.exp(logits - m).sum(-1))
    nll = lse - np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (nll * mask).sum() / mask.sum()

def masked_loss(log_probs, target, lengths):
    nll = -np.take_along_axis(log_probs, target[..., None], -1)[..., 0]
    real = np.arange(target.shape[1])[None] < np.asarray(lengths)[:, None]
    return {"n": int(real.sum()), "loss": (nll * real).sum() / real.sum()}

class MaskedCrossEntropyLoss(nn.Module):
    def __init__(self, ignore_index, label_smoothing=0.1):
        super().__init__()
        self.ce = nn.CrossEntropyLoss(ignore_index=ignore_index, label_smoothing=label_smoothing)

    def forward(self, logits, target):
        return self.ce(logits.transpose(1, 2), target)

def compute_loss(logits, labels, reduction="sum"):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction=reduction)

def cross_entropy(z, target): return np.log(np.exp(z - z.max()).sum()) + z.max() - z[target]

def decoder_loss(logits, tgt):
    '''logits (B, T - 1, V); tgt (B, T) with BOS'''
    return F.cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=0)

def teacher_forcing_loss(logits, labels):
    '''PAD = 0 is left out.'''
    keep = labels != 0
    return F.cross_entropy(logits[keep], labels[keep])

def padded_cross_entropy(logits, labels, pad_mask):
    nll = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return nll[~pad_mask].mean()
"""

STEPS = """
def train_step(model, batch, optimizer, criterion):
    model.train()
    src, tgt = batch
    optimizer.zero_grad()
    out = model(src, tgt[:, :-1])
    loss = criterion(out.reshape(-1, out.shape[-1]), tgt[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()

def training_step(model, src, tgt, src_mask, tgt_mask, pad_idx=0):
    memory = model.encode(src, src_mask)
    logits = model.generator(model.decode(tgt[:, :-1], memory, src_mask, tgt_mask))
    return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=pad_idx), logits

def teacher_forcing_step(model, src, tgt):
    '''Sequence first, as nn.Transformer has it.'''
    out = model(src.transpose(0, 1), tgt[:, :-1].transpose(0, 1))
    return F.cross_entropy(out.transpose(0, 1).flatten(0, 1), tgt[:, 1:].flatten())

def teacher_forcing_training_step(model, encoder_output, target_tokens):
    predictions = model.decode(target_tokens[:-1], encoder_output)
    loss = 0
    for t, target in enumerate(target_tokens[1:]):
        loss += -np.log(np.exp(predictions[t])[target] / np.exp(predictions[t]).sum() + 1e-10)
    return loss / (len(target_tokens) - 1)
"""

SAMPLERS = """
def choose_input(gold, pred, tf_ratio): return gold if random.random() < tf_ratio else pred

def scheduled_sampling_decoder_step(decoder, prev_token, encoder_output, epsilon, ground_truth_token):
    if np.random.random() < epsilon:
        return np.argmax(decoder(prev_token, encoder_output))
    return ground_truth_token

def mix_inputs(gold, logits, p):
    '''With probability p the model's token; predictions are for the next place, BOS stays.'''
    mixed, guess = gold.clone(), logits.argmax(-1)
    coin = torch.rand(gold[:, 1:].shape) < p
    mixed[:, 1:] = torch.where(coin, guess[:, :-1], gold[:, 1:])
    return mixed

class ScheduledSampler:
    def __init__(self, teacher_forcing_ratio):
        self.ratio = teacher_forcing_ratio

    def __call__(self, gold, predicted):
        keep = torch.bernoulli(torch.full(gold.shape, self.ratio)).bool()
        return torch.where(keep, gold, predicted), keep

def scheduled_sampling_inputs(truth, predictions, teacher_forcing_ratio, rng):
    rest = zip(truth[1:], predictions[1:])
    return [truth[0]] + [g if rng.random() < teacher_forcing_ratio else p for g, p in rest]
"""


@pytest.mark.parametrize(
    ("source", "claim", "count"),
    [
        (SHIFTS, "shift-right.previous", 9),
        (LOSSES, "teacher-forcing-loss.mean", 8),
        (STEPS, "training-step.loss", 4),
        (SAMPLERS, "scheduled-sampling.between", 5),
    ],
)
def test_every_way_to_write_it_is_accepted(judge, source, claim, count):
    verdicts, check = judge(source)
    assert not broken(verdicts)
    assert [v.verdict for v in check.verdicts(SPEC.claims[claim])] == ["passed"] * count


# what is told


@pytest.mark.parametrize(
    ("source", "claim", "convention", "value"),
    [
        (
            """
            def teacher_forcing_loss(logits, tokens):
                '''(B, T, V)'''
                return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            """,
            "teacher-forcing-loss.perfect",
            "label_offset",
            "shifts_inside",
        ),
        (
            "def teacher_forcing_loss(z, y): return F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction='sum')",
            "teacher-forcing-loss.uniform",
            "reduction",
            "sum",
        ),
        (
            "def teacher_forcing_loss(scores, labels): return F.nll_loss(scores.flatten(0, -2), labels.flatten())",
            "teacher-forcing-loss.uniform",
            "input",
            "log_probs",
        ),
        (
            "def split_target(target): return target[:, 1:], target[:, :-1]",
            "shift-right.start",
            "pair",
            "labels_first",
        ),
        (
            """
            def shift_tokens_right(input_ids, pad_token_id):
                last = (input_ids.ne(pad_token_id).sum(1) - 1).unsqueeze(-1)
                shifted = torch.empty_like(input_ids)
                shifted[:, 0] = input_ids.gather(1, last).squeeze(-1)
                shifted[:, 1:] = input_ids[:, :-1]
                return shifted
            """,
            "shift-right.start",
            "start",
            "last_token",
        ),
        (
            """
            def mix_inputs(gold, predicted, epsilon):
                return np.where(np.random.rand(*gold.shape) < epsilon, gold, predicted)
            """,
            "scheduled-sampling.never",
            "probability_of",
            "teacher",
        ),
        (
            "def mix_tokens(gold, predicted, p): return torch.where(torch.rand(len(gold), 1) < p, predicted, gold)",
            "scheduled-sampling.independent",
            "coin",
            "row",
        ),
    ],
)
def test_what_fits_another_convention_says_which_and_passes_when_declared(
    judge, source, claim, convention, value
):
    verdicts, check = judge(source)
    assert verdicts[claim].verdict == "failed"
    assert f'{convention} = "{value}"' in verdicts[claim].failure.meant
    name = check.candidate.subjects[0].binding.name
    declared, _ = judge(source, conventions={name: {convention: value}})
    assert not broken(declared)


def test_the_sum_over_labels_is_not_taken_for_the_loss_of_one(judge):
    source = "def cal_loss(pred, gold, pad_idx): return F.cross_entropy(pred, gold.view(-1), ignore_index=pad_idx{})"
    assert not broken(judge(source.format(""))[0])
    verdicts, check = judge(source.format(", reduction='sum'"))
    assert check.candidate.subjects[0].limits["layout"] == ("row",)
    assert broken(verdicts) == {"teacher-forcing-loss.uniform"}
    assert 'reduction = "sum"' in verdicts["teacher-forcing-loss.uniform"].failure.meant
    declared, _ = judge(source.format(", reduction='sum'"), conventions={"cal_loss": {"reduction": "sum"}})
    assert not broken(declared)
    assert declared["teacher-forcing-loss.gradient"].verdict == "passed"
    wrong, _ = judge(
        source.format(", reduction='sum') * len(gold"), conventions={"cal_loss": {"reduction": "sum"}}
    )
    assert "teacher-forcing-loss.uniform" in broken(wrong)


@pytest.mark.parametrize(
    ("words", "layout"), [("", ("row", "batch")), ("The loss of a single token.", ("one",))]
)
def test_a_loss_for_one_position_that_also_sums_is_known_by_its_words(judge, words, layout):
    source = f"""
    def cross_entropy(logits, label):
        '''{words}'''
        z = logits - logits.max(-1, keepdims=True)
        return -(np.eye(z.shape[-1])[label] * (z - np.log(np.exp(z).sum(-1, keepdims=True)))).sum()
    """
    verdicts, check = judge(source)
    assert check.candidate.subjects[0].limits["layout"] == layout
    assert broken(verdicts) == (set() if words else {"teacher-forcing-loss.uniform"})


def test_a_function_for_one_sequence_is_not_held_to_batches_unless_its_author_speaks_of_them(judge):
    quiet, _ = judge("def shift_right(target): return target[:-1]")
    told, _ = judge("def shift_right(target):\n    '''target: (B, T)'''\n    return target[:-1]")
    assert not broken(quiet)
    assert quiet["shift-right.rows"].verdict == "unsupported"
    assert "shift-right.length" in broken(told)


def test_a_second_bos_is_seen_where_the_author_says_that_the_target_has_one(judge):
    source = """
    def prepare_targets(target, bos=1):
        '''{}'''
        return np.concatenate([[bos], target[:-1]]), target
    """
    with_bos, _ = judge(source.format("target: [BOS, y1, ..., EOS]"))
    without, _ = judge(source.format("target: labels; returns an input that starts with BOS"))
    assert "shift-right.length" in broken(with_bos)
    assert not broken(without)


def test_padding_is_asked_only_of_what_knows_of_it(judge):
    source = """
    def teacher_forcing_loss(z, labels):
        return F.cross_entropy(z.flatten(0, -2), labels.flatten(), reduction="none").mean()
    """
    verdicts, _ = judge(source)
    assert not broken(verdicts)
    assert verdicts["teacher-forcing-loss.padding"].verdict == "unsupported"


def test_a_step_that_the_stand_in_cannot_serve_is_not_accused(judge):
    verdicts, _ = judge("def training_step(model, src, tgt): return model.transformer.h[0](tgt[:, :-1])")
    assert not broken(verdicts)
    assert "stand-in" in verdicts["training-step.shifted"].reason


T5 = """
def train_step(model, src, {name}):
    '''{words}'''
    front = torch.full_like({name}[:, :1], {bos})
    logits = model(src, torch.cat([front, {name}[:, :-1]], dim=1))
    return F.cross_entropy(logits.flatten(0, 1), {name}.flatten())
"""


@pytest.mark.parametrize(
    ("name", "words", "bos", "accepted"),
    [
        ("labels", "One step.", 0, True),
        ("labels", "One step.", 1, True),
        ("tgt", "tgt comes without BOS", 1, True),
        ("tgt", "One step.", 1, False),
        ("labels", "labels: [BOS, w1, ..., EOS]", 1, False),
    ],
)
def test_labels_to_which_a_step_gives_bos_must_be_called_so(judge, name, words, bos, accepted):
    verdicts, _ = judge(T5.format(name=name, words=words, bos=bos))
    assert broken(verdicts) == (set() if accepted else {"training-step.shifted"})
    if not accepted:
        failure = verdicts["training-step.shifted"].failure
        assert "has its BOS already" in failure.what
        assert 'target = "labels"' in failure.meant


def test_labels_are_no_excuse_for_the_full_target(judge):
    shown = T5.format(name="labels", words="labels without BOS", bos=1)
    start, stop = shown.index("torch.cat"), shown.index(")\n    return")
    verdicts, _ = judge(shown[:start] + "labels" + shown[stop:])
    assert broken(verdicts) == {"training-step.shifted"}


def test_a_step_may_put_the_same_bos_in_front_again(judge):
    source = """
    def train_step(model, src, target, pad_id=0):
        labels = target[:, 1:]
        decoder_input = F.pad(labels, (1, 0), value=1)[:, :-1]
        return F.cross_entropy(model(src, decoder_input).flatten(0, 1), labels.flatten(), ignore_index=pad_id)
    """
    verdicts, _ = judge(source)
    assert not broken(verdicts)


SEQUENCE_FIRST = """
def train_step(model, src, tgt):
    '''{}'''
    logits = model(src, tgt[:-1, :])
    return F.cross_entropy(logits.flatten(0, 1), tgt[1:, :].flatten())
"""


def test_a_step_with_the_sequence_first_is_accepted_where_it_is_said(judge):
    for words in ("src (S, B), tgt (T, B)", "Sequence first."):
        verdicts, _ = judge(SEQUENCE_FIRST.format(words))
        assert not broken(verdicts), words
        assert verdicts["training-step.loss"].verdict == "passed"
    failure = judge(SEQUENCE_FIRST.format("One step."))[0]["training-step.shifted"].failure
    assert 'order = "sequence_first"' in failure.meant
    wrong = (
        SEQUENCE_FIRST.format("tgt (T, B)")
        .replace("tgt[:-1, :]", "tgt[:, :-1]")
        .replace("tgt[1:, :]", "tgt[:, 1:]")
    )
    assert broken(judge(wrong)[0]) == {"training-step.shifted"}


def test_a_step_may_want_memory_and_mask_from_the_encoder_and_the_padding_id_from_the_model(judge):
    source = """
    def train_step(model, src, tgt):
        memory, mask = model.encode(src)
        logits = model.decode(tgt[:, :-1], memory, mask)
        return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=model.pad_id)
    """
    verdicts, _ = judge(source)
    assert not broken(verdicts)
    assert verdicts["training-step.padding"].verdict == "passed"
    own, _ = judge(source.replace("memory, mask)", "memory, maks)"))
    assert "training-step.shifted" in broken(own)
    assert "maks" in own["training-step.shifted"].failure.what


def test_a_loss_that_says_that_it_shifts_is_held_to_it(judge):
    source = """
    def causal_lm_loss(logits, labels):
        '''labels are the input ids themselves'''
        return F.cross_entropy(logits{}.flatten(0, 1), labels{}.flatten())
    """
    verdicts, check = judge(source.format("[:, :-1]", "[:, 1:]"))
    assert not broken(verdicts)
    (subject,) = check.candidate.filling("teacher_forcing_loss")
    assert subject.convention("label_offset") == "shifts_inside"
    assert broken(judge(source.format("", ""))[0])


def test_a_step_whose_labels_are_shifted_outside_is_not_accused(judge):
    source = """
    def train_step(model, x, y, optimizer):
        logits, loss = model(x, y)
        loss.backward()
        return loss.item()
    """
    verdicts, _ = judge(source)
    assert not broken(verdicts)
    assert "shifted before" in verdicts["training-step.shifted"].reason


def test_one_hot_labels_are_given_to_what_wants_them(judge):
    verdicts, _ = judge(
        "def cross_entropy_loss(y, probs): return -np.mean(np.sum(y * np.log(probs), axis=-1))"
    )
    assert not broken(verdicts)
    assert verdicts["teacher-forcing-loss.mean"].verdict == "passed"


@pytest.mark.parametrize("answer", ["None", "float('nan')", "[[1], [2, 3]]", "1 / 0"])
def test_any_answer_comes_to_a_verdict(judge, answer):
    source = f"""
    def shift_right(target, bos_id): return {answer}
    def teacher_forcing_loss(logits, labels): return {answer}
    def training_step(model, src, tgt): return {answer}
    def scheduled_sampling(gold, predicted, epsilon): return {answer}
    """
    verdicts, _ = judge(source)
    assert {c.split(".")[0] for c in broken(verdicts)} == {role.replace("_", "-") for role in ROLES}
    assert not [v for v in verdicts.values() if v.verdict == "suite_fault"]


def test_every_row_of_tokens_to_which_an_end_is_appended_ends_there(judge):
    code = """
    def prepare_targets(tokens, bos, eos):
        edge = torch.ones_like(tokens[..., :1])
        return torch.cat([edge * bos, tokens], -1), torch.cat([tokens, edge * {last}], -1)
    """
    found, _ = judge(code.format(last="eos"))
    assert not broken(found)
    assert found["shift-right.labels"].verdict == "passed"
    assert "shift-right.labels" in broken(judge(code.format(last="bos"))[0])


# draws


def test_draws_differ_from_call_to_call_and_are_the_same_for_the_same_seed(judge):
    source = (
        "def choose_input(gold, predicted, epsilon): return predicted if random.random() < epsilon else gold"
    )
    draws = []
    for seed in (0, 0, 1):
        _, check = judge(source, seed=seed, claims={"scheduled-sampling.independent"})
        (subject,) = check.candidate.filling("scheduled_sampling")
        (remembered,) = [r["model"] for r in subject.remembered.values()]
        draws.append(remembered.ravel())
    assert 0.3 < draws[0].mean() < 0.7
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_the_worker_does_not_seed_between_calls(judge):
    source = "def choose_input(gold, predicted, epsilon): return random.getrandbits(20)"
    _, check = judge(source, claims={"scheduled-sampling.tokens"})
    (subject,) = check.candidate.filling("scheduled_sampling")
    first, second = check.session.calls(subject._calls(50, 2, 7))
    assert first != second
