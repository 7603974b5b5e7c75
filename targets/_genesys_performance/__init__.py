"""GeneSys's published performance model: cycles, stalls and accesses of networks on its designs. No target of its own."""
