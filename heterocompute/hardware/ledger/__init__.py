"""Published figures next to modelled figures: one TOML file per source, one computed status per figure."""
