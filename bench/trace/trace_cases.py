"""Case trace-cost of bench/run: what a record costs, off, on, in a full ring,
by many threads, and reading it in place; and a program that records beside one
that does not."""

import os
import subprocess

from measure import BUILD

COST = os.path.join(BUILD, "bench", "trace_cost")
NAME = "trace-cost"


def run_case(report, table, batches=41):
    if not os.path.exists(COST):
        report.say(lambda md: "trace-cost: build/bench/trace_cost is not "
                              "there\n")
        return
    shown = subprocess.run([COST, str(batches)], stdout=subprocess.PIPE,
                           text=True, check=True).stdout
    rows = []
    for line in shown.splitlines()[1:]:
        rows.append(line.split(","))
    report.heading("What a record costs, ns")
    report.say(lambda md: table(["", "least of batches", "median"], rows, md))
    report.say(lambda md: f"`bench/run --case {NAME}`\n")
