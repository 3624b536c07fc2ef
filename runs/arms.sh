#!/bin/sh
# Joint against apart: every arm begins with the same warm start and gets the same number of updates on the same number
# of rollouts; each is tested once, at its last iteration. Roles that an arm does not train speak with the warm start's
# weights, in training and in the test: who shares weights with a role in training would change with it.
# Run it where `data/` is (see runs/joint.toml); the warm start itself, merged, is data/start-model.
#   runs/arms.sh OUT [SEEDS] [LIMIT] [further options of jade train]
# Killed and started again, it goes on where it was.
set -eu
out=$1 seeds=${2:-"0 1"} limit=${3:-500}
[ $# -gt 3 ] && shift 3 || shift $#
jade=${JADE:-jade}
# Sub-questions are asked in one round, in training and in the test: planners plan questions.
parts='team.child_workflows=["R,AG"]'

frozen() { # ARM: the settings of the roles that it does not train
  case $1 in planner-only) roles="QDS QDP QR DS AG AS" ;; executors-only) roles=P ;; *) roles= ;; esac
  for role in $roles; do
    echo "--set roles.$role.model=data/start-model --set roles.$role.max_batch=384 --set roles.$role.max_prompt_tokens=1280"
  done
}

trained() { # ARM: the roles that it trains
  case $1 in
    joint) echo '["P","QDS","QDP","QR","DS","AG","AS"]' ;;
    planner-only) echo '["P"]' ;;
    executors-only) echo '["QDS","QDP","QR","DS","AG","AS"]' ;;
  esac
}

train() { # ARM SEED [options]
  arm=$1 seed=$2
  shift 2
  run=$out/train/$arm-$seed
  resume=""
  [ -f "$run/config.toml" ] && resume=--resume
  # shellcheck disable=SC2046,SC2086  # several options in one string
  $jade train runs/joint.toml --out "$run" $resume --set "seed=$seed" --set "learn.train_roles=$(trained "$arm")" \
    --set "$parts" $(frozen "$arm") "$@"
  [ -d "$out/model/$arm-$seed" ] || $jade export "$run" --out "$out/model/$arm-$seed" --merge --dtype bfloat16 --checkpoint newest
}

test_on() { # NAME MODEL [options]
  name=$1 model=$2
  shift 2
  $jade eval --benchmark all --data data --index data/index-eval --model "$model" --limit "$limit" --out "$out/test/$name" \
    --concurrency 512 --set backbone.max_batch=384 --set backbone.max_prompt_tokens=1280 \
    --set "$parts" "$@"
}

pooled=""
for seed in $seeds; do
  for arm in joint planner-only executors-only; do
    train "$arm" "$seed" "$@"
    # shellcheck disable=SC2046
    test_on "$arm-$seed" "$out/model/$arm-$seed" $(frozen "$arm")
    pooled="$pooled $arm=$out/test/$arm-$seed"
  done
done
test_on warm-start data/start-model
test_on untrained smollm2-135m
# shellcheck disable=SC2086
$jade report $pooled warm-start="$out/test/warm-start" untrained="$out/test/untrained" --baseline joint --out "$out/report"
