"""Sessions that turn frames into method steps, and the counts of their bytes."""
