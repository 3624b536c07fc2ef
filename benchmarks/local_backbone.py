"""What batching buys: new tokens a second of the local backbone beside transformers' own `generate`.

Every request has a prompt of about the same length (a fixed role part and text of its own) and samples the same number
of tokens at temperature 1. `generate` gets the same prompts as one padded batch; the backbone gets them as separate
calls that happen to wait together. Times are whole: tokenising, reading the prompt, decoding. Decoding alone is the
difference to the same run with one new token. The best of several runs counts. With `--groups 8` every prompt is asked
eight times, as the rollouts of one question are. How long torch's threads stay awake between two operations is bounded
for both ways (see jade.backbone.local.threads); GOMP_SPINCOUNT=300000 in the environment is what torch would have had.

On a GPU it also prints where the time of a run goes and the floors below which no run can come: decoding reads the
weights and all keys and values at every step, and reading a prompt takes two operations a weight and token. With
`--profile` it also says which kinds of kernels took how long, and for which share of the time any of them ran.

    python benchmarks/local_backbone.py [--concurrent 1 16] [--prompt-tokens 96] [--new-tokens 48] [--threads 0]
    python benchmarks/local_backbone.py --device cuda --concurrent 4096 --max-batch 512 --prompt-tokens 512 [--groups 8]
        [--profile] [--prefill-tokens 16384] [--steps-per-check 6]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jade.backbone.local.threads import SETTINGS, in_passing

# isort: split
import torch
from device_profile import profiled

from jade.backbone.local.backbone import LocalBackbone, load_model, pick_device, pick_dtype, place_model
from jade.backbone.weights import resolve_weights
from jade.types import Prompt, Sampling

SYSTEM = (
    "You answer a question from numbered passages. Use only what the passages say. If none of them holds the answer, "
    "say so. Write the answer, as short as it can be, between <answer> and </answer>, and nothing else."
)
WORDS = ("the", "old", "river", "town", "built", "a", "stone", "bridge", "and", "school", "beside", "its", "mill", "in")

PROFILED = 1024
"""Requests whose every launch is written down: reading that back takes its time."""


def make_prompts(tokenizer: Any, number: int, num_tokens: int, groups: int = 1) -> list[Prompt]:
    """Prompts of nearly `num_tokens` tokens, no two alike after the fixed part but those of a group."""
    room = max(4, num_tokens - len(tokenizer(SYSTEM)["input_ids"]) - 12)
    kinds = range(-(-number // groups))
    texts = [" ".join(WORDS[(n + step * (1 + n % 7)) % len(WORDS)] for step in range(room)) for n in kinds]
    return [Prompt("AG", SYSTEM, f"{n // groups} {texts[n // groups]}") for n in range(number)]


def never_end(model: Any, tokenizer: Any) -> None:
    """Stop at a token that a chat model does not write, so that every request has the same length."""
    tokenizer.eos_token = "<|endoftext|>"
    model.generation_config.eos_token_id = tokenizer.eos_token_id


@dataclass(frozen=True, slots=True, order=True)
class Timing:
    """Wall-clock and processor seconds of a run, and the tokens it made. On a busy machine the second says more."""

    seconds: float
    processor_seconds: float
    num_tokens: int


def best_timing(run: Callable[[int], int], repeats: int) -> Timing:
    """The quickest of several runs."""
    timings = []
    for repeat in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        num_tokens = run(repeat)
        timings.append(Timing(time.perf_counter() - wall, time.process_time() - processor, num_tokens))
    return min(timings)


def time_backbone(backbone: LocalBackbone, prompts: list[Prompt], new_tokens: int, repeats: int) -> Timing:
    async def all_at_once(repeat: int) -> int:
        draws = [
            backbone.generate(prompt, Sampling(1.0, max_tokens=new_tokens, seed=1000 * repeat + index))
            for index, prompt in enumerate(prompts)
        ]
        return sum(len(generation.token_ids) for generation in await asyncio.gather(*draws))

    return best_timing(lambda repeat: asyncio.run(all_at_once(repeat)), repeats)


def time_generate(model: Any, tokenizer: Any, prompts: list[Prompt], new_tokens: int, repeats: int) -> Timing:
    def one_batch(repeat: int) -> int:
        torch.manual_seed(repeat)
        messages = [[{"role": "system", "content": p.system}, {"role": "user", "content": p.user}] for p in prompts]
        batch = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "pad_token_id": tokenizer.eos_token_id}
        out = model.generate(**batch, max_new_tokens=new_tokens, min_new_tokens=new_tokens, **settings)
        return int(out[:, batch["input_ids"].shape[1] :].numel())

    return best_timing(one_batch, repeats)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each number of concurrent requests and each way of serving them."""
    device = pick_device(options.device)
    load = functools.partial(load_model, resolve_weights(options.model), pick_dtype(options.dtype, device))
    model, tokenizer = in_passing(load)
    never_end(model, tokenizer)
    if options.threads:
        torch.set_num_threads(options.threads)
    place_model(model, device, model.dtype)
    tokenizer.padding_side = "left"
    crowds = {
        number: make_prompts(tokenizer, number, options.prompt_tokens, options.groups) for number in options.concurrent
    }
    rows = []
    if not options.skip_generate:
        for number, prompts in crowds.items():
            plain = functools.partial(time_generate, model, tokenizer, prompts)
            rows.append(in_passing(functools.partial(row, "generate", number, plain, options)))
    settings = {"max_batch": options.max_batch, "threads": options.threads, "fuse": not options.plain}
    settings["capture_prefill"] = not options.eager_prefill
    settings |= {"prefill_tokens": options.prefill_tokens or None, "steps_per_check": options.steps_per_check or None}
    backbone = LocalBackbone(model, tokenizer, device=device, **settings)
    warm_up = make_prompts(tokenizer, 1, options.prompt_tokens)
    asyncio.run(backbone.generate(warm_up[0], Sampling(1.0, max_tokens=2)))
    for number, prompts in crowds.items():
        rows.append(row("backbone", number, functools.partial(time_backbone, backbone, prompts), options))
        if device.type == "cuda":
            rows[-1] |= gpu_shares(backbone, prompts, options) | gpu_floors(model, rows[-1], options)
        if options.profile and device.type == "cuda":
            print(json.dumps(rows[-1]), flush=True)  # before what may take longer than anyone waits
            rows[-1] |= gpu_profile(backbone, prompts[:PROFILED], options)
    asyncio.run(backbone.close())
    return rows


def row(way: str, number: int, run: Callable[[int, int], Timing], options: argparse.Namespace) -> dict[str, Any]:
    whole, first = run(options.new_tokens, options.repeats), run(1, options.repeats)
    decoded = whole.num_tokens - first.num_tokens
    return {
        "way": way,
        "concurrent": number,
        "seconds": round(whole.seconds, 3),
        "seconds_to_first_tokens": round(first.seconds, 2),
        "tokens_per_second": round(whole.num_tokens / whole.seconds, 1),
        "tokens_per_processor_second": round(whole.num_tokens / whole.processor_seconds, 1),
        "decoded_per_processor_second": round(decoded / (whole.processor_seconds - first.processor_seconds), 1),
        "calls_per_second": round(number / whole.seconds, 2),
    }


class Spans:
    """Device time between the beginning and the end of every call of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._events: list[tuple[Any, Any]] = []

    def __call__(self, *args: Any) -> Any:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        result = self._function(*args)
        stop.record()
        self._events.append((start, stop))
        return result

    def seconds(self) -> float:
        torch.cuda.synchronize()
        return sum(float(start.elapsed_time(stop)) for start, stop in self._events) / 1000


def gpu_shares(backbone: LocalBackbone, prompts: list[Prompt], options: argparse.Namespace) -> dict[str, Any]:
    """Of one more run: the shares of reading prompts, of decoding, and of waiting for the host."""
    runner: Any = backbone._runner
    reading, decoding = Spans(runner.prefill), Spans(runner.decode)
    runner.prefill, runner.decode = reading, decoding
    timing = time_backbone(backbone, prompts, options.new_tokens, 1)
    del runner.prefill, runner.decode
    shares = [spans.seconds() / timing.seconds for spans in (reading, decoding)]
    return {
        "share_reading": round(shares[0], 3),
        "share_decoding": round(shares[1], 3),
        "share_host": round(1 - sum(shares), 3),
    }


def gpu_profile(backbone: LocalBackbone, prompts: list[Prompt], options: argparse.Namespace) -> dict[str, Any]:
    """Of two more runs with fewer requests: what ran is seen in the one, the share of the time is that of the other."""
    seconds = time_backbone(backbone, prompts, options.new_tokens, 1).seconds
    seen = profiled(lambda: time_backbone(backbone, prompts, options.new_tokens, 1))
    for name, (milliseconds, launches) in seen.pop("slowest_milliseconds").items():
        print(f"{milliseconds:10.1f} ms {launches:8} launches  {name}")
    return {"gpu_busy": round(seen["kernel_seconds"] / seconds, 3), **seen}


def gpu_floors(model: Any, line: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Calls a second that memory alone would allow for decoding, arithmetic alone for reading, and both in turn."""
    config, num_weights = model.config, sum(weight.numel() for weight in model.parameters())
    kv_bytes = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    slots = min(options.max_batch, line["concurrent"])
    step_bytes = 2 * num_weights / slots + kv_bytes * (options.prompt_tokens + options.new_tokens / 2)
    decoding = step_bytes * options.new_tokens / options.bandwidth
    in_layers = num_weights - model.get_input_embeddings().weight.numel()
    reading = 2 * in_layers * options.prompt_tokens / options.groups / options.flops
    return {
        "floor_decoding_calls_per_second": round(1 / decoding),
        "floor_reading_calls_per_second": round(1 / reading),
        "floor_calls_per_second": round(1 / (decoding + reading)),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    for key in dict.fromkeys(key for line in rows for key in line):
        print(f"{key:34}" + "".join(f"{line.get(key, ''):>12}" for line in rows))


def gain(rows: list[dict[str, Any]], measure: str) -> float:
    """What the largest crowd has of a measure over what the smallest has, for the backbone."""
    speeds = {line["concurrent"]: line[measure] for line in rows if line["way"] == "backbone"}
    return round(float(speeds[max(speeds)] / speeds[min(speeds)]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=0, help="torch's own choice when 0")
    parser.add_argument("--concurrent", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=96)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1, help="requests with the same prompt")
    parser.add_argument("--plain", action="store_true", help="transformers' own layers instead of fused kernels")
    parser.add_argument("--eager-prefill", action="store_true", help="decode by CUDA graphs, but read prompts without")
    parser.add_argument("--prefill-tokens", type=int, default=0, help="prompt tokens read at once; 0: its own")
    parser.add_argument("--steps-per-check", type=int, default=0, help="decode steps between two looks; 0: its own")
    parser.add_argument("--profile", action="store_true", help="on a GPU: its slowest kernels, and how busy it is")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes a second of the GPU's memory")
    parser.add_argument("--flops", type=float, default=790e12, help="operations a second of its matrix units")
    parser.add_argument("--skip-generate", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/local_backbone.json"))
    options = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    rows = measure(options)
    print_table(rows)
    gains = {key: gain(rows, key) for key in rows[0] if "_per_" in key}
    print(f"backbone, most over fewest concurrent: {gains}")
    machine: dict[str, Any] = {"cores": os.cpu_count(), "load_before": load_before, "threads": torch.get_num_threads()}
    machine |= {name: os.environ.get(name, "") for name in SETTINGS}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    settings = {key: str(value) for key, value in vars(options).items()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rows": rows, "gain": gains, "machine": machine | versions, **settings}))


if __name__ == "__main__":
    main()
