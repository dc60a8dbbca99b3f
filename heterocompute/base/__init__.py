"""Tools of all other packages: settings of a call, the float environment, checks of arguments, plain files."""
