"""The update: one iteration's transitions, all roles mixed, improve the one policy (Algorithm 2, phase 2).

A seeded shuffle cuts the transitions into mini-batches. Each mini-batch is one optimiser step, computed in pieces that
fit into memory. A step whose loss or gradient is not finite is never taken, nor is any after it.

Shapes: N = action tokens of a piece.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from jade.config import LearnConfig, PPOConfig
from jade.learn.batches import Batch, cut_evenly, length_of, make_batch, plan_shares, send
from jade.learn.credit.base import Credit, Floats, apart
from jade.learn.credit.rules import assign_credit, find_rule
from jade.learn.loss import Now, Old, approx_kl, explained_variance, ppo_loss, token_weights
from jade.learn.monitor.moment import Moment
from jade.learn.monitor.tally import Tally
from jade.learn.optimise import Steps, make_optimiser, set_step_size
from jade.learn.policy import Policy
from jade.learn.ranks import num_ranks, rank
from jade.learn.shards import add_up, rest, shard
from jade.learn.transitions import Experience

GAP_SAMPLE = 64
"""Transitions on which sampler and learner are compared, where nothing else needs a pass before the update."""

AFTER_SAMPLE = 64
"""Transitions on which the updated policy is compared with the one that sampled. A pass over all of them would cost a
good part of an update."""

LAST_SHARE = 0.1
"""Share of the step size that is left in the last iteration when it decays."""


@dataclass(frozen=True, slots=True)
class Before:
    """What policy, critic and reference said of the transitions before the update."""

    rows: range
    """The transitions that were asked about: all, or a sample where nothing needs them all."""
    logps: tuple[Floats, ...]
    values: tuple[Floats, ...]
    reference_logps: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """A look back at the transitions that the device may not have finished yet."""

    rows: range
    found: list[tuple[tuple[int, ...], tuple[Tensor | None, ...]]]
    """For each piece its transitions, and their log-probs, values and reference log-probs, where there are any."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The optimiser steps of an update."""

    credit: Credit
    steps: tuple[Sequence[int], ...]
    """The transitions of each optimiser step."""
    pieces: Iterable[Batch]
    """Of the first step. One is made at once, so that the device has work while the others are made."""


class Learner:
    """A policy with its optimiser. `scale` shrinks the step size; the guard lowers it when it rolls back."""

    def __init__(self, policy: Policy, cfg: LearnConfig) -> None:
        self.policy = policy
        self.cfg = cfg
        self.scale = 1.0
        self._rule = find_rule(cfg.credit.rule)
        """Loaded once: a run keeps the rule it began with, even if the file that holds it changes."""
        self.reference = _frozen_copy(policy) if cfg.ppo.kl_weight > 0 else None
        shard(policy)
        if self.reference is not None:
            shard(self.reference)
        self.optimiser = make_optimiser(
            [
                ([p for _, p in policy.policy_parameters()], cfg.ppo.learning_rate),
                ([p for _, p in policy.critic_parameters()], cfg.ppo.critic_learning_rate),
            ]
        )

    def update(self, experience: Experience, *, iteration: int, seed: int) -> dict[str, float]:
        """Improve the policy on the experience; the figures say what happened, over all roles and for each.

        The order keeps the device busy: the host prepares while the device works, and reads nothing from it between the
        look back and the end.
        """
        if not experience.transitions:
            return {}
        started = Moment(self.policy.device)
        look = self._look(experience)
        if self.policy.value_head is None:  # credit needs no values: plan while the device is still looking back
            plan = self._plan(experience, _zeros(experience), seed)
            before, looked = self._read(experience, look), Moment(self.policy.device)
        else:  # credit needs what the critic said
            before, looked = self._read(experience, look), Moment(self.policy.device)
            plan = self._plan(experience, before.values, seed)
        credit, pieces = plan.credit, plan.pieces
        set_step_size(self.optimiser, self.scale * step_share(iteration, self.cfg))
        tally = Tally(sorted({experience.transitions[row].role for row in credit.rows}), self.policy.device)
        taken = Steps(self.optimiser, self.cfg.ppo.gradient_clip)
        for rows, following in zip(plan.steps, [*plan.steps[1:], ()], strict=False):
            tally.begin_step()
            loss = self._accumulate(experience, rows, pieces, before, credit, tally)
            # Some optimisers wait for the device, so the next step's pieces are made first.
            pieces = list(self._pieces(experience, following)) if following else ()
            taken.take(add_up(loss))
        stepped = Moment(self.policy.device)
        kl_after = self._kl_after(experience, credit.rows)
        of_before = _agreement(experience, before) | _fit_of_values(experience, before, credit)
        norms = taken.norms()
        seen = tally.figures(norms) | {"kl_after": _mean(kl_after)} if credit.rows else {}
        return {
            **seen,
            **of_before,
            **_spread_of_credit(experience, credit),
            "left_out": 1 - len(credit.rows) / len(experience.transitions),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "seconds_look_back": started.until(looked),
            "seconds_update": looked.until(stepped),
            "seconds_look_after": stepped.until(Moment(self.policy.device)),
        }

    def look_back(self, experience: Experience) -> Before:
        """What policy, critic and reference say of the transitions before the update."""
        return self._read(experience, self._look(experience))

    @torch.no_grad()
    def _look(self, experience: Experience) -> _Look:
        """Start the look back on the device, without waiting for the result."""
        num = len(experience.transitions)
        needed = self.policy.value_head is not None or self.reference is not None
        look = _Look(range(num if needed else min(num, GAP_SAMPLE)), [])
        with self.policy.unmoved(), nullcontext() if self.reference is None else self.reference.unmoved():
            for batch in self._pieces(experience, look.rows):
                now = self._now(self.policy, experience, batch)
                reference_N = None if self.reference is None else self._now(self.reference, experience, batch).logp_N
                if not batch.idle:
                    look.found.append((batch.rows, (now.logp_N, now.value_N, reference_N)))
        rest(self.policy)
        return look

    def _read(self, experience: Experience, look: _Look) -> Before:
        """The result of a look back; waits for the device."""
        columns = tuple(list(_zeros(experience)) for _ in range(3))
        for rows, found in look.found:
            for found_N, column in zip(found, columns, strict=True):
                _scatter(found_N, rows, column)
        return Before(look.rows, *(_from_all_ranks(column, self.policy.device) for column in columns))

    def _plan(self, experience: Experience, values: Sequence[Floats], seed: int) -> _Plan:
        credit = self._credit(experience, values)
        steps = tuple(_minibatches(experience, credit.rows, self.cfg.ppo, seed))
        pieces = self._pieces(experience, steps[0]) if steps else iter(())
        return _Plan(credit, steps, chain(list(islice(pieces, 1)), pieces))

    def _credit(self, experience: Experience, values: Sequence[Floats]) -> Credit:
        ppo = self.cfg.ppo
        alone = self.policy.value_head is None and ppo.kl_weight == 0
        roles = {call.role for call in experience.transitions}
        bonus_roles = {role for role in roles if ppo.role_entropy.get(role, ppo.entropy_weight) > 0}
        return assign_credit(
            experience,
            values,
            self.cfg.credit,
            rule=self._rule,
            nothing_else_teaches=alone,
            bonus_roles=bonus_roles,
        )

    def _accumulate(
        self,
        experience: Experience,
        rows: Sequence[int],
        pieces: Iterable[Batch],
        before: Before,
        credit: Credit,
        tally: Tally,
    ) -> Tensor:
        """Add up the gradient of one optimiser step, piece by piece; gives this process's part of the loss."""
        calls = [experience.transitions[row] for row in rows]
        lengths, roles = [len(call.action_ids) for call in calls], [call.role for call in calls]
        counts = token_weights(lengths, roles, self.cfg.ppo.weigh, self.cfg.ppo.role_weight)
        weights = dict(zip(rows, counts, strict=True))
        total = torch.zeros((), device=self.policy.device)
        with self.policy.unmoved():
            for batch in pieces:
                total += self._backward(experience, batch, before, credit, weights, tally)
        return total

    def _backward(
        self,
        experience: Experience,
        batch: Batch,
        before: Before,
        credit: Credit,
        weights: Mapping[int, float],
        tally: Tally,
    ) -> Tensor:
        """Add one piece's gradient; gives its part of the loss."""
        now = self._now(self.policy, experience, batch)
        old = self._old(experience, batch, before, credit)
        loss = ppo_loss(now, old, self.cfg.ppo, self._entropy_weight(experience, batch))
        counted = 0.0 if batch.idle else 1.0
        # An idle batch has its backward pass too, with weights of zero: the others wait for it.
        (weighted,) = self._tokens([np.full_like(before.values[row], counted * weights[row]) for row in batch.rows])
        piece: Tensor = (weighted * loss.total_N).sum()
        # Token weights sum to 1 over all processes, but gradients are averaged over them.
        torch.autograd.backward(num_ranks() * piece)
        if not batch.idle:
            tally.add(loss, batch, [experience.transitions[row] for row in batch.rows])
        return piece.detach()

    @torch.no_grad()
    def _kl_after(self, experience: Experience, rows: Sequence[int]) -> Tensor:
        """How far all steps together have moved the policy from the one that sampled, on a sample of the rows: the sum
        over tokens, and their number. The KL of a mini-batch is taken before its own step, so it cannot show that."""
        summed = torch.zeros(2, device=self.policy.device)
        with self.policy.unmoved():
            for batch in self._pieces(experience, _spaced(rows, AFTER_SAMPLE)) if rows else ():
                (old_N,) = self._tokens([np.array(experience.transitions[row].logprobs) for row in batch.rows])
                kl_N = approx_kl(self._now(self.policy, experience, batch).logp_N, old_N)
                if not batch.idle:
                    summed += torch.stack([kl_N.sum(), torch.ones_like(kl_N).sum()])
        rest(self.policy)
        return add_up(summed)

    def _pieces(self, experience: Experience, rows: Sequence[int]) -> Iterator[Batch]:
        """This process's share of the rows, as batches on the device. Every process gets the same number of batches."""
        calls = [experience.transitions[row] for row in rows]
        # A process with nothing left to do works the shortest call once more, so that it takes part when weights are
        # gathered; the batch is marked idle and counts nowhere.
        shortest = min(range(len(rows)), key=lambda index: length_of(calls[index]))
        size, share = self.cfg.policy.tokens_per_batch, self.cfg.policy.share_prompts
        for plan in plan_shares(calls, size, num_ranks(), share=share)[rank()]:
            batch = make_batch(experience.transitions, [rows[index] for index in plan or (shortest,)], share=share)
            yield replace(batch, idle=not plan).to(self.policy.device)

    def _now(self, policy: Policy, experience: Experience, batch: Batch) -> Now:
        temperature = self._temperature(experience, batch)
        ppo = self.cfg.ppo
        now: Now = policy(batch, temperature, entropy_gradient=ppo.entropy_weight > 0 or bool(ppo.role_entropy))
        return now

    def _temperature(self, experience: Experience, batch: Batch) -> float | Tensor:
        """The temperature at which the batch's tokens were drawn: one number, or a column where roles differ."""
        if not self.cfg.role_temperature:
            return self.cfg.temperature
        return self._by_role(experience, batch, self.cfg.role_temperature, self.cfg.temperature).unsqueeze(1)

    def _entropy_weight(self, experience: Experience, batch: Batch) -> float | Tensor:
        if not self.cfg.ppo.role_entropy:
            return self.cfg.ppo.entropy_weight
        return self._by_role(experience, batch, self.cfg.ppo.role_entropy, self.cfg.ppo.entropy_weight)

    def _by_role(self, experience: Experience, batch: Batch, own: Mapping[str, float], shared: float) -> Tensor:
        """A setting that some roles have values of their own for, token by token."""
        calls = [experience.transitions[row] for row in batch.rows]
        return self._tokens([np.full(len(call.action_ids), own.get(call.role, shared)) for call in calls])[0]

    def _old(self, experience: Experience, batch: Batch, before: Before, credit: Credit) -> Old:
        found = [
            [np.array(experience.transitions[row].logprobs) for row in batch.rows],
            *([column[row] for row in batch.rows] for column in (before.values, credit.advantages, credit.returns)),
        ]
        if self.reference is not None:
            found.append([before.reference_logps[row] for row in batch.rows])
        return Old(*self._tokens(*found))

    def _tokens(self, *columns: Sequence[Floats]) -> Tensor:
        """Per-token figures of transitions as tensors on the device, one row for each column, in one transfer."""
        together = np.stack([np.concatenate(column) for column in columns])
        return send(torch.from_numpy(together).float(), self.policy.device)


def _frozen_copy(policy: Policy) -> Policy:
    """The policy as it is now. Its critic is left out: nobody asks a reference what it expects to earn."""
    reference = copy.deepcopy(policy).eval()
    reference.drop_critic()
    return reference.requires_grad_(False)


def step_share(iteration: int, cfg: LearnConfig) -> float:
    """The share of the full step size in an iteration: a function of the iteration alone, so that a run can resume."""
    risen = min(1.0, (iteration + 1) / max(1, cfg.ppo.warmup))
    if cfg.ppo.decay == "none":
        return risen
    done = min(1.0, iteration / max(1, cfg.iterations - 1))
    return risen * (1 - (1 - LAST_SHARE) * done)


def _minibatches(experience: Experience, rows: Sequence[int], cfg: PPOConfig, seed: int) -> Iterator[list[int]]:
    """Each epoch shuffles anew and cuts into parts of about equally many tokens; few transitions give fewer parts.

    Calls are shuffled one by one or, with `whole_questions`, a question's calls together. A step then sees few
    questions, pulls in few directions, and has been seen to set off the guard.
    """
    shuffle = np.random.default_rng(seed)
    questions = sorted({experience.transitions[row].group for row in rows})
    for _ in range(cfg.epochs):
        order = shuffle.permutation(np.array(rows, dtype=np.int64)).tolist()
        if cfg.whole_questions:
            turns = dict(zip(questions, shuffle.permutation(len(questions)).tolist(), strict=True))
            order.sort(key=lambda row: turns[experience.transitions[row].group])
        parts = cut_evenly([length_of(experience.transitions[row]) for row in order], cfg.minibatches)
        yield from ([order[place] for place in part] for part in parts)


def _spaced(rows: Sequence[int], most: int) -> Sequence[int]:
    """At most so many of the rows, evenly spaced: neighbours are often of the same question."""
    return [rows[place * len(rows) // most] for place in range(most)] if len(rows) > most else rows


def _mean(summed: Tensor) -> float:
    """Of a sum and the number of its terms; waits for the device."""
    total, number = summed.tolist()
    return float(total / number)


def _zeros(experience: Experience) -> tuple[Floats, ...]:
    """A zero for every action token of every transition."""
    return tuple(np.zeros(len(call.action_ids)) for call in experience.transitions)


def _scatter(found_N: Tensor | None, rows: Sequence[int], into: list[Floats]) -> None:
    """Put a batch's per-token figures back to their transitions."""
    if found_N is None:
        return
    flat = found_N.double().cpu().numpy()
    for row, piece in zip(rows, apart(flat, (len(into[row]) for row in rows)), strict=True):
        into[row] = piece


def _from_all_ranks(found: list[Floats], device: torch.device) -> tuple[Floats, ...]:
    """Figures of all transitions, where each process has filled in its own part and left zeros elsewhere."""
    if num_ranks() == 1:
        return tuple(found)
    flat = add_up(torch.from_numpy(np.concatenate(found)).to(device)).cpu().numpy()
    return apart(flat, map(len, found))


def _agreement(experience: Experience, before: Before) -> dict[str, float]:
    """How far the learner's log-probs are from the sampler's before the update; ideally 0."""
    sampled = np.concatenate([np.array(experience.transitions[row].logprobs) for row in before.rows])
    gap = np.abs(np.concatenate([before.logps[row] for row in before.rows]) - sampled)
    return {"logp_gap": float(gap.mean()), "logp_gap_max": float(gap.max())}


def _fit_of_values(experience: Experience, before: Before, credit: Credit) -> dict[str, float]:
    roles = [call.role for call in experience.transitions]
    figures = {"explained_variance": _explained(before.values, credit.returns)}
    for role in sorted(set(roles)):
        rows = [row for row, of in enumerate(roles) if of == role]
        figures[f"explained_variance/{role}"] = _explained(
            [before.values[row] for row in rows], [credit.returns[row] for row in rows]
        )
    return figures


def _spread_of_credit(experience: Experience, credit: Credit) -> dict[str, float]:
    """The rule's advantages of what is learned from, before they are normalised: mean and deviation over tokens. A role
    whose calls all deserve the same has nothing to learn, and normalising blows up what little there is."""
    rows_of: dict[str, list[int]] = {"": list(credit.rows)}
    for row in credit.rows:
        rows_of.setdefault(f"/{experience.transitions[row].role}", []).append(row)
    figures: dict[str, float] = {}
    for part, rows in sorted(rows_of.items()) if credit.rows else ():
        tokens = np.concatenate([credit.given[row] for row in rows])
        figures |= {f"advantage{part}": float(tokens.mean()), f"advantage_std{part}": float(tokens.std())}
    return figures


def _explained(values: Sequence[Floats], returns: Sequence[Floats]) -> float:
    return explained_variance(torch.from_numpy(np.concatenate(values)), torch.from_numpy(np.concatenate(returns)))
