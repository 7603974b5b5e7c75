"""The oracle: loop code as Python source over exact integers."""
