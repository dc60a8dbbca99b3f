"""What every other package may use: settings of a call, the float environment, checks of arguments, plain files."""
