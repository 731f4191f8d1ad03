"""What production runs: consumes receipts, never benchmarks."""
