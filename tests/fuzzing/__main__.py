"""`python -m tests.fuzzing files:1000 folders:100 --seed 0`: run cases and print the findings; exit code 1 if any."""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzzing import campaign, oracle
from tests.fuzzing.arguments import Arguments
from tests.fuzzing.command_lines import CommandLines
from tests.fuzzing.comparison_files import ComparisonFiles
from tests.fuzzing.corpus import build_corpus
from tests.fuzzing.downloads import Downloads
from tests.fuzzing.kernel_caches import KernelCaches
from tests.fuzzing.loss_files import LossFiles
from tests.fuzzing.run_folders import RunFolders
from tests.fuzzing.settings_files import SettingsFiles

TARGETS = {
    "files": LossFiles,
    "folders": RunFolders,
    "comparisons": ComparisonFiles,
    "settings": SettingsFiles,
    "commands": CommandLines,
    "arguments": Arguments,
    "caches": KernelCaches,
    "downloads": Downloads,
}
MINUTES = {
    "files": 20_000, "folders": 500, "comparisons": 300, "settings": 5_000, "commands": 500, "arguments": 5_000,
    "caches": 500, "downloads": 500,
}  # fmt: skip
"""The counts of `make fuzz`, which take minutes on two cores."""


def main() -> int:
    """Run what the command line asks for."""
    options = _parsed()
    begin = time.monotonic()
    with campaign.corpus_folder() as folder:
        os.environ |= {"EVOMAL_DATA": str(folder / "data"), "COLUMNS": "80", "NO_COLOR": "1"}
        corpus = build_corpus(folder)
        if options.again:
            return _again(options.again, corpus)
        findings, counts = [], Counter()
        for name, count in options.counts.items():
            done, found = campaign.run_campaign(
                TARGETS[name](corpus),
                name,
                count,
                options.seed,
                options.jobs,
                sys.stdout.write,
                options.seconds,
                options.only,
            )
            counts[name] += done
            findings += found
            sys.stdout.write(f"{name}: {done:,} cases, {len(found)} findings\n")
            sys.stdout.flush()
    sys.stdout.write(campaign.summary(counts, findings, time.monotonic() - begin))
    return int(bool(findings))


def _again(case: str, corpus: Path) -> int:
    """One case in this process, with all of what it says."""
    findings = campaign.run_case(TARGETS[case.partition(":")[0]](corpus), case, campaign.prepare_process())
    sys.stdout.write("".join(map(str, findings)) or f"{case}: nothing found\n")
    return int(bool(findings))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("counts", nargs="*", help=f"KIND or KIND:COUNT, of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: two)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the most for each kind")
    parser.add_argument("--limit", type=float, default=oracle.LIMIT, help="seconds that a call may take")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this text among their edits")
    parser.add_argument("--again", metavar="KIND:SEED:NUMBER", help="repeat one case")
    options = parser.parse_args()
    oracle.LIMIT = options.limit
    named = [word.partition(":") for word in options.counts] or [(name, "", "") for name in MINUTES]
    unknown = [name for name, _, _ in named if name not in TARGETS]
    if unknown:
        parser.error(f"there is no kind {unknown[0]!r}: the kinds are {', '.join(TARGETS)}")
    options.counts = {name: int(count or MINUTES[name]) for name, _, count in named}
    return options


if __name__ == "__main__":
    sys.exit(main())
