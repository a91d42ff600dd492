"""How other libraries see our tables. Each module imports its own library; importing this package imports none."""
