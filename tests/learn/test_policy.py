from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn_builders import make_transition
from learn_runs import halve_model, make_config
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from jade.config import BackboneConfig, PolicyConfig
from jade.errors import ConfigError
from jade.learn import policy as policy_module
from jade.learn.batches import Batch, make_batch
from jade.learn.export import export_policy
from jade.learn.layers.likelihood import token_likelihood
from jade.learn.policy import Policy, load_policy
from jade.types import Reward, Transition


def load(tiny_model: Path, **settings: object) -> Policy:
    return load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), PolicyConfig.model_validate(settings))


def some_batch(*num_tokens: int) -> Batch:
    calls = [make_transition(num_tokens=n) for n in num_tokens]
    return make_batch(calls, range(len(calls)))


def move_every_weight(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, weight in policy.policy_parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.02)


def test_log_probs_equal_those_of_the_whole_model_call_by_call(tiny_model: Path) -> None:
    policy, plain = load(tiny_model), AutoModelForCausalLM.from_pretrained(tiny_model)
    said = policy(some_batch(3, 6, 2)).logp_N.split([3, 6, 2])
    for logp, num_tokens in zip(said, (3, 6, 2), strict=True):
        call = make_transition(num_tokens=num_tokens)
        ids = torch.tensor([[*call.prompt_ids, *call.action_ids]])
        expected = plain(input_ids=ids).logits.log_softmax(-1)[0, 1:-1].gather(1, ids[0, 2:, None])[:, 0]
        torch.testing.assert_close(logp, expected, atol=1e-5, rtol=1e-5)


def test_neighbours_in_the_row_change_nothing(tiny_model: Path) -> None:
    policy = load(tiny_model)
    alone, between = policy(some_batch(3)), policy(some_batch(9, 3, 40))
    torch.testing.assert_close(alone.logp_N, between.logp_N[9:12], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_calls_that_share_their_prompts_say_and_teach_the_same(tiny_model: Path, adapt: str) -> None:
    prompts = [(5, 6, 7, 8), (5, 6, 7, 8), (5, 6, 9), (5, 6, 7, 8, 30), (40,)]
    calls = [Transition("t", "s", "P", p, (n + 3, 9, n + 4), (), Reward()) for n, p in enumerate(prompts)]
    policy = load(tiny_model, adapt=adapt)
    move_every_weight(policy)
    said, gradients = [], []
    for share in (False, True):
        batch = make_batch(calls, range(5), share=share)
        now = policy(batch)
        policy.zero_grad()
        (now.logp_N * torch.linspace(-1, 2, 15)).sum().backward()
        said.append(now.logp_N.detach())
        gradients.append([weight.grad for _, weight in policy.policy_parameters()])
    assert len(batch.id_T) < sum(map(len, prompts)) + 15
    torch.testing.assert_close(said[0], said[1], atol=1e-5, rtol=1e-5)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("slice_size", [1, 7, 1000])
@pytest.mark.parametrize(("of_logp", "of_entropy"), [(1.0, 0.0), (0.0, 1.0), (1.0, -0.3)])
def test_likelihoods_and_their_gradients_do_not_depend_on_the_slice(
    slice_size: int, of_logp: float, of_entropy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, vocabulary = (torch.randn(n, 8, generator=generator, requires_grad=True) for n in (10, 20))
    target = torch.randint(20, (10,), generator=generator)
    weight = torch.randn(10, generator=generator)
    monkeypatch.setattr("jade.learn.layers.likelihood.LOGITS_AT_ONCE", slice_size * 20)
    said = token_likelihood(hidden, vocabulary, target, temperature=0.7, entropy_gradient=of_entropy != 0)
    distribution = torch.distributions.Categorical(logits=hidden @ vocabulary.T / 0.7)
    expected = (distribution.log_prob(target), distribution.entropy())
    torch.testing.assert_close(said, expected)
    ours, theirs = (
        torch.autograd.grad((weight * (of_logp * logp + of_entropy * entropy)).sum(), (hidden, vocabulary))
        for logp, entropy in (said, expected)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_an_entropy_that_is_only_reported_brings_no_gradient() -> None:
    hidden = torch.randn(4, 8, requires_grad=True)
    _, entropy = token_likelihood(hidden, torch.randn(20, 8), torch.zeros(4, dtype=torch.int64))
    assert not entropy.requires_grad


def test_a_new_value_head_expects_nothing(tiny_model: Path) -> None:
    assert load(tiny_model)(some_batch(4)).value_N.tolist() == [0.0] * 4


@pytest.mark.parametrize(("value_gradient", "reaches"), [(True, True), (False, False)])
def test_the_value_shapes_the_trunk_only_where_that_is_wanted(
    tiny_model: Path, value_gradient: bool, reaches: bool
) -> None:
    policy = load(tiny_model, value_gradient=value_gradient)
    assert policy.value_head is not None
    torch.nn.init.ones_(policy.value_head.weight)
    policy(some_batch(4)).value_N.sum().backward()
    touched = any(weight.grad is not None and bool(weight.grad.any()) for _, weight in policy.policy_parameters())
    assert touched == reaches
    assert policy.value_head.weight.grad is not None


def test_a_separate_critic_leaves_the_policy_alone(tiny_model: Path) -> None:
    policy = load(tiny_model, critic="separate")
    assert policy.value_head is not None
    torch.nn.init.ones_(policy.value_head.weight)
    policy(some_batch(4)).value_N.sum().backward()
    assert all(weight.grad is None for _, weight in policy.policy_parameters())
    assert any(weight.grad is not None for name, weight in policy.critic_parameters() if name.startswith("critic."))


def test_without_a_critic_there_is_no_value(tiny_model: Path) -> None:
    policy = load(tiny_model, critic="none")
    assert policy(some_batch(4)).value_N is None
    assert list(policy.critic_parameters()) == []


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_a_sampler_that_copies_the_weights_speaks_as_the_policy_does(tiny_model: Path, adapt: str) -> None:
    policy, sampler = load(tiny_model, adapt=adapt), AutoModelForCausalLM.from_pretrained(tiny_model)
    move_every_weight(policy)
    ids = torch.tensor([[5, 6, 7, 8]])
    before = sampler(input_ids=ids).logits.detach()
    with torch.no_grad():
        own = dict(sampler.named_parameters())
        for name, weight in policy.sampler_weights():
            own[name].copy_(weight)
    after = sampler(input_ids=ids).logits
    batch = make_batch([Transition("t", "s", "P", (5, 6), (7, 8), (0.0, 0.0), Reward())], [0])
    said = after.log_softmax(-1)[0, 1:3].gather(1, ids[0, 2:, None])[:, 0]
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(policy(batch).logp_N, said, atol=1e-5, rtol=1e-4)


def test_the_thread_that_loads_it_is_on_its_gpu(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    second = torch.device("cuda", 1)
    monkeypatch.setattr(policy_module, "pick_device", lambda name: second)
    monkeypatch.setattr(Policy, "to", lambda policy, device: policy)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    load_policy(BackboneConfig(model=str(tiny_model)), PolicyConfig())
    assert chosen == [second]


def test_adapters_leave_the_base_weights_frozen(tiny_model: Path) -> None:
    policy = load(tiny_model, adapt="lora", lora_rank=2)
    assert all("lora_" in name for name, _ in policy.policy_parameters())


def dtypes_in(file: Path) -> set[torch.dtype]:
    return {weight.dtype for weight in load_file(file).values()}


@pytest.mark.parametrize("adapt", ["full", "lora"])
@pytest.mark.parametrize("critic", ["head", "separate"])
def test_weights_published_in_bfloat16_are_trained_in_float32(
    tiny_model: Path, tmp_path: Path, adapt: str, critic: str
) -> None:
    half = halve_model(tiny_model, tmp_path / "half")
    assert dtypes_in(half / "model.safetensors") == {torch.bfloat16}
    policy = load(half, adapt=adapt, critic=critic)
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    assert trained
    assert {weight.dtype for weight in trained} == {torch.float32}
    # What the folder says is kept, and adapters are added to no less.
    assert {weight.dtype for weight in policy.causal.parameters()} == {torch.float32}
    rounded = AutoModelForCausalLM.from_pretrained(tiny_model).get_output_embeddings().weight.bfloat16().float()
    assert torch.equal(policy.causal.get_output_embeddings().weight, rounded)


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_training_goes_on_in_float32_from_an_adapter_in_bfloat16(tiny_model: Path, tmp_path: Path, adapt: str) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": "lora"}}})
    start = load_policy(config.backbone, config.learn.policy)
    move_every_weight(start)
    adapter = export_policy(start, config, tmp_path / "adapter", dtype="bfloat16")
    assert dtypes_in(adapter / "adapter_model.safetensors") == {torch.bfloat16}
    backbone = config.backbone.model_copy(update={"adapter": adapter})
    policy = load_policy(backbone, PolicyConfig.model_validate({"adapt": adapt}))
    assert {weight.dtype for _, weight in policy.policy_parameters()} == {torch.float32}


@pytest.mark.parametrize("critic", ["none", "separate"])
def test_an_adapter_merged_into_all_weights_leaves_none_of_them_frozen(
    tiny_model: Path, tmp_path: Path, critic: str
) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": "lora"}}})
    start = load_policy(config.backbone, config.learn.policy)
    move_every_weight(start)
    adapter = export_policy(start, config, tmp_path / "adapter")
    backbone = config.backbone.model_copy(update={"adapter": adapter})
    policy = load_policy(backbone, PolicyConfig.model_validate({"adapt": "full", "critic": critic}))
    plain = load(tiny_model, adapt="full", critic=critic)
    assert [name for name, weight in policy.named_parameters() if weight.requires_grad] == [
        name for name, _ in plain.named_parameters()
    ]
    merged = dict(policy.sampler_weights())
    for name, weight in start.sampler_weights():
        torch.testing.assert_close(merged[name], weight)


def test_the_same_seed_begins_with_the_same_adapters(tiny_model: Path) -> None:
    first, second = load(tiny_model, adapt="lora"), load(tiny_model, adapt="lora")
    for (_, one), (_, other) in zip(first.policy_parameters(), second.policy_parameters(), strict=True):
        assert torch.equal(one, other)


def test_recomputed_activations_give_the_same_gradient(tiny_model: Path) -> None:
    gradients = []
    for recompute in (False, True):
        policy = load(tiny_model, recompute=recompute)
        policy(some_batch(4, 6)).logp_N.sum().backward()
        gradients.append([weight.grad for _, weight in policy.policy_parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_layers_that_do_not_exist_are_refused_by_the_name_of_their_field(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"learn\.policy\.lora_targets"):
        load(tiny_model, adapt="lora", lora_targets=("no_such_layer",))


def test_a_folder_that_is_no_adapter_is_refused_by_the_name_of_its_field(tiny_model: Path, tmp_path: Path) -> None:
    backbone = BackboneConfig(model=str(tiny_model), device="cpu", adapter=tmp_path)
    with pytest.raises(ConfigError, match=r"backbone\.adapter"):
        load_policy(backbone, PolicyConfig(adapt="lora"))
