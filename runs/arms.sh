#!/bin/sh
# Joint against apart, and what the settings of joint training do: every arm begins with the same warm start and gets the
# same number of updates on the same number of rollouts; each is tested once, at its last iteration. Roles that an arm
# does not train speak with the warm start's weights, in training and in the test: who shares weights with a role in
# training would change with it. Run it where `data/` is (see runs/joint.toml and runs/hops-warm.toml):
#   runs/arms.sh OUT [SEEDS] [LIMIT] [further options of jade train]
#   ARMS="joint group shared trajectory" runs/arms.sh out/credit 0
#   ARMS="joint alpha beta both dear" runs/arms.sh out/prices 0
#   ARMS="whole select explore" runs/arms.sh out/selection 0    # explore: a selector that goes on trying, as planners do
#   START=even ARMS="single multi" runs/arms.sh out/data 0    # the same warm start with warmstart.other_plans=0.84
#   ARMS="joint planner-only executors-only apart" runs/arms.sh out/parts 0    # apart: planner-only's planner before
#                                                   executors-only's executors, trained apart by twice the work of joint
# Killed and started again, it goes on where it was. Other settings: JADE, START (its adapter is data/START-adapter, merged
# it is data/START-model), BASE (the model that the start was made of, smollm2-135m), PASSAGES (what whole and select get, 10),
# QUESTIONS (what single, whole, select and explore learn from, "nq popqa"), ASK_FIRST (DS: selectors hear the question before
# the passages too; START must have been taught so), TESTS (what is tested beside the arms: "warm-start untrained", or less),
# REPORT (nothing: none, for arms that are worked side by side, as runs/findings.toml does). SEEDS may be "": then only what
# TESTS names is tested, on what BENCHMARKS (all) and SPLIT (test) say: a start that is to be chosen, on dev.
set -eu
if [ $# -lt 1 ]; then
  sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1 seeds=${2-"0 1"} limit=${3:-1000}
[ $# -gt 3 ] && shift 3 || shift $#
jade=${JADE:-jade} start=${START:-start} base=${BASE:-smollm2-135m} tests=${TESTS-"warm-start untrained"}
arms=${ARMS:-"joint planner-only executors-only"}
# Sub-questions are asked in one round, in training and in the test: planners plan questions.
parts='team.child_workflows=["R,AG"]'
# Questions that one search can answer, where QUESTIONS names no others.
one_round=""
for set in ${QUESTIONS:-nq popqa}; do one_round="$one_round,\"data/$set.train.jsonl.gz\""; done
one_round="--set learn.questions=[${one_round#,}]"
# A young critic learns fast or not at all in so few steps.
critic="--set learn.policy.critic=head --set learn.ppo.critic_learning_rate=1e-3"

settings() { # ARM: what its training changes
  case $1 in
    joint | apart) ;;
    planner-only) echo '--set learn.train_roles=["P"]' ;;
    executors-only) echo '--set learn.train_roles=["QDS","QDP","QR","DS","AG","AS"]' ;;
    group) echo "--set learn.credit.rule=group" ;;
    shared) echo "--set learn.credit.rule=shared $critic" ;;
    trajectory) echo "--set learn.credit.rule=trajectory $critic" ;;
    alpha) echo "--set reward.alpha=0.1" ;;
    beta) echo "--set reward.beta=0.1" ;;
    both) echo "--set reward.alpha=0.1 --set reward.beta=0.1" ;;
    dear) echo "--set reward.alpha=0.3 --set reward.beta=0.3" ;;
    multi) echo '--set learn.questions=["data/2wiki.train.jsonl.gz","data/musique.train.jsonl.gz"]' ;;
    single | whole | select) echo "$one_round" ;;
    explore) echo "$one_round --set learn.role_temperature.DS=1.0 --set learn.ppo.role_entropy.DS=0.03" ;;
    *) echo "runs/arms.sh: no arm is called $1" >&2; exit 2 ;;
  esac
}

speaks() { # ROLE MODEL: a role with weights of its own
  echo "--set roles.$1.model=$2 --set roles.$1.max_batch=256 --set roles.$1.max_prompt_tokens=1280"
}

in_the_test() { # ARM: what its test shares with its training
  case $1 in planner-only) roles="QDS QDP QR DS AG AS" ;; executors-only) roles=P ;; *) roles= ;; esac
  for role in $roles; do speaks "$role" "data/$start-model"; done
  case $1 in whole) plan="R,AG" ;; select | explore) plan="R,DS,AG" ;; *) return 0 ;; esac
  # Ten passages, so that there is something to leave out; one has about 150 tokens, and a few lists are cut.
  k=${PASSAGES:-10}
  echo "--set team.ask_first=[${ASK_FIRST:+\"$ASK_FIRST\"}]"
  echo "--set team.workflows=[\"$plan\"] --set retrieval.k=$k --set backbone.max_prompt_tokens=$((k * 256))"
}

train() { # ARM SEED [options]
  arm=$1 seed=$2
  shift 2
  [ -d "$out/model/$arm-$seed" ] && return
  own=$(settings "$arm")
  # shellcheck disable=SC2046,SC2086  # several options in one string
  $jade train runs/joint.toml --out "$out/train/$arm-$seed" --resume --set "seed=$seed" \
    --set "backbone.model=$base" --set "backbone.adapter=data/$start-adapter" --set "$parts" $own $(in_the_test "$arm") "$@"
  $jade export "$out/train/$arm-$seed" --out "$out/model/$arm-$seed" --merge --dtype bfloat16 --checkpoint newest
}

test_on() { # NAME MODEL [options]
  name=$1 model=$2
  shift 2
  $jade eval --benchmark "${BENCHMARKS:-all}" --split "${SPLIT:-test}" --data data --index data/index-eval --model "$model" --limit "$limit" --out "$out/test/$name" \
    --concurrency 512 --set backbone.max_batch=256 --set backbone.max_prompt_tokens=1280 --set "$parts" "$@"
}

for arm in $arms; do settings "$arm" > /dev/null; done
for before in $tests; do
  case $before in warm-start | untrained) ;; *) echo "runs/arms.sh: TESTS are warm-start and untrained, not $before" >&2; exit 2 ;; esac
done

pooled=""
for seed in $seeds; do
  for arm in $arms; do
    # shellcheck disable=SC2046
    if [ "$arm" = apart ]; then
      test_on "$arm-$seed" "$out/model/executors-only-$seed" $(speaks P "$out/model/planner-only-$seed")
    else
      train "$arm" "$seed" "$@"
      test_on "$arm-$seed" "$out/model/$arm-$seed" $(in_the_test "$arm")
    fi
    pooled="$pooled $arm=$out/test/$arm-$seed"
  done
done
for before in $tests; do
  case $before in warm-start) from=data/$start-model ;; untrained) from=$base ;; esac
  done=""
  for arm in $arms; do
    # What a fixed plan is worth before it is trained; where plans are chosen, all arms began alike.
    case $arm in
      whole) name=whole-$before own=$(in_the_test "$arm") ;;
      select | explore) name=select-$before own=$(in_the_test "$arm") ;;
      *) name=$before own= ;;
    esac
    case " $done " in *" $name "*) continue ;; esac
    done="$done $name"
    # shellcheck disable=SC2086
    test_on "$name" "$from" $own
    pooled="$pooled $name=$out/test/$name"
  done
done
[ "$seeds" ] || exit 0 # no arm to compare with
[ "${REPORT-all}" ] || exit 0
# shellcheck disable=SC2086
$jade report $pooled --baseline "${arms%% *}" --out "$out/report"
