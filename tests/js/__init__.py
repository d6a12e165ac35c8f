"""The JavaScript side of the tests: node runs it, pytest starts it."""
