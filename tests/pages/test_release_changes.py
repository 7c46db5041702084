"""What a new broker release needs: methods told apart in Java sources, and the changed ones among those we name."""

import re
import sys
import zipfile
from pathlib import Path

import pytest

from docs.build import release_changes
from docs.build.java_methods import members, tokens_of
from rmqinspect.broker.rules import rules_in
from rmqinspect.broker.start_rules import Rules

OLD = r"""
package org.apache.rocketmq.store;
import com.alibaba.fastjson.JSON;
/** class Comment { void none() {} } */
public class CommitLog implements Swappable<Map<String, List<int[]>>> {
    private static final int BLANK_MAGIC = -875286124, MAX = Math.max(1, 2); // { no brace
    protected final Map<String, Long> table = new HashMap<String, Long>() {{ put("}", 1L); }};
    private final Runnable task = () -> { recover(1); };
    static { init(); }
    public CommitLog(@Named("a(") final int size) throws IOException { super(size); }
    @Override @SuppressWarnings({"unchecked", ";"})
    public boolean recover(long end) { return helper('}') > "\"{".length(); }
    public boolean recover() { return recover(0); }
    private int helper(char c) { class Local { void run() { } } return 1; }
    <T extends Record> T decode(String json) { return JSON.parseObject(json); }
    abstract void open();
    interface Callback { default void done() { again(); } int LIMIT = 8; }
    enum State { READY("r") { void go() { } }, DONE; private final String code = "c"; State(String... code) { } }
    static class Flusher extends Thread { @Override public void run() { } }
}
"""
NEW = (
    OLD.replace("// { no brace", "/* other words */")
    .replace("fastjson", "fastjson2")
    .replace("return 1;", "return 2;")
    .replace("abstract void open();", "")
    .replace("{ recover(1); }", "{\n            recover(1);\n        }")
    .replace("LIMIT = 8", "LIMIT = 9")
)


def test_each_member_belongs_to_the_innermost_class() -> None:
    found = members(OLD)
    assert [key for key, member in found.items() if member.is_method] == [
        "CommitLog#CommitLog",
        "CommitLog#recover",
        "CommitLog#helper",
        "CommitLog#decode",
        "CommitLog#open",
        "Callback#done",
        "State#READY",
        "State#State",
        "Flusher#run",
    ]
    fields = ["CommitLog#BLANK_MAGIC", "CommitLog#MAX", "CommitLog#table", "CommitLog#task", "Callback#LIMIT"]
    fields += ["State#DONE", "State#code"]
    assert [key for key, member in found.items() if not member.is_method] == fields
    assert found["CommitLog#recover"].tokens.count("recover") == 3  # two overloads, one of which calls the other
    assert found["CommitLog#recover"].calls >= {"helper", "length"}
    assert found["CommitLog#table"].tokens[-4:] == [";", "}", "}", ";"]
    assert found["CommitLog#helper"].lines == [
        "    private int helper(char c) { class Local { void run() { } } return 1; }"
    ]


def test_a_literal_is_one_token_and_a_comment_is_none() -> None:
    source = 'a("//", \'"\', """\n  {"\\"} /* */\n""") /* " */ >>= 0x1F_FL; // end'
    assert [token.text for token in tokens_of(source)] == [
        *["a", "(", '"//"', ",", "'\"'", ",", '"""\n  {"\\"} /* */\n"""', ")", ">", ">", "=", "0x1F_FL", ";"]
    ]


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    made = []
    for name, source in (("old", OLD), ("new", NEW)):
        made.append(tmp_path / f"{name}-sources.jar")
        with zipfile.ZipFile(made[-1], "w") as archive:
            archive.writestr("org/apache/rocketmq/store/CommitLog.java", source)
    return made


def test_what_differs_is_listed_with_the_places_that_name_it_and_spaces_and_comments_do_not(jars: list[Path]) -> None:
    old, new = (release_changes.read_jars([jar]) for jar in jars)
    names = ["recover", "decode", "open", "task", "BLANK_MAGIC", "gone"]
    named = {f"CommitLog#{name}": [f"rules.py:{number}"] for number, name in enumerate(names)}
    named["Callback#LIMIT"] = ["rules.py:9"]
    found = list(release_changes.changes(named, old, new))
    assert [(one.key, one.kind, one.called_by, one.named_in) for one in found] == [
        ("Callback#LIMIT", "changed", (), ("rules.py:9",)),
        ("CommitLog#decode", "changed", (), ("rules.py:1",)),
        ("CommitLog#open", "removed", (), ("rules.py:2",)),
        ("CommitLog#helper", "changed", ("CommitLog#recover",), ("rules.py:0",)),
    ]
    assert [line for line in found[-1].diff if "return" in line] == [
        "-    private int helper(char c) { class Local { void run() { } } return 1; }",
        "+    private int helper(char c) { class Local { void run() { } } return 2; }",
    ]
    assert release_changes.unknown(named, old, new) == ["CommitLog#gone"]


def test_the_command_prints_names_or_diffs_and_says_by_its_status_that_there_are_some(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release_changes, "sources", lambda: {"CommitLog#recover": ["a.py:1"]})

    def run(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["release_changes", *map(str, words)])
        return release_changes.main(), capsys.readouterr().out

    assert run("--old", jars[0], "--new", jars[1], "--names") == (3, "changed  CommitLog#helper < CommitLog#recover\n")
    status, printed = run("--old", jars[0], "--new", jars[1])
    assert status == 3 and "named in a.py:1" in printed and "```diff\n@@" in printed
    assert run("--old", jars[0], "--new", jars[0]) == (0, "\n")
    assert run("--old", jars[0].with_name("none.jar"), "--new", jars[0])[0] == 1


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Source: CommitLog#recoverNormally, #recoverAbnormally.", ["recoverNormally", "recoverAbnormally"]),
        ("# CommitLog: mappedFileSize", ["mappedFileSize"]),
        (") # 20  CommitLog.BLANK_MAGIC", ["BLANK_MAGIC"]),
        ("a note: nothing, [x](#name), `#4`", []),
    ],
)
def test_sources_are_named_in_these_ways(line: str, names: list[str]) -> None:
    assert list(release_changes.names_in(line)) == [f"CommitLog#{name}" for name in names]


def test_the_source_of_every_rule_of_a_start_is_among_the_names() -> None:
    named = release_changes.sources()
    assert len(named) > 250
    for rule in rules_in(Rules):
        keys = list(release_changes.names_in(rule.source))
        assert keys or not re.search(r"[A-Z]\w+#", rule.source), rule.name
        assert set(keys) <= named.keys(), rule.name
