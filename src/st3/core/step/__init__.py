"""What happens around one call of `optimizer.step`."""
