#!/usr/bin/env bash
# The published table for one model: ten methods and the retriever's ceiling on the seven test sets, then the report.
#
#   runs/table.sh MODEL DATA INDEX OUT [LIMIT] [options of jade eval ...]
#   runs/table.sh jade-135m data data/index-eval out/table 200 --concurrency 512 --set backbone.max_batch=512
#
# Killed and started again with the same words it goes on where it was. LIMIT is per set (200); 0 takes all questions.
# Where jade is not on the path: JADE="python -m jade" runs/table.sh ...
set -euo pipefail
if (($# < 4)); then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
model=$1 data=$2 index=$3 out=$4 limit=${5:-200}
shift $(($# < 5 ? $# : 5))
jade=(${JADE:-jade})
part=()
if ((limit > 0)); then part=(--limit "$limit"); fi
"${jade[@]}" eval --benchmark all --method all,oracle --model "$model" --data "$data" --index "$index" \
  --out "$out" "${part[@]}" "$@"
"${jade[@]}" report "$out" --out "$out/report"
