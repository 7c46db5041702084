"""When a broker last did anything, by its own files; and a timer whose clock ran ahead of the log.

    last record     09:00                     the log's last record was stored then
    timercheck      09:00:04                  the timer has fired up to here: "now" of the store
    timercheck      2050-11-01                a wrong clock: the broker was not there yet, so it is not "now"

A delivered timer message is a record of the log. So a timer that has fired for more than a day beyond the last record
had nothing to deliver in that time, or its clock ran ahead. In both cases it goes on from there: until that time comes
no broker delivers anything of its wheel.

Source: TimerMessageStore#recover, #dequeue (currReadTimeMs against currWriteTimeMs), TimerCheckpoint; RocketMQ 5.0.0 to
5.5.0, and what a 5.3.3 broker did: in 30 s it delivered nothing; with the time set back it delivered each message once;
without the file it delivered all again.
"""

DAY = 86_400_000  # ms


def runs_ahead(last_record: int | None, fired: int) -> bool:
    """Return whether a timer has fired for more than a day beyond the log's last record; times in ms."""
    return bool(last_record) and fired > (last_record or 0) + DAY


def last_activity(last_record: int | None, fired: int) -> int:
    """Return the last time (ms) at which a broker did anything; 0 if nothing tells.

    `fired`: up to where the timer has fired, 0 if that is not known. One that runs ahead of the log tells nothing.
    """
    if runs_ahead(last_record, fired):
        return last_record or 0
    return max(last_record or 0, fired)


def octal_bytes(time: int) -> str:
    """Return the bytes of a time in ms in timercheck, as printf takes them."""
    return "".join(f"\\{byte:03o}" for byte in time.to_bytes(8, "big"))


def set_back(last_record: int) -> str:
    """Return what brings a timer back that ran ahead, in words: nothing is delivered twice by it."""
    return (
        "with the broker stopped, set the first eight bytes of config/timercheck to the store time of the log's last "
        f"record, {last_record} ms (0x{last_record:016x}): printf '{octal_bytes(last_record)}' | dd "
        "of=config/timercheck bs=8 count=1 conv=notrunc. Do not delete the file: all timer messages that are still in "
        "the log would be delivered again"
    )
