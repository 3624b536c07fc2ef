"""What a training run needs, from a small cost model: memory, tokens a second, hours for 100,000 questions.

Memory is counted: 16 bytes a trained weight (float32 weight, gradient and two Adam moments), 2 a weight that samples
(bfloat16), keys and values for the calls in flight, activations for the tokens in a batch. Time is arithmetic over what
a GPU can do: 6 operations a weight and token to learn, 2 to read a prompt, and, to write, one pass over the weights for
each token of all calls together. How much of a GPU's peak is reached is measured for 135M and assumed for the others.

    python -m jade.cluster.sizing
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GIGA = 1e9
QUESTIONS = 100_000
BATCH_TOKENS = 16384
"""`learn.policy.tokens_per_batch`, as it is unless it is set."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A language model, as far as it costs."""

    name: str
    weights: float
    layers: int
    width: int
    key_value_width: int
    """Key-value heads times their width."""
    feed_forward: int

    @property
    def cache_bytes_per_token(self) -> float:
        """Keys and values in bfloat16."""
        return 2 * 2 * self.layers * self.key_value_width


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_bytes: float
    flops: float
    """bfloat16 operations a second, dense."""
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Reached:
    """Shares of a GPU's peak."""

    learning: float
    reading: float
    writing: float
    """Of the memory's speed."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one question is: calls of the team, and tokens of a call."""

    calls: float = 6.1
    prompt_tokens: float = 525.0
    new_tokens: float = 47.0
    in_flight: int = 512

    @property
    def call_tokens(self) -> float:
        return self.prompt_tokens + self.new_tokens


H200 = Gpu("H200", 141 * GIGA, 989e12, 4.8e12)
MODELS = (
    Shape("1.5B", 1.54e9, 28, 1536, 256, 8960),
    Shape("7B", 7.62e9, 28, 3584, 512, 18944),
    Shape("32B", 32.8e9, 64, 5120, 1024, 27648),
)
"""Qwen2.5's shapes."""
SMOLLM2 = Shape("135M", 134.5e6, 30, 576, 192, 1536)
MEASURED = Reached(learning=0.40, reading=0.49, writing=0.40)
"""SmolLM2-135M on an H200, an adapter trained with the fused layers: docs/results/speed.md. Reading and writing are 43
and 52 % of the time at 1,517 calls a second; the shares are those that give these."""
ASSUMED = Reached(learning=0.40, reading=0.50, writing=0.60)
"""Usual for FSDP and vLLM at 1.5B and above; not measured by us."""


def training_bytes(shape: Shape, *, separate_critic: bool) -> float:
    """Weights, gradients and Adam's moments in float32, of the policy and of a critic that is a model of its own."""
    return 16 * shape.weights * (2 if separate_critic else 1)


def adapter_bytes(shape: Shape, rank: int = 16) -> float:
    """A frozen float32 policy, and adapters on its seven matrices a layer with their gradients and moments."""
    # In and out of q and o (4 widths), of k and v (2 and 2 key-value widths), of gate, up and down (3 and 3 of theirs).
    ends = 9 * shape.width + 2 * shape.key_value_width + 3 * shape.feed_forward
    adapter = rank * shape.layers * ends
    return 4 * shape.weights + 16 * adapter


def sampling_bytes(shape: Shape, work: Work) -> float:
    """Weights in bfloat16, and keys and values of the calls in flight."""
    return 2 * shape.weights + work.in_flight * work.call_tokens * shape.cache_bytes_per_token


def activation_bytes(shape: Shape, tokens: int, *, recompute: bool) -> float:
    """Of one batch in bfloat16: every layer's input if it is computed again, else about 34 numbers a unit of width."""
    return tokens * shape.width * shape.layers * (2 if recompute else 34)


def learning_tokens_per_second(shape: Shape, gpu: Gpu, reached: Reached) -> float:
    """Forward and backward of the policy, its value head included."""
    return reached.learning * gpu.flops / (6 * shape.weights)


def calls_per_second(shape: Shape, gpu: Gpu, reached: Reached, work: Work) -> float:
    """Rollout calls: prompts are read at the speed of arithmetic, answers written at the speed of memory."""
    reading = work.prompt_tokens * 2 * shape.weights / (reached.reading * gpu.flops)
    cache = work.in_flight * work.call_tokens * shape.cache_bytes_per_token
    step = (2 * shape.weights + cache) / (reached.writing * gpu.bytes_per_second)
    return 1 / (reading + work.new_tokens * step / work.in_flight)


def iteration_seconds(
    shape: Shape, gpu: Gpu, reached: Reached, work: Work, questions: float, num_gpus: int
) -> tuple[float, float]:
    """Rollout and update of so many questions, shared out over GPUs without loss."""
    calls = questions * work.calls
    rollout = calls / calls_per_second(shape, gpu, reached, work)
    update = calls * work.call_tokens / learning_tokens_per_second(shape, gpu, reached)
    return rollout / num_gpus, update / num_gpus


def fewest_gpus(shape: Shape, gpu: Gpu, work: Work, *, separate_critic: bool) -> int:
    """GPUs over which training and sampling fit together, a tenth of each left free; powers of two."""
    num_gpus = 1
    while _bytes_per_gpu(shape, work, num_gpus, separate_critic) > 0.9 * gpu.memory_bytes:
        num_gpus *= 2
    return num_gpus


def _bytes_per_gpu(shape: Shape, work: Work, num_gpus: int, separate_critic: bool) -> float:
    spread = training_bytes(shape, separate_critic=separate_critic) + sampling_bytes(shape, work)
    return spread / num_gpus + activation_bytes(shape, BATCH_TOKENS, recompute=True)


COLUMNS = (
    "model",
    "train, value head",
    "train, own critic",
    "train, LoRA",
    "sample, 512 calls",
    "GPUs at least",
    "learn, tokens/s a GPU",
    "calls/s a GPU",
    "hours, 1 GPU",
    "hours, 8 GPUs",
)


def table(gpu: Gpu = H200, work: Work | None = None) -> Iterator[str]:
    """The sizing table, in Markdown."""
    work = work or Work()
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for shape, reached in ((SMOLLM2, MEASURED), *((shape, ASSUMED) for shape in MODELS)):
        yield f"| {' | '.join(_cells(shape, gpu, reached, work))} |"


def _cells(shape: Shape, gpu: Gpu, reached: Reached, work: Work) -> Sequence[str]:
    hours = [sum(iteration_seconds(shape, gpu, reached, work, QUESTIONS, n)) / 3600 for n in (1, 8)]
    return (
        shape.name,
        f"{training_bytes(shape, separate_critic=False) / GIGA:,.0f} GB",
        f"{training_bytes(shape, separate_critic=True) / GIGA:,.0f} GB",
        f"{adapter_bytes(shape) / GIGA:,.0f} GB",
        f"{sampling_bytes(shape, work) / GIGA:,.0f} GB",
        str(fewest_gpus(shape, gpu, work, separate_critic=False)),
        f"{learning_tokens_per_second(shape, gpu, reached):,.0f}",
        f"{calls_per_second(shape, gpu, reached, work):,.0f}",
        *(f"{value:,.1f}" if value >= 0.1 else "below 0.1" for value in hours),
    )


if __name__ == "__main__":
    print("\n".join(table()))
