"""Code over blocks of elements by numpy, operator after operator."""
