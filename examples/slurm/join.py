"""One run folder out of those of an array: `python join.py runs/point-mass-1t-iid joined/point-mass-1t-iid`.

`procurl report` and `procurl plot` take many folders as well; one folder is easier to keep, to send and to evaluate.
"""

import argparse
from pathlib import Path

import procurl
from procurl.runs.store.join import joined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="holds the folders seeds-0, seeds-10, ...")
    parser.add_argument("out", type=Path, help="a new folder")
    args = parser.parse_args()
    parts = [procurl.load_result(manifest.parent) for manifest in args.runs.glob("*/manifest.json")]
    for part in parts:
        if part.status != "finished":
            parser.error(f"the run with seeds {part.config['seeds']} is {part.status}: submit the array once more")
    whole = joined(sorted(parts, key=lambda part: part.config["seeds"]))
    whole.save(args.out)
    print(f"{args.out}: {len(whole.seeds)} seeds, return on the target {whole.ret[:, -1].mean():.3f}")


if __name__ == "__main__":
    main()
