"""Published figures beside the model's: a TOML file for each source, a status computed for each figure."""
