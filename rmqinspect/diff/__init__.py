"""What two stores differ in: log, records, queues, groups."""
