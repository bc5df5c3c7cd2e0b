"""How seldom chance accuses a right sampler, and how far off a wrong one has to be."""

import math

import numpy as np
import pytest
from triu.conformance.candidates.teaching_sampling import ScheduledSubject
from triu.conformance.engine.chance import ALARM, COMPARISONS, improbable, surprise
from triu.conformance.engine.draw import is_enumerable
from triu.spec import load_spec

SPEC = load_spec()
COUNTED = ("draws_follow", "likeliest_at_zero", "mixes_in_between", "mixes_independently")
SAMPLERS = 10  # in one file, of each kind
NEIGHBOURS = 3  # mixes_independently compares calls, rows and positions


@pytest.mark.parametrize("draws", [80, 400, 1824, 2000])
@pytest.mark.parametrize("p", [0.02, 0.15, 0.5, 0.75])
def test_a_right_sampler_is_refused_less_often_than_stated(draws, p):
    """The exact probability, summed over all refused counts of the binomial distribution."""
    k = np.arange(draws + 1)
    logs = np.array([math.lgamma(draws + 1) - math.lgamma(n + 1) - math.lgamma(draws - n + 1) for n in k])
    logs = logs + k * math.log(p) + (draws - k) * math.log(1 - p)
    refused = float(np.exp(logs)[improbable(k, draws, p)].sum())
    assert 0 < refused < ALARM


def test_all_counts_of_a_comparison_together_stay_below_its_level():
    """20000 right comparisons of five counts each, at levels that can be measured."""
    probabilities = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    counts = np.random.default_rng(0).multinomial(300, probabilities, size=20000)
    least = surprise(counts, 300, probabilities).min(axis=1)
    for level in (0.1, 0.01, 0.001):
        assert float((least < level / 5).mean()) <= level


def test_a_run_stays_below_one_false_alarm_in_a_million():
    claims = [claim for claim in SPEC.claims.values() if claim.property_name in COUNTED]
    assert {claim.property_name for claim in claims} == set(COUNTED)
    comparisons = 0
    for claim in claims:
        choices = claim.domain.dimensions
        assert is_enumerable(choices), f"{claim.id}: more examples would make more comparisons"
        each = NEIGHBOURS if claim.property_name == "mixes_independently" else 1
        comparisons += each * math.prod(len(values) for values in choices.values())
    assert SAMPLERS * comparisons <= COMPARISONS
    assert ALARM * COMPARISONS < 1e-6


def test_a_share_that_is_off_by_a_fifth_is_refused():
    assert improbable(round(0.3 * 400), 400, 0.5)
    assert improbable(round(0.09 * 1824), 1824, 0.15)
    assert not improbable(200, 400, 0.5)


def test_the_smallest_number_of_draws_shows_a_coin_that_is_off_by_a_fifth():
    for shape, count in ScheduledSubject.SHAPES.values():
        draws = math.prod(shape) * count
        assert improbable(round(0.3 * draws), draws, 0.5)


@pytest.mark.parametrize("wrong", [(0.6875, 0.3125, 0.0, 0.0), (0.9, 0.0853, 0.0146, 0.0001)])
def test_what_a_wrong_sampler_draws_is_refused(wrong):
    """It drops the rare tokens, or draws at a third of the temperature."""
    right = np.array([0.55, 0.25, 0.15, 0.05])
    for counts in np.random.default_rng(1).multinomial(300, wrong, size=50):
        assert improbable(counts, 300, right, parts=4).any()
