"""Runs peers in turn, and prints what they cost."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.measure import Cost
from benchmarks.peers import COMMANDS, Peer, start_up_of
from benchmarks.stores import Log
from rmqinspect.version import tool_name

_LEAST = 0.001  # seconds: what is left of a cost that is not above its start-up


class Measured:
    """The costs of the peers on one store: one per peer and round."""

    def __init__(self, log: Log, peers: Iterable[Peer]) -> None:
        self.log, self.peers = log, list(peers)
        self.costs: dict[str, list[Cost]] = {peer.name: [] for peer in self.peers}
        self._start_ups = {peer.name: peer.start_up for peer in self.peers}

    def run(self, rounds: int, folder: Path, out: IO[str] | None) -> None:
        """Run all peers `rounds` times, and once before, which warms up caches and is not counted.

        What a peer writes lies in `folder` and is deleted after each measurement.
        """
        for number in range(rounds + 1):
            print(f"{self.log.store}: round {number} of {rounds}", file=sys.stderr)
            for peer in self.peers:
                folder.mkdir()
                cost = peer.run(folder)
                shutil.rmtree(folder)
                if number:
                    self.costs[peer.name].append(cost)
                    if out:
                        out.write(json.dumps({"peer": peer.name, "round": number, **asdict(cost), **asdict(self.log)}))
                        out.write("\n")

    def net(self, name: str) -> list[Cost]:
        """Return the costs of a peer, minus the medians of its start-up where it has one."""
        costs, start = self.costs.get(name, []), self.costs.get(self._start_ups.get(name) or "", [])
        if not start:
            return costs
        wall, cpu = median(cost.wall for cost in start), median(cost.cpu for cost in start)
        return [replace(cost, wall=max(cost.wall - wall, _LEAST), cpu=max(cost.cpu - cpu, _LEAST)) for cost in costs]


def print_costs(measured: Measured) -> None:
    """Print a row per peer: rates are of the medians, GB are 10^9 bytes of records, MB 10^6."""
    log = measured.log
    print("| peer | wall s: min / median / max | CPU s | wall s, net | CPU s, net | GB per CPU s, net | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for peer in measured.peers:
        costs, net = measured.costs[peer.name], measured.net(peer.name)
        cells = ["", "", ""]
        if peer.reads:
            wall, cpu = median(cost.wall for cost in net), max(median(cost.cpu for cost in net), _LEAST)
            cells = [f"{wall:.2f}", f"{cpu:.2f}", f"{log.size / cpu / 1e9:.2f}"]
        held = max(cost.memory or 0 for cost in costs)
        walls, cpu = spread(cost.wall for cost in costs), median(cost.cpu for cost in costs)
        print(f"| {peer.name} | {walls} | {cpu:.2f} | {' | '.join(cells)} | {f'{held / 1e6:.0f}' if held else ''} |")


def print_start_ups(measured: Measured) -> None:
    """Print what each command takes before it reads."""
    names = [name for name in COMMANDS if start_up_of(name) in measured.costs]
    if not names:
        return
    print("\n| wall s / CPU s, medians | start-up |\n|---|---|")
    for name in names:
        costs = measured.costs[start_up_of(name)]
        wall, cpu = median(cost.wall for cost in costs), median(cost.cpu for cost in costs)
        print(f"| {name} | {wall:.2f} / {cpu:.2f} |")


def spread(values: Iterable[float]) -> str:
    """Return minimum, median and maximum."""
    values = list(values)
    return " / ".join(f"{value:.2f}" for value in (min(values), median(values), max(values)))


def describe_machine() -> str:
    """Return one line: versions, machine, date and load."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), model)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{tool_name()}, Python {platform.python_version()}, {os.cpu_count()} x {model}, "
        f"{platform.system()} {platform.release()}, {datetime.now(UTC):%Y-%m-%d}{load}"
    )
