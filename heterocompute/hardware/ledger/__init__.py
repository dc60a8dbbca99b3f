"""Published figures beside what the model gives: a TOML file for each source, a status computed for each figure."""
