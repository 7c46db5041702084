"""The Dockerfile: what it promises, a linter's word, and a build where a Docker daemon is at hand."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.samples import ROOT, sample

DOCKERFILE = ROOT / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGE = "rmqinspect-test"


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of the Dockerfile, continuation lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in joined)]


def of(name: str) -> list[str]:
    return [arguments for word, arguments in instructions() if word == name]


def has_daemon() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30).returncode == 0


def test_it_runs_rmqinspect_and_not_as_root() -> None:
    names = [word for word, _ in instructions()]
    assert of("ENTRYPOINT") == ['["rmqinspect"]']
    assert of("USER") == ["10001"]
    assert names.index("USER") > max(number for number, name in enumerate(names) if name == "RUN")
    assert "ADD" not in names
    assert f"useradd --uid {of('USER')[0]} " in of("RUN")[-1]


def test_its_python_is_slim_and_one_that_the_project_takes_and_its_java_one_that_spark_takes() -> None:
    for image in of("FROM"):
        name, _, tag = image.split(" ")[0].partition(":")
        version, kind, _ = tag.split("-")
        assert (name, kind) == ("python", "slim")
        oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
        assert tuple(map(int, version.split("."))) >= tuple(map(int, oldest.split(".")))
    assert "openjdk-17-jre-headless" in of("RUN")[-1]


def test_its_loops_are_compiled_or_it_is_not_built() -> None:
    build, _ = of("RUN")
    assert build.endswith('python -c "import rmqinspect.loops.records as loops; assert loops.COMPILED"')


def test_it_copies_what_the_package_is_built_from_and_nothing_else() -> None:
    copied = {name for line in of("COPY") if not line.startswith("--from") for name in line.split(" ")[:-1]}
    assert copied == {
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        *PROJECT["build-system"]["build-backend"].split(".")[:1],
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        "rmqinspect",
        *PROJECT["tool"]["setuptools"]["package-dir"].values(),
        *(file for files in PROJECT["tool"]["setuptools"]["data-files"].values() for file in files),
    }
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_a_linter_has_nothing_against_it() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint has no wheel for this machine")
    ended = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.skipif(not has_daemon(), reason="no Docker daemon")
@pytest.mark.timeout(1800)
def test_the_image_reads_a_store_that_is_mounted_read_only() -> None:
    subprocess.run(["docker", "build", "-q", "-t", IMAGE, ROOT], check=True, timeout=1700)
    mount = f"{sample('flipped-bit-5.3.3')}:/store:ro"
    command = ["docker", "run", "--rm", "--network", "none", "-v", mount, IMAGE, "verify", "/store"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 3, ended.stderr
    assert "CL-CRC-BODY" in ended.stdout
