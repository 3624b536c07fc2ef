#!/bin/sh
# An arm of runs/arms.sh with the larger model MODEL, for the jobs of runs/larger.toml: the same arguments and settings. A
# step is about two thirds of the small model's, as an adapter's step moves a wider layer further.
set -eu
: "${MODEL:?a folder, a .gguf file or a hub name of the larger model}"
export MODEL REPORT='' TESTS="${TESTS-}"
exec runs/arms.sh "$@" --set learn.policy.tokens_per_batch=16384 --set learn.ppo.learning_rate=1.8e-4 --set 'learn.dev=[]'
