"""Results of long work in a file, so that interrupted work continues."""
