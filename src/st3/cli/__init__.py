"""The command line: it parses options, calls, and prints. Everything it calls can be called from Python."""
