#!/bin/sh
# The dial on a laptop, after world-tiny.sh: the planner is shown prices and, beside the gold plans, other ones; then it
# learns under prices drawn for every question, and one policy is measured at five efforts on questions that this learning
# never saw (the warm start did: a model of this size remembers pages rather than reads them).
# A split of a question in two pays where it gains more F1 than the price p of turns and searches (5p/3 instead of 2p/3),
# one in three where it gains 4p/3. No answer earns more than 1, so the warm start shows no split that costs more than
# that: the planner learns to read prices, and reinforcement moves the limit to where splits really pay. With a dial of
# 1.6 the efforts 0, 0.25, 0.5, 0.75 and 1 mean prices of 1.6, 1.2, 0.8, 0.4 and 0. The executors keep the warm start's
# weights and hardly err by chance (temperature 0.2): what is left to see is what a plan earns.
# Killed and started again, it goes on where it was.
set -eu
tiny=out/world-tiny out=${OUT:-out/world-tiny/dial}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"
head -n 80 "$tiny/world/questions.train.jsonl" > "$out/seen.jsonl"
tail -n 40 "$tiny/world/questions.train.jsonl" > "$out/fresh.jsonl"
team="--set team.workflows=['QDS','QDP','R,AG'] --set team.child_workflows=['R,AG']"
frozen=
for role in QDS QDP QR DS AG AS; do
  for setting in "model='$tiny/warm/model'" "device='cpu'" inline=true threads=1 max_batch=128 max_prompt_tokens=1024; do
    frozen="$frozen --set roles.$role.$setting"
  done
done
# shellcheck disable=SC2086  # several settings
[ -d "$out/warm/model" ] || "$python" -m jade warmstart runs/world-tiny-warm.toml --out "$out/warm" --resume $team \
  --set backbone.model="$tiny/warm/model" --set reward.dial=1.6 --set 'warmstart.roles=["P"]' --set warmstart.passes=8 \
  --set warmstart.other_plans=0.2 --set warmstart.epochs=6 --set warmstart.learning_rate=1e-3
# shellcheck disable=SC2086
"$python" -m jade train runs/world-tiny.toml --out "$out/ppo" --resume $team $frozen --set backbone.model="$out/warm/model" \
  --set reward.alpha=0.0 --set reward.beta=0.0 --set reward.dial=1.6 --set learn.questions="['$out/seen.jsonl']" \
  --set learn.per_file=0 --set 'learn.train_roles=["P"]' --set learn.credit.rule=branch \
  --set 'learn.role_temperature={QDS=0.2,QDP=0.2,AG=0.2,AS=0.2}' \
  --set learn.iterations=30 --set learn.questions_per_iteration=32 \
  --set learn.ppo.learning_rate=3e-4 --set learn.ppo.epochs=2 --set learn.ppo.minibatches=2 --set learn.ppo.entropy_weight=0.01
[ -d "$out/ppo/model" ] || "$python" -m jade export "$out/ppo" --out "$out/ppo/model" --checkpoint newest
for name in warm ppo; do
  # shellcheck disable=SC2086
  "$python" -m jade eval --config runs/world-tiny.toml --benchmark "$out/fresh.jsonl,$out/seen.jsonl" $team $frozen \
    --model "$out/$name/model" --effort 0,0.25,0.5,0.75,1 --out "$out/curve-$name"
done
"$python" -m jade report "$out"/curve-ppo/effort-* --out "$out/report"
