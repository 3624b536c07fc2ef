"""Draws depend on seed and position alone, follow the distribution, and carry the log-probs that are promised."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jade.backbone.local.runner import draw_for
from jade.backbone.local.sampling import Draw, draw_tokens, invert_cdf, keep_nucleus, seed_word, uniforms
from jade.types import Sampling


def splitmix64(word: int) -> int:
    """The reference, in Python's own integers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def draw_many(logits_V: torch.Tensor, num: int, temperature: float = 1.0, top_p: float = 1.0) -> torch.Tensor:
    seeds = torch.arange(num)
    rows = logits_V.expand(num, -1)
    how = Draw.NUCLEUS if top_p < 1 else Draw.FULL
    uniform = uniforms(seeds, torch.zeros(num, dtype=torch.long))
    return draw_tokens(rows, torch.full((num,), temperature), torch.full((num,), top_p), uniform, how)[0]


@given(st.integers(min_value=-(2**70), max_value=2**70), st.integers(min_value=0, max_value=5000))
def test_a_uniform_is_two_rounds_of_splitmix64(seed: int, position: int) -> None:
    golden = 0x9E3779B97F4A7C15
    word = splitmix64((splitmix64((seed + golden) % 2**64) + golden * (position + 1)) % 2**64)
    drawn = uniforms(torch.tensor([seed_word(seed)]), torch.tensor([position]))
    assert drawn.item() == ((word >> 32) + 0.5) / 2**32


def test_uniforms_of_neighbouring_seeds_and_positions_are_spread_evenly() -> None:
    seed, position = torch.meshgrid(torch.arange(200), torch.arange(100), indexing="ij")
    drawn = uniforms(seed.flatten(), position.flatten())
    counts = torch.histc(drawn.float(), bins=50, min=0, max=1)
    assert chi_square(counts, torch.full((50,), 400.0)) < 49 + 4 * math.sqrt(2 * 49)
    grid = drawn.view(200, 100)
    assert abs(float(torch.corrcoef(grid[:2])[0, 1])) < 0.3
    assert abs(float(torch.corrcoef(grid.T[:2])[0, 1])) < 0.3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_distribution_as_closely_as_those_of_torch(temperature: float) -> None:
    torch.manual_seed(1)
    logits = torch.randn(40)
    num, expected = 40000, (logits / temperature).softmax(0) * 40000
    bound = 39 + 4 * math.sqrt(2 * 39)
    ours = torch.bincount(draw_many(logits, num, temperature), minlength=40).float()
    theirs = torch.bincount(torch.multinomial(expected, num, replacement=True), minlength=40).float()
    assert chi_square(ours, expected) < bound
    assert chi_square(theirs, expected) < bound


def test_a_wrong_distribution_would_be_noticed() -> None:
    torch.manual_seed(1)
    logits = torch.randn(40)
    counts = torch.bincount(draw_many(logits, 40000, temperature=1.05), minlength=40).float()
    assert chi_square(counts, logits.softmax(0) * 40000) > 39 + 4 * math.sqrt(2 * 39)


def test_a_row_is_drawn_the_same_alone_and_among_others() -> None:
    torch.manual_seed(2)
    logits, seeds = torch.randn(16, 300), torch.arange(16) * 977
    temperature = torch.tensor([0.0, 0.7, 1.0, 1.5] * 4)
    top_p = torch.tensor([1.0, 0.9, 0.5, 1.0] * 4)
    position = torch.arange(16) % 5
    together, logp = draw_tokens(logits, temperature, top_p, uniforms(seeds, position), Draw.NUCLEUS)
    for row in range(16):
        one = slice(row, row + 1)
        uniform = uniforms(seeds[one], position[one])
        token, alone = draw_tokens(logits[one], temperature[one], top_p[one], uniform, Draw.NUCLEUS)
        assert token.item() == together[row].item()
        assert alone.item() == pytest.approx(logp[row].item(), abs=1e-6)


def test_the_cheaper_ways_of_drawing_draw_what_the_dearest_does() -> None:
    torch.manual_seed(5)
    logits, uniform = torch.randn(6, 300), uniforms(torch.arange(6), torch.zeros(6, dtype=torch.long))
    temperature, top_p = torch.tensor([0.0, 0.0, 0.0, 0.7, 1.0, 1.5]), torch.ones(6)
    rows = {Draw.GREEDY: slice(3), Draw.FULL: slice(3, 6), Draw.MIXED: slice(6)}
    token, logp = draw_tokens(logits, temperature, top_p, uniform, Draw.NUCLEUS)
    for how, some in rows.items():
        cheap, cheap_logp = draw_tokens(logits[some], temperature[some], top_p[some], uniform[some], how)
        assert torch.equal(cheap, token[some])
        torch.testing.assert_close(cheap_logp, logp[some], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("samplings", "how"),
    [
        ([Sampling(0.0), Sampling(0.0, top_p=0.5)], Draw.GREEDY),
        ([Sampling(0.5), Sampling(1.0)], Draw.FULL),
        ([Sampling(0.5), Sampling(0.0, top_p=0.5)], Draw.MIXED),
        ([Sampling(0.5, top_p=0.9), Sampling(0.0)], Draw.NUCLEUS),
    ],
)
def test_a_batch_is_drawn_in_the_cheapest_way_that_serves_it(samplings: list[Sampling], how: Draw) -> None:
    assert draw_for(iter(samplings)) is how


def test_log_probs_are_those_of_the_tempered_distribution_and_of_temperature_one_when_greedy() -> None:
    torch.manual_seed(3)
    logits = torch.randn(3, 50)
    temperature, top_p = torch.tensor([0.0, 0.5, 2.0]), torch.tensor([1.0, 0.3, 0.3])
    token, logp = draw_tokens(logits, temperature, top_p, torch.full((3,), 0.2), Draw.NUCLEUS)
    assert token[0] == logits[0].argmax()
    for row, scale in enumerate((1.0, 0.5, 2.0)):
        assert logp[row].item() == pytest.approx((logits[row] / scale).log_softmax(0)[token[row]].item(), abs=1e-6)


def test_nucleus_draws_stay_inside_the_nucleus() -> None:
    torch.manual_seed(4)
    logits = torch.randn(30)
    nucleus = set(keep_nucleus(logits.softmax(0)[None], torch.tensor([0.6])).nonzero()[:, 1].tolist())
    drawn = set(draw_many(logits, 3000, top_p=0.6).tolist())
    assert drawn == nucleus
    assert len(nucleus) < 30


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_the_nucleus_is_the_smallest_set_of_likeliest_tokens_that_reaches_top_p(
    weights: list[int], top_p: float
) -> None:
    prob = torch.tensor([weights], dtype=torch.float32)
    prob = prob / prob.sum()
    kept = keep_nucleus(prob, torch.tensor([top_p]))[0]
    inside = kept > 0
    assert inside.any()
    assert torch.equal(kept[inside], prob[0][inside])
    assert kept.sum() >= top_p - 1e-5
    assert kept.sum() - kept[inside].min() < top_p + 1e-5
    assert not (~inside).any() or prob[0][~inside].max() <= kept[inside].min()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 700), st.integers(0, 10**6))
def test_the_token_is_the_one_a_plain_running_sum_finds(size: int, seed: int) -> None:
    torch.manual_seed(seed)
    weights = torch.rand(20, size) * (torch.rand(20, size) < 0.3)
    weights[:, 0] += 1e-6
    uniform = uniforms(torch.arange(20) + seed, torch.zeros(20, dtype=torch.long))
    cdf = weights.double().cumsum(-1)
    expected = torch.searchsorted(cdf, uniform[:, None] * cdf[:, -1:], right=True)[:, 0]
    assert torch.equal(invert_cdf(weights, uniform), expected)


def test_a_token_without_weight_is_never_drawn_not_even_at_the_ends() -> None:
    weights = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]])
    ends = torch.tensor([0.5 / 2**32, 1 - 0.5 / 2**32], dtype=torch.float64)
    assert [invert_cdf(weights, end[None]).item() for end in ends] == [1, 3]
