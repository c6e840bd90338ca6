#!/usr/bin/env bash
# Compares two results directories and fails where the second has a cell that is worse: gate.sh OLD NEW
# The exit status is that of `recapture diff`: 0 no regression, 1 a regression, 2 the comparison could not be made.
set -uo pipefail
old=${1:?usage: gate.sh OLD NEW} new=${2:?usage: gate.sh OLD NEW}

recapture diff "$old" "$new" --fail-on regression --format markdown >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
status=$?
case $status in
0) echo "the upgrade makes no cell worse" ;;
1) echo "the upgrade makes at least one cell worse" ;;
*) echo "the comparison could not be made" ;;
esac
exit "$status"
