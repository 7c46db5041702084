"""`forecast --script`: every script is run by bash, with a broker that only says that it was started."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqinspect.cli.forecast_script import script
from rmqinspect.errors import BadOption
from rmqinspect.forecast.instead import other_ways
from rmqinspect.forecast.outcome import Alternative, Forecast, Losses, Remedy, TimerStart
from rmqinspect.store.discover import open_store
from rmqinspect.text import escape
from tests.support.command import Run, runner
from tests.support.locks import FLOCK, HOLD, OPEN, other_process
from tests.support.outcomes import LOSES, REFUSES, SAFE, Told, after
from tests.support.samples import sample

forecast = runner("forecast", after=("-j", "1"))

Bash = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """A store in a folder whose name a shell would take apart."""
    root = tmp_path / "a store; 'of' $HOME"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(bytes(1024))
    (root / "abort").touch()
    (root / "lock").write_text("lock")
    (root / "index").mkdir()
    (root / "index" / "1x").touch()
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A release, 5.5.0, whose program says what it was started with."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "rocketmq-store-5.5.0.jar").touch()
    broker = home / "bin" / "mqbroker"
    broker.write_text('#!/bin/sh\necho started "$@"\n')
    broker.chmod(0o755)
    (home / "b.conf").touch()
    return home


@pytest.fixture
def bash(tmp_path: Path, home: Path) -> Bash:
    """Runs a script, given as its text, with arguments and a change of the environment."""

    def run(text: str, *words: str, **changes: str | None) -> "subprocess.CompletedProcess[str]":
        file = tmp_path / "start.sh"
        file.write_text(text)
        environment = {
            "PATH": "/usr/bin:/bin",
            "RMQINSPECT": "none",
            "ROCKETMQ_HOME": str(home),
            "BROKER_CONF": str(home / "b.conf"),
        }
        environment = {name: value for name, value in (environment | changes).items() if value is not None}
        return subprocess.run(["bash", file, *words], env=environment, capture_output=True, check=False, text=True)

    return run


def script_of(store: Path, *moved: str) -> str:
    """Return a script whose first way starts the store as it is with 5.5.0; the second moves files away before."""
    ways = [Alternative("another", SAFE, Remedy(moved), is_better=True)] if moved else []
    return script(Forecast([SAFE], ways), open_store([str(store)]))


def names(folder: Path) -> list[bytes]:
    return sorted(os.listdir(os.fsencode(folder)))


def test_the_script_copies_first_and_prepares_each_better_way(laid: Path, home: Path, bash: Bash) -> None:
    ways = other_ways(REFUSES, None, after(Told(SAFE, (SAFE,))))
    text = script(Forecast([REFUSES], ways), open_store([str(laid)]))
    listed = bash(text)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "with index/1x moved out of the store: STARTS, LOSES NOTHING MORE" in listed.stdout
    assert sorted(path.name for path in laid.iterdir()) == ["abort", "commitlog", "index", "lock"]
    number = next(line[0] for line in listed.stdout.splitlines() if "1x" in line)
    assert bash(text, number).stdout == f"started -c {home}/b.conf\n"
    copy = laid.with_name(laid.name + ".before-start")
    assert (copy / "index" / "1x").exists()
    assert not (laid / "index" / "1x").exists()
    again = bash(text, "copy")
    assert (again.returncode, "exists already: nothing is overwritten" in again.stderr) == (1, True)


def test_the_script_gives_files_their_length_and_name_and_leaves_broker_conf_to_its_reader(
    laid: Path, bash: Bash
) -> None:
    remedies = (
        Remedy(lengths=(("abort", 100),)),
        Remedy(renamed=(("index/1x", "index/1"),)),
        Remedy(settings=(("duplicationEnable", "false"),)),
    )
    safe = replace(SAFE, clean_exit=REFUSES.clean_exit)
    ways = [Alternative(f"way {number}", safe, remedy, True) for number, remedy in enumerate(remedies)]
    text = script(Forecast([REFUSES], ways), open_store([str(laid)]))
    assert "way 1" in text and "way 2" not in text
    copied = laid.with_name(f"{laid.name}.before-start")
    for number in "12":
        assert bash(text, number).returncode == 0
        copied.rename(f"{copied}.{number}")
    assert (laid / "abort").read_bytes() == bytes(100)
    assert [path.name for path in (laid / "index").iterdir()] == ["1"]
    again = bash(text, "2")
    assert again.returncode == 1


def test_the_script_offers_no_way_that_is_not_better(laid: Path) -> None:
    store = open_store([str(laid)])
    worse = Alternative("broker 4.0.0", replace(LOSES, losses=Losses(999)))
    text = script(Forecast([LOSES], [worse]), store)
    assert "4.0.0" not in text
    assert "1     start it as it is: STARTS, LOSES DATA: 145 records, 31 new messages skipped by groups" in text
    assert f"store={shlex.quote(str(laid))}" in text
    with pytest.raises(BadOption, match="one folder"):
        script(Forecast([LOSES]), open_store([str(laid / "commitlog")]))


@pytest.mark.parametrize("words", [("3",), ("--help",), ("copy", "now"), ("1", "1"), ("",)], ids=repr)
def test_an_unknown_argument_is_wrong_usage(words: tuple[str, ...], laid: Path, bash: Bash) -> None:
    done = bash(script_of(laid), *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "copies the store" in done.stderr
    assert names(laid.parent) == sorted([os.fsencode(laid.name), b"home", b"start.sh"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ROCKETMQ_HOME": None}, "ROCKETMQ_HOME is not set"),
        ({"ROCKETMQ_HOME": "/nowhere"}, "/nowhere/bin/mqbroker: no such program"),
        ({"BROKER_CONF": ""}, "BROKER_CONF is not set"),
        ({"BROKER_CONF": "/nowhere.conf"}, "/nowhere.conf: no such file"),
        ({"BROKER_RELEASE": "5.4.0"}, "this choice was worked out for 5.5.0; BROKER_RELEASE"),
    ],
)
def test_what_a_start_needs_is_tested_before_anything_is_made(
    changes: dict[str, str | None], told: str, laid: Path, bash: Bash
) -> None:
    before = names(laid)
    text = script_of(laid, "index/1x")
    failed = bash(text, "2", **changes)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert told in failed.stderr
    assert (names(laid), names(laid / "index")) == (before, [b"1x"])
    assert not laid.with_name(laid.name + ".before-start").exists()
    assert bash(text, "2").stdout.startswith("started")  # the second try finds nothing in its way


@pytest.mark.parametrize(
    ("release", "starts"),
    [("5.1.9", False), ("5.2.0", True), ("5.3.1", True), ("5.3.3", True), ("5.3.10", False), ("5.10.0", False)],
)
def test_the_release_is_one_that_the_choice_was_worked_out_for(
    release: str, starts: bool, laid: Path, home: Path, bash: Bash
) -> None:
    (home / "lib" / "rocketmq-store-5.5.0.jar").rename(home / "lib" / f"rocketmq-store-{release}.jar")
    done = bash(script(Forecast([LOSES]), open_store([str(laid)])), "1")
    assert (done.returncode == 0) == starts
    assert ("worked out for 5.2.0 to 5.3.3" in done.stderr) != starts


def test_a_release_that_cannot_be_told_is_said(laid: Path, home: Path, bash: Bash) -> None:
    (home / "lib" / "rocketmq-store-5.5.0.jar").unlink()
    done = bash(script_of(laid), "1")
    assert (done.returncode, "is not known" in done.stderr) == (0, True)


def test_releases_that_do_the_same_are_one_way(laid: Path) -> None:
    outcomes = [replace(SAFE, release=era.split()[-1], era=era) for era in ("5.1.0 to 5.1.4", "5.2.0 to 5.3.3")]
    text = script(Forecast(outcomes), open_store([str(laid)]))
    assert "broker_from 5.1.0 5.3.3\n" in text
    assert "\n2 " not in text


# --- a broker that runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["1", "copy"])
def test_nothing_is_done_while_a_process_holds_the_lock(word: str, laid: Path, bash: Bash) -> None:
    text = script_of(laid)
    before = names(laid)
    with other_process(HOLD, laid / "lock") as pid:
        done = bash(text, word, ROCKETMQ_HOME=None)  # the lock is the first that is tested
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"A BROKER RUNS ON THIS STORE (pid {pid} holds the lock): stop it first\n"
    assert names(laid) == before
    assert names(laid.parent) == sorted([os.fsencode(laid.name), b"home", b"start.sh"])
    with other_process(FLOCK, laid / "lock"):  # no broker does that, and it does not keep one from its lock
        assert bash(text, word).returncode == 0


def test_a_broker_that_still_recovers_has_its_lock_open(laid: Path, bash: Bash) -> None:
    with other_process(OPEN, laid / "lock") as pid:
        done = bash(script_of(laid), "1")
    assert f"(pid {pid} has {laid}/lock open)" in done.stderr
    assert done.returncode == 1


def test_a_broker_that_begins_while_the_store_is_copied_is_noticed(laid: Path, bash: Bash, tmp_path: Path) -> None:
    text = script_of(laid, "index/1x")
    # As if the copy took until then: the second test finds what the first one did not.
    text = text.replace("  no_broker  # a copy takes long", '  exec 3<"$store/lock"; no_broker')
    done = bash(text, "2")
    assert (done.returncode, done.stdout, "lock open): stop it first" in done.stderr) == (1, "", True)
    assert names(laid / "index") == [b"1x"]


def test_a_broker_of_a_store_without_a_lock_is_known_by_its_class(laid: Path, bash: Bash) -> None:
    (laid / "lock").unlink()
    segment, word = laid / "commitlog" / ("0" * 20), "org.apache.rocketmq.broker.BrokerStartup"
    with other_process(OPEN, segment, word) as pid:
        done = bash(script_of(laid), "1")
    assert f"(pid {pid} has files of it open)" in done.stderr
    with other_process(OPEN, Path(sys.executable), word):  # the broker of another store
        assert bash(script_of(laid), "1").returncode == 0


def test_a_broker_that_has_just_ended_keeps_nobody_from_a_start(laid: Path, bash: Bash, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    grep = tmp_path / "bin" / "grep"  # finds the broker while it was there; what comes next no longer does
    grep.parent.mkdir()
    grep.write_text(f'#!/bin/sh\n[ "$1" = -las ] && exec echo /proc/{ended.pid}/cmdline\nexec /bin/grep "$@"\n')
    grep.chmod(0o755)
    done = bash(script_of(laid), "copy", PATH=f"{grep.parent}:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")


# --- names ----------------------------------------------------------------------------------------------


def test_files_are_moved_by_every_byte_of_their_names(laid: Path, bash: Bash) -> None:
    log, segment = os.fsencode(laid / "commitlog"), b"0" * 20
    strays = [segment + bytes([byte]) for byte in range(1, 256) if byte != ord("/")]
    strays += [segment + b"\x1b[0m", segment + b"\\x1b[0m", "'\u202e$(reboot)\n".encode(), b"--", b"\n"]
    for name in strays:
        Path(os.fsdecode(log + b"/" + name)).write_bytes(name)
    odd = [oddity.name for oddity in open_store([str(laid)]).oddities if oddity.place[0] == "commitlog"]
    assert len(odd) == len(strays)
    text = script_of(laid, *odd)
    assert text.splitlines() == [escape(line) for line in text.splitlines()]  # a terminal shows what a pipe gets
    done = bash(text, "2", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert names(laid / "commitlog") == [segment]
    moved = laid.with_name(laid.name + ".before-start.moved") / "commitlog"
    assert names(moved) == sorted(strays)
    assert all(Path(os.fsdecode(os.fsencode(moved) + b"/" + name)).read_bytes() == name for name in strays)


def test_the_script_of_a_pipe_and_of_a_file_moves_the_stray_and_no_segment(
    forecast: Run, bash: Bash, home: Path, tmp_path: Path
) -> None:
    (home / "lib" / "rocketmq-store-5.5.0.jar").rename(home / "lib" / "rocketmq-store-4.9.7.jar")
    root = tmp_path / "store\x1b[0m"
    shutil.copytree(sample("healthy-4.9.7"), root)
    segments = names(root / "commitlog")
    stray = segments[0] + b"\x1b[0m"
    (root / "commitlog" / os.fsdecode(stray)).write_bytes(b"x")
    status, piped, _ = forecast(root, "--script", "--broker-version", "4.9.7")
    assert status == 3
    assert forecast(root, "--script", "--broker-version", "4.9.7", "-o", tmp_path / "written.sh")[:2] == (3, "")
    assert (tmp_path / "written.sh").read_text() == piped
    number = next(line[0] for line in bash(piped).stdout.splitlines() if "moved out" in line)
    assert bash(piped, number).stdout.startswith("started")
    assert names(root / "commitlog") == segments
    assert names(tmp_path / "store\x1b[0m.before-start.moved" / "commitlog") == [stray]


# --- what is lost is saved first ----------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store whose start with 5.3.3 loses 145 records."""
    store = tmp_path / "a store"
    shutil.copytree(sample("flipped-bit-5.3.3"), store)
    for path in (store, *store.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return store


@pytest.fixture
def tool(tmp_path: Path) -> str:
    """The program that the script calls."""
    program = tmp_path / "rmqinspect"
    root = Path(__file__).parents[2]
    program.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -m rmqinspect "$@" -j 1\n')
    program.chmod(0o755)
    return str(program)


def test_a_way_that_loses_records_saves_them_before_anything_else(
    damaged: Path, tool: str, home: Path, bash: Bash, forecast: Run
) -> None:
    (home / "lib" / "rocketmq-store-5.5.0.jar").rename(home / "lib" / "rocketmq-store-5.3.3.jar")
    text = forecast(damaged, "--script", "--broker-version", "5.3.3")[1]
    assert "save  saves what start 1 loses" in text
    saved = damaged.with_name("a store.before-start.lost.parquet")
    done = bash(text, "1", RMQINSPECT=tool)
    assert (done.returncode, done.stdout) == (0, f"started -c {home}/b.conf\n"), done.stderr
    assert pq.read_table(saved).num_rows == 145
    again = bash(text, "save", RMQINSPECT=tool)
    assert (again.returncode, "exists already: nothing is overwritten" in again.stderr) == (1, True)
    # A way without a loss needs no program.
    shutil.rmtree(damaged.with_name("a store.before-start"))
    assert bash(text, "2", RMQINSPECT="nowhere").returncode == 0


def test_nothing_is_started_where_what_is_lost_could_not_be_saved(damaged: Path, bash: Bash, forecast: Run) -> None:
    text = forecast(damaged, "--script", "--broker-version", "5.3.3")[1]
    for program in ("no-such-program", "false"):
        done = bash(text, "1", RMQINSPECT=program, BROKER_RELEASE="5.3.3")
        assert (done.returncode, done.stdout) == (1, "")
    assert sorted(path.name for path in damaged.parent.glob("a store*")) == ["a store"]
    assert bash(text, "1", RMQINSPECT="none", BROKER_RELEASE="5.3.3").returncode == 0


def test_a_way_that_changes_files_saves_what_is_lost_after_the_change(laid: Path) -> None:
    loses = replace(LOSES, release="5.5.0", era="5.5.0")
    way = Alternative("another", loses, Remedy(moved=("index/1x",)), is_better=True)
    text = script(Forecast([REFUSES], [way]), open_store([str(laid)]))
    lines = [line.strip() for line in text.partition("1:1)")[2].splitlines()]
    save = lines.index("save_lost --broker-version 5.5.0 --exit unclean")
    assert lines.index("copy_store") < lines.index("move_away index/1x") < save < lines.index("start_broker")


def test_a_flipped_bit_is_set_back_in_the_store_alone(damaged: Path, tool: str, bash: Bash, forecast: Run) -> None:
    text = forecast(damaged, "--script", "--broker-version", "5.3.3")[1]
    (number,) = (line[0] for line in bash(text).stdout.splitlines() if "flipped bit" in line)
    place, name = 31794, f"commitlog/{65536:020}"
    found = (damaged / name).read_bytes()
    done = bash(text, number, RMQINSPECT=tool, BROKER_RELEASE="5.3.3")
    assert done.returncode == 0, done.stderr
    right = (damaged / name).read_bytes()
    assert (found[place], right[place]) == (0x48, 0x68)
    assert right == found[:place] + b"\x68" + found[place + 1 :]
    assert (damaged.with_name("a store.before-start") / name).read_bytes() == found
    shutil.rmtree(damaged.with_name("a store.before-start"))
    again = bash(text, number, RMQINSPECT=tool, BROKER_RELEASE="5.3.3")
    assert (again.returncode, "nothing is written" in again.stderr) == (1, True)


# --- a new store, and edits of configuration files ------------------------------------------------


@pytest.fixture
def maker(tmp_path: Path) -> str:
    """A program that makes a new store as `rebuild` and `salvage` do: TOOL STORE -o NEW --broker-version RELEASE."""
    program = tmp_path / "maker"
    program.write_text('#!/bin/sh\n[ "$6" = 5.5.0 ] && mkdir "$4" && echo "$1" "$2" >"$4/made"\nexit 3\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("command", ["rebuild", "salvage"])
def test_a_new_store_takes_the_place_of_the_old_one(laid: Path, maker: str, bash: Bash, command: str) -> None:
    way = Alternative(f"{command}, then the same broker", SAFE, is_better=True, tool=command)
    text = script(Forecast([LOSES], [way]), open_store([str(laid)]))
    assert f"2     {command}, then the same broker" in bash(text).stdout
    before = {path.relative_to(laid) for path in laid.rglob("*")}
    done = bash(text, "2", RMQINSPECT=maker)
    assert (done.returncode, done.stdout.split()[0]) == (0, "started"), done.stderr
    assert (laid / "made").read_text() == f"{command} {laid}\n"
    assert {path.relative_to(f"{laid}.before-start") for path in Path(f"{laid}.before-start").rglob("*")} == before
    assert not Path(f"{laid}.new").exists()


def test_nothing_is_started_where_no_new_store_was_made(laid: Path, bash: Bash) -> None:
    way = Alternative("rebuild, then the same broker", SAFE, is_better=True, tool="rebuild")
    text = script(Forecast([LOSES], [way]), open_store([str(laid)]))
    for program in ("false", "no-such-program"):
        done = bash(text, "2", RMQINSPECT=program)
        assert (done.returncode, done.stdout) == (1, "")
    assert sorted(path.name for path in laid.parent.glob("a store*")) == [laid.name]


def test_a_new_store_is_not_offered_where_broker_conf_names_folders(laid: Path) -> None:
    way = Alternative("rebuild, then the same broker", SAFE, is_better=True, tool="rebuild")
    store = replace(open_store([str(laid)]), settings={"storePathCommitLog": "/log1,/log2"})
    assert "rebuild, then" not in script(Forecast([LOSES], [way]), store)


@pytest.mark.parametrize("row", ["1:5,2:7", '"1":5,"2":7', '"1" : 5,\n\t\t"2" : 7'])
def test_offsets_of_delay_levels_are_set_back(laid: Path, bash: Bash, row: str) -> None:
    (laid / "config").mkdir()
    file = laid / "config" / "delayOffset.json"
    file.write_text(f'{{"dataVersion":{{"counter":1}},"offsetTable":{{{row}}}}}')
    way = Alternative("levels set back", SAFE, Remedy(levels=((1, 5, 2), (2, 7, 0))), is_better=True)
    text = script(Forecast([LOSES], [way]), open_store([str(laid)]))
    done = bash(text, "2")
    assert done.returncode == 0, done.stderr
    assert file.read_text() == f'{{"dataVersion":{{"counter":1}},"offsetTable":{{{row}}}}}'.replace("5", "2").replace(
        "7", "0"
    )
    shutil.rmtree(f"{laid}.before-start")
    assert "nothing is written" in bash(text, "2").stderr


def test_a_clock_that_ran_ahead_is_set_back(laid: Path, bash: Bash) -> None:
    (laid / "config").mkdir()
    file = laid / "config" / "timercheck"
    file.write_bytes(b"\xff" * 16)
    timer = TimerStart(0, 0, 3, "2050-11-01T08:30:00.000Z", 1_795_250_987_202)
    done = bash(script(Forecast([replace(SAFE, timer=timer)]), open_store([str(laid)])), "2")
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == (1_795_250_987_202).to_bytes(8, "big") + b"\xff" * 8
