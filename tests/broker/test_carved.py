"""Real stores open what `salvage --carve` made of an image alone: they serve what they served before."""

import random
import shutil
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from tests.broker.situations import SIZES, SPEC
from tests.broker.test_rebuilt import bounds
from tests.support import command
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

run = command.runner("salvage")


@pytest.mark.parametrize("release", sampled(RELEASES, len(RELEASES)))
def test_segments_in_an_image_become_a_store_that_serves(
    release: str, tmp_path: Path, real_brokers: RealBrokers, run: command.Run
) -> None:
    written, dice = tmp_path / "written", random.Random(release)
    real_brokers.write_store(release, written, SPEC, SIZES)
    before = bounds(real_brokers, release, shutil.copytree(written, tmp_path / "copy"), SIZES)
    segments = [Path(segment.path).read_bytes() for segment in open_store([str(written)]).segments]
    dice.shuffle(segments)
    with (tmp_path / "disk").open("wb") as image:
        for raw in (*segments, segments[0]):
            image.write(dice.randbytes(dice.randrange(1, 9000)) + raw)

    new, conf = tmp_path / "new", tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    status, _, told = run("--carve", tmp_path / "disk", "-o", new, "--broker-version", release, "--config", conf)
    assert status == 0, told
    assert bounds(real_brokers, release, new, SIZES, halt=True) == before
    assert bounds(real_brokers, release, new, SIZES) == before
