"""What every room may use: settings of a call, the float environment, values and texts of callers, plain files."""
