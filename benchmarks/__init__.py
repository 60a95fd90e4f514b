"""What is measured, and how: run from the checkout, e.g. `python -m benchmarks.footprint`."""
