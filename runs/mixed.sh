#!/bin/sh
# Selection that is taught on passages in other orders than they were found in, then trained beside readers of whole lists:
#   runs/mixed.sh lesson [further options of jade warmstart]       # data/mixed-adapter and data/mixed-model
#   runs/mixed.sh explore|whole SEED [further options of jade train]
# Run it where `data/` is (see runs/hops-warm.toml); jobs mixed-* and few-* of runs/findings.toml. NAME is what the start is
# called (mixed), SELECTIONS how many selections of each dataset teach it (6000).
set -eu
case ${1-} in lesson) least=1 ;; *) least=2 ;; esac
if [ $# -lt $least ]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
what=$1 name=${NAME:-mixed}
shift
# Half of the questions teach, the other half is trained on: what a lesson has answered may tell a reader little more.
if [ "$what" = lesson ]; then
  START="" LESSONS="nq popqa squad hotpotqa 2wiki musique" runs/lesson.sh "$name" 10 --set 'team.ask_first=["DS"]' \
    --set 'warmstart.part=[0.0,0.5]' --set warmstart.shuffled=0.8 --set "warmstart.role_examples.DS=${SELECTIONS:-6000}" \
    --set warmstart.role_examples.AG=2000 --set warmstart.epochs=2 --set warmstart.learning_rate=1e-3 "$@"
  exit
fi
seed=$1
shift
ASK_FIRST=DS QUESTIONS="nq popqa hotpotqa 2wiki" REPORT= TESTS= START="$name" ARMS="$what" runs/arms.sh "out/$name-selection" "$seed" 3000 \
  --set 'learn.part=[0.5,1.0]' --set learn.iterations=60 --set learn.dev_every=30 --set learn.ppo.learning_rate=1.2e-4 "$@"
