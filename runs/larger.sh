#!/bin/sh
# An arm of runs/arms.sh with the larger model MODEL, for the jobs of runs/larger.toml. A step is about two thirds of the
# small model's, as an adapter's step moves a wider layer further. Nothing is tested beside the arm unless TESTS says so.
#   MODEL=... START=... [ARMS=joint] runs/larger.sh OUT SEEDS LIMIT [further options of jade train]
set -eu
if [ $# -lt 3 ] || [ -z "${MODEL:-}" ] || [ -z "${START:-}" ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1 seeds=$2 limit=$3
shift 3
export BASE="$MODEL" START REPORT='' TESTS="${TESTS-}"
exec runs/arms.sh "$out" "$seeds" "$limit" --set learn.policy.tokens_per_batch=16384 --set learn.ppo.learning_rate=1.8e-4 \
  --set 'learn.dev=[]' "$@"
