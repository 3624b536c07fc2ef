#!/bin/sh
# How much of a score is the wording's: the same team under the shipped prompts and under paraphrases of all of them (4 are
# shipped), before and after training, on the multi-hop sets. The report has mean, worst, best and spread of each.
#   runs/variants.sh DATA INDEX OUT LIMIT NAME=MODEL... [-- options of jade eval ...]
#   runs/variants.sh data data/index-eval out/variants 200 warm=out/rows/start trained=out/rows/model/jade-0 \
#     -- --concurrency 512 --set backbone.max_batch=384 --set backbone.max_prompt_tokens=1280
# Killed and started again with the same words it goes on where it was. Other settings: JADE, METHOD (jade), SPLIT (test),
# BENCHMARKS (hotpotqa,2wiki,musique,bamboogle; dev has no bamboogle), VARIANTS (4).
set -eu
if [ $# -lt 5 ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
data=$1 index=$2 out=$3 limit=$4
shift 4
models=""
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  models="$models $1"
  shift
done
[ $# -eq 0 ] || shift
jade=${JADE:-jade} arms=""
for given in $models; do
  name=${given%%=*} model=${given#*=}
  $jade eval --benchmark "${BENCHMARKS:-hotpotqa,2wiki,musique,bamboogle}" --split "${SPLIT:-test}" --method "${METHOD:-jade}" \
    --data "$data" --index "$index" --model "$model" --limit "$limit" --prompt-variants "${VARIANTS:-4}" --out "$out/$name" "$@"
  arms="$arms $name=$out/$name"
done
# shellcheck disable=SC2086  # one argument for each arm
$jade report $arms --out "$out/report"
