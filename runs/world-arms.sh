#!/bin/sh
# Joint against apart on one core, in small, after world-tiny.sh: every arm begins with the same warm start, gets as many
# updates on as many rollouts, and is measured greedily on questions that nobody trained on. The warm start saw 120
# questions; the arms learn from others about the same facts, and are tested on others again (a model of this size
# remembers pages rather than reads them). Roles that an arm does not train speak with the warm start's weights. Then
# the credit rules, all roles trained.
#   [SEEDS="0 1"] [ARMS="joint group"] [OUT=out/world-arms/again] runs/world-arms.sh [further options of jade train]
# Killed and started again, it goes on where it was.
set -eu
tiny=out/world-tiny data=out/world-arms
out=${OUT:-$data/arms}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"
if [ ! -f "$data/test.jsonl" ]; then
  "$python" -m jade world --out "$data/world" --pages 60 --questions 500 --seed 0
  "$python" - "$tiny/world/questions.train.jsonl" "$data" << 'END'
import json, pathlib, sys
known, folder = [json.loads(line) for line in open(sys.argv[1])], pathlib.Path(sys.argv[2])
texts, facts = {row["question"] for row in known}, {tuple(fact) for row in known for fact in row["metadata"]["facts"]}
rows = map(json.loads, open(folder / "world/questions.train.jsonl"))
new = [row for row in rows if row["question"] not in texts and {tuple(fact) for fact in row["metadata"]["facts"]} <= facts]
for name, part in (("train", new[:200]), ("test", new[200:])):
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row | {"id": f"new-{row['id']}"}) + "\n" for row in part))
END
fi
[ -d "$data/frozen" ] || cp -r "$tiny/warm/model" "$data/frozen" # a role may not share the model that is being trained

frozen() { # ARM: the settings of the roles that it does not train
  case $1 in planner-only) roles="QDS QDP QR DS AG AS" ;; executors-only) roles=P ;; *) roles= ;; esac
  for role in $roles; do
    for setting in "model='$data/frozen'" "device='cpu'" inline=true threads=1 max_batch=128 max_prompt_tokens=1024; do
      echo "--set roles.$role.$setting"
    done
  done
}

chosen() { # ARM: what it learns, and by which rule
  case $1 in
    planner-only) echo '--set learn.train_roles=["P"]' ;;
    executors-only) echo '--set learn.train_roles=["QDS","QDP","QR","DS","AG","AS"]' ;;
    trajectory | shared) echo "--set learn.credit.rule=$1 --set learn.policy.critic=head --set learn.ppo.critic_learning_rate=1e-3" ;;
    group) echo "--set learn.credit.rule=group" ;;
  esac
}

test_on() { # NAME MODEL [options]
  name=$1 model=$2
  shift 2
  "$python" -m jade eval --config runs/world-arms.toml --benchmark "$data/test.jsonl" --model "$model" --out "$out/test/$name" "$@"
}

pooled=""
for seed in ${SEEDS:-0}; do
  for arm in ${ARMS:-joint planner-only executors-only group shared trajectory}; do
    run=$out/$arm-$seed
    resume=""
    [ -f "$run/config.toml" ] && resume=--resume
    # shellcheck disable=SC2046,SC2086  # several options in one string
    "$python" -m jade train runs/world-arms.toml --out "$run" $resume --set seed="$seed" $(chosen "$arm") $(frozen "$arm") "$@"
    [ -d "$run/model" ] || "$python" -m jade export "$run" --out "$run/model" --checkpoint newest
    # shellcheck disable=SC2046
    test_on "$arm-$seed" "$run/model" $(frozen "$arm")
    pooled="$pooled $arm=$out/test/$arm-$seed"
  done
done
test_on warm-start "$tiny/warm/model"
# shellcheck disable=SC2086
"$python" -m jade report $pooled warm-start="$out/test/warm-start" --baseline joint --out "$out/report"
