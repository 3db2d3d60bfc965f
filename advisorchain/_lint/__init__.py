"""The rules by which `chain.lint()` judges an order."""
