"""docs/evidence.md: its commands, in their order, make a case, and another person checks it with the files alone.

An authority of the test's own answers the RFC 3161 query; mounting and the network are left out, as the page says.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Run, runner
from tests.support.documents import page_of
from tests.support.samples import sample

run = runner()
PAGE = page_of("evidence")
KEY = "B98_1"  # of the sample, for that of the page
CLEAR = {"PATH": os.environ["PATH"], "LC_ALL": "C"}

AUTHORITY = """
[req]
distinguished_name = name
[name]
[root]
basicConstraints = critical,CA:TRUE
[stamping]
extendedKeyUsage = critical,timeStamping
[tsa]
default_tsa = own
[own]
serial = serial
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""


def commands(heading: str) -> list[str]:
    """Return the commands of a section, without their comments; those that go on are one."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line.split(" #")[0].strip().replace("ORDER-1001", KEY) for block in blocks for line in block.splitlines()]


def shell(command: str, folder: Path) -> str:
    """Run a command as a person types it; it has to succeed."""
    environment = CLEAR | {"GNUPGHOME": str(folder / "g")}
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


def stamp(folder: Path) -> None:
    """Answer the query as an authority does, whose certificate a root has signed."""
    (folder / "openssl.cnf").write_text(AUTHORITY)
    (folder / "serial").write_text("01")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config openssl.cnf"
    for command in (
        f"openssl req -x509 {key} -subj /CN=root -extensions root -keyout root.key -out tsa-root.pem -days 9",
        f"openssl req {key} -subj /CN=tsa -keyout tsa.key -out tsa.csr",
        "openssl x509 -req -in tsa.csr -CA tsa-root.pem -CAkey root.key -CAcreateserial -extfile openssl.cnf"
        " -extensions stamping -out tsa.pem -days 9",
        "openssl ts -reply -config openssl.cnf -queryfile case.tsq -out case.tsr",
    ):
        shell(command, folder)


@pytest.fixture
def case(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the store and the case that the commands of the page make of it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sample("flipped-bit-5.3.3"), tmp_path / "store")
    (tmp_path / "g").mkdir(mode=0o700)
    shell("gpg --batch --passphrase '' --quick-gen-key examiner ed25519 sign never", tmp_path)
    for command in commands("Make the case"):
        if command.startswith("rmqinspect "):
            assert run(*shlex.split(command)[1:])[0] in (0, 3), command  # 3: the store is damaged
        elif command.startswith("curl "):
            stamp(tmp_path)
        else:
            shell(command, tmp_path)
    shell("gpgconf --kill all", tmp_path)
    return tmp_path


def test_a_stranger_checks_the_case_with_the_files_alone(case: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    digest = (case / "order-1001.bin.sha256").read_text().split()[0]
    assert f'"sha256": "{digest}"' in (case / "order-1001.json").read_text()  # `show` and `find` say the same
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    made = {"verify.json", "forecast.json", "case.sha256", "case.sha256.asc", "case.tsr", "tsa-root.pem", "tsa.pem"}
    made |= {path.name for path in case.iterdir() if path.name.startswith("order-1001")} | {"verify.json.files.sha256"}
    for name in made:
        shutil.copy(case / name, elsewhere)
    shutil.copytree(case / "store", elsewhere / "store")
    shutil.copytree(case / "g", elsewhere / "g", ignore=shutil.ignore_patterns("S.*"))
    (elsewhere / "g").chmod(0o700)
    (elsewhere / "check.py").write_text(PAGE.split("```python\n", 1)[1].split("```", 1)[0])
    steps = commands("Check it")
    assert len(steps) == 5
    said = [shell(step, elsewhere) for step in steps]
    assert "Good signature" in said[1]
    assert "Verification: OK" in said[2]
    assert "FOUND: 1 records" in said[4]
    # Each step fails once something is not as it was.
    with (elsewhere / "order-1001.json").open("ab") as file:
        file.write(b"\n")
    with (elsewhere / "store" / "commitlog" / f"{0:020}").open("r+b") as file:
        file.write(b"\1")
    fails = [shell_fails(step, elsewhere) for step in steps]
    assert fails == [True, False, False, True, True]
    with (elsewhere / "case.sha256").open("ab") as file:
        file.write(b"\n")
    assert [shell_fails(step, elsewhere) for step in steps[1:3]] == [True, True]
    shell("gpgconf --kill all", elsewhere)


def shell_fails(command: str, folder: Path) -> bool:
    """Return whether a command ends with an error."""
    try:
        shell(command, folder)
    except AssertionError:
        return True
    return False
