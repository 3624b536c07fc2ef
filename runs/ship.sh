#!/bin/sh
# The team that ships, chosen on dev among teams that were trained jointly, and tested once:
#   runs/ship.sh train NAME ADAPTER [further options of jade train]    # out/ship/NAME: train, adapter and model
#   runs/ship.sh dev NAME MODEL [further options of jade eval]         # whole dev splits of six sets
#   runs/ship.sh choose NAME [NAME …]                                  # the best of these on dev, in out/ship/chosen
#   runs/ship.sh test NAME MODEL [further options of jade eval]        # all of seven test sets, and of a built-in world
# Run it where `data/` is (see runs/joint.toml, runs/hops-warm.toml); jobs ship-* of runs/findings.toml.
set -eu
case ${1-} in choose) least=2 ;; *) least=3 ;; esac
if [ $# -lt $least ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
what=$1 name=$2
shift 2
jade=${JADE:-jade}
# Whole models read as they ship; the planner plans sub-questions too.
evaluate() { # FOLDER [options]
  folder=$1
  shift
  $jade eval --out "out/ship/$folder" --concurrency 512 --set backbone.max_batch=256 --set backbone.max_prompt_tokens=1280 "$@"
}

case $what in
  train)
    adapter=$1
    shift
    # AmbigQA is new to all warm starts, with the pages that its answers were found on (runs/found.py); no reader of this
    # size can compare, and one that is paid for yes or no learns the likelier of the two.
    questions=""
    for set in ambigqa.learn ambigqa.learn nq.train popqa.train hotpotqa.train 2wiki.train musique.train; do
      questions="$questions,\"data/$set.jsonl.gz\""
    done
    kept=""
    for set in nq.test popqa.test ambigqa.test ambigqa.kept hotpotqa.test 2wiki.test musique.test bamboogle.test; do
      kept="$kept,\"data/$set.jsonl.gz\""
    done
    dev=""
    for set in nq popqa ambigqa hotpotqa 2wiki musique; do dev="$dev,\"data/$set.dev.jsonl.gz\""; done
    $jade train runs/joint.toml --out "out/ship/$name/train" --resume --set "backbone.adapter=$adapter" \
      --set "learn.questions=[${questions#,}]" --set "learn.held_out=[${kept#,}]" --set "learn.dev=[${dev#,}]" \
      --set 'team.child_workflows=["R,AG"]' --set learn.yes_no=false --set learn.dev_every=40 \
      --set learn.iterations=80 --set learn.ppo.learning_rate=1.5e-4 "$@"
    $jade export "out/ship/$name/train" --out "out/ship/$name/adapter" --dtype bfloat16 --checkpoint newest
    $jade export "out/ship/$name/train" --out "out/ship/$name/model" --merge --dtype bfloat16 --checkpoint newest ;;
  dev)
    model=$1
    shift
    evaluate "dev/$name" --benchmark nq,popqa,ambigqa,hotpotqa,2wiki,musique --split dev --data data --index data/index-eval \
      --model "$model" "$@" ;;
  choose)
    teams=""
    for each in "$name" "$@"; do teams="$teams $each=out/ship/dev/$each"; done
    # Not in a pipe, which ends as well as its last part: without a choice there would be an empty one, and no error.
    # shellcheck disable=SC2086  # one word for each team
    chosen=$("$(dirname "$0")/choose.py" $teams)
    echo "$chosen" | tee out/ship/chosen ;;
  test)
    model=$1
    shift
    evaluate "test/$name" --benchmark all --data data --index data/index-eval --model "$model" "$@"
    evaluate "world/$name" --benchmark data/world11/questions.test.jsonl --index data/index-train --model "$model" "$@" ;;
  *) echo "runs/ship.sh: train, dev, choose or test, not $what" >&2; exit 2 ;;
esac
