"""The stability guard: it names what went wrong, and remembers what was normal.

| event | seen in |
|---|---|
| not finite | the update's loss or gradient (raised by the optimiser's steps) |
| kl | the update, before its last step and after it: the policy moved too far from the one that sampled |
| entropy | the update: the policy froze, or became noise |
| failures | the rollout: questions ended in errors, which teaches nothing |
| format | the rollout: the malformed share rose far over the lowest that its recent mean has been |
| collapse | the rollout: nearly all plans have become the same and the reward dropped, at once or little by little |

What to do about it is the training loop's business: go back to the last good checkpoint with a smaller step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from jade.config import GuardConfig
from jade.learn.monitor.figures import why_steps_failed
from jade.types import Trace

REMEMBERED = ("reward", "malformed", "top_plan")
EXTREMES = {"least_malformed": ("malformed", min), "least_top_plan": ("top_plan", min), "best_reward": ("reward", max)}
"""The lowest, or highest, that a recent mean has ever been. The recent mean alone would not show a slow change: it
follows it."""
BEYOND_CHANCE = 3.0
"""Standard errors of an iteration's reward that a drop must exceed: the questions drawn differ in how hard they are."""


class Alarm(Exception):
    """Something that went wrong, by name, with the figures that show it. Caught by the training loop alone."""

    def __init__(self, event: str, detail: str) -> None:
        super().__init__(f"{event}: {detail}")
        self.event = event
        self.detail = detail


class Guard:
    """Judges rollouts and updates. `recent` is its memory of good iterations, newest last."""

    def __init__(self, cfg: GuardConfig, recent: Sequence[Mapping[str, float]] = ()) -> None:
        self._cfg = cfg
        self.recent = [dict(figures) for figures in recent]

    def judge_rollout(self, figures: Mapping[str, float], traces: Sequence[Trace] = ()) -> None:
        """Raises an alarm when the team that sampled these traces has gone wrong."""
        if figures.get("failed", 0.0) > self._cfg.max_failed:
            why = next((trace.error for trace in traces if trace.error), "")
            raise Alarm("failures", f"{figures['failed']:.0%} of the questions ended in an error: {why}")
        if self.is_spoiled(figures):
            why = why_steps_failed(traces)
            raise Alarm("failures", f"{figures['failed_steps']:.0%} of the calls and searches failed: {why}")
        self._judge_format(figures)
        self._judge_plans(figures)

    def is_spoiled(self, figures: Mapping[str, float]) -> bool:
        """Whether so many steps failed that the figures say little about the team."""
        return figures.get("failed_steps", 0.0) > self._cfg.max_failed_steps

    def judge_update(self, figures: Mapping[str, float]) -> None:
        """Raises an alarm when the update went too far."""
        # The last mini-batch is seen before its own step, so that it never shows what that step, or an only one, did.
        for kl in (figures.get("last_kl", 0.0), figures.get("kl_after", 0.0)):
            if not kl <= self._cfg.max_kl:  # said so that a KL which is no number is refused too
                raise Alarm("kl", f"moved {kl:.3g} nats a token from the sampler, allowed are {self._cfg.max_kl:g}")
        entropy = figures.get("entropy")
        if entropy is not None and not self._cfg.min_entropy <= entropy <= self._cfg.max_entropy:
            bounds = f"{self._cfg.min_entropy:g} to {self._cfg.max_entropy:g}"
            raise Alarm("entropy", f"{entropy:.3g} nats a token, allowed are {bounds}")

    def remember(self, figures: Mapping[str, float]) -> None:
        """Take a good iteration into the memory."""
        kept = {name: figures[name] for name in REMEMBERED if name in figures}
        # Before the window moves on: the extreme so far may stand in the entry that is about to leave it.
        known = {extreme: self._extreme(extreme) for extreme in EXTREMES}
        self.recent = [*self.recent, kept][-self._cfg.window :]
        for extreme, (name, choose) in EXTREMES.items():
            usual, before = self._usual(name), known[extreme]
            if usual is not None:
                kept[extreme] = usual if before is None else choose(before, usual)

    def _judge_format(self, figures: Mapping[str, float]) -> None:
        usual, least, now = self._usual("malformed"), self._extreme("least_malformed"), figures.get("malformed", 0.0)
        if usual is not None and least is not None and now > least + self._cfg.malformed_rise:
            known = f"recently {usual:.0%}, at best {least:.0%}"
            raise Alarm("format", f"{now:.0%} of the outputs are malformed, {known}")

    def _judge_plans(self, figures: Mapping[str, float]) -> None:
        share, reward = figures.get("top_plan"), figures.get("reward", 0.0)
        if share is None or share < self._cfg.collapse_share:
            return
        drop = max(self._cfg.collapse_drop, BEYOND_CHANCE * figures.get("reward_error", 0.0))
        at_once = self._usual("top_plan"), self._usual("reward"), reward
        # One iteration says little beside the best of many; over a window the questions drawn even out.
        slowly = self._extreme("least_top_plan"), self._extreme("best_reward"), self._mean_with("reward", reward)
        for (usual_share, usual_reward, now), when in ((at_once, "recently"), (slowly, "at best")):
            if usual_share is None or usual_reward is None:
                return
            if usual_share < self._cfg.collapse_share and now < usual_reward - drop:
                raise Alarm(
                    "collapse",
                    f"{share:.0%} of the plans are the same, {when} {usual_share:.0%}, "
                    f"and the reward fell from {usual_reward:.3f} to {now:.3f}",
                )

    def _extreme(self, extreme: str) -> float | None:
        name, choose = EXTREMES[extreme]
        known = [figures[extreme] for figures in self.recent if extreme in figures]
        return choose(known) if known else self._usual(name)

    def _mean_with(self, name: str, now: float) -> float:
        """Of an iteration and as many before it as a window holds."""
        known = [figures[name] for figures in self.recent if name in figures]
        return fmean([*known, now][-self._cfg.window :])

    def _usual(self, name: str) -> float | None:
        known = [figures[name] for figures in self.recent if name in figures]
        return fmean(known) if known else None
