"""How fast a policy is updated and how long an iteration takes, beside the floors that the hardware sets.

    python benchmarks/learn.py update [--shape 135m] [--calls 256 512 1024] [--adapt lora full] [--way fused lean]
    python benchmarks/learn.py update --adapt lora --way fused lean --calls 288 --minibatches 1
    python benchmarks/learn.py iteration [--model smollm2-135m] [--questions 4 8 16] [--ahead]

`update` learns from synthetic transitions, with lengths as a team writes them and prompts that the rollouts of a
question have in common; the update is the real one. The second line is the shortest comparison of two ways through the
layers on a GPU: each is printed when it is measured, both within a minute. `iteration` runs whole iterations on the
built-in world and says how long each phase took; with `--ahead` the next rollouts are made during an update, so that
phases overlap and only `seconds` and what follows from them say how fast it is. Three sizes show whether cost grows
linearly: seconds a call should stay what they are. On a busy machine the processor's seconds say more than the clock's.

The floor of an update is 6 FLOP a weight and token over the peak, for the weights that every token meets, and for the
vocabulary's at action tokens; the share of it that is reached is the model FLOP utilisation (MFU). Tokens are those
that go through the model: a prompt that calls share counts once. The floor of a rollout is reading prompts (2 FLOP a
weight and token) and decoding (all weights once a step, and every key and value before each new token, over the
bandwidth).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from jade.api.documents import index_documents
from jade.config import BackboneConfig, Config, LearnConfig
from jade.corpus.world import make_world, write_world
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run
from jade.learn.policy import Policy, load_policy
from jade.learn.tiny import make_tiny_model, make_tokenizer, read_texts
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
PLAN = (("P", 100), ("QR", 60), ("DS", 800), ("AG", 400), ("DS", 700), ("AG", 300))
"""The calls of one rollout, with the lengths of their prompts behind the role's own part."""
ROLLOUTS = 4
ROLE_TOKENS = 60
SLOWEST = 12
"""Kinds of kernels that are named, with their milliseconds and launches."""
WAYS: dict[str, dict[str, object]] = {
    "fused": {"fuse": True},
    "lean": {"fuse": False},
}
"""Ways through the layers, as settings of the policy."""
PHASES = ("rollout", "look_back", "update", "look_after", "publish")


def make_model(shape: str, out: Path) -> Path:
    """Random weights of a known shape: speed does not depend on their values."""
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=8192)
    LlamaForCausalLM(config).save_pretrained(out)
    make_tokenizer(["a text for the tokenizer"], 300).save_pretrained(out)
    return out


def make_experience(num_calls: int, vocabulary: int, alike: float) -> Experience:
    """Questions with several rollouts each. A prompt is the same in all of a question's rollouts as often as asked."""
    draw = np.random.default_rng(0)

    def ids(number: int) -> tuple[int, ...]:
        return tuple(draw.integers(3, vocabulary, number).tolist())

    of_role = {role: ids(ROLE_TOKENS) for role, _ in PLAN}
    transitions = []
    for question in range(-(-num_calls // (ROLLOUTS * len(PLAN)))):
        common = [ids(length) for _, length in PLAN]
        for rollout, (step, (role, length)) in itertools.product(range(ROLLOUTS), enumerate(PLAN)):
            prompt = of_role[role] + (common[step] if draw.random() < alike else ids(length))
            action = ids(int(draw.integers(5, 61)))
            logprobs = (-float(np.log(vocabulary)),) * len(action)
            name, reward = f"{question}@{rollout}", Reward(outcome=rollout / ROLLOUTS)
            transitions.append(Transition(name, str(step), role, prompt, action, logprobs, reward, group=str(question)))
    return Experience(tuple(transitions[:num_calls]), {})


def floor_seconds(policy: Policy, experience: Experience, peak_tflops: float, shared: float = 0.0) -> float:
    """What an update takes at the peak; `shared` is the share of the tokens that need not be run."""
    everywhere = sum(weight.numel() for name, weight in policy.trunk.named_parameters() if is_met_by_all(name))
    vocabulary = int(policy.causal.get_output_embeddings().weight.numel())
    tokens = sum(len(t.prompt_ids) + len(t.action_ids) for t in experience.transitions)
    actions = sum(len(t.action_ids) for t in experience.transitions)
    return 6 * (everywhere * tokens * (1 - shared) + vocabulary * actions) / (peak_tflops * 1e12)


def is_met_by_all(name: str) -> bool:
    """Weights of the model itself that work on every token; adapters are extra work, not model FLOP."""
    return "embed" not in name and "lora_" not in name


def measure_update(
    model: Path, settings: dict[str, object], experience: Experience, options: argparse.Namespace
) -> dict[str, object]:
    on_gpu = options.device == "cuda"
    cfg = LearnConfig.model_validate(
        {
            "policy": {"critic": "none", "lora_rank": 32, **settings},
            "ppo": {"minibatches": options.minibatches, "weigh": "call"},
            "credit": {"rule": "group", "normalise": "role", "skip_even": False},
        }
    )
    policy = load_policy(BackboneConfig(model=str(model), device=options.device), cfg.policy)
    learner = Learner(policy, cfg)
    first, *rest = (timed_update(learner, experience, number) for number in range(5))
    best = min(rest, key=lambda figures: figures["seconds_update"])
    seconds, tokens = best["seconds_update"], best["update_tokens"]
    return {
        **settings,
        "calls": len(experience.transitions),
        "tokens": int(tokens),
        "shared": round(best["shared"], 3),
        "first_seconds": round(first["seconds_update"], 2),
        "look_seconds": round(looking(best), 3),
        "update_seconds": round(seconds, 3),
        "processor_milliseconds_a_call": round(1000 * best["processor"] / len(experience.transitions), 2),
        "calls_per_second": round(len(experience.transitions) / seconds),
        "tokens_per_second": round(tokens / seconds),
        "mfu": round(floor_seconds(policy, experience, options.peak_tflops, best["shared"]) / seconds, 4),
        **({"device_calls": best["device_calls"]} if on_gpu else {}),
        **({"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)} if on_gpu else {}),
        **(seen_on_device(learner, experience, seconds + looking(best)) if on_gpu else {}),
    }


def timed_update(learner: Learner, experience: Experience, number: int) -> dict[str, float]:
    started, asked = time.process_time(), num_device_calls()
    figures = learner.update(experience, iteration=number, seed=number)
    return figures | {"processor": time.process_time() - started, "device_calls": num_device_calls() - asked}


def looking(figures: Mapping[str, float]) -> float:
    """What it takes to compare the policy with the one that sampled, before the steps and after them."""
    return figures["seconds_look_back"] + figures["seconds_look_after"]


def num_device_calls() -> int:
    """How often torch has asked the device for memory, or given some back: which takes milliseconds, or waits."""
    found = torch.cuda.memory_stats() if torch.cuda.is_available() else {}
    return sum(int(found.get(name, 0)) for name in ("num_device_alloc", "num_device_free"))


def seen_on_device(learner: Learner, experience: Experience, seconds: float) -> dict[str, object]:
    """What the device did in an update and its looks back and after, and the share of the time in which a kernel ran.

    The time is that of an update that was not looked at: writing down every launch slows them.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        learner.update(experience, iteration=3, seed=3)
        torch.cuda.synchronize()
    events = [event for event in profiler.key_averages() if event.self_device_time_total > 0]
    kernel_seconds: float = sum(event.self_device_time_total for event in events) / 1e6
    slowest = sorted(events, key=lambda event: -event.self_device_time_total)[:SLOWEST]
    return {
        "kernel_seconds": round(kernel_seconds, 3),
        "gpu_busy": round(kernel_seconds / seconds, 3),
        "launches": sum(event.count for event in events),
        "slowest_milliseconds": {
            event.key[:60]: [round(event.self_device_time_total / 1e3, 1), event.count] for event in slowest
        },
    }


def set_ceilings(options: argparse.Namespace) -> None:
    """What an H200 is said to do, or what this processor is seen to do, unless told otherwise."""
    on_gpu = options.device == "cuda"
    if not options.peak_tflops:
        options.peak_tflops = 989.0 if on_gpu else 2e-12 * 1024**3 / seconds_of(torch.mm, torch.rand(1024, 1024))
    if not options.bandwidth:
        options.bandwidth = 4.8e12 if on_gpu else 8 * 2**25 / seconds_of(torch.add, torch.rand(2**25))
    print(json.dumps({"peak_tflops": round(options.peak_tflops, 3), "bandwidth": round(options.bandwidth / 1e9, 1)}))


def seconds_of(operation: Callable[[Tensor, Tensor], Tensor], tensor: Tensor) -> float:
    def once() -> float:
        started = time.perf_counter()
        operation(tensor, tensor)
        return time.perf_counter() - started

    return min(once() for _ in range(5))


def update(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(options.shape, Path(folder))
        vocabulary = SHAPES[options.shape]["vocab_size"]
        grid = itertools.product(options.adapt, options.way, options.tokens_per_batch, options.calls)
        for adapt, way, tokens, num_calls in grid:
            settings = {"adapt": adapt, "tokens_per_batch": tokens, **WAYS[way]}
            experience = make_experience(num_calls, vocabulary, options.alike)
            row = measure_update(model, settings, experience, options)
            print(json.dumps({"way": way, **row}), flush=True)
            let_go(options.device)


def let_go(device: str) -> None:
    """The next case begins with the device as empty as the first one did."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Watch:
    """How busy the GPU says it is, asked several times a second while something else goes on."""

    def __init__(self) -> None:
        self._seen: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        if shutil.which("nvidia-smi"):
            self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop.wait(0.2):
            answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
            self._seen += map(float, answer[:1])

    @property
    def busy(self) -> float | None:
        return round(float(np.mean(self._seen)) / 100, 3) if self._seen else None


def make_material(folder: Path, model: str) -> Mapping[str, Any]:
    """A world, its index, and a model: the named one, or a tiny one with random weights."""
    world = make_world(300, 600, 0)
    write_world(world, folder / "world")
    index_documents([folder / "world" / "pages"], folder / "index")
    if not model:
        model = str(make_tiny_model(folder / "model", read_texts([folder / "world" / "pages"])))
    return {"model": model, "index": str(folder / "index"), "questions": [folder / "world" / "questions.train.jsonl"]}


def make_config(material: Mapping[str, Any], questions: int, options: argparse.Namespace) -> Config:
    return Config.model_validate(
        {
            "backbone": {"model": material["model"], "device": options.device, "max_batch": options.max_batch},
            "retrieval": {"index": material["index"]},
            "learn": {
                "questions": material["questions"],
                "iterations": options.iterations,
                "questions_per_iteration": questions,
                "rollouts": ROLLOUTS,
                "ahead": options.ahead,
                "checkpoint_every": options.iterations,
                "credit": {"rule": "group", "normalise": "role", "skip_even": False},
                "policy": {"critic": "none", "adapt": options.adapt[0], "lora_rank": 32,
                           "tokens_per_batch": options.tokens_per_batch[0], **WAYS[options.way[0]]},
                "ppo": {"learning_rate": 1e-6, "weigh": "call"},
                "guard": {"max_kl": 50.0, "max_entropy": 50.0},
            },
        }
    )  # fmt: skip


async def measure_iteration(config: Config, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """The last of several iterations that is like most: the first ones also warm up, and with rollouts ahead the very
    last has none beside it. The processor's time is that of all."""
    num_traces = config.learn.questions_per_iteration * ROLLOUTS
    async with open_run(config, folder, Silent()) as run:
        floors = Floors(run.learner.policy, options)
        started = time.process_time()
        with Watch() as watch:
            await run.train()
        processor = time.process_time() - started
    rows = list(read_journal(folder, "iteration"))
    last = rows[-2 if config.learn.ahead else -1]
    all_calls = num_traces * sum(row["calls"] for row in rows)
    calls, seconds = num_traces * last["calls"], {name: last[f"seconds_{name}"] for name in PHASES}
    floor = {"rollout": floors.rollout(last, num_traces), "update": floors.update(last)}
    return {
        "questions": config.learn.questions_per_iteration,
        "calls": round(calls),
        "update_tokens": last["update_tokens"],
        **({"lag": last["lag"], "seconds_waited": round(last["seconds_waited"], 3)} if config.learn.ahead else {}),
        **{f"seconds_{name}": round(took, 3) for name, took in seconds.items()},
        "seconds": round(last["seconds"], 3),
        "milliseconds_a_call": round(1000 * last["seconds"] / calls, 2),
        "processor_milliseconds_a_call": round(1000 * processor / all_calls, 2),
        "rollout_calls_per_second": round(calls / seconds["rollout"], 1),
        "update_calls_per_second": round(calls / seconds["update"], 1),
        **{f"floor_{name}": round(least, 4) for name, least in floor.items()},
        "mfu_update": round(floor["update"] / seconds["update"], 4),
        "gpu_busy": watch.busy,
    }


class Floors:
    """The least that the phases of an iteration can take, from what its journal says was done."""

    def __init__(self, policy: Policy, options: argparse.Namespace) -> None:
        config = policy.causal.config
        self._in_layers: int = sum(w.numel() for name, w in policy.trunk.named_parameters() if is_met_by_all(name))
        self._vocabulary: int = int(policy.causal.get_output_embeddings().weight.numel())
        self._bytes_a_position: int = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        self._flops: float = options.peak_tflops * 1e12
        self._bandwidth: float = options.bandwidth
        self._max_batch: int = options.max_batch

    def rollout(self, row: Mapping[str, float], num_traces: int) -> float:
        calls, read, written = (num_traces * row[name] for name in ("calls", "prompt_tokens", "completion_tokens"))
        weights = 2 * (self._in_layers + self._vocabulary) / min(self._max_batch, calls)
        context = self._bytes_a_position * (read + written / 2) / calls
        return 2 * self._in_layers * read / self._flops + written * (weights + context) / self._bandwidth

    def update(self, row: Mapping[str, float]) -> float:
        run = row["update_tokens"] * (1 - row["shared"])
        actions: float = sum(count for name, count in row.items() if name.startswith("tokens/"))
        return 6 * (self._in_layers * run + self._vocabulary * actions) / self._flops


def iteration(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        material = make_material(Path(folder), options.model)
        for number in options.questions:
            config = make_config(material, number, options)
            row = asyncio.run(measure_iteration(config, Path(folder) / f"run-{number}", options))
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["update", "iteration"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--adapt", nargs="+", default=["lora", "full"])
    parser.add_argument("--way", nargs="+", choices=WAYS, default=["fused", "lean"], help="through the layers (GPU)")
    parser.add_argument("--minibatches", type=int, default=4, help="update: optimiser steps")
    parser.add_argument("--tokens-per-batch", type=int, nargs="+", default=[65536])
    parser.add_argument("--peak-tflops", type=float, default=0.0, help="of matrix products; 0: as seen, or an H200's")
    parser.add_argument("--shape", choices=SHAPES, default="135m", help="update: the model")
    parser.add_argument("--calls", type=int, nargs="+", default=[256, 512, 1024], help="update: sizes")
    parser.add_argument("--alike", type=float, default=0.5, help="update: prompts that a question's rollouts share")
    parser.add_argument("--model", default="", help="iteration: a model instead of a tiny one with random weights")
    parser.add_argument("--questions", type=int, nargs="+", default=[4, 8, 16], help="iteration: sizes")
    parser.add_argument("--iterations", type=int, default=0, help="iteration: how many; 0: 2, or 5 with --ahead")
    parser.add_argument("--ahead", action="store_true", help="iteration: the next rollouts beside each update")
    parser.add_argument("--max-batch", type=int, default=512, help="iteration: requests the sampler works on at once")
    parser.add_argument("--bandwidth", type=float, default=0.0, help="bytes a second of memory; 0: likewise")
    options = parser.parse_args()
    options.iterations = options.iterations or (5 if options.ahead else 2)
    if options.ahead and options.iterations < 3:
        parser.error(f"--iterations {options.iterations}: --ahead needs at least 3, of which the last but one counts")
    set_ceilings(options)
    {"update": update, "iteration": iteration}[options.what](options)


if __name__ == "__main__":
    main()
