"""The command line: it parses, calls and prints. What it calls can be called without it."""
