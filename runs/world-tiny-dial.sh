#!/bin/sh
# The dial on a laptop, after world-tiny.sh: the warm-started tiny model is shown prices, the team learns under them, and
# one policy is measured at five efforts. The curve is F1 against retrievals in the report. All roles learn: where the
# planner alone moved the weights that all share, the other roles forgot theirs.
set -eu
out=out/world-tiny
python=${PYTHON:-.venv/bin/python}
dial="--set reward.alpha=0.0 --set reward.beta=0.0 --set reward.dial=1.0"
head -n 16 "$out/world/questions.train.jsonl" > "$out/sixteen.jsonl"
"$python" -m jade warmstart runs/world-tiny-warm.toml --out "$out/warm-dial" --set backbone.model="$out/warm/model" \
  --set reward.dial=1.0 --set warmstart.epochs=4 --set warmstart.learning_rate=5e-4
# shellcheck disable=SC2086  # three settings
"$python" -m jade train runs/world-tiny.toml --out "$out/dial" --set backbone.model="$out/warm-dial/model" $dial \
  --set learn.questions="['$out/sixteen.jsonl']" --set learn.per_file=0 --set learn.questions_per_iteration=16 \
  --set learn.iterations=60
"$python" -m jade export "$out/dial" --out "$out/dial-model" --checkpoint newest
# shellcheck disable=SC2086
"$python" -m jade eval --benchmark "$out/sixteen.jsonl" --config runs/world-tiny.toml --model "$out/dial-model" $dial \
  --effort 0,0.25,0.5,0.75,1 --out "$out/curve"
"$python" -m jade report "$out"/curve/effort-* --out "$out/curve-report"
