"""What several impls have in common: checks at bind, packing, products, operator definitions."""
