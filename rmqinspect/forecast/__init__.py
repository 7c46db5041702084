"""What a broker does to a store at its next start: the walk of load, recovery and dispatch, without a broker."""
