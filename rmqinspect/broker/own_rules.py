"""What becomes of what a broker keeps for itself, by release: topics that were deleted, delayed messages.

Tables of `broker.rules`.
"""

from rmqinspect.broker.rules import Rule, RuleSet


class TopicRules(RuleSet):
    """What a broker leaves of a topic that topics.json does not name: `broker.lost_topics`."""

    keeps_op_topic = Rule(
        "the queues of RMQ_SYS_TRANS_OP_HALF_TOPIC stay when unused topics are cleaned up",
        "DefaultMessageStore#cleanUnusedTopic",
        (("4.0.0", False), ("4.9.2", True)),
    )
    deletes_offsets = Rule(
        "with a topic the consumer offsets in it are deleted",
        "AdminBrokerProcessor#deleteTopic",
        (("4.0.0", False), ("5.0.0", True)),
    )


class DelayRules(RuleSet):
    """What becomes of delayed messages: `broker.delays`."""

    level_beyond = Rule(
        "the offset of a delay level, beyond the end of its queue",
        "ScheduleMessageService#correctDelayOffset, .DeliverDelayedMessageTimerTask#executeOnTimeup",
        (("4.0.0", "wait"), ("4.9.2", "end")),
        {
            "wait": "it stays: nothing of the level is delivered until its queue has grown that far",
            "end": "it is set to the end of the queue: what waits there is not delivered",
        },
    )
    timer_beyond = Rule(
        "the timer's offset in timercheck, beyond the end of its queue",
        "TimerMessageStore#recover, #enqueue",
        (("4.0.0", "wait"), ("5.3.2", "end")),
        {
            "wait": "it stays: no new timer message is taken until its queue has grown that far",
            "end": "it is set to the end of the queue",
        },
    )
    delete_key = Rule(
        "how TIMER_DEL_UNIQKEY names the message, without the setting appendTopicForTimerDeleteKey (5.4.0)",
        "TimerMessageStore#buildDeleteKey",
        (("4.0.0", "UNIQ_KEY"), ("5.3.2", "REAL_TOPIC+UNIQ_KEY"), ("5.4.0", "UNIQ_KEY")),
        {"UNIQ_KEY": "its UNIQ_KEY", "REAL_TOPIC+UNIQ_KEY": "its real topic, +, its UNIQ_KEY"},
    )
