"""Many runs: which are wanted, which are there already, and who trains the others."""
