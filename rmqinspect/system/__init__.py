"""This machine and the network: files, URIs, output files, workers, limits."""
