"""Log-probabilities and entropies of tokens, and what they teach, against a plain formula in float64.

By torch's formulas everywhere, and by the kernels where Triton's interpreter was asked for (`make kernel-test`) or a
GPU is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from jade.learn.layers import likelihood
from jade.learn.layers.likelihood import FORMULAS, Passes, token_likelihood
from jade.learn.layers.merged import product
from triton_runs import DEVICE, INTERPRETS, need_triton

WIDTH = 16
LARGE = 80.0
"""Half of exp's range and more: without a maximum taken off, its sums would overflow."""
ROUNDING = 1e-2 if INTERPRETS else 5e-3
"""How far bfloat16 may lead away. The interpreter cuts digits off, where a GPU rounds to the nearest."""
GRADIENTS = [(1.0, 0.0), (0.0, 1.0), (1.0, -0.3)]
"""How much of the loss is log-probability, and how much entropy."""


@pytest.fixture(autouse=True)
def full_digits() -> Iterator[None]:
    """Policies that were loaded before have asked for tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(params=["formulas", "kernels"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Also what `token_likelihood` takes, and several blocks a token."""
    if request.param == "formulas":
        monkeypatch.setattr(likelihood, "has_kernels", lambda device: False)
        return FORMULAS
    need_triton()
    from jade.learn.layers.kernels import likelihood as likelihood_kernels

    monkeypatch.setattr(likelihood_kernels, "BLOCK", 32)
    monkeypatch.setattr(likelihood, "has_kernels", lambda device: True)
    return likelihood_kernels


def some_inputs(num: int, vocabulary: int, *, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """States, the vocabulary, targets, a column of temperatures, and what each token weighs."""
    generator = torch.Generator().manual_seed(num + vocabulary)
    hidden, words = (torch.randn(n, WIDTH, generator=generator) * scale**0.5 for n in (num, vocabulary))
    target = torch.randint(vocabulary, (num,), generator=generator)
    heat = 0.5 + torch.rand(num, 1, generator=generator)
    made = [hidden.to(dtype), words, target, heat, torch.randn(num, generator=generator)]
    return [one.to(DEVICE) for one in made]


def exactly(hidden: Tensor, words: Tensor, target: Tensor, heat: float | Tensor) -> tuple[Tensor, Tensor]:
    wide = heat.double() if isinstance(heat, Tensor) else heat
    distribution = torch.distributions.Categorical(logits=hidden.double() @ words.double().T / wide)
    return distribution.log_prob(target), distribution.entropy()


def apart(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(("num", "vocabulary"), [(1, 5), (7, 32), (13, 129), (6, 64)])
@pytest.mark.parametrize("heat", [1.0, 0.7, "column"])
@pytest.mark.parametrize(("of_logp", "of_entropy"), GRADIENTS)
@pytest.mark.parametrize("learns", [False, True])
def test_what_is_said_and_taught_is_exact(
    num: int, vocabulary: int, heat: float | str, of_logp: float, of_entropy: float, learns: bool
) -> None:
    hidden, words, target, column, weight = some_inputs(num, vocabulary)
    temperature = column if isinstance(heat, str) else heat
    learners = [hidden.requires_grad_(), words.requires_grad_()] if learns else [hidden.requires_grad_()]
    said = token_likelihood(hidden, words, target, temperature=temperature, entropy_gradient=of_entropy != 0)
    expected = exactly(hidden, words, target, temperature)
    ours, theirs = (
        torch.autograd.grad((weight * (of_logp * logp + of_entropy * entropy)).sum(), learners)
        for logp, entropy in (said, expected)
    )
    for one, other in zip((*said, *ours), (*expected, *theirs), strict=True):
        assert one.dtype == torch.float32
        assert apart(one, other) < 1e-5


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("slice_size", [1, 4, 1000])
@pytest.mark.parametrize("learns", [False, True])
def test_slices_of_any_size_say_and_teach_the_same(
    slice_size: int, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a temperature of each token's own, and a gradient that is one number seen N times."""
    monkeypatch.setattr(likelihood, "LOGITS_AT_ONCE", slice_size * 70)
    hidden, words, target, column, _ = some_inputs(9, 70)
    learners = [hidden.requires_grad_(), words.requires_grad_(learns)][: 1 + learns]
    said = token_likelihood(hidden, words, target, temperature=column)
    expected = exactly(hidden, words, target, column)
    for one, other in zip(said, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
    ours, theirs = (torch.autograd.grad(logp.sum(), learners) for logp, _ in (said, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert apart(one, other) < 1e-5


@pytest.mark.parametrize("vocabulary", [50, 256])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("of_entropy", [None, -0.3])
def test_large_logits_lose_no_digits(passes: Passes, vocabulary: int, sign: float, of_entropy: float | None) -> None:
    """All of them far from nothing, with one that is far from all."""
    generator = torch.Generator().manual_seed(3)
    logits = sign * LARGE + torch.randn(5, vocabulary, generator=generator)
    logits[1, 7], logits[2, 7], logits[3] = LARGE, -LARGE, LARGE * torch.linspace(-1, 1, vocabulary)
    logits = logits.to(DEVICE)
    target = torch.tensor([0, 7, 7, vocabulary - 1, 2], device=DEVICE)
    one_N = torch.ones(5, device=DEVICE)
    out = (torch.empty_like(one_N), torch.empty_like(one_N), torch.empty_like(one_N))
    before = logits.clone()
    passes.summarise(logits, target, 1.0, out)
    assert torch.equal(logits, before)
    wide = logits.double().requires_grad_()
    exact = torch.distributions.Categorical(logits=wide)
    expected = (exact.log_prob(target), exact.entropy(), wide.logsumexp(-1))
    for found, other in zip(out, expected, strict=True):
        torch.testing.assert_close(found.double(), other, atol=5e-5, rtol=1e-5)
    loss = expected[0].sum() + (0.0 if of_entropy is None else of_entropy * expected[1].sum())
    taught = passes.gradient(
        logits, target, 1.0, *out[1:], one_N, None if of_entropy is None else of_entropy * one_N, torch.float32
    )
    torch.testing.assert_close(taught.double(), torch.autograd.grad(loss, wide)[0], atol=5e-5, rtol=1e-4)


def test_a_gradient_is_as_wide_as_it_is_asked_to_be(passes: Passes) -> None:
    hidden, words, target, heat, weight = some_inputs(7, 77)
    made = []
    for dtype in (torch.float32, torch.bfloat16):
        logits = hidden @ words.T
        out = (torch.empty_like(weight), torch.empty_like(weight), torch.empty_like(weight))
        passes.summarise(logits, target, heat, out)
        made.append(passes.gradient(logits, target, heat, *out[1:], weight, None, dtype))
        assert made[-1].dtype == dtype
    torch.testing.assert_close(made[1], made[0].to(torch.bfloat16), atol=1e-6, rtol=1e-2)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("learns", [False, True])
def test_narrow_states_learn_what_wide_ones_would_but_for_rounding(scale: float, learns: bool) -> None:
    """Words have more in common than they differ by, as those of real models do: rounding errors do not cancel."""
    hidden, words, target, heat, weight = some_inputs(200, 301, scale=scale, dtype=torch.bfloat16)
    words = words + words.mean(0) + scale**0.5
    learners = [hidden.requires_grad_(), words.requires_grad_(learns)][: 1 + learns]
    logp, entropy = token_likelihood(hidden, words, target, temperature=heat)
    expected = exactly(hidden, words, target, heat)
    torch.testing.assert_close(logp.double(), expected[0], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), expected[1].detach(), atol=1e-4, rtol=1e-5)
    ours, theirs = (torch.autograd.grad((weight * one).sum(), learners) for one in (logp, expected[0]))
    assert ours[0].dtype == torch.bfloat16
    for one, other in zip(ours, theirs, strict=True):
        assert apart(one, other) < ROUNDING


@pytest.mark.usefixtures("passes")
def test_a_token_that_counts_nothing_teaches_exactly_nothing() -> None:
    hidden, words, target, heat, _ = some_inputs(6, 40)
    logp, _ = token_likelihood(hidden.requires_grad_(), words, target, temperature=heat)
    (0.0 * logp).sum().backward()
    assert hidden.grad is not None
    assert not bool(hidden.grad.any())


@pytest.mark.usefixtures("passes")
def test_where_only_states_learn_the_logits_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a look back nothing is made for later."""
    made = []

    def counted(left: Tensor, right: Tensor) -> Tensor:
        made.append(1)
        return product(left, right)

    monkeypatch.setattr(likelihood, "product", counted)
    hidden, words, target, _, _ = some_inputs(6, 40)
    hidden.requires_grad_()
    with torch.no_grad():
        token_likelihood(hidden, words, target)
    assert made == []
    logp, _ = token_likelihood(hidden, words, target)
    assert len(made) == 1
    logp.sum().backward()
    assert len(made) == 1


@pytest.mark.usefixtures("passes")
def test_a_vocabulary_may_learn_alone() -> None:
    hidden, words, target, _, weight = some_inputs(6, 40)
    learner = [words.requires_grad_()]
    ours, theirs = (
        torch.autograd.grad((weight * logp).sum(), learner)
        for logp, _ in (token_likelihood(hidden, words, target), exactly(hidden, words, target, 1.0))
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_kernels_are_for_a_gpu_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    likelihood.has_kernels.cache_clear()
    assert not any(likelihood.has_kernels(torch.device(name)) for name in ("cpu", "cuda"))
    likelihood.has_kernels.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert [likelihood.has_kernels(torch.device(name)) for name in ("cpu", "cuda")] == [False, True]
    likelihood.has_kernels.cache_clear()


def test_who_wants_no_kernels_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "has_kernels", lambda device: True)
    monkeypatch.setattr(likelihood, "load_kernels", lambda: pytest.fail("the kernels were loaded"))
    hidden, words, target, _, _ = some_inputs(3, 10)
    token_likelihood(hidden, words, target, fuse=False)
