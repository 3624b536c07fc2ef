#!/bin/sh
# Every row of the published table with weights of its own: all begin with the same warm start, which also teaches the
# searcher of Search-R1 from the same questions, and get the same number of updates on the same number of rollouts. Rows
# differ in which workflows are legal and which roles learn, nothing else; roles that a row does not train speak with the
# warm start's weights, in training and in the test. At the end the ten methods stand in one report.
# Run it where `data/` is (see runs/joint.toml):
#   runs/rows.sh OUT [SEEDS] [LIMIT] [further options of jade train]
#   ROWS="search-r1 jade" runs/rows.sh out/rows "0 1" 200 --set learn.iterations=40
# Killed and started again, it goes on where it was. JOBS=3 works three rows at a time on one GPU, each into a log of its
# own. Other settings: JADE, WARM and TRAIN (config files), DATA, INDEX, BENCHMARKS, BATCH, UNTRAINED (methods measured on
# the warm start).
set -eu
if [ $# -lt 1 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1 seeds=${2:-0} limit=${3:-200}
[ $# -gt 3 ] && shift 3 || shift $#
jade=${JADE:-jade} jobs=${JOBS:-1} batch=${BATCH:-256} team="P QDS QDP QR DS AG AS"
# One context holds all searches of Search-R1; every other prompt holds one.
short=1280 long=3072

plans() { # ROW: its legal workflows, and those of its sub-questions
  case $1 in
    rrr) echo '--set team.workflows=["QR,R,AG"]' ;;
    bgm) echo '--set team.workflows=["R,DS,AG"]' ;;
    mmoa-rag) echo '--set team.workflows=["QR,R,DS,AG"]' ;;
    adaptive-rag) echo '--set team.workflows=["AG","R,AG","QDS"] --set team.child_workflows=["R,AG"]' ;;
    search-r1) echo '--set team.workflows=["S1"] --set learn.role_temperature.S1=1.0' ;;
  esac
}

trained() { # ROW: the roles that learn
  case $1 in
    rrr) echo QR ;;
    bgm) echo DS ;;
    mmoa-rag) echo QR DS AG ;;
    adaptive-rag | mao-arag) echo P ;;
    search-r1) echo S1 ;;
    executors-only) echo QDS QDP QR DS AG AS ;;
    jade) echo "$team" ;;
  esac
}

frozen() { # ROW: the settings of the roles that speak with the warm start's weights
  [ "$1" = search-r1 ] && return
  for role in $team; do
    case " $(trained "$1") " in
      *" $role "*) ;;
      *) echo "--set roles.$role.model=$out/start --set roles.$role.max_batch=$batch --set roles.$role.max_prompt_tokens=$short" ;;
    esac
  done
}

room() { # ROW: the longest prompt
  [ "$1" = search-r1 ] && echo "$long" || echo "$short"
}

listed() { # WORD...: a TOML list of strings
  printf '["%s"' "$1"
  shift
  [ $# -eq 0 ] || printf ',"%s"' "$@"
  printf ']'
}

warm_up() {
  if [ ! -d "$out/start" ]; then
    # shellcheck disable=SC2086  # one word for each role
    $jade warmstart "${WARM:-runs/hops-warm.toml}" --out "$out/warm" --resume \
      --set "warmstart.roles=$(listed $team S1)" --set "backbone.max_prompt_tokens=$long"
    $jade export "$out/warm" --out "$out/start" --merge --dtype bfloat16 --checkpoint newest
  fi
  if [ -d "$out/warm/adapter" ]; then begin=adapter; else begin=model; fi
}

train() { # ROW SEED [options]
  row=$1 seed=$2
  shift 2
  [ -d "$out/model/$row-$seed" ] && return
  # shellcheck disable=SC2046  # several options in one string
  $jade train "${TRAIN:-runs/joint.toml}" --out "$out/train/$row-$seed" --resume --set "seed=$seed" \
    --set "backbone.$begin=$out/warm/$begin" --set "backbone.max_prompt_tokens=$(room "$row")" \
    $(plans "$row") --set "learn.train_roles=$(listed $(trained "$row"))" $(frozen "$row") "$@"
  $jade export "$out/train/$row-$seed" --out "$out/model/$row-$seed" --merge --dtype bfloat16 --checkpoint newest
}

test_on() { # NAME METHODS MODEL [options]
  name=$1 methods=$2 model=$3
  shift 3
  $jade eval --benchmark "${BENCHMARKS:-all}" --data "${DATA:-data}" --index "${INDEX:-data/index-eval}" --method "$methods" \
    --model "$model" --limit "$limit" --out "$out/test/$name" --concurrency 512 --set "backbone.max_batch=$batch" "$@"
}

work() { # ROW SEED [options]: its training and its test
  train "$@"
  # shellcheck disable=SC2046
  test_on "$1-$2" "$1" "$out/model/$1-$2" --set "backbone.max_prompt_tokens=$(room "$1")" $(frozen "$1")
}

join() { # PID...: wait for all of them; whoever failed has said why in its log
  for pid in "$@"; do
    wait "$pid" || failed=1
  done
  [ -z "${failed:-}" ] || { echo "a row failed: see $out/log" >&2; exit 1; }
}

warm_up
arms="" running=""
mkdir -p "$out/log"
for seed in $seeds; do
  for row in ${ROWS:-rrr bgm mmoa-rag adaptive-rag search-r1 mao-arag executors-only jade}; do
    arms="$arms $row=$out/test/$row-$seed"
    if [ "$jobs" -eq 1 ]; then
      work "$row" "$seed" "$@"
      continue
    fi
    work "$row" "$seed" "$@" >"$out/log/$row-$seed.log" 2>&1 &
    running="$running $!"
    # shellcheck disable=SC2086  # one word for each process
    [ "$(echo $running | wc -w)" -lt "$jobs" ] || { join $running; running=""; }
  done
done
# shellcheck disable=SC2086
join $running
test_on warm-start "${UNTRAINED:-no-retrieval,vanilla-rag,search-r1,jade}" "$out/start" --set "backbone.max_prompt_tokens=$long"
# shellcheck disable=SC2086
$jade report $arms "$out/test/warm-start" --out "$out/report"
