"""Build one file with rmqinspect and all its libraries: `python install/archive.py -o rmqinspect.pex`.

It runs where there is Python of the same version and kind of machine, and nothing else. The libraries come from the
package index, or with `--libraries-from VENV` from an environment that has them, without a network. Nothing is written
into the checkout. Needs the packages `build`, `setuptools`, `cython` and `pex` (`pip install '.[dev]'` has them).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# What a wheel is built from.
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "docs/rmqinspect.1",
    "install",
    "rmqinspect",
    "schemas",
)
REQUIREMENTS = ROOT / "install" / "host.txt"


def build(out: Path, libraries_from: Path | None, *, compress: bool) -> None:
    """Build the archive `out`; a failing step ends with its own words and a CalledProcessError."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        pex = [sys.executable, "-m", "pex", "--sources-directory", str(_package(place)), "--venv", "--disable-cache"]
        pex += ["--requirement", str(REQUIREMENTS), "--entry-point", "rmqinspect.__main__:main"]
        pex += ["--compress" if compress else "--no-compress"]
        if libraries_from is not None:
            pex += ["--venv-repository", str(libraries_from)]
        made = place / "made.pex"
        subprocess.run([*pex, "--output-file", str(made)], check=True)
        # In one step: whoever looks sees no archive or a whole one.
        beside = out.with_name(f".{out.name}.{os.getpid()}")
        shutil.copy2(made, beside)
        beside.replace(out)


def _package(place: Path) -> Path:
    """Return a folder below `place` with what a wheel of this checkout installs."""
    tree = place / "checkout"
    tree.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tree / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    wheels = place / "wheels"
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--skip-dependency-check",
        "--wheel",
        "--outdir",
        str(wheels),
        str(tree),
    ]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    print(*(line for line in said.splitlines() if line.startswith("the loops")), sep="\n", file=sys.stderr)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "package")
    return place / "package"


def main() -> int:
    """Build what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(description="Build one file with rmqinspect and all its libraries.")
    parser.add_argument("-o", "--output", type=Path, default=Path("rmqinspect.pex"), help="default: rmqinspect.pex")
    parser.add_argument("--libraries-from", type=Path, metavar="VENV", help="an environment that has the libraries")
    parser.add_argument("--no-compress", action="store_true", help="a larger file, built and unpacked faster")
    asked = parser.parse_args()
    try:
        build(asked.output, asked.libraries_from, compress=not asked.no_compress)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"archive: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
