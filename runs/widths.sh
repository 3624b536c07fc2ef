#!/bin/sh
# What selection is worth among K passages, on dev: a start (data/NAME-adapter) that reads them whole, or selects first. Run
# it where `data/` is (see runs/hops-warm.toml):
#   runs/widths.sh NAME "5 10 20" [further options of jade eval]
set -eu
if [ $# -lt 2 ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
name=$1 widths=$2
shift 2
for k in $widths; do
  for plan in whole select; do
    case $plan in whole) steps=R,AG ;; select) steps=R,DS,AG ;; esac
    ${JADE:-jade} eval --benchmark nq,popqa,hotpotqa,2wiki,musique --split dev --data data --index data/index-eval \
      --model smollm2-135m --set "backbone.adapter=data/$name-adapter" --limit 300 --out "out/widths/$name-$plan-$k" \
      --concurrency 512 --set backbone.max_batch=256 --set "retrieval.k=$k" \
      --set "backbone.max_prompt_tokens=$((k * 256))" --set "team.workflows=[\"$steps\"]" "$@"
  done
done
