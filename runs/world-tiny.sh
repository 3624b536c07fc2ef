#!/bin/sh
# All of learning on a laptop, in about a quarter of an hour on one core: a world, a model made from nothing, a warm
# start from gold data, joint PPO, and the same run with a learning rate of 0 as its control.
set -eu
out=out/world-tiny
python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"
"$python" -m jade world --out "$out/world" --pages 60 --questions 150 --seed 0
"$python" -m jade index "$out/world/pages" --out "$out/index"
"$python" -m jade.learn.tiny "$out/model" "$out/world"
"$python" -m jade warmstart runs/world-tiny-warm.toml --out "$out/warm"
"$python" -m jade train runs/world-tiny.toml --out "$out/ppo"
"$python" -m jade train runs/world-tiny.toml --out "$out/control" --set learn.ppo.learning_rate=0.0
"$python" -m jade plot "$out/ppo"
