#!/usr/bin/env bash
# The published table for one model: ten methods and the retriever's ceiling on the seven test sets, then the report.
#
#   runs/table.sh MODEL DATA INDEX OUT [LIMIT] [options of jade eval ...]
#   runs/table.sh jade-135m data data/index-eval out/table 200 --set backbone.max_batch=512
#
# One process, one loaded model and one index: questions of all sets and methods are in flight together, 512 at a time.
# 200 a set are 1,325 questions a method (Bamboogle has 125). Killed and started again with the same words it goes on where
# it was. LIMIT is per set (200); 0 takes all questions.
# Where jade is not on the path: JADE="python -m jade" runs/table.sh ...
set -euo pipefail
if (($# < 4)); then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
model=$1 data=$2 index=$3 out=$4 limit=${5:-200}
shift $(($# < 5 ? $# : 5))
jade=(${JADE:-jade})
part=()
if ((limit > 0)); then part=(--limit "$limit"); fi
"${jade[@]}" eval --benchmark all --method all,oracle --model "$model" --data "$data" --index "$index" \
  --out "$out" --concurrency 512 "${part[@]}" "$@"
"${jade[@]}" report "$out" --out "$out/report"
