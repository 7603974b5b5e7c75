"""The rounding reading: beside every term a bound of the error that rounding each of its operations makes."""
