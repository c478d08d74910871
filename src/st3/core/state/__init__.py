"""What is kept per weight, in the optimizer's state."""
