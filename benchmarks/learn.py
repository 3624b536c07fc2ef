"""How fast a policy is updated, beside the floor that the hardware sets.

    python benchmarks/learn.py [--shape 135m] [--device cuda] [--peak-tflops 989]

Transitions are synthetic, with lengths as a team writes them; the update is the real one. Three sizes show whether its
cost grows linearly. The floor is 6 FLOP a weight and token, for all weights that every token meets and for the
vocabulary's at action tokens, over the peak; the share of it that is reached is the model FLOP utilisation (MFU).
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jade.config import BackboneConfig, LearnConfig
from jade.learn.learner import Learner
from jade.learn.policy import Policy, load_policy
from jade.learn.transitions import Experience
from jade.types import Reward, Transition

SHAPES: dict[str, dict[str, Any]] = {
    "135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


def make_model(shape: str, out: Path) -> Path:
    """Random weights of a known shape: speed does not depend on their values."""
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=8192)
    LlamaForCausalLM(config).save_pretrained(out)
    from jade.learn.tiny import make_tokenizer

    make_tokenizer(["a text for the tokenizer"], 300).save_pretrained(out)
    return out


def make_experience(num_calls: int, vocabulary: int) -> Experience:
    draw = np.random.default_rng(0)
    transitions = []
    for number in range(num_calls):
        prompt, action = int(draw.integers(120, 1000)), int(draw.integers(6, 60))
        ids = tuple(draw.integers(3, vocabulary, prompt + action).tolist())
        reward = Reward(outcome=float(draw.random()))
        logprobs = (-float(np.log(vocabulary)),) * action
        role = ("P", "QR", "DS", "AG")[number % 4]
        transitions.append(
            Transition(f"t{number // 4}", str(number), role, ids[:prompt], ids[prompt:], logprobs, reward)
        )
    return Experience(tuple(transitions), {})


def floor_seconds(policy: Policy, experience: Experience, peak_tflops: float) -> float:
    everywhere = sum(weight.numel() for name, weight in policy.trunk.named_parameters() if "embed" not in name)
    vocabulary = int(policy.causal.get_output_embeddings().weight.numel())
    tokens = sum(len(t.prompt_ids) + len(t.action_ids) for t in experience.transitions)
    actions = sum(len(t.action_ids) for t in experience.transitions)
    return 6 * (everywhere * tokens + vocabulary * actions) / (peak_tflops * 1e12)


def measure(
    model: Path, device: str, settings: dict[str, object], experience: Experience, peak: float
) -> dict[str, object]:
    cfg = LearnConfig.model_validate({"policy": settings, "ppo": {"minibatches": 4}, "credit": {"rule": "shared"}})
    policy = load_policy(BackboneConfig(model=str(model), device=device), cfg.policy)
    learner = Learner(policy, cfg)
    started = time.perf_counter()
    learner.update(experience, iteration=0, seed=0)
    first = time.perf_counter() - started
    figures = [learner.update(experience, iteration=n, seed=n) for n in (1, 2)]
    seconds = min(each["seconds_update"] for each in figures)
    tokens = sum(len(t.prompt_ids) + len(t.action_ids) for t in experience.transitions)
    return {
        **settings,
        "tokens": tokens,
        "first_seconds": round(first, 2),
        "update_seconds": round(seconds, 3),
        "look_back_seconds": round(min(each["seconds_look_back"] for each in figures), 3),
        "tokens_per_second": round(tokens / seconds),
        "mfu": round(floor_seconds(policy, experience, peak) / seconds, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if device == "cuda" else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--tokens-per-batch", type=int, nargs="+", default=[65536])
    parser.add_argument("--compile", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--adapt", nargs="+", default=["full", "lora"])
    parser.add_argument("--peak-tflops", type=float, default=989.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(options.shape, Path(folder))
        vocabulary = SHAPES[options.shape]["vocab_size"]
        grid = itertools.product(options.adapt, options.compile, options.tokens_per_batch, options.calls)
        for adapt, compiled, tokens, num_calls in grid:
            settings = {"adapt": adapt, "tokens_per_batch": tokens, "compile": bool(compiled)}
            experience = make_experience(num_calls, vocabulary)
            row = measure(model, options.device, settings, experience, options.peak_tflops)
            print(json.dumps({"calls": num_calls, **row}), flush=True)


if __name__ == "__main__":
    main()
