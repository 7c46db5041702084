"""`-f openmetrics`: read by the parsers of both text formats, with the numbers of the commands."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from rmqinspect.output.openmetrics import FAMILIES, Sample, metrics_text
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner(after=["-j", "1"])
STORE = sample("healthy-4.9.7")
Values = dict[tuple[str, ...], float]


def parsed(text: str) -> dict[str, Values]:
    """Return the values by family and labels, `store` first, which both parsers read alike."""
    found: list[dict[str, Values]] = []
    for parse in (openmetrics, prometheus):
        families = list(parse(text))
        assert {family.type for family in families} == {"gauge"}
        found.append({family.name: {} for family in families})
        for family in families:
            for one in family.samples:
                store = one.labels.pop("store")
                found[-1][family.name][store, *one.labels.values()] = one.value
    assert found[0] == found[1]
    assert text.endswith("# EOF\n")
    assert found[0].keys() <= FAMILIES.keys()
    return found[0]


def test_verify_gives_verdict_findings_and_next_start(run: Run, tmp_path: Path) -> None:
    damaged = oracle.store("crash", "flip_body_12th-5.5.0-L")
    status, text, _ = run("verify", damaged, "-f", "openmetrics", "--report", tmp_path / "report")
    found = parsed(text)
    assert status == 3
    assert found["rmqinspect_verify_verdict"] == {
        ("store", "WHOLE"): 0,
        ("store", "DAMAGED"): 1,
        ("store", "INCOMPLETE"): 0,
    }
    report = json.loads((tmp_path / "report").read_text())
    assert {labels[1]: value for labels, value in found["rmqinspect_verify_findings"].items()} == report["counts"]
    assert found["rmqinspect_verify_errors"] == {("store",): report["errors"]}
    assert sum(found["rmqinspect_forecast_verdict"].values()) == 1
    assert found["rmqinspect_run_complete"] == {("store", "verify"): 1}


def test_forecast_gives_the_messages_at_risk(run: Run) -> None:
    store = oracle.store("crash", "flip_body_12th-5.5.0-L")
    document = json.loads(run("forecast", store, "-f", "json")[1])
    found = parsed(run("forecast", store, "-f", "openmetrics")[1])
    chosen = [labels[1] for labels, value in found["rmqinspect_forecast_verdict"].items() if value]
    assert chosen == [document["verdict"]]
    at_risk = found["rmqinspect_forecast_messages_at_risk"][("store",)]
    assert at_risk == sum(found.get("rmqinspect_forecast_topic_messages_at_risk", {}).values())


def test_groups_and_usage_give_sums_of_their_rows(run: Run) -> None:
    broker = oracle.store("broker", "main-5.3.3")
    rows = json.loads(run("groups", broker, "-f", "json")[1])["rows"]
    found = parsed(run("groups", broker, "-f", "openmetrics")[1])
    assert rows
    assert sum(found["rmqinspect_group_lag_messages"].values()) == sum(row["lag"] or 0 for row in rows)
    assert {labels[0] for labels in found["rmqinspect_group_lag_messages"]} == {"store"}
    without = parsed(run("groups", STORE, "-f", "openmetrics")[1])
    assert without["rmqinspect_run_complete"] == {(STORE.name, "groups"): 1}
    rows = json.loads(run("usage", STORE, "-f", "json", "--by", "topic")[1])["rows"]
    found = parsed(run("usage", f"night={STORE}", "-f", "openmetrics")[1])
    assert found["rmqinspect_topic_bytes"] == {("night", row["value"]): row["bytes"] for row in rows}


def test_a_file_of_an_earlier_run_is_replaced_and_no_other(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rmqinspect.prom"
    assert run("usage", STORE, "-o", path)[0] == 0
    assert run("usage", STORE, "-o", path)[0] == 0  # by the suffix
    assert run("verify", STORE, "-f", "openmetrics", "-o", path)[0] == 0
    assert parsed(path.read_text())["rmqinspect_verify_errors"]
    assert run("forecast", STORE, "-o", path)[0] == 0
    assert parsed(path.read_text())["rmqinspect_forecast_verdict"]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    path.write_text("precious")
    for command in ("usage", "groups", "verify", "forecast"):
        status, _, told = run(command, STORE, "-f", "openmetrics", "-o", path)
        assert (status, path.read_text()) == (6, "precious")
        assert "nothing is overwritten" in told
    path.unlink()
    path.symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("# HELP rmqinspect_x")
    assert run("usage", STORE, "-o", path)[0] == 6


def test_hostile_names_stay_inside_their_labels() -> None:
    name = 'a"} 1\nrmqinspect_verify_errors{store="b"} 7\n# EOF\\\r\u2028\x00'
    text = metrics_text([Sample("rmqinspect_topic_bytes", name, 1, (name,))]).decode()
    families = openmetrics(text)  # type: ignore[no-untyped-call]
    assert [one.labels for family in families for one in family.samples] == [{"store": name, "topic": name}]
    assert text.count("\n") == 4


def test_a_missing_library_is_told_before_anything_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for command in ("usage", "groups", "verify", "forecast"):
        status, _, told = run(command, STORE, "-f", "openmetrics")
        assert status == 2
        assert "pip install '.[metrics]'" in " ".join(told.split())


def test_the_page_lists_each_metric_and_its_alerts_name_only_these() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = [
        f"| `{name}` | {', '.join(('store', *family.labels))} | {family.meaning} |" for name, family in FAMILIES.items()
    ]
    assert re.findall(r"^\| `.*$", page, re.MULTILINE) == rows
    named = re.findall(r"\brmqinspect_[a-z_]+(?=\{|\s*[>=])", page.partition("## Three alerts")[2])
    assert len(set(named)) == 5
    assert set(named) <= FAMILIES.keys()


def test_each_family_is_gauge_by_its_name_too() -> None:
    """Suffixes of counters, histograms and infos have a meaning in OpenMetrics."""
    reserved = ("_total", "_created", "_bucket", "_count", "_sum", "_info")
    assert [name for name in FAMILIES if name.endswith(reserved)] == []


def test_the_nightly_script_and_the_rules_are_well_formed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    script = re.findall(r"```sh\n(#!/bin/sh.*?)```", page, re.DOTALL)[0]
    assert subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""
    rules = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])["groups"][0]["rules"]
    assert len(rules) == 4
    for rule in rules:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()


@pytest.mark.parametrize("command", ["verify", "forecast"])
def test_several_stores_are_in_one_file_and_one_that_fails_is_incomplete(
    run: Run, tmp_path: Path, command: str
) -> None:
    given = [f"a={STORE}", f"b={sample('flipped-bit-5.3.3')}", f"c={tmp_path / 'absent'}"]
    status, _, _ = run(command, *given, "-o", tmp_path / "fleet.prom", "-q")
    found = parsed((tmp_path / "fleet.prom").read_text())
    assert status == 3  # damage is worse than a store that is not there
    assert found["rmqinspect_run_complete"] == {("a", command): 1, ("b", command): 1, ("c", command): 0}
    alone = parsed(run(command, given[1], "-f", "openmetrics")[1])
    for name in found.keys() - {"rmqinspect_run_timestamp_seconds"}:
        values = {labels[1:]: value for labels, value in found[name].items() if labels[0] == "b"}
        assert values == {labels[1:]: value for labels, value in alone.get(name, {}).items()}
