"""The team that ships: an adapter in the package, merged once into its base."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from backbone_builders import make_model, make_tokenizer
from peft import LoraConfig, PeftModel, get_peft_model

from jade.backbone import weights
from jade.backbone.fingerprint import file_sha256
from jade.backbone.local.backbone import load_model
from jade.backbone.local.merge import merge_adapter
from jade.backbone.trained import as_trained, read_dial
from jade.backbone.weights import TRAINED, TrainedTeam, priced_adapter, resolve_weights
from jade.config import BackboneConfig, Config
from jade.engine.effort import effort_of, prices_at
from jade.errors import WeightsMissing
from jade.team.crew import open_cast
from jade.team.roles import Memory
from jade.team.team import build_team
from jade.types import Effort, Sampling

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

IDS = torch.tensor([[1, 5, 9, 3]])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tmp_path: Path, base: Path) -> Path:
    model, _ = load_model(base, torch.float32)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


def test_a_merged_model_speaks_as_the_model_with_its_adapter(tmp_path: Path, base: Path, adapter: Path) -> None:
    plain, _ = load_model(base, torch.float32)
    before = plain(IDS).logits
    merge_adapter(base, adapter, tmp_path / "merged")
    merged, tokenizer = load_model(tmp_path / "merged", torch.float32)
    with_adapter = PeftModel.from_pretrained(plain, str(adapter))
    torch.testing.assert_close(merged(IDS).logits, with_adapter(IDS).logits, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(merged(IDS).logits, before, atol=1e-3), "the adapter changed nothing"
    assert tokenizer.chat_template == make_tokenizer().chat_template


def test_a_trained_team_is_merged_once_into_the_cache(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ship(adapter, base, monkeypatch, file_sha256(adapter / "adapter_model.safetensors"))
    cache = tmp_path / "cache"
    folder = resolve_weights("tiny-team", cache)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_weights("tiny-team", cache) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert list((cache / "weights").iterdir()) == [folder], "no scratch is left behind"


def test_a_damaged_team_is_named_in_one_line(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ship(adapter, base, monkeypatch, "0" * 64)
    with pytest.raises(WeightsMissing, match="weights of tiny-team are damaged"):
        resolve_weights("tiny-team", tmp_path / "cache")


@pytest.mark.parametrize("name", TRAINED)
def test_what_ships_is_whole_and_small(name: str) -> None:
    weights_file = TRAINED[name].folder(name) / "adapter_model.safetensors"
    assert file_sha256(weights_file) == TRAINED[name].sha256
    assert weights_file.stat().st_size <= 20_000_000
    # What peft and transformers load it over, where this package is not.
    settings = json.loads((weights_file.parent / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == weights.SHIPPED[TRAINED[name].base].hub


def test_a_team_may_ship_with_a_planner_for_prices(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used where an effort is named or may be, and never in the place of what a config says itself."""
    shutil.copytree(adapter, adapter / "priced")
    (adapter / "priced" / "jade.json").write_text('{"dial": 0.6}')
    own = file_sha256(adapter / "adapter_model.safetensors")
    _ship(adapter, base, monkeypatch, own)
    plain = Config.model_validate({"backbone": {"model": "tiny-team"}})
    low = Config.model_validate({"backbone": {"model": "tiny-team"}, "reward": {"effort": "low"}})
    assert as_trained(low).roles == {}, "it ships without one"
    monkeypatch.setitem(TRAINED, "tiny-team", TrainedTeam("tiny", own, own))
    asked = as_trained(low)
    assert asked.roles == {"P": BackboneConfig(model="tiny-team", adapter=adapter / "priced", only_priced=True)}
    assert effort_of(asked.reward) == Effort(0.6, 0.6)
    assert as_trained(plain) == plain
    served = as_trained(plain, may_be_asked=True)
    assert set(served.roles) == {"P"}
    assert effort_of(served.reward) is None, "who names no effort is told no prices"
    assert effort_of(served.reward.model_copy(update={"effort": 0.5})) == Effort(0.3, 0.3)
    for said in ({"reward": {"dial": 0.2}}, {"roles": {"P": {"model": "mine"}}}, {"backbone": {"adapter": adapter}}):
        config = Config.model_validate({"backbone": {"model": "tiny-team"}, **said})
        assert as_trained(config, may_be_asked=True).roles == config.roles
    monkeypatch.setitem(TRAINED, "tiny-team", TrainedTeam("tiny", own, "0" * 64))
    with pytest.raises(WeightsMissing, match="weights of tiny-team are damaged"):
        as_trained(low)


@pytest.mark.parametrize("name", [name for name, team in TRAINED.items() if team.priced_sha256])
def test_a_planner_for_prices_that_ships_is_whole_and_small(name: str) -> None:
    folder = priced_adapter(name)
    assert folder is not None
    assert (folder / "adapter_model.safetensors").stat().st_size <= 5_000_000
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == name
    assert read_dial(BackboneConfig(model=name, adapter=folder)) > 0


@torch.no_grad()
def test_a_planner_is_cut_to_what_it_does_otherwise_than_the_team(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rank that holds the whole difference the team with it is the planner."""
    _ship(adapter, base, monkeypatch, file_sha256(adapter / "adapter_model.safetensors"))
    monkeypatch.setenv("JADE_CACHE", str(tmp_path / "cache"))
    model, _ = load_model(base, torch.float32)
    torch.manual_seed(2)
    own = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    own.save_pretrained(str(tmp_path / "planner"))
    planner = own.merge_and_unload()(IDS).logits
    (tmp_path / "nq.train.jsonl").write_text('{"id": "1", "question": "Who wrote Emma?", "golden_answers": ["Austen"]}')
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "cut_planner.py"))
    out = tmp_path / "cut"
    options = ("--planner", tmp_path / "planner", "--dial", 0.6, "--rank", 4, "--out", out)
    command = ("cut_planner.py", "--team", "tiny-team", *options, tmp_path / "nq.train.jsonl")
    monkeypatch.setattr(sys, "argv", list(map(str, command)))
    script["main"]()
    team = load_model(resolve_weights("tiny-team"), torch.float32)[0]
    before = float((team(IDS).logits - planner).norm())
    after = float((PeftModel.from_pretrained(team, str(out))(IDS).logits - planner).norm())
    assert after < 0.02 * before, "its weights have no more than eight bits"
    assert read_dial(BackboneConfig(model="tiny-team", adapter=out)) == 0.6
    # Below that rank, what is left of the difference is what the inputs hardly meet.
    difference_OI, seen_TI = torch.randn(8, 6), torch.randn(50, 6) * torch.tensor([9.0, 1, 1, 1, 1, 0.1])
    weighed, plain = (script["cut"](difference_OI, power, 1) for power in (seen_TI.T @ seen_TI, torch.eye(6)))
    left = [float((seen_TI @ (difference_OI - up @ down).T).norm()) for up, down in (weighed, plain)]
    assert left[0] < 0.9 * left[1]


SEVERAL_HOPS = (
    "Who is the mother of the composer of the opera Silver Tide?",
    "Which country is the director of the film Glass Mountain from?",
    "Who is the father of the queen who founded Saltmouth Abbey?",
)
ONE_HOP = ("What is the capital of Norway?", "Who wrote the novel Emma?")


async def test_the_planner_that_ships_splits_less_where_that_is_dear() -> None:
    config = as_trained(Config(), may_be_asked=True)
    merged = weights.default_cache() / "weights" / f"jade-135m-{TRAINED['jade-135m'].sha256[:8]}"
    if not merged.is_dir():
        pytest.skip(f"no jade-135m in {merged.parent}; `jade ask` makes it")
    team = build_team(config.team)
    legal = team.legal(child=False).codes
    cast = open_cast(config)

    async def num_splits(questions: tuple[str, ...], effort: Effort | None) -> int:
        found = []
        for question in questions:
            seen = team.planner.view(Memory(question, legal=legal, effort=effort))
            speaker = cast.of(team.planner.code, priced=effort is not None)
            said = await speaker.generate(team.render(team.planner.code, seen), Sampling(max_tokens=16))
            found.append(str(team.planner.parse(said.text, seen)) in ("QDS", "QDP"))
        return sum(found)

    low, high = (prices_at(place, config.reward.dial) for place in (0.0, 1.0))
    assert await num_splits(SEVERAL_HOPS, low) < await num_splits(SEVERAL_HOPS, high) == len(SEVERAL_HOPS)
    assert await num_splits(ONE_HOP, high) == 0
    assert await num_splits(SEVERAL_HOPS, None) == len(SEVERAL_HOPS), "told no prices, it is the team's own planner"
    await cast.close()


def _ship(adapter: Path, base: Path, monkeypatch: pytest.MonkeyPatch, sha256: str) -> None:
    """Put a team of our own into the table, over a base that needs no fetching."""
    monkeypatch.setitem(TRAINED, "tiny-team", TrainedTeam("tiny", sha256))
    monkeypatch.setitem(weights.SHIPPED, "tiny", weights.SHIPPED["smollm2-135m"])
    monkeypatch.setattr(TrainedTeam, "folder", lambda self, name: adapter)
    monkeypatch.setattr(weights, "_shipped", lambda *_: base)
