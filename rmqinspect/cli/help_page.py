"""The options of a `--help` page in groups.

GROUPS is the one list of what stands where. A new option needs one word there: its long name. An option that means
another thing in one command than in the others is listed with it, as `verify:--since`, and there only there.
"""

import click

from rmqinspect.cli import CONTEXT

GROUPS: dict[str, str] = {
    # what one command is about
    "Checks": "--level --check --skip --list-checks --max-findings",
    "Evidence": "--report --from --against verify:--since --reread --hash --evidence --raw --size"
    " --sums --case --examiner",
    "Questions": "--life --pull --offset-by-time --boundary",
    "Numbers": "--by --retention --sample",
    "New store": "--only --prefer --no-repair --set-offsets --link --dry-run",
    "Exported files": "--all --schema --partition-by --file-size --engine --master",
    "Later exports": "--incremental --resume --closed-only --skip-unreadable --replace-changed --overwrite",
    # which rows
    "Selection": "--table show:--at --topic --queue --queue-offset --offset --id --key --tag --property"
    " --body-contains --body-bytes --host --group --state --status --pending --unconsumed --system-topics",
    "Time": "--since --until --time-field --at --anchor --year-month id:--tz",
    "Next start": "--lost-at-start --not-in --broker-version --exit --all-versions --as-copied --explain --script"
    " --replica --salvage",
    # how they are shown, and read
    "Output": "--format --output --limit --columns --body --raw-body --max-body --redact --tz --color --no-pager",
    "Reading": "--stores-from --config --base --carve --trace-topic --scan --rocksdb --rocksdb-copy --jobs --memory"
    " --read-rate --max-config",
    "General": "--fail-on --progress --quiet --verbose --help",
}
"""Heading -> its options. Both stand in this order on every page."""

_NAMES = 30  # cells of the names of an option; the help of one with wider names begins on the next line


def long_name(option: click.Parameter) -> str:
    """Return the name of an option in GROUPS; of a pair of switches the one that turns it on."""
    return max(option.opts, key=len)


def option_groups(command: click.Command) -> dict[str, list[click.Option]]:
    """Return the options of a command by heading; those that are in no group, last, under `Other`."""
    params = command.get_params(click.Context(command, **CONTEXT))  # click keeps the help option that this makes
    left = {long_name(param): param for param in params if isinstance(param, click.Option) and not param.hidden}
    found: dict[str, list[click.Option]] = {}
    special = {name.partition(":")[2] for name in _all_names() if name.startswith(f"{command.name}:")}
    for heading, names in GROUPS.items():
        for name in names.split():
            verb, _, option = name.rpartition(":")
            if option in left and (verb == command.name or (not verb and option not in special)):
                found.setdefault(heading, []).append(left.pop(option))
    return {**found, "Other": list(left.values())} if left else found


def _all_names() -> list[str]:
    return " ".join(GROUPS.values()).split()


class Command(click.Command):
    """A command whose help page lists its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups; the texts of all begin in one column."""
        for heading, options in option_groups(self).items():
            rows = [row for option in options if (row := option.get_help_record(ctx))]
            with formatter.section(heading):
                formatter.write_dl([(f"{names:{_NAMES}}", text) for names, text in rows])
