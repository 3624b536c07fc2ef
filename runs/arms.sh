#!/bin/sh
# Joint against apart: every arm begins with the same warm start and gets the same number of updates on the same number
# of rollouts; each is tested once, at its last iteration. Run it where `data/` is (see runs/joint.toml); the warm start
# itself, merged, is data/light-model.
#   runs/arms.sh OUT [SEEDS] [LIMIT] [further options of jade train]
# Killed and started again, it goes on where it was.
set -eu
out=$1 seeds=${2:-"0 1"} limit=${3:-500}
[ $# -gt 3 ] && shift 3 || shift $#
jade=${JADE:-jade}

train() { # NAME SEED ROLES [options]
  name=$1 seed=$2 roles=$3
  shift 3
  run=$out/train/$name-$seed
  resume=""
  [ -f "$run/config.toml" ] && resume=--resume
  $jade train runs/joint.toml --out "$run" $resume --set "seed=$seed" --set "learn.train_roles=$roles" "$@"
  [ -d "$out/model/$name-$seed" ] || $jade export "$run" --out "$out/model/$name-$seed" --merge --dtype bfloat16 --checkpoint newest
}

test_on() { # NAME MODEL
  $jade eval --benchmark all --data data --index data/index-eval --model "$2" --limit "$limit" --out "$out/test/$1" \
    --concurrency 512 --set backbone.max_batch=512
}

pooled=""
for seed in $seeds; do
  train joint "$seed" '["P","QDS","QDP","QR","DS","AG","AS"]' "$@"
  train planner-only "$seed" '["P"]' "$@"
  train executors-only "$seed" '["QDS","QDP","QR","DS","AG","AS"]' "$@"
  for arm in joint planner-only executors-only; do
    test_on "$arm-$seed" "$out/model/$arm-$seed"
    pooled="$pooled $arm=$out/test/$arm-$seed"
  done
done
test_on warm-start data/light-model
test_on untrained smollm2-135m
$jade report $pooled warm-start="$out/test/warm-start" untrained="$out/test/untrained" --baseline joint --out "$out/report"
