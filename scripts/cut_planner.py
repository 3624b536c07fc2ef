"""Cut a planner that was trained for itself down to a small adapter over a team: what it does otherwise than the team.

    python scripts/cut_planner.py --team jade-135m --planner data/dial-adapter --dial 0.6 --rank 8 --out cut \
        data/2wiki.train.jsonl.gz data/nq.train.jsonl.gz

`--planner` is the adapter that training exported, over the model that the team's own stands over. The difference of the
two, layer by layer, is brought to the given rank where it matters: weighed by what flows into each layer while the
planner reads questions of the given files at prices from all over the dial. None of them is answered.

Shapes: T = tokens, O and I = outputs and inputs of a layer, K = the smaller of both, R = the rank.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from jade.backbone.chat import ChatFormat
from jade.backbone.local.backbone import load_model
from jade.backbone.trained import write_dial
from jade.backbone.weights import TRAINED, resolve_weights
from jade.config import TeamConfig
from jade.engine.effort import draw_prices
from jade.engine.seeds import derive_seed
from jade.learn.questions import read_question_files
from jade.team.roles import Memory
from jade.team.team import build_team
from jade.types import Prompt

PROMPT_TOKENS = 1024
ODD = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias")
"""Settings of an adapter that say that it is no plain product of two matrices, or not everywhere alike."""
LEAST = 1e-4
"""Of the mean power of a layer's inputs: no direction weighs less, also if nothing was seen of it."""


def planner_prompts(files: list[Path], per_file: int, dial: float) -> Iterator[Prompt]:
    team = build_team(TeamConfig())
    legal = team.legal(child=False)
    for questions in read_question_files("files", files, per_file):
        for question in questions:
            effort = draw_prices(dial, derive_seed(0, "cut", *question.key))
            seen = team.planner.view(Memory(question.text, legal=legal.codes, effort=effort))
            yield team.render(team.planner.code, seen)


def load_planner(base: Path, adapter: Path) -> tuple[Any, Any]:
    from peft import PeftModel

    model, tokenizer = load_model(base, torch.float32)
    return PeftModel.from_pretrained(model, str(adapter)).merge_and_unload().eval(), tokenizer


@torch.no_grad()
def seen_powers(model: Any, tokenizer: Any, names: list[str], prompts: Iterator[Prompt]) -> dict[str, Tensor]:
    """What flows into each of these layers, as the sum of its outer products."""
    powers: dict[str, Tensor] = {}

    def watch(name: str, layer: nn.Linear) -> None:
        powers[name] = torch.zeros(layer.in_features, layer.in_features)

        def add(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen_TI = inputs[0].flatten(0, -2).float()
            powers[name].addmm_(seen_TI.T, seen_TI)

        layer.register_forward_pre_hook(add)

    for name in names:
        watch(name, model.get_submodule(name))
    chat = ChatFormat(tokenizer)
    for prompt in prompts:
        model(torch.tensor([chat.encode(prompt, PROMPT_TOKENS).ids]))
    return powers


def cut(difference_OI: Tensor, power_II: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The nearest product of two narrow matrices (OR and RI), where what comes in has this power."""
    values_I, vectors_II = torch.linalg.eigh(power_II.double())
    root_I = values_I.clamp(min=LEAST * float(values_I.mean())).sqrt()
    root_II = vectors_II * root_I @ vectors_II.T
    inverse_II = vectors_II / root_I @ vectors_II.T
    left_OK, size_K, right_KI = torch.linalg.svd(difference_OI.double() @ root_II, full_matrices=False)
    half_R = size_K[:rank].sqrt()
    return (left_OK[:, :rank] * half_R).float(), (half_R[:, None] * right_KI[:rank] @ inverse_II).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="questions of training")
    parser.add_argument("--team", required=True, choices=list(TRAINED))
    parser.add_argument("--planner", required=True, type=Path)
    parser.add_argument("--dial", required=True, type=float)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--questions", type=int, default=60, help="of each file")
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    team = TRAINED[options.team]
    settings = json.loads((options.planner / "adapter_config.json").read_text(encoding="utf-8"))
    odd = [name for name in ODD if settings.get(name)]
    if odd or not isinstance(settings["target_modules"], list):
        parser.error(
            f"{options.planner}: {(odd or ['target_modules'])[0]} is set; only a plain LoRA adapter can be cut"
        )
    planner, tokenizer = load_planner(resolve_weights(team.base), options.planner)
    held, _ = load_model(resolve_weights(options.team), torch.float32)
    targets = tuple(settings["target_modules"])
    names = [name for name, one in planner.named_modules() if isinstance(one, nn.Linear) and name.endswith(targets)]
    powers = seen_powers(planner, tokenizer, names, planner_prompts(options.files, options.questions, options.dial))
    weights: dict[str, Tensor] = {}
    for name in names:
        difference_OI = planner.get_submodule(name).weight - held.get_submodule(name).weight
        up_OR, down_RI = cut(difference_OI.detach(), powers[name], options.rank)
        weights[f"base_model.model.{name}.lora_A.weight"] = down_RI.to(torch.bfloat16).contiguous()
        weights[f"base_model.model.{name}.lora_B.weight"] = up_OR.to(torch.bfloat16).contiguous()
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, options.out / "adapter_model.safetensors", metadata={"format": "pt"})
    own = {"r": options.rank, "lora_alpha": options.rank, "base_model_name_or_path": options.team}
    (options.out / "adapter_config.json").write_text(json.dumps({**settings, **own}, indent=2) + "\n", encoding="utf-8")
    write_dial(options.out, options.dial)


if __name__ == "__main__":
    main()
