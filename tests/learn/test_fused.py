"""The fused layers on a CPU, in float32: what they say and teach is what the lean layers say and teach.

Formulas stand in for the kernels. The kernels themselves are run by Triton's interpreter where it is installed and was
asked for before anything loaded it (`make kernel-test`), or by a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import fused_formulas
import pytest
import torch
from learn_builders import make_experience, make_transition
from test_lean import make_model

from jade.config import LearnConfig, PolicyConfig
from jade.learn import policy
from jade.learn.batches import Batch, make_batch
from jade.learn.layers import fused
from jade.learn.layers.fused import FusedTrunk
from jade.learn.layers.merged import LowRank, Merged, Stack
from jade.learn.layers.row import Queries, Row
from jade.learn.layers.tiles import plan_tiles
from jade.learn.learner import Learner
from jade.learn.policy import Policy
from jade.types import Reward, Transition
from triton_runs import DEVICE, INTERPRETS, mend_dots, need_triton

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

QWEN = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
"""The widths of Qwen2.5-0.5B."""
PROMPTS = ((5, 6, 7, 8), (5, 6, 7, 8), (5, 6, 9), (5, 6, 7, 8, 30), (40,), (5, 6, 7, 8))

KERNELS = "jade.learn.layers.kernels"


def real_kernels() -> ModuleType:
    need_triton()
    from jade.learn.layers import kernels

    return kernels


@pytest.fixture(params=["formulas", "formulas, low rank", "kernels, low rank"])
def on_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused layers are used on a CPU too, and adapters learn at their low rank although that is little less."""
    if "kernels" in request.param and not INTERPRETS:
        pytest.skip("needs Triton's interpreter")
    monkeypatch.setattr(LowRank, "pays", lambda self: "low rank" in request.param)
    if "formulas" in request.param:
        monkeypatch.setattr(fused, "load_kernels", lambda: fused_formulas)
    else:
        mend_dots(monkeypatch)
    monkeypatch.setattr(fused, "DEVICES", ("cpu",))


def make_policy(
    kind: str = "Llama", *, rank: int = 0, sizes: Mapping[str, int] = MappingProxyType({}), **settings: Any
) -> Policy:
    cfg = PolicyConfig.model_validate(
        {"adapt": "lora" if rank else "full", "lora_rank": max(1, rank), "critic": "none", "fuse": True, **settings}
    )
    model = make_model(kind, **sizes)
    if rank:
        model = policy._with_new_adapter(model, cfg)
    torch.manual_seed(4)
    for name, weight in model.named_parameters():
        if "lora_B" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
    return Policy(model, cfg)


def make_batches(*, share: bool, num: int = 1) -> list[Batch]:
    calls = [Transition("t", "s", "P", p, (n + 3, 9, n + 4), (), Reward()) for n, p in enumerate(PROMPTS)]
    parts = [range(len(calls))[part::num] for part in range(num)]
    return [make_batch(calls, part, share=share) for part in parts]


def teach(held: Policy, batches: list[Batch], *, at_once: bool = False) -> dict[str, torch.Tensor]:
    """Log-probs of each batch and the gradients of all."""
    said = {}

    def all_of_them() -> None:
        for number, batch in enumerate(batches):
            now = held(batch, 0.7)
            weight_N = torch.linspace(-1, 2, len(now.logp_N))
            value_N = 0.0 if now.value_N is None else now.value_N * weight_N.flip(0)
            (now.logp_N * weight_N + value_N).sum().backward()
            said[f"logp {number}"] = now.logp_N.detach()

    held.zero_grad()
    if at_once:
        with held.unmoved():
            all_of_them()
    else:
        all_of_them()
    return said | {name: weight.grad for name, weight in held.named_parameters() if weight.grad is not None}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, expected in one.items():
        found = other[name]
        assert float((found - expected).norm()) <= 1e-5 * float(expected.norm()) + 1e-7, name


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_fused_layers_say_and_teach_the_same(kind: str, rank: int, share: bool) -> None:
    lean, ours = (make_policy(kind, rank=rank, fuse=fuse) for fuse in (False, True))
    assert len(ours._fused) == 1
    assert lean._fused == []
    assert_same(teach(lean, make_batches(share=share)), teach(ours, make_batches(share=share)))


@pytest.mark.usefixtures("on_cpu")
def test_layers_as_wide_as_a_real_model_say_and_teach_the_same() -> None:
    """Widths that fill no tile, seven query heads a key head, and as many ranks as are trained."""
    lean, ours = (make_policy("Qwen2", rank=32, sizes=QWEN, fuse=fuse) for fuse in (False, True))
    batches = make_batches(share=True)
    assert_same(teach(lean, batches), teach(ours, batches, at_once=True))


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("rank", [0, 4])
def test_the_pieces_of_a_step_have_their_gradients_at_its_end(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lean, ours = (make_policy("Qwen2", rank=rank, fuse=fuse) for fuse in (False, True))
    made = []
    put_together = Merged.__init__

    def counted(self: Merged, *how: Any, **also: Any) -> None:
        made.append(1)
        put_together(self, *how, **also)

    monkeypatch.setattr(Merged, "__init__", counted)
    batches = make_batches(share=True, num=3)
    expected = teach(lean, batches)
    assert_same(expected, teach(ours, batches, at_once=True))
    assert len(made) == 1
    assert_same(expected, teach(ours, batches))
    assert len(made) == 1 + len(batches)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("rank", [0, 4])
def test_in_half_the_width_the_same_is_said_but_for_rounding(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the stream and the products in bfloat16, gradients of weights in float32."""
    monkeypatch.setattr(fused, "_dtype_on", lambda device: torch.bfloat16)
    lean, ours = (make_policy("Qwen2", rank=rank, fuse=fuse) for fuse in (False, True))
    batches = make_batches(share=True, num=2)
    expected, found = teach(lean, batches), teach(ours, batches, at_once=True)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == torch.float32
        assert float((found[name] - tensor).norm()) <= 0.05 * float(tensor.norm()), name


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("rank", [0, 4])
def test_a_frozen_weight_gets_no_gradient(rank: int) -> None:
    """Not even where others that it is multiplied with do."""
    lean, ours = (make_policy("Qwen2", rank=rank, fuse=fuse) for fuse in (False, True))
    for held in (lean, ours):
        for name, weight in held.named_parameters():
            if "layers.1.self_attn.k_proj" in name or "gate_proj" in name or "norm" in name or "embed" in name:
                weight.requires_grad_(False)
    expected = teach(lean, make_batches(share=True))
    assert not any("gate_proj" in name for name in expected)
    assert_same(expected, teach(ours, make_batches(share=True), at_once=True))


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("critic", ["head", "separate"])
def test_a_critic_learns_the_same(critic: str) -> None:
    lean, ours = (make_policy(fuse=fuse, critic=critic, value_gradient=True) for fuse in (False, True))
    for held in (lean, ours):
        assert held.value_head is not None
        torch.nn.init.ones_(held.value_head.weight)
    assert len(ours._fused) == (2 if critic == "separate" else 1)
    batches = make_batches(share=True, num=2)
    assert_same(teach(lean, batches), teach(ours, batches, at_once=True))


@pytest.mark.usefixtures("on_cpu")
def test_a_token_that_counts_nothing_teaches_exactly_nothing() -> None:
    ours = make_policy(rank=4)
    (batch,) = make_batches(share=True)
    with ours.unmoved():
        (0.0 * ours(batch).logp_N).sum().backward()
    assert not any(bool(weight.grad.any()) for _, weight in ours.policy_parameters() if weight.grad is not None)


@pytest.mark.usefixtures("on_cpu")
def test_a_step_that_fails_leaves_no_gradients_and_the_next_one_is_whole() -> None:
    ours, batches = make_policy(rank=4), make_batches(share=True)
    expected = teach(ours, batches)
    ours.zero_grad()
    with contextlib.suppress(KeyboardInterrupt), ours.unmoved():
        ours(batches[0]).logp_N.sum().backward()
        raise KeyboardInterrupt
    assert all(weight.grad is None for weight in ours.parameters())
    assert_same(expected, teach(ours, batches, at_once=True))


@pytest.mark.usefixtures("on_cpu")
def test_looking_back_says_the_same_and_keeps_nothing() -> None:
    ours, (batch,) = make_policy(rank=4), make_batches(share=True)
    with torch.no_grad(), ours.unmoved():
        looked = ours(batch).logp_N
    assert not looked.requires_grad
    torch.testing.assert_close(looked, ours(batch).logp_N.detach())


@pytest.mark.usefixtures("on_cpu")
def test_moved_weights_are_seen_at_the_next_step() -> None:
    ours, (batch,) = make_policy(rank=4), make_batches(share=True)
    before = teach(ours, [batch], at_once=True)["logp 0"]
    with torch.no_grad():
        for _, weight in ours.policy_parameters():
            weight.add_(0.05)
    lean = make_policy(rank=4, fuse=False)
    lean.load_state_dict(ours.state_dict())
    after = teach(ours, [batch], at_once=True)["logp 0"]
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, lean(batch, 0.7).logp_N.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("on_cpu")
def test_an_update_in_pieces_moves_the_weights_alike() -> None:
    moved, told = [], []
    for fuse in (False, True):
        torch.manual_seed(0)
        held = make_policy(rank=4, fuse=fuse, critic="head", tokens_per_batch=64)
        cfg = LearnConfig.model_validate(
            {"policy": held.cfg, "ppo": {"minibatches": 2, "learning_rate": 1e-3, "kl_weight": 0.1}}
        )
        calls = [make_transition(f"t{n}", f"s{n}", num_tokens=6 + n, outcome=n / 9, first_id=3 + n) for n in range(18)]
        learner = Learner(held, cfg)
        figures = [learner.update(make_experience(calls), iteration=n, seed=n) for n in range(2)]
        told.append([{name: one for name, one in each.items() if "seconds" not in name} for each in figures])
        moved.append([weight.detach() for weight in held.parameters()])
    assert told[1][0] == pytest.approx(told[0][0], rel=1e-3, abs=1e-5)
    assert told[1][1] == pytest.approx(told[0][1], rel=2e-2, abs=1e-4)
    for one, other in zip(*moved, strict=True):
        # Adam divides by a gradient's size: where that is next to nothing, its rounding counts.
        assert float((one - other).norm()) <= 1e-3 * float(one.norm()) + 1e-5


def test_on_a_cpu_layers_stay_lean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedTrunk, "states", lambda *_: pytest.fail("the fused layers were used"))
    (batch,) = make_batches(share=True)
    make_policy()(batch)


@pytest.mark.usefixtures("on_cpu")
def test_several_learners_take_the_way_of_sharded_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make_policy()
    assert ours._fused_on(ours.device)
    monkeypatch.setattr(policy, "num_ranks", lambda: 2)
    assert not ours._fused_on(ours.device)


@pytest.mark.parametrize("settings", [{"recompute": True}, {"fuse": False}])
def test_settings_that_want_another_way_get_it(settings: dict[str, Any]) -> None:
    assert make_policy(**settings)._fused == []


@pytest.mark.parametrize(("kind", "settings"), [("Qwen3", {}), ("Mistral", {"sliding_window": None}), ("Gemma", {})])
def test_layers_of_another_kind_are_not_fused(kind: str, settings: dict[str, object]) -> None:
    assert Policy(make_model(kind, **settings), PolicyConfig(fuse=True))._fused == []


def test_layers_that_are_not_alike_are_not_fused() -> None:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["q_proj"], layers_to_transform=[1])
    assert Policy(get_peft_model(make_model("Llama"), lora), PolicyConfig(adapt="lora", fuse=True))._fused == []


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE)


@pytest.mark.parametrize("num", [1, 9])
@pytest.mark.parametrize("width", [24, 64, 13])
def test_kernels_of_norms_and_gates_follow_their_formulas(num: int, width: int) -> None:
    torch.manual_seed(num)
    found, expected = real_kernels(), fused_formulas
    x, delta, grad, past, gain = some(num, width), some(num, width), some(num, width), some(num, width), some(width)
    both = some(num, 2 * width)
    pairs = [
        [one.add_norm(x, delta, gain, 1e-5) for one in (found, expected)],
        [one.add_norm(x, None, gain, 1e-5) for one in (found, expected)],
        [one.norm_back(grad, x, gain, past, 1e-5, with_gain=True) for one in (found, expected)],
        [one.norm_back(grad, x, gain, past, 1e-5, with_gain=False)[:1] for one in (found, expected)],
        [one.gated(both) for one in (found, expected)],
        [one.gated_back(grad, both) for one in (found, expected)],
    ]
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_gates_of_any_size_open_and_close() -> None:
    """Also where e to their power is more than a float32 holds."""
    kernels, both, grad = real_kernels(), 100 * some(5, 48), some(5, 24)
    torch.testing.assert_close(kernels.gated(both), fused_formulas.gated(both), atol=1e-5, rtol=1e-5)
    # A GPU's own exponential is a few last places off.
    torch.testing.assert_close(
        kernels.gated_back(grad, both), fused_formulas.gated_back(grad, both), atol=1e-5, rtol=1e-5
    )


def test_a_gains_gradient_is_summed_over_more_rows_than_there_are_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = real_kernels()
    monkeypatch.setattr(f"{KERNELS}.norm.PROGRAMS", 2)
    monkeypatch.setattr(f"{KERNELS}.norm.NORM_BACK_NUMBERS", 64)
    x, grad, past, gain = some(19, 24), some(19, 24), some(19, 24), some(24)
    found = kernels.norm_back(grad, x, gain, past, 1e-5, with_gain=True)
    torch.testing.assert_close(found, fused_formulas.norm_back(grad, x, gain, past, 1e-5, with_gain=True))


@pytest.mark.parametrize("share", [False, True])
def test_the_plan_knows_which_tokens_several_calls_see(share: bool) -> None:
    """From the bounds alone; the batch says it token by token."""
    (batch,) = make_batches(share=share)
    tiles = plan_tiles(batch.bounds, batch.whole_bounds, 2, torch.device("cpu"))
    place_S = torch.arange(len(batch.id_T)) if batch.place_S is None else batch.place_S
    seen_T = place_S.bincount(minlength=len(batch.id_T))
    assert tiles.shared_U.tolist() == (seen_T > 1).nonzero()[:, 0].tolist()
    assert bool(len(tiles.shared_U)) == share


@pytest.mark.parametrize("num_calls", [3, 21])
def test_kernels_that_turn_heads_follow_their_formulas(num_calls: int) -> None:
    """Also where more calls share a token than are added up at once."""
    kernels, angle = real_kernels(), some(7, 4)
    cos, sin, heads = angle.cos(), angle.sin(), some(7, 5, 8)
    place = torch.cat([torch.arange(7), *[torch.tensor([0, 1, 4])] * num_calls]).to(DEVICE)
    num = len(place)
    everyone = Queries(plan_tiles((0, 7), (0, num), 1, DEVICE), (cos, sin))
    row = Row(everyone, everyone, place, torch.arange(7, device=DEVICE))
    for source, at, num_turned in ((heads[:, :3], None, 3), (heads[:, 3:], place, 1)):
        out = [heads.new_empty(7 if at is None else num, source.shape[1], 8) for _ in range(2)]
        for how, into in zip((kernels, fused_formulas), out, strict=True):
            how.turn(source, cos, sin, at, num_turned, into)
        torch.testing.assert_close(*out)
    key_grad, value_grad = some(num, 1, 8), some(num, 1, 8)
    whole = [torch.zeros_like(heads) for _ in range(2)]
    shared = torch.tensor([0, 1, 4], device=DEVICE, dtype=torch.int32)
    for how, into in zip((kernels, fused_formulas), whole, strict=True):
        how.collect(key_grad, value_grad, cos, sin, shared, row.calls, into[:, 3:])
    torch.testing.assert_close(*whole, atol=1e-5, rtol=1e-5)
    assert not whole[0][[2, 3, 5, 6]].any()


@pytest.mark.parametrize(
    ("num", "num_outputs", "num_inputs", "num_ranks", "parts"),
    [(1, 8, 24, 8, 1), (70, 40, 16, 24, 3), (9, 33, 130, 136, 4)],
)
def test_adapters_gradients_are_added_up_in_parts(
    num: int, num_outputs: int, num_inputs: int, num_ranks: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow numbers are the last columns of wider matrices. Parts may have no tokens; what was there stays."""
    kernels = real_kernels()
    mend_dots(monkeypatch)
    monkeypatch.setattr(f"{KERNELS}.low_rank.LEARN_WIDTH", 32)
    monkeypatch.setattr(f"{KERNELS}.low_rank.LEARN_TOKENS", 16)
    grad, low = some(num, num_outputs + num_ranks).split((num_outputs, num_ranks), 1)
    given, above = some(num, num_inputs + num_ranks).split((num_inputs, num_ranks), 1)
    found, expected = (torch.ones(parts, num_outputs + num_inputs, num_ranks, device=DEVICE) for _ in range(2))
    for _ in range(2):
        kernels.add_low_rank(grad, low, given, above, found)
        fused_formulas.add_low_rank(grad, low, given, above, expected)
    torch.testing.assert_close(found.sum(0), expected.sum(0), atol=1e-4, rtol=1e-4)
    for how, into in ((kernels, found), (fused_formulas, expected)):
        how.add_low_rank(grad, low, None, above, into)
    torch.testing.assert_close(found.sum(0), expected.sum(0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("num", "width", "num_ranks", "parts"), [(1, 24, 8, 2), (70, 40, 24, 3), (33, 130, 64, 4)])
def test_adapters_learn_on_the_way_back_through_the_gate(
    num: int, width: int, num_ranks: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = real_kernels()
    mend_dots(monkeypatch)
    monkeypatch.setattr(f"{KERNELS}.gate.GATE_WIDTH", 32)
    monkeypatch.setattr(f"{KERNELS}.gate.GATE_TOKENS", 16)
    grad, above = some(num, width + num_ranks).split((width, num_ranks), 1)
    both = some(num, 2 * width + 8)[:, : 2 * width]
    found, expected = (torch.ones(parts, 9 + width, num_ranks, device=DEVICE) for _ in range(2))
    out = kernels.gated_back_learning(grad, both, above, found)
    torch.testing.assert_close(
        out, fused_formulas.gated_back_learning(grad, both, above, expected), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(found.sum(0), expected.sum(0), atol=1e-4, rtol=1e-4)


def test_many_ranks_do_not_learn_at_the_gate() -> None:
    kernels = real_kernels()
    assert kernels.gated_back_learning(some(3, 8), some(3, 16), some(3, 72), some(1, 16, 72)) is None


@pytest.mark.usefixtures("on_cpu")
def test_adapters_of_many_ranks_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the gate, with what came out of it made once more."""
    monkeypatch.setattr(fused.load_kernels(), "gated_back_learning", lambda *_: None)
    lean, ours = (make_policy(rank=4, fuse=fuse) for fuse in (False, True))
    assert_same(teach(lean, make_batches(share=True)), teach(ours, make_batches(share=True)))


def test_kernels_read_parts_of_wider_matrices() -> None:
    """As products with adapters beside them give."""
    found, expected = real_kernels(), fused_formulas
    x, past, gain = some(5, 24), some(5, 24), some(24)
    delta, both, grad = some(5, 32)[:, :24], some(5, 56)[:, :48], some(5, 32)[:, :24]
    pairs = [
        [one.add_norm(x, delta, gain, 1e-5) for one in (found, expected)],
        [one.norm_back(grad, x, gain, past, 1e-5, with_gain=True) for one in (found, expected)],
        [one.gated(both) for one in (found, expected)],
        [one.gated_back(grad, both) for one in (found, expected)],
    ]
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_the_whole_gradient_is_made_where_it_is_less_work() -> None:
    def found(rank: int) -> LowRank | None:
        trunk = make_policy(rank=rank, lora_targets=["q_proj", "v_proj"]).trunk
        stack = Stack.of(list(trunk.layers))  # type: ignore[arg-type]
        assert stack is not None
        assert LowRank.of(stack.groups["down"]) is None
        return LowRank.of(stack.groups["qkv"])

    low = found(3)
    assert low is not None
    assert (low.num_ranks, low.columns) == (8, [slice(0, 3), slice(3, 3), slice(3, 6)])
    assert found(24) is None


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["up_proj", "o_proj"]])
def test_projections_without_adapters_stand_between_those_that_have_some(targets: list[str]) -> None:
    lean, ours = (make_policy("Qwen2", rank=3, fuse=fuse, lora_targets=targets) for fuse in (False, True))
    batches = make_batches(share=True, num=2)
    assert_same(teach(lean, batches), teach(ours, batches, at_once=True))


@pytest.mark.usefixtures("on_cpu")
def test_biases_may_learn_beside_adapters() -> None:
    lean, ours = (make_policy("Qwen2", rank=4, fuse=fuse) for fuse in (False, True))
    for held in (lean, ours):
        for name, weight in held.named_parameters():
            if "proj" in name and name.endswith("bias"):
                weight.requires_grad_(True)
    expected = teach(lean, make_batches(share=True))
    assert any(name.endswith("bias") for name in expected)
    assert_same(expected, teach(ours, make_batches(share=True), at_once=True))


@pytest.mark.usefixtures("on_cpu")
def test_who_has_looked_back_first_learns_the_same() -> None:
    """Weights that are held were then put together without what adapters learn from."""
    ours, (batch,) = make_policy(rank=4), make_batches(share=True)
    expected = teach(ours, [batch])
    ours.zero_grad()
    with ours.unmoved():
        with torch.no_grad():
            ours(batch, 0.7)
        now = ours(batch, 0.7)
        (now.logp_N * torch.linspace(-1, 2, len(now.logp_N))).sum().backward()
    for name, weight in ours.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("on_cpu")
def test_there_is_one_way_back() -> None:
    ours, (batch,) = make_policy(rank=4), make_batches(share=True)
    said = ours(batch).logp_N.sum()
    said.backward(retain_graph=True)
    with pytest.raises(AssertionError, match="one way back"):
        said.backward()
