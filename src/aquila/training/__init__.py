"""Training of an `nn.Module` on the data of one device: shards, local steps, evaluation."""
