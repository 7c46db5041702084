"""Two stores side by side: log, records, queues, groups, topics."""
