"""Templates of the skeletons that `flexmatch init` writes: files with $name and $test in place of their names."""
