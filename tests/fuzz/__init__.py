"""Generated input (tables, command lines, files of a run, arrays), and what must hold whatever it is."""
