#!/bin/sh
# All of learning on a laptop, in about a quarter of an hour for each seed on one idle core: a world, a model made from
# nothing, a warm start from gold data, joint PPO (ppo), and the same run with a learning rate of 0 as its control.
#   SEEDS="0 1 2" runs/world-tiny.sh
#   ARMS="ppo planner-only executors-only" runs/world-tiny.sh    # joint against apart: the same rollouts and updates for
#                                                                # a half, while the other half speaks as it was taught
# Killed and started again, it goes on where it was.
set -eu
out=out/world-tiny
python=${PYTHON:-.venv/bin/python}
runs=
mkdir -p "$out"

frozen() { # ROLE …: who speaks with the warm start's weights; a role may not share the model that is being trained
  for role in "$@"; do
    for setting in "model='$out/frozen'" "device='cpu'" inline=true threads=1 max_batch=128 max_prompt_tokens=1024; do
      echo "--set roles.$role.$setting"
    done
  done
}

settings() { # ARM: what makes it another run
  case $1 in
    ppo) ;;
    control) echo "--set learn.ppo.learning_rate=0.0 --set learn.ppo.epochs=1" ;;
    planner-only) echo '--set learn.train_roles=["P"]' && frozen QDS QDP QR DS AG AS ;;
    executors-only) echo '--set learn.train_roles=["QDS","QDP","QR","DS","AG","AS"]' && frozen P ;;
    *) echo "runs/world-tiny.sh: no arm is called $1" >&2; exit 2 ;;
  esac
}

arms=${ARMS:-ppo control}
for arm in $arms; do settings "$arm" > /dev/null; done
"$python" -m jade world --out "$out/world" --pages 60 --questions 150 --seed 0
"$python" -m jade index "$out/world/pages" --out "$out/index"
"$python" -m jade.learn.tiny "$out/model" "$out/world"
"$python" -m jade warmstart runs/world-tiny-warm.toml --out "$out/warm" --resume
[ -d "$out/frozen" ] || cp -r "$out/warm/model" "$out/frozen"
for seed in ${SEEDS:-0}; do
  for arm in $arms; do
    # shellcheck disable=SC2046  # several options in one string
    "$python" -m jade train runs/world-tiny.toml --out "$out/$arm-$seed" --resume --set seed="$seed" $(settings "$arm")
    runs="$runs $out/$arm-$seed"
  done
done
# shellcheck disable=SC2086  # one argument for each run
"$python" -m jade plot $runs --out "$out/plots"
