"""Advice on which method to use, from committed results and arithmetic."""
