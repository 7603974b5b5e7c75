"""Learning of laws: vocabulary, neighbourhoods, reduction."""
