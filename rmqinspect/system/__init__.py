"""The operating system and the network: file systems, output files, threads, limits."""
