"""Sparsity on any nn.Module while it trains; needs torch and numpy only."""
