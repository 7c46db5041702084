"""A store that a real store class has open: what forecast says of it, and what becomes of a second one."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from rmqinspect.cli.forecast_script import script
from rmqinspect.forecast.outcome import Forecast, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from tests.support.outcomes import SAFE
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

SETTINGS = {"mappedFileSizeCommitLog": 65536}


@pytest.mark.parametrize("release", sampled(RELEASES, 4))  # the oldest and the newest: the writer stays for 6 seconds
def test_a_real_store_that_runs_is_seen(release: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, seen = tmp_path / "store", Forecast([])
    spec = {"count": 20, "settle_millis": 6000}
    writer = threading.Thread(target=real_brokers.write_store, args=(release, root, spec, SETTINGS))
    writer.start()
    while writer.is_alive():
        time.sleep(0.05)
        if (root / "lock").exists() and (root / "commitlog").exists():
            seen = forecast(open_store([str(root)]), ForecastRequest())
            if seen.worst.verdict is Verdict.RUNS:
                break
    assert seen.worst.verdict is Verdict.RUNS
    file = tmp_path / "start.sh"
    file.write_text(script(Forecast([SAFE]), open_store([str(root)])))
    copied = subprocess.run(["bash", file, "copy"], capture_output=True, check=False, text=True)
    holder = seen.worst.lock_holder
    writer.join()
    assert (copied.returncode, f"(pid {holder} " in copied.stderr) == (1, True)
    assert forecast(open_store([str(root)]), ForecastRequest()).worst.verdict is Verdict.SAFE
