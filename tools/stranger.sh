#!/bin/bash
# A new user's path: a clean clone, and from there by README and docs alone. Prints the time of each part, and fails if
# all of them together take more than 30 minutes.
#
#   bash tools/stranger.sh [PART ...]     install demo environment teacher resume report (default: all, in this order)
#
# VENV=DIR uses an environment that is there already, CLONE=DIR keeps the clone there (default: removed at the end), and
# QUICK=1 takes fewer steps, to try the script itself.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
clone=${CLONE:-$(mktemp -d)/procurl}
[ -n "${CLONE:-}" ] || trap 'rm -rf "$(dirname "$clone")"' EXIT
[ -d "$clone/.git" ] || git clone --quiet "$here" "$clone"
cd "$clone"
export VENV=${VENV:-.venv}
export PATH=$(realpath -m "$VENV")/bin:$PATH  # `source .venv/bin/activate`

few() {
    if [ -n "${QUICK:-}" ]; then
        sed -e 's/100_000/4096/' -e 's/--steps 1M/--steps 300k/' -e 's/--seeds 8/--seeds 1/'
    else
        cat
    fi
}

# The n-th Python block, or the line that matches, as it stands in the README.
snippet() { python - "$1" <<'PYTHON' | few
import re, sys
print(re.findall(r"```python\n(.*?)```", open("README.md").read(), re.DOTALL)[int(sys.argv[1]) - 1])
PYTHON
}
command_of() { grep -m1 -- "^procurl $1" README.md | few; }

install() { make "$VENV/.ready"; }
demo() { make demo; }
environment() {
    snippet 2 > own_environment.py
    python own_environment.py
}
teacher() { few < examples/new_teacher.py > own_teacher.py && python own_teacher.py; }

# Cut a run by SIGTERM once it is under way, as a cluster would, and give the same command again.
resume() {
    local train run status=0 line cut=
    train=$(command_of "train point-mass-1t --teacher procurl-target")
    mkfifo said
    $train 2> said &
    run=$!
    while read -r line; do
        echo "$line"
        if [[ -z $cut && $line == *steps/s* ]]; then kill -TERM $run && cut=1; fi
    done < said
    rm said
    wait $run || status=$?
    [ $status -eq 143 ] || { echo "expected status 143 after SIGTERM, got $status" >&2; return 1; }
    $train
}

report() {
    $(command_of "train point-mass-1t --teacher iid")
    $(command_of "report")
    test -s report.html
}

parts=("$@")
[ $# -gt 0 ] || parts=(install demo environment teacher resume report)
summary="" total=0
for part in "${parts[@]}"; do
    case $part in
    install | demo | environment | teacher | resume | report) ;;
    *) echo "unknown part '$part': expected install, demo, environment, teacher, resume or report" >&2 && exit 2 ;;
    esac
    echo "== $part"
    began=$SECONDS
    $part
    summary+=$(printf '%-12s %5d s' "$part" $((SECONDS - began)))$'\n'
    total=$((total + SECONDS - began))
done
printf '\n%s%-12s %5d s\n' "$summary" together $total
[ $total -le 1800 ] || { echo "more than 30 minutes" >&2; exit 1; }
