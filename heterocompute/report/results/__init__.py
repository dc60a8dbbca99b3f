"""Results of long work: tables that can be shown, saved, loaded, joined and compared."""
