"""Sessions that turn frames into method steps, and the ledger that counts their bytes."""
