"""The native reading: loop code compiled by LLVM."""
