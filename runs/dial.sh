#!/bin/sh
# A planner that is told what turns and searches cost, before the executors of the team that ships.
#   runs/dial.sh train ADAPTER OUT [further options]   # 40 iterations under prices drawn for every question
#   runs/dial.sh curve MODEL OUT [further options]     # one planner at five efforts, 200 test questions a set
#   runs/dial.sh alone MODEL OUT [further options]     # the same where that model is the executors too
set -eu
if [ $# -lt 3 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
what=$1 model=$2 out=$3
shift 3
jade=${JADE:-jade}
parts='team.child_workflows=["R,AG"]'
executors=""
[ "$what" = alone ] || for role in QDS QDP QR DS AG AS; do
  executors="$executors --set roles.$role.model=jade-135m --set roles.$role.max_batch=192 --set roles.$role.max_prompt_tokens=1280"
done
# shellcheck disable=SC2086  # several options in one string
case $what in
  train)
    $jade train runs/joint.toml --out "$out" --resume --set "backbone.adapter=$model" --set "$parts" --set reward.dial=0.6 \
      --set 'learn.train_roles=["P"]' --set learn.iterations=40 --set learn.ppo.learning_rate=2e-4 --set learn.dev=[] \
      $executors "$@" ;;
  curve | alone)
    $jade eval --benchmark nq,popqa,hotpotqa,2wiki,musique --data data --index data/index-eval --model "$model" --limit 200 \
      --out "$out" --effort 0,0.25,0.5,0.75,1 --concurrency 512 --set backbone.max_batch=192 --set reward.dial=0.6 \
      --set backbone.max_prompt_tokens=1280 --set "$parts" $executors "$@" ;;
  *) echo "runs/dial.sh: train, curve or alone, not $what" >&2; exit 2 ;;
esac
