"""How much of a training run's rollouts a GPU would spend waiting for the host, measured without one.

The real team, the real engine of the local backbone, tokenizer, event loop, index and threads work before a device that
only keeps time: a prefill and a decode step take as long as a table below says (an H200 with SmolLM2-135M), and roles
write what a script has them write. What the device idles then is the host's doing, or that of steps which wait for each
other: before a device that is many times slower (`--slower 8`) hardly anything but the latter is left. With `--spare`
every iteration is made twice, and the second time texts and queries are looked up and slept for: as where there are
processors to spare for tokenizer and index, so that what is left is what holds the interpreter's lock.

    python benchmarks/rollouts.py --index data/index-train data/2wiki.train.jsonl.gz data/popqa.train.jsonl.gz
        [--model smollm2-135m] [--repeats 4] [--slower 1] [--spare]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoTokenizer

from jade.backbone.chat import ChatFormat
from jade.backbone.local.backbone import SWITCH_SECONDS
from jade.backbone.local.collector import spare_collector
from jade.backbone.local.driver import ThreadDriver
from jade.backbone.local.engine import Engine, Limits
from jade.backbone.local.graphs import row_bucket
from jade.backbone.local.job import Job, Ticket, as_words
from jade.backbone.local.lane import SlotPlan
from jade.backbone.local.packing import Admission, pack
from jade.backbone.local.runner import copy_to_twins
from jade.backbone.local.sampling import Draw
from jade.backbone.local.slots import CacheShape, Copy, Report, Slots
from jade.backbone.weights import resolve_weights
from jade.config import Config, LearnConfig, SamplingConfig, TeamConfig
from jade.engine.rollout import rollout
from jade.learn.questions import QuestionStream, read_question_file
from jade.learn.train import make_jobs
from jade.retrieval.batching import BatchedRetriever, Searcher
from jade.retrieval.bm25 import open_bm25
from jade.retrieval.index import BM25, open_index
from jade.team.crew import Cast, Crew
from jade.team.team import Team, build_team
from jade.types import Generation, Passage, Prompt, Question, Sampling, Trace

SECONDS_PER_TOKEN = 22.5e-3 / 32768
"""Of a prefill, beside `PREFILL_SECONDS`."""
PREFILL_SECONDS = 0.3e-3
STEP_SECONDS = 0.77e-3
SECONDS_PER_ROW = 1.9e-3 / 512
"""Of a decode step, beside `STEP_SECONDS`, for each request that is not done."""
COPY_SECONDS = 0.03e-3
LAUNCH_SECONDS = 20e-6
"""How long a launch is away from the interpreter; on top comes what it takes to get back to it."""
TEXT_SECONDS = 0.06e-3
QUERY_SECONDS = 0.06e-3
"""What tokenising a prompt and searching for a query take where many processors share them."""
PLANS = {"QDS": 40, "R,AG": 22, "QDP": 16, "QR,R,AG": 12, "R,DS,AG": 6, "AG": 4}
"""What planners write, in a hundred."""
VARIETY = 3
"""Different outputs for one prompt: rollouts of a question part and meet again."""


class Device:
    """A queue of work that takes time and does nothing."""

    def __init__(self, slower: float = 1.0) -> None:
        self._slower = slower
        self.reset()

    def reset(self) -> None:
        self.until = 0.0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.launches: Counter[str] = Counter()

    @property
    def worked(self) -> float:
        return sum(self.seconds.values())

    def add(self, kind: str, seconds: float) -> None:
        self.until = max(time.perf_counter(), self.until) + self._slower * seconds
        self.seconds[kind] += self._slower * seconds
        self.launches[kind] += 1
        time.sleep(LAUNCH_SECONDS)


@dataclass(frozen=True, slots=True)
class Reached:
    """An event of the device's queue."""

    at: float

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.at - time.perf_counter()))


class TimedSlots(Slots):
    """Slots whose reports come when the device is there."""

    device: Device

    def report(self, num_slots: int) -> Report:
        plain = super().report(num_slots)
        return replace(plain, ready=Reached(self.device.until))

    @torch.inference_mode()
    def fill(self, groups: Sequence[tuple[Sequence[int], Tensor]]) -> None:
        super().fill(groups)
        for _ in groups:
            self.device.add("fill", COPY_SECONDS)

    @torch.inference_mode()
    def copy(self, copies: Sequence[Copy]) -> None:
        super().copy(copies)
        if copies:
            self.device.add("copy", 2e-6 * len(copies) + COPY_SECONDS)


class Script:
    """What roles write, by the prompt and the draw: token ids that end the turn."""

    def __init__(self, chat: ChatFormat, team: Team, questions: Sequence[Question]) -> None:
        draw = Random(0)
        texts = [question.text for question in questions]
        names = [question.answers[0] for question in questions if question.answers]
        pairs = [(draw.choice(texts), draw.choice(texts)) for _ in range(400)]
        splits = [f"<q1>{_short(one)}</q1><q2>{_short(two)} #1</q2>" for one, two in pairs]
        answers = [f"<answer>{name}</answer>" for name in draw.sample(names, 400)]
        plans = [f"<workflow>{plan}</workflow>" for plan, share in PLANS.items() for _ in range(share)]
        said = {
            "P": plans,
            "QDS": splits,
            "QDP": splits,
            "QR": [f"<query>{_short(text)}</query>" for text in draw.sample(texts, 400)],
            "DS": ["<id>Document0</id>", "<id>Document0,Document2</id>", "<id>Document1,Document3</id>"],
            "AG": answers,
            "AS": answers,
        }
        self._said = {role: [chat.encode_reply(text) for text in texts] for role, texts in said.items()}
        prefixes = {role: chat.fixed_prefix(team.prompts[role]) for role in said}
        self._roles = {as_words(ids): role for role, ids in prefixes.items()}

    def write(self, row: bytes, seed: int) -> tuple[int, ...]:
        role = next(role for prefix, role in self._roles.items() if row.startswith(prefix))
        choices = self._said[role]
        # A plan follows the draw; what follows it also follows the prompt, so that equal ones often meet again.
        place = seed if role == "P" else int.from_bytes(hashlib.blake2b(row, digest_size=4).digest()) + seed % VARIETY
        return choices[place % len(choices)]


def _short(text: str) -> str:
    return " ".join(text.split()[:9])


class TimedRunner:
    """In the place of the model's runner: tells the slots what the script says, and the device how long it takes."""

    device = torch.device("cpu")
    max_positions = 8192
    vocabulary_size = 49152

    def __init__(self, clock: Device, chat: ChatFormat, script: Script) -> None:
        self._clock, self._script = clock, script
        self.eos_ids = (chat.tokenizer.eos_token_id,)
        self.adapters = self

    def activate(self, adapter: str | None) -> None:
        return None

    def resume_captures(self) -> None:
        return None

    def give_up_captures(self) -> None:
        return None

    def new_slots(self) -> Slots:
        slots = TimedSlots(CacheShape(1, 1, 4), self.device, torch.float32)
        slots.device = self._clock
        return slots

    def is_oversized(self, num_rows: int, num_jobs: int) -> bool:
        return row_bucket(num_rows) >= 2 * row_bucket(num_jobs)

    def prefill(self, slots: Slots, admitted: Sequence[Admission], allowed: Tensor | None = None) -> None:
        words, shape = pack(admitted, slots.num_positions)
        torch.from_numpy(words).clone()[: len(admitted)]
        copy_to_twins(slots, admitted)
        token_SM, limit_S, count_S, done_S = _arrays(slots)
        for one in admitted:
            ids = self._script.write(one.row, one.sampling.seed)[: one.limit]
            token_SM[one.slot, : len(ids)] = ids
            limit_S[one.slot], count_S[one.slot], done_S[one.slot] = len(ids), 1, len(ids) <= 1
        self._clock.add("prefill", PREFILL_SECONDS + SECONDS_PER_TOKEN * shape.num_tokens)

    def decode(
        self,
        slots: Slots,
        num_rows: int,
        num_positions: int,
        how: Draw,
        allowed: Tensor | None = None,
        num_steps: int = 1,
    ) -> None:
        _, limit_S, count_S, done_S = (field[:num_rows] for field in _arrays(slots))
        seconds = 0.0
        for _ in range(num_steps):
            seconds += STEP_SECONDS + SECONDS_PER_ROW * (num_rows - int(done_S.sum()))
            count_S += ~done_S
            done_S |= count_S >= limit_S
        self._clock.add("decode", seconds)


def _arrays(slots: Slots) -> tuple[NDArray[Any], ...]:
    """By numpy, to cost the host little: on a GPU all this is one launch."""
    return tuple(field.numpy() for field in (slots.token, slots.limit, slots.num_sampled, slots.done))


class TimedBackbone:
    """The local backbone's engine and threads, without its model."""

    def __init__(self, runner: Any, chat: ChatFormat, max_batch: int) -> None:
        plan = SlotPlan(max_batch, 1024, reports_behind=1)
        limits = Limits(max_batch, 1280, 32768, fewest_tokens=4096, steps_per_check=4, plan=plan)
        self.engine = Engine(runner, chat, limits)
        self.driver = ThreadDriver(self.engine, lambda: None)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        job = Job(prompt, sampling, None, Ticket.here())
        self.driver.submit(job)
        generation: Generation = await job.ticket.future
        return generation

    async def renew(self, version: int) -> None:
        ticket = Ticket.here()
        self.driver.update(lambda: version, ticket)
        await ticket.future

    async def close(self) -> None:
        await self.driver.close()


class KnownTexts(ChatFormat):
    """Tokenises in earnest what is new; what is known takes a while and no processor."""

    def __init__(self, tokenizer: Any, spare: bool) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, tuple[int, ...]] | None = {} if spare else None

    def _read_by(self, backend: Any, texts: list[str]) -> list[tuple[int, ...]]:
        known = self._known
        if known is None:
            return super()._read_by(backend, texts)
        new = [text for text in texts if text not in known]
        known.update(zip(new, super()._read_by(backend, new), strict=True))
        time.sleep(0 if new else TEXT_SECONDS * len(texts))
        return [(*known[text],) for text in texts]


class KnownQueries:
    """The same for searches."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._known: dict[str, list[Passage]] = {}

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        new = [query for query in queries if query not in self._known]
        self._known.update(zip(new, self._searcher.find(new, k), strict=True))
        time.sleep(0 if new else QUERY_SECONDS * len(queries))
        return [self._known[query] for query in queries]

    def close(self) -> None:
        self._searcher.close()


def processor_seconds() -> dict[str, float]:
    """By thread, or kind of thread."""
    found: defaultdict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        if thread.ident:
            name = thread.name.rstrip("0123456789_-")
            found[name] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return found


def describe(traces: Sequence[Trace], seconds: float, clock: Device, spent: dict[str, float]) -> str:
    calls = sum(trace.usage.calls for trace in traces)
    device = ", ".join(f"{kind} {1e3 * clock.seconds[kind]:.0f} ms in {n}" for kind, n in clock.launches.items())
    host = ", ".join(f"{name} {1e3 * took:.0f}" for name, took in spent.items() if took > 2e-3)
    return f"{seconds:.3f} s, {calls} calls, device {clock.worked / seconds:.0%} busy ({device}); host ms: {host}"


async def work(args: argparse.Namespace, crew: Crew, backbone: TimedBackbone, clock: Device) -> None:
    stream = QuestionStream([read_question_file(path) for path in args.questions], seed=0, balance=True)
    cfg = Config(learn=LearnConfig(rollouts=args.rollouts))
    for number in range(args.repeats):
        jobs = make_jobs(stream.draw(number, args.num_questions), cfg, number)
        for again in range(2 if args.spare else 1):
            await backbone.renew(number)
            clock.reset()
            before, started = processor_seconds(), time.perf_counter()
            traces = await rollout(jobs, crew, concurrency=len(jobs))
            seconds = time.perf_counter() - started
            spent = {name: now - before.get(name, 0.0) for name, now in processor_seconds().items()}
            if again or not args.spare:
                print(describe(traces, seconds, clock, spent), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, nargs="+")
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--num-questions", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--spare", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    chat = KnownTexts(AutoTokenizer.from_pretrained(resolve_weights(args.model)), args.spare)
    team = build_team(TeamConfig(child_workflows=("R,AG",)))
    clock = Device(args.slower)
    script = Script(chat, team, [question for path in args.questions for question in read_question_file(path)])
    backbone = TimedBackbone(TimedRunner(clock, chat, script), chat, args.max_batch)
    index = open_index(args.index)
    searcher: Searcher = open_bm25(index, index.part(BM25))
    retriever = BatchedRetriever(KnownQueries(searcher) if args.spare else searcher)
    crew = Crew(team, Cast(backbone), retriever, sampling=SamplingConfig(temperature=0.7, role_temperature={"P": 1.0}))
    sys.setswitchinterval(SWITCH_SECONDS)
    spare_collector()

    async def run() -> None:
        await work(args, crew, backbone, clock)
        await crew.cast.close()
        await retriever.close()

    asyncio.run(run())


if __name__ == "__main__":
    main()
