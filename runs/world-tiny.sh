#!/bin/sh
# All of learning on a laptop, in about a quarter of an hour for each seed on one idle core: a world, a model made from
# nothing, a warm start from gold data, joint PPO, and the same run with a learning rate of 0 as its control.
#   SEEDS="0 1 2" runs/world-tiny.sh
# Killed and started again, it goes on where it was.
set -eu
out=out/world-tiny
python=${PYTHON:-.venv/bin/python}
runs=
mkdir -p "$out"
"$python" -m jade world --out "$out/world" --pages 60 --questions 150 --seed 0
"$python" -m jade index "$out/world/pages" --out "$out/index"
"$python" -m jade.learn.tiny "$out/model" "$out/world"
"$python" -m jade warmstart runs/world-tiny-warm.toml --out "$out/warm" --resume
for seed in ${SEEDS:-0}; do
  "$python" -m jade train runs/world-tiny.toml --out "$out/ppo-$seed" --resume --set seed="$seed"
  "$python" -m jade train runs/world-tiny.toml --out "$out/control-$seed" --resume --set seed="$seed" \
    --set learn.ppo.learning_rate=0.0 --set learn.ppo.epochs=1
  runs="$runs $out/ppo-$seed $out/control-$seed"
done
# shellcheck disable=SC2086  # one argument for each run
"$python" -m jade plot $runs --out "$out/plots"
