"""What the instructions of a model do, for who writes programs: what they compute, copy, move over the bus and set."""
