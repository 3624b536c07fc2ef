#!/bin/sh
# A start (START, ship; START= for the model as it comes) shown by the questions of LESSONS how to select from K passages
# and how to read them, whole or selected: data/NAME-adapter and data/NAME-model. The warm starts were taught with five
# passages and had never seen a sixth document's name. Run it where `data/` is (see runs/hops-warm.toml); killed and
# started again, it goes on where it was:
#   runs/lesson.sh NAME K [further options of jade warmstart]
#   runs/lesson.sh NAME K --examples-only    # what needs no GPU
set -eu
if [ $# -lt 2 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
name=$1 k=$2
shift 2
jade=${JADE:-jade}
taught=""
for set in ${LESSONS:-nq popqa hotpotqa 2wiki musique}; do taught="$taught,\"data/$set.train.jsonl.gz\""; done
start=${START-ship}
# A passage has about 150 tokens; a few lists are longer than this and are cut.
$jade warmstart runs/hops-warm.toml --out "out/$name" --resume ${start:+--set "backbone.adapter=data/$start-adapter"} \
  --set "retrieval.k=$k" --set "backbone.max_prompt_tokens=$((k * 256))" --set 'warmstart.roles=["DS","AG"]' \
  --set 'team.workflows=["R,AG","R,DS,AG"]' --set "warmstart.questions=[${taught#,}]" \
  --set warmstart.passes=6 --set warmstart.per_role=0 --set warmstart.role_examples.AG=2000 --set warmstart.learning_rate=5e-4 "$@"
case " $* " in *" --examples-only "*) exit 0 ;; esac
$jade export "out/$name" --out "data/$name-adapter" --dtype bfloat16 --checkpoint newest
$jade export "out/$name" --out "data/$name-model" --dtype bfloat16 --merge --checkpoint newest
