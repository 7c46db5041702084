"""docs/story.md: its commands print what it shows, and real stores serve what it says."""

import shutil
from pathlib import Path

import pytest

from docs.build import story_page
from tests.support import oracle
from tests.support.documents import page_of
from tests.support.real_brokers import RealBrokers

CASE = "flip_body_third-5.3.3-h"  # of which the sample is


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the story was run: its stores `store` and `new`."""
    place = tmp_path_factory.mktemp("story")
    assert story_page.page(place) == page_of("story")
    return place


def test_the_story_leaves_a_store_its_receipt_and_the_saved_messages(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"store", "new", "new.receipt.json", "lost.parquet"}


@pytest.mark.broker
@pytest.mark.parametrize("name", story_page.SERVED)
def test_real_stores_serve_what_the_story_says(
    name: str, folder: Path, tmp_path: Path, real_brokers: RealBrokers
) -> None:
    root = shutil.copytree(folder / name, tmp_path / name)
    settings = oracle.case("crash", CASE)["settings"]
    answer = real_brokers.ask(story_page.RELEASE, "open", root, settings, serve=True)
    got = sum(len(queue["got"]) for queue in answer["drained"])
    assert (answer["after_dispatch"]["max_phy"], got) == story_page.SERVED[name]
